# SPDX-License-Identifier: Apache-2.0
"""Schemes with numpy arrays over real agents on loopback addresses, against the schemes' definitions."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradlane import AgentError, Communicator
from gradlane.job import JobError
from gradlane.sync import AdPsgd, DsSync, LocalSgd, RFast, Ringmaster, Scheme, Synchroniser
from gradlane.sync.schedule import SCHEDULES, mixing_matrix, pairs
from tests.support.agents import Agent, until
from tests.support.communicators import Ranks, each, job_file, joined

TRUTH = np.linspace(-1, 1, 20)


def made(ranks: Ranks, weights: list[list[np.ndarray]], scheme: Scheme | str | None) -> list[Synchroniser]:
    return each(ranks, lambda c: Synchroniser(c, weights[c.rank], scheme))


def local_step(rank: int, step: int, weights: list[np.ndarray], rate: float = 0.1) -> None:
    """Of linear regression, on inputs of the rank's own; the weights are in several arrays of different types."""
    inputs = np.random.default_rng([rank, step]).standard_normal((32, TRUTH.size))
    flat = np.concatenate([array.ravel() for array in weights])
    gradient = inputs.T @ (inputs @ (flat - TRUTH)) / len(inputs)
    for array in weights:
        own, gradient = np.split(gradient, [array.size])
        array[...] -= (rate * own).reshape(array.shape).astype(array.dtype)


def zeros(rank: int) -> list[np.ndarray]:
    """Rank 0's are what all begin with."""
    return [np.full((2, 5), float(rank), np.float32), np.full(4, float(rank)), np.full(6, float(rank), np.float32)]


def distance(weights: list[list[np.ndarray]]) -> float:
    """The largest between any two workers' parameters."""
    flat = [np.concatenate([array.ravel() for array in own]) for own in weights]
    return max(float(np.abs(a - b).max()) for a in flat for b in flat)


def error(weights: list[np.ndarray]) -> float:
    return float(np.abs(np.concatenate([array.ravel() for array in weights]) - TRUTH).max())


