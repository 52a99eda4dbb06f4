# SPDX-License-Identifier: Apache-2.0
"""Schemes in which nobody waits for another one's computation, over real agents."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradlane import AgentError, Communicator
from gradlane.sync import AdPsgd, RFast, Ringmaster, Scheme, Synchroniser
from tests.support.agents import Agent
from tests.support.communicators import Ranks, each, job_file, joined

COUNT = 500
TARGETS = np.random.default_rng(3).standard_normal((4, COUNT))
SCHEMES = [AdPsgd(1), Ringmaster(8), RFast()]


def made(ranks: Ranks, weights: list[np.ndarray], scheme: Scheme) -> list[Synchroniser]:
    return each(ranks, lambda c: Synchroniser(c, [weights[c.rank], weights[c.rank][:3].astype(np.float32)], scheme))


def ended(synchroniser: Synchroniser) -> None:
    synchroniser.average()
    synchroniser.close()


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_all_learn_the_same(hosts: list[Agent], tmp_path: Path, size: int, scheme: Scheme) -> None:
    """They take different numbers of steps, and one that ends serves the others. Afterwards the job goes on."""
    weights = [np.zeros(COUNT) for _ in range(size)]

    def train(it: tuple[int, Synchroniser]) -> None:
        rank, synchroniser = it
        random = np.random.default_rng(rank)
        for _ in range(100 + 20 * rank):
            time.sleep(0.01)  # the computation
            weights[rank] += 0.05 * (TARGETS[0] + random.standard_normal(COUNT) - weights[rank])
            synchroniser.step()
        ended(synchroniser)

    with joined(hosts, job_file(tmp_path, size), size) as ranks:
        each(list(enumerate(made(ranks, weights, scheme))), train)
        assert each(ranks, lambda c: int(c.all_reduce(np.ones(1), op="sum")[0])) == [size] * size
        again = made(ranks, weights, scheme)  # another model, of the same sizes
        each(again, Synchroniser.step)
        each(again, ended)
    for own in weights:
        assert np.abs(own - weights[0]).max() < 1e-9
        assert np.abs(own - TARGETS[0]).mean() < 0.2


@pytest.mark.timed
@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_a_slow_worker_does_not_slow_others(hosts: list[Agent], tmp_path: Path, scheme: Scheme) -> None:
    """It computes five times as long, and has made few steps when the others have made theirs."""
    weights = [np.zeros(COUNT) for _ in range(4)]
    over: list[int] = []

    def train(it: tuple[int, Synchroniser]) -> int:
        rank, synchroniser = it
        steps = 0
        while len(over) < 3 and (rank == 3 or steps < 40):
            time.sleep(0.1 if rank == 3 else 0.02)
            weights[rank] += 0.1 * (TARGETS[rank] - weights[rank])
            synchroniser.step()
            steps += 1
        over.append(rank)
        synchroniser.close()
        return steps

    with joined(hosts, job_file(tmp_path, 4), 4) as ranks:
        steps = each(list(enumerate(made(ranks, weights, scheme))), train)
    assert steps[:3] == [40] * 3
    assert 0 < steps[3] < 25


def test_pairs_keep_the_mean_and_bring_workers_together(hosts: list[Agent], tmp_path: Path) -> None:
    weights = [np.zeros(COUNT) for _ in range(4)]

    def train(it: tuple[int, Synchroniser]) -> np.ndarray:
        rank, synchroniser = it
        for _ in range(15):
            time.sleep(0.02)
            synchroniser.step()
        synchroniser.settle()
        before = weights[rank].copy()
        ended(synchroniser)
        return before

    with joined(hosts, job_file(tmp_path, 4), 4) as ranks:
        synchronisers = made(ranks, weights, AdPsgd())
        for own, target in zip(weights, TARGETS, strict=True):
            own[:] = target
        before = each(list(enumerate(synchronisers)), train)
    for own in weights:
        np.testing.assert_allclose(own, TARGETS.mean(axis=0), atol=1e-12)
    assert np.std(before, axis=0).max() < 0.2 * np.std(TARGETS, axis=0).max()


@pytest.mark.parametrize(("staleness", "applied"), [(4, [0, 1, 2, 3]), (1, [0])])
def test_ringmaster_applies_what_is_not_too_old_to_what_the_server_has(
    hosts: list[Agent], tmp_path: Path, staleness: int, applied: list[int]
) -> None:
    """Workers step by turns, so each is three changes behind, if all of these were applied."""
    weights = [np.zeros(COUNT) for _ in range(4)]
    with joined(hosts, job_file(tmp_path, 4), 4) as ranks:
        synchronisers = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], Ringmaster(staleness)))
        each(synchronisers, Synchroniser.step)  # the first compares schemes, and so all take it at once
        for worker in (1, 2, 3, 0, 0, 1, 2, 3):  # then worker 0 has the latest first, and each is three behind
            synchronisers[worker].step()
        server = np.zeros(COUNT)
        for _ in range(3):
            for worker in range(4):
                change = 0.1 * (TARGETS[worker] - weights[worker])
                weights[worker] += change
                synchronisers[worker].step()
                server += change if worker in applied else 0
                np.testing.assert_allclose(weights[worker], server, atol=1e-12)
        each(synchronisers, ended)
    for own in weights:
        np.testing.assert_array_equal(own, weights[0])
        np.testing.assert_allclose(own, server, atol=1e-12)


def test_ringmasters_server_adds_up_changes_of_narrow_parameters_without_their_rounding(
    hosts: list[Agent], tmp_path: Path
) -> None:
    weights = [np.empty(COUNT, np.float16) for _ in range(3)]
    weights[0][:] = TARGETS[0]
    server = weights[0].astype(np.float32)
    with joined(hosts, job_file(tmp_path, 3), 3) as ranks:
        synchronisers = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], Ringmaster(16)))
        each(synchronisers, Synchroniser.step)
        for _ in range(5):
            for own, target, synchroniser in zip(weights, TARGETS, synchronisers, strict=False):
                before = own.astype(np.float32)
                own[:] = own + 0.3 * (target - own)
                server += own - before
                synchroniser.step()
                np.testing.assert_array_equal(own, server.astype(np.float16))
        held = synchronisers[0].state_dict()["arrays"]["float32"]["server"]
        np.testing.assert_allclose(held, server, atol=1e-6)
        each(synchronisers, ended)


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_a_restored_run_goes_on_where_it_was(hosts: list[Agent], tmp_path: Path, scheme: Scheme) -> None:
    weights = [np.zeros(COUNT) for _ in range(3)]

    def train(it: tuple[int, Synchroniser]) -> None:
        rank, synchroniser = it
        for _ in range(10 if rank == 1 else 20):  # AD-PSGD's worker 1 has averages that came after its last step
            time.sleep(0.01)
            weights[rank] += 0.1 * (TARGETS[rank] - weights[rank])
            synchroniser.step()
        synchroniser.settle()

    def restored(it: tuple[int, Synchroniser, Any]) -> None:
        rank, synchroniser, state = it
        weights[rank][:] = kept[rank]
        synchroniser.load_state_dict(state)

    file = job_file(tmp_path, 3)
    with joined(hosts, file, 3) as ranks:
        synchronisers = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], scheme))
        each(list(enumerate(synchronisers)), train)
        states = each(synchronisers, Synchroniser.state_dict)
        kept = [own.copy() for own in weights]
        each(synchronisers, Synchroniser.close)
    for own in weights:
        own[:] = 99
    with joined(hosts, file, 3) as ranks:
        synchronisers = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], scheme))
        each(list(zip(range(3), synchronisers, states, strict=True)), restored)
        each(synchronisers, Synchroniser.step)  # of no change
        each(synchronisers, Synchroniser.settle)
        for own, before in zip(weights, kept, strict=True):
            if isinstance(scheme, Ringmaster):
                np.testing.assert_allclose(own, states[0]["arrays"]["float64"]["server"], atol=1e-12)
            else:
                assert np.abs(own - before).mean() < 0.5
        if isinstance(scheme, RFast):
            with pytest.raises(ValueError, match="before its first step only"):
                synchronisers[0].load_state_dict(states[0])
        each(synchronisers, ended)
    if isinstance(scheme, AdPsgd):  # all of whose averages keep the mean
        has = [kept[0], states[1]["arrays"]["float64"]["own"], kept[2]]
        assert np.abs(has[1] - kept[1]).mean() > 0.01
        np.testing.assert_allclose(weights[0], np.mean(has, axis=0), atol=1e-12)


def test_several_processes_on_a_host_are_refused(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 1, 2), 1, 2) as ranks:

        def refused(c: Communicator) -> None:
            for scheme in SCHEMES:
                with pytest.raises(ValueError, match="one process on each host"):
                    Synchroniser(c, [np.zeros(1)], scheme)

        each(ranks, refused)


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_a_worker_that_dies_is_named_to_those_who_serve_it(hosts: list[Agent], tmp_path: Path, scheme: Scheme) -> None:
    """They have closed, and would wait for it for ever."""
    weights = [np.zeros(COUNT) for _ in range(2)]
    file = job_file(tmp_path, 2)
    ranks = each(range(2), lambda rank: Communicator(file, rank, hosts[rank].socket))
    synchronisers = made(ranks, weights, scheme)
    each(synchronisers, Synchroniser.step)
    server = 1 if isinstance(scheme, AdPsgd) else 0

    def ends(it: tuple[int, Synchroniser]) -> str:
        rank, synchroniser = it
        if rank != server:
            ranks[rank].connection.link.close()  # without a word, as of a process that ends by an exception
            return ""
        with pytest.raises(AgentError) as error:
            synchroniser.close()
        return str(error.value)

    assert f"rank {1 - server} " in each(list(enumerate(synchronisers)), ends)[server]
