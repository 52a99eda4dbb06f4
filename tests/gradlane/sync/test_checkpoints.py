# SPDX-License-Identifier: Apache-2.0
"""Saved states of a Synchroniser: what they have, who may load them when, and which are refused."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gradlane.client.handle import Handle
from gradlane.sync import Acco, AdPsgd, DsSync, LocalSgd, RFast, Ringmaster, Ripples, Scheme, Synchroniser
from tests.support.agents import Agent
from tests.support.communicators import each, job_file, joined

COUNT = 500
TARGETS = np.random.default_rng(3).standard_normal((3, COUNT))
SCHEMES = [
    DsSync(),
    DsSync("pairs", 1),
    LocalSgd(4),
    LocalSgd(4, 0.7, 0.9, 2, 2, 0.5),
    Acco(),
    Ripples(2),
    AdPsgd(),
    Ringmaster(8),
    RFast(),
]


def train(synchroniser: Synchroniser, own: np.ndarray, target: np.ndarray, steps: int) -> None:
    for _ in range(steps):
        own += (0.1 * (target - own)).astype(own.dtype)
        synchroniser.step()


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
@pytest.mark.parametrize(("before", "after", "saving"), [(3, 2, 0), (2, 3, 1)])
def test_another_number_of_workers_goes_on_from_what_one_has_saved_after_an_average(
    hosts: list[Agent], tmp_path: Path, scheme: Scheme, before: int, after: int, saving: int
) -> None:
    weights = [np.zeros(COUNT) for _ in range(before)]
    with joined(hosts, job_file(tmp_path, before), before) as ranks:
        synchronisers = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], scheme))

        def begin(rank: int) -> None:
            train(synchronisers[rank], weights[rank], TARGETS[rank], 5)
            synchronisers[rank].average()

        each(range(before), begin)
        state, saved = synchronisers[saving].state_dict(), weights[saving].copy()
        each(synchronisers, Synchroniser.close)
    assert not (saved == 0).any()
    weights = [np.zeros(COUNT) for _ in range(after)]
    with joined(hosts, job_file(tmp_path, after), after) as ranks:
        synchronisers = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], scheme))
        for own, synchroniser in zip(weights, synchronisers, strict=True):
            own[:] = saved
            synchroniser.load_state_dict(state)
        each(synchronisers, Synchroniser.average)
        for own in weights:
            np.testing.assert_allclose(own, saved, atol=1e-12)

        def go_on(rank: int) -> None:
            train(synchronisers[rank], weights[rank], saved, 20)
            synchronisers[rank].average()
            synchronisers[rank].close()

        each(range(after), go_on)
    for own in weights:
        np.testing.assert_allclose(own, weights[0], atol=1e-12)
        # There was nothing to learn, but the trackers of R-FAST and momenta go on.
        assert np.abs(own - saved).mean() < 0.3


def test_what_the_network_owes_goes_on_with_its_own_host_alone(hosts: list[Agent], tmp_path: Path) -> None:
    """If all took it over, it would count once for each."""
    weights = [np.zeros(COUNT, np.float32) for _ in range(2)]
    with joined(hosts, job_file(tmp_path, 2, loss="push = 0.1"), 2) as ranks:
        synchronisers = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], LocalSgd(2)))
        state = synchronisers[0].state_dict()
        state["arrays"]["float32"]["owed"][:] = 1
        synchronisers[1].load_state_dict(synchronisers[1].state_dict())
        for synchroniser in synchronisers:
            synchroniser.load_state_dict(state)
        owed = [synchroniser.state_dict()["arrays"]["float32"]["owed"] for synchroniser in synchronisers]
        assert (owed[0] == 1).all()
        assert not owed[1].any()
        synchronisers[0].load_state_dict({**state, "host": [0, 3]})
        assert not synchronisers[0].state_dict()["arrays"]["float32"]["owed"].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_where_nothing_is_owed_the_state_has_zeros(hosts: list[Agent], tmp_path: Path, dtype: type) -> None:
    """Whatever the memory had before."""
    with joined(hosts, job_file(tmp_path, 1), 1) as (c,):
        synchroniser = Synchroniser(c, [np.zeros(1000, dtype)], LocalSgd(2))
        for _ in range(10):
            junk = np.full(1000, 7, dtype)
            del junk
            owed = synchroniser.state_dict()["arrays"][np.dtype(dtype).name]["owed"]
            assert not owed.any()


@pytest.mark.parametrize("scheme", [DsSync("pairs", 1), LocalSgd(4, 1.0, 0.0, 1, 2, 0.5), Acco(), Ripples(2, delay=1)])
def test_loading_gives_up_what_is_in_flight(hosts: list[Agent], tmp_path: Path, scheme: Scheme) -> None:
    """A job that goes back to a checkpoint has its parameters, not a mean with those of before."""
    weights = [np.zeros(COUNT) for _ in range(2)]
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        synchronisers = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], scheme))

        def act(rank: int) -> list[np.ndarray]:
            synchroniser, own, target = synchronisers[rank], weights[rank], TARGETS[rank]
            train(synchroniser, own, target, 4)
            state, saved = synchroniser.state_dict(), own.copy()
            results: list[np.ndarray] = []
            for _ in range(2):
                train(synchroniser, own, target, 3)
                own[:] = saved
                synchroniser.load_state_dict(state)
                synchroniser.settle()
                np.testing.assert_array_equal(own, saved)
                train(synchroniser, own, target, 4)
                synchroniser.settle()
                results.append(own.copy())
            synchroniser.average()
            synchroniser.close()
            return results

        for first, again in each(range(2), act):
            if not isinstance(scheme, Ripples):  # who meets whom is chance
                np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("delay", [0, 1])
def test_who_loads_keeps_nobody_waiting(hosts: list[Agent], tmp_path: Path, delay: int) -> None:
    """A group is decided in which another one waits already for the one that loads."""
    weights = [np.zeros(COUNT) for _ in range(2)]
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks, ThreadPoolExecutor(1) as pool:
        synchronisers = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], Ripples(2, 1000, delay)))
        states = each(synchronisers, Synchroniser.state_dict)
        each(synchronisers, Synchroniser.step)
        each(synchronisers, Synchroniser.settle)

        def other() -> None:
            synchronisers[1].step()
            synchronisers[1].settle()
            ended(1)

        def ended(rank: int) -> None:
            weights[rank][:] = 9
            synchronisers[rank].load_state_dict(states[rank])
            assert (weights[rank] == 9).all()
            synchronisers[rank].step()
            synchronisers[rank].close()

        waiting = pool.submit(other)
        time.sleep(0.5)
        ended(0)
        waiting.result(60)


def test_a_state_that_does_not_fit_changes_nothing(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 1), 1) as (c,):
        weights = [np.zeros(3), np.zeros(3, np.float32)]
        synchroniser = Synchroniser(c, weights, LocalSgd(2, 0.7, 0.9))
        state = synchroniser.state_dict()
        synchroniser.step()
        before = synchroniser.state_dict()

        def refused(words: str, dtype: str, name: str, array: np.ndarray | None) -> None:
            arrays = {**state["arrays"], dtype: {**state["arrays"][dtype], name: array}}
            if array is None:
                del arrays[dtype][name]
            with pytest.raises(ValueError, match=words):
                synchroniser.load_state_dict({**state, "arrays": arrays})
            after = synchroniser.state_dict()
            assert after["step"] == before["step"] == 1
            np.testing.assert_equal(after["arrays"], before["arrays"])

        refused("here are 3 values of float64", "float64", "start", np.zeros(4))
        refused("float16: here are 3 values of float32", "float32", "start", np.zeros(3, np.float16))
        refused("float16: here are 3 values of float32", "float32", "owed", np.zeros(3, np.float16))
        refused("of float64: momentum must be in it, too", "float64", "momentum", None)


@pytest.mark.parametrize("scheme", [DsSync(), LocalSgd(2)])
def test_closed_it_neither_saves_nor_loads(hosts: list[Agent], tmp_path: Path, scheme: Scheme) -> None:
    """A state without the scheme's arrays would look like one."""
    with joined(hosts, job_file(tmp_path, 1), 1) as (c,):
        synchroniser = Synchroniser(c, [np.zeros(3)], scheme)
        state = synchroniser.state_dict()
        synchroniser.close()
        for use in (
            synchroniser.state_dict,
            lambda: synchroniser.load_state_dict(state),
            synchroniser.step,
            synchroniser.average,
        ):
            with pytest.raises(RuntimeError, match=r"was closed: call it before close\(\)"):
                use()


def test_an_interrupted_wait_does_not_lose_the_exchange(
    hosts: list[Agent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = [np.full(COUNT, 4.0 * rank) for rank in range(2)]
    waits = Handle.wait
    interrupt = threading.Event()

    def wait(handle: Handle, timeout: float | None = None) -> None:
        if interrupt.is_set():
            raise KeyboardInterrupt
        waits(handle, timeout)

    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        synchronisers = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], DsSync(delay=1)))
        each(synchronisers, Synchroniser.step)
        each(synchronisers, Synchroniser.settle)
        for rank, own in enumerate(weights):
            own[:] = 4 * rank
        each(synchronisers, Synchroniser.step)
        monkeypatch.setattr(Handle, "wait", wait)
        interrupt.set()
        for synchroniser in synchronisers:
            with pytest.raises(KeyboardInterrupt):
                synchroniser.settle()
        interrupt.clear()
        each(synchronisers, Synchroniser.settle)
    assert all((own == 2).all() for own in weights)