@pytest.mark.parametrize(("machines", "processes"), [(3, 1), (4, 1), (2, 2)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_workers_of_ds_sync_learn_the_same(
    hosts: list[Agent], tmp_path: Path, machines: int, processes: int, schedule: str
) -> None:
    size = machines * processes
    weights = [zeros(rank) for rank in range(size)]

    def train(it: tuple[int, Synchroniser]) -> None:
        rank, synchroniser = it
        for step in range(60):
            local_step(rank, step, weights[rank])
            synchroniser.step()

    with joined(hosts, job_file(tmp_path, machines, processes), machines, processes) as ranks:
        synchronisers = made(ranks, weights, DsSync(schedule))
        assert distance(weights) == 0
        each(list(enumerate(synchronisers)), train)
        for own in weights:
            assert error(own) < 0.02
        apart = distance(weights)
        assert apart < 0.02
        each(synchronisers, Synchroniser.average)
        assert distance(weights) == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_step_mixes_as_the_schedule_says_and_a_period_brings_workers_together(
    hosts: list[Agent], tmp_path: Path, schedule: str
) -> None:
    """Three workers, of which a grid leaves one alone in each step."""
    plan = SCHEDULES[schedule](3)
    random = np.random.default_rng(5)
    weights = [[random.standard_normal(1000)] for _ in range(3)]
    with joined(hosts, job_file(tmp_path, 3), 3) as ranks:
        synchronisers = made(ranks, weights, DsSync(schedule))
        for own in weights:
            own[0][:] = random.standard_normal(1000)
        first = distance(weights)
        expected = np.stack([own[0] for own in weights])
        for step in range(2 * plan.period):
            each(synchronisers, Synchroniser.step)
            expected = mixing_matrix(plan.partitions[step % len(plan.partitions)], 3) @ expected
            np.testing.assert_allclose(np.stack([own[0] for own in weights]), expected, rtol=1e-12, atol=1e-12)
        assert distance(weights) < first / 4
        np.testing.assert_allclose(np.mean([own[0] for own in weights], axis=0), expected.mean(axis=0), atol=1e-12)


def outer(every: int, rate: float, momentum: float, size: int, steps: int) -> np.ndarray:
    """DiLoCo as its paper has it, with torch's Nesterov momentum."""
    start = np.zeros(TRUTH.size)
    velocity = np.zeros_like(start)
    own = [start.copy() for _ in range(size)]
    for step in range(steps):
        for rank in range(size):
            local_step(rank, step, [own[rank]])
        if (step + 1) % every == 0:
            gradient = start - np.mean(own, axis=0)
            velocity = momentum * velocity + gradient
            start = start - rate * (gradient + momentum * velocity)
            own = [start.copy() for _ in range(size)]
    return np.stack(own)


@pytest.mark.parametrize(("rate", "momentum"), [(1.0, 0.0), (0.7, 0.9)])
def test_local_sgd_and_diloco_are_what_they_are_defined_as(
    hosts: list[Agent], tmp_path: Path, rate: float, momentum: float
) -> None:
    weights = [[np.full(TRUTH.size, float(rank))] for rank in range(3)]
    with joined(hosts, job_file(tmp_path, 3), 3) as ranks:
        synchronisers = made(ranks, weights, LocalSgd(4, rate, momentum))
        submitted = ranks[1].statistics()["submitted"]

        def train(it: tuple[int, Synchroniser]) -> None:
            for step in range(18):
                local_step(it[0], step, weights[it[0]])
                it[1].step()

        each(list(enumerate(synchronisers)), train)
        sent = ranks[1].statistics()["submitted"] - submitted
    assert sent == 18 // 4 + 1, "an exchange every four steps, and one to agree on the scheme"
    np.testing.assert_allclose(np.stack([own[0] for own in weights]), outer(4, rate, momentum, 3, 18), atol=1e-9)


def test_changes_may_be_lost_within_the_tolerance_and_are_made_up_for(hosts: list[Agent], tmp_path: Path) -> None:
    """Narrow floats, and a checkpoint that has what is owed. Nothing is lost on loopback, so it is put there."""
    weights = [[np.zeros(4000, np.float32)] for _ in range(2)]
    file = job_file(tmp_path, 2, transport='wire = "bfloat16"', loss="push = 0.1")
    with joined(hosts, file, 2) as ranks:
        synchronisers = made(ranks, weights, LocalSgd(1))
        state = each(synchronisers, Synchroniser.state_dict)[0]
        assert not state["arrays"]["float32"]["owed"].any()
        state["arrays"]["float32"]["owed"][:] = 0.5
        synchronisers[0].load_state_dict(state)
        assert (synchronisers[0].state_dict()["arrays"]["float32"]["owed"] == 0.5).all()
        weights[0][0] -= 1
        weights[1][0] += 3
        each(synchronisers, Synchroniser.step)
        assert not synchronisers[0].state_dict()["arrays"]["float32"]["owed"].any()
    for own in weights:
        np.testing.assert_array_equal(own[0], np.float32(1 - 0.25))


def test_an_average_behind_the_computation_does_not_wait_for_the_next_gradient(
    hosts: list[Agent], tmp_path: Path
) -> None:
    """x becomes the mean of a group's x less the step from x; at the end the mean of what all have then."""
    scheme, plan = DsSync("pairs", 1), pairs(3)
    weights = [[np.full(TRUTH.size, float(rank))] for rank in range(3)]
    partitions = [plan.partitions[step % len(plan.partitions)] for step in range(9)]
    expected = np.zeros((3, TRUTH.size))
    with joined(hosts, job_file(tmp_path, 3), 3) as ranks:
        synchronisers = made(ranks, weights, scheme)

        def train(it: tuple[int, Synchroniser]) -> None:
            for step in range(9):
                local_step(it[0], step, weights[it[0]])
                it[1].step()
            it[1].settle()

        each(list(enumerate(synchronisers)), train)
        for step in range(9):
            mixed = mixing_matrix(partitions[step - 1], 3) @ expected if step else expected.copy()
            for rank in range(3):
                own = expected[rank].copy()
                local_step(rank, step, [own])
                mixed[rank] += own - expected[rank]
            expected = mixed
        expected = mixing_matrix(partitions[8], 3) @ expected
        np.testing.assert_allclose(np.stack([own[0] for own in weights]), expected, atol=1e-12)
        each(list(enumerate(synchronisers)), train)
        each(synchronisers, Synchroniser.average)
        assert distance(weights) == 0


def test_behind_the_computation_a_worker_goes_on_while_its_partner_is_late(hosts: list[Agent], tmp_path: Path) -> None:
    """By one step, and not by two."""
    weights = [[np.zeros(1000)] for _ in range(2)]
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks, ThreadPoolExecutor(1) as pool:
        first, second = made(ranks, weights, DsSync("pairs", 1))
        beginning = pool.submit(second.step)
        first.step()
        beginning.result(60)
        weights[0][0] += 4
        ahead = pool.submit(lambda: [first.step() for _ in range(2)])
        time.sleep(0.5)
        assert not ahead.done()
        assert (weights[0][0] == 4).all()
        second.step()
        ahead.result(60)
        assert (weights[0][0] == 2).all()
        second.step()
        each([first, second], Synchroniser.settle)
    assert all((own[0] == 2).all() for own in weights)


@pytest.mark.parametrize("scheme", [DsSync("pairs"), LocalSgd(3, 0.7, 0.9), LocalSgd(4, 0.7, 0.9, 2, 2, 0.5)])
def test_a_restored_run_equals_an_uninterrupted_one(hosts: list[Agent], tmp_path: Path, scheme: Scheme) -> None:
    weights = [zeros(rank) for rank in range(3)]

    def train(synchronisers: list[Synchroniser], steps: range) -> None:
        def own(it: tuple[int, Synchroniser]) -> None:
            for step in steps:
                local_step(it[0], step, weights[it[0]])
                it[1].step()

        each(list(enumerate(synchronisers)), own)

    def begin(ranks: Ranks) -> list[Synchroniser]:
        for rank, own in enumerate(weights):
            for array, fresh in zip(own, zeros(rank), strict=True):
                array[:] = fresh
        return made(ranks, weights, scheme)

    file = job_file(tmp_path, 3)
    with joined(hosts, file, 3) as ranks:
        synchronisers = begin(ranks)
        train(synchronisers, range(5))
        each(synchronisers, Synchroniser.state_dict)  # which settles
        train(synchronisers, range(5, 11))
    expected = [[array.copy() for array in own] for own in weights]
    with joined(hosts, file, 3) as ranks:
        synchronisers = begin(ranks)
        train(synchronisers, range(5))
        states = each(synchronisers, Synchroniser.state_dict)
        kept = [[array.copy() for array in own] for own in weights]
    with joined(hosts, file, 3) as ranks:
        synchronisers = begin(ranks)
        for own, saved, synchroniser, state in zip(weights, kept, synchronisers, states, strict=True):
            for array, old in zip(own, saved, strict=True):
                array[:] = old
            synchroniser.load_state_dict(state)
        train(synchronisers, range(5, 11))
    for own, wanted in zip(weights, expected, strict=True):
        for array, other in zip(own, wanted, strict=True):
            np.testing.assert_array_equal(array, other)


def test_a_group_waits_for_its_members_alone(hosts: list[Agent], tmp_path: Path) -> None:
    """Pairs of four: while worker 3 does not come, its partner waits, and in the same step the other pair goes on.

    The arrays are larger than what travels at once.
    """
    weights = [[np.full(3_000_000, float(rank), np.float32)] for rank in range(4)]
    late = threading.Event()
    with joined(hosts, job_file(tmp_path, 4), 4) as ranks, ThreadPoolExecutor(4) as pool:
        synchronisers = made(ranks, weights, "ds-sync")  # in a grid, too, groups of four workers are pairs
        each(synchronisers, Synchroniser.step)
        each(synchronisers, Synchroniser.step)
        for rank, own in enumerate(weights):
            own[0][:] = rank

        done: list[tuple[int, int]] = []  # (worker, step)

        def train(rank: int) -> None:
            if rank == 3:
                assert late.wait(60)
            for step in range(2):
                synchronisers[rank].step()
                done.append((rank, step))

        training = [pool.submit(train, rank) for rank in range(4)]
        until(lambda: len(done) >= 2)
        time.sleep(0.5)
        assert sorted(done) == [(0, 0), (1, 0)]
        # They wait in their second step now, and yet are there for others.
        sums = each(ranks[:2], lambda c: c.group([0, 1]).all_reduce(np.ones(1000)).sum())
        assert sums == [1000, 1000]
        late.set()
        for one in training:
            one.result(60)
    for own in weights:
        assert (own[0] == 1.5).all()


@pytest.mark.parametrize(
    ("machines", "scheme", "steps", "volume"),
    [
        (4, DsSync("grid"), 2, 2 * 1.0),
        (3, DsSync("pairs"), 2, 2 * 2 * 2 / 3),
        (4, DsSync("pairs"), 2, 2 * 1.0),
        (4, LocalSgd(3), 6, 2 * 2 * 3 / 4),
    ],
)
def test_a_worker_sends_what_the_scheme_says(
    hosts: list[Agent], tmp_path: Path, machines: int, scheme: Scheme, steps: int, volume: float
) -> None:
    """In multiples of its parameters."""
    weights = [[np.zeros(500_000, np.float32)] for _ in range(machines)]
    with joined(hosts, job_file(tmp_path, machines, transport="slice_bytes = 8000"), machines) as ranks:
        synchronisers = made(ranks, weights, scheme)
        each(ranks, Communicator.barrier)
        before = [c.statistics()["slices_sent"] for c in ranks]
        each(synchronisers, lambda s: [s.step() for _ in range(steps)])
        each(synchronisers, Synchroniser.settle)
        for c, was in zip(ranks, before, strict=True):
            assert (c.statistics()["slices_sent"] - was) * 8000 == pytest.approx(volume * 2_000_000, rel=0.05)


def test_workers_that_are_not_alike_are_told_so(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:

        def refused(schemes: list[Any], shapes: list[int], steps: list[int], words: str) -> None:
            def begin(c: Communicator) -> None:
                name = f"{words} {schemes}"
                synchroniser = Synchroniser(c, [np.zeros(1), np.zeros(shapes[c.rank])], schemes[c.rank], name)
                synchroniser.load_state_dict({**synchroniser.state_dict(), "step": steps[c.rank]})
                with pytest.raises(ValueError, match=f"rank 0 and ranks .1. have different {words}"):
                    synchroniser.step()

            each(ranks, begin)

        refused([DsSync("grid"), DsSync("pairs")], [3, 3], [0, 0], "schemes")
        refused([DsSync("grid"), DsSync("grid")], [0, 0], [4, 3], "steps")


def test_the_scheme_comes_from_the_job_file_or_an_argument(hosts: list[Agent], tmp_path: Path) -> None:
    sync = '[sync]\nscheme = "diloco"\nevery = 30\nouter_rate = 0.5\n'
    file = job_file(tmp_path, 1, loss=f"push = 0.0\n{sync}")
    with joined(hosts, file, 1) as (c,):
        assert Synchroniser(c, [np.zeros(1)], name="a").scheme == LocalSgd(30, 0.5, 0.9)
        assert Synchroniser(c, [np.zeros(1)], "ds-sync", "b").scheme == DsSync("grid")
        assert Synchroniser(c, [np.zeros(1)], "local-sgd", "c").scheme == LocalSgd(8, 1.0, 0.0)
        assert Synchroniser(c, [np.zeros(1)], "ad-psgd", "f").scheme == AdPsgd(0)
        assert Synchroniser(c, [np.zeros(1)], "ringmaster", "g").scheme == Ringmaster(16)
        assert Synchroniser(c, [np.zeros(1)], "r-fast", "h").scheme == RFast()
        alone = Synchroniser(c, [np.ones(1)], DsSync("pairs"), "d")
        alone.step()
        submitted = c.statistics()["submitted"]
        alone.step()
        assert c.statistics()["submitted"] == submitted, "it averages with nobody"
        alone.average()
        with pytest.raises(
            JobError,
            match=r"scheme: is 'gossip'; it must be one of 'ds-sync', .* 'ripples', 'acco', 'ringmaster', 'r-fast'",
        ):
            Synchroniser(c, [np.zeros(1)], "gossip", "e")
        with pytest.raises(ValueError, match="int64 can't be averaged"):
            Synchroniser(c, [np.zeros(1, np.int64)], "ds-sync", "e")
    with joined(hosts, job_file(tmp_path, 1), 1) as (c,):
        with pytest.raises(JobError, match="sync: is missing, and no scheme was passed"):
            Synchroniser(c, [np.zeros(1)])
        with pytest.raises(ValueError, match="no schedule 'ring': there are grid, pairs"):
            DsSync("ring")
        with pytest.raises(ValueError, match="delay is 0 or 1"):
            DsSync(delay=2)
        with pytest.raises(ValueError, match="every is at least 1"):
            LocalSgd(0)


def test_a_state_of_another_model_or_scheme_is_refused(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 1), 1) as (c,):
        small = Synchroniser(c, [np.zeros(3)], LocalSgd(2), "a").state_dict()
        large = Synchroniser(c, [np.zeros(4)], LocalSgd(2), "b")
        with pytest.raises(ValueError, match="here are 4 values"):
            large.load_state_dict(small)
        with pytest.raises(ValueError, match=r"of LocalSgd\(every=2.*the scheme is DsSync"):
            Synchroniser(c, [np.zeros(3)], DsSync(), "c").load_state_dict(small)


def test_a_worker_that_leaves_early_is_named(hosts: list[Agent], tmp_path: Path) -> None:
    """Of two whose numbers of steps differ, the one with more is told who has left."""
    weights = [[np.zeros(10)] for _ in range(2)]
    file = job_file(tmp_path, 2)
    ranks = each(range(2), lambda rank: Communicator(file, rank, hosts[rank].socket))
    synchronisers = made(ranks, weights, DsSync())
    each(synchronisers, Synchroniser.step)
    with ThreadPoolExecutor(1) as pool:
        leaving = pool.submit(ranks[0].close)
        with pytest.raises(AgentError, match=r"rank 0 .* left the job before it was done"):
            synchronisers[1].step()
        leaving.result(60)
