# SPDX-License-Identifier: Apache-2.0
"""Ripples over real agents: groups that a generator decides on, among workers of different speed."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gradlane import Communicator
from gradlane.sync import DsSync, Ripples, Synchroniser
from tests.support.agents import Agent
from tests.support.communicators import each, job_file, joined

COUNT = 500
TARGETS = np.random.default_rng(3).standard_normal((4, COUNT))


@pytest.mark.timed
def test_workers_of_different_speed_take_different_numbers_of_steps(hosts: list[Agent], tmp_path: Path) -> None:
    """Worker 3 computes ten times as long as the others; with a step of all it would take as many."""
    weights = [np.zeros(COUNT) for _ in range(4)]
    steps, done = [0] * 4, threading.Event()

    def train(it: tuple[int, Synchroniser]) -> int:
        rank, synchroniser = it
        while not done.is_set():
            time.sleep(0.4 if rank == 3 else 0.04)  # the computation
            weights[rank] += 0.1 * (TARGETS[rank] - weights[rank])
            synchroniser.step()
            steps[rank] += 1
            if steps[rank] == 40:
                done.set()
        taken = steps[rank]
        synchroniser.average()
        synchroniser.close()
        return taken

    with joined(hosts, job_file(tmp_path, 4), 4) as ranks:
        synchronisers = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], Ripples(2, 1)))
        taken = each(list(enumerate(synchronisers)), train)
    assert sum(taken[:3]) / 3 > 2 * taken[3] > 0
    for own in weights:
        np.testing.assert_array_equal(own, weights[0])
        assert np.abs(own - TARGETS.mean(axis=0)).mean() < 0.6


@pytest.mark.parametrize("delay", [0, 1])
def test_averages_keep_the_mean_and_bring_workers_together(hosts: list[Agent], tmp_path: Path, delay: int) -> None:
    """Who meets whom, and how often, is chance: they step until they are together."""
    weights = [np.zeros(COUNT) for _ in range(4)]
    limit, together, end = 0.2 * np.std(TARGETS, axis=0).max(), threading.Event(), time.monotonic() + 60

    def train(it: tuple[int, Synchroniser]) -> np.ndarray:
        rank, synchroniser = it
        while not together.is_set() and time.monotonic() < end:
            synchroniser.step()
            if np.std(weights, axis=0).max() < limit / 2:  # others may be writing theirs
                together.set()
        synchroniser.close()
        return weights[rank].copy()

    with joined(hosts, job_file(tmp_path, 4), 4) as ranks:
        synchronisers = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], Ripples(3, delay=delay)))
        for own, target in zip(weights, TARGETS, strict=True):
            own[:] = target
        found = each(list(enumerate(synchronisers)), train)
    np.testing.assert_allclose(np.mean(found, axis=0), TARGETS.mean(axis=0), atol=1e-12)
    assert np.std(found, axis=0).max() < limit


def test_what_ripples_can_not_do_is_refused(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 1, 2), 1, 2) as ranks:

        def refused(c: object) -> None:
            with pytest.raises(ValueError, match="one process on each host"):
                Synchroniser(c, [np.zeros(1)], "ripples")  # pyright: ignore[reportArgumentType]

        each(ranks, refused)
    large: Any = SimpleNamespace(processes=1, rank=1, job=SimpleNamespace(workers=[None] * 30))
    with pytest.raises(ValueError, match=r"4495 groups of 30 hosts, and a job has 4066 .* fewer members than 3"):
        Ripples(3).plan(large, "sync")
    with pytest.raises(ValueError, match="members are at least 2"):
        Ripples(members=1)
    with pytest.raises(ValueError, match="delay is 0 or 1"):
        Ripples(delay=2)


def test_a_second_model_at_the_same_time_is_refused(hosts: list[Agent], tmp_path: Path) -> None:
    """Worker 0 would wait in a group of one model for worker 1, which waits in one of the other for worker 0."""
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        first = each(ranks, lambda c: Synchroniser(c, [np.zeros(1)], Ripples(), "first"))

        def refused(c: Communicator) -> None:
            with pytest.raises(ValueError, match=r"synchronises 'first' .* 'second' would be .*: close the first"):
                Synchroniser(c, [np.zeros(1)], Ripples(2, delay=1), "second")

        each(ranks, refused)
        each(first, Synchroniser.close)
        second = each(ranks, lambda c: Synchroniser(c, [np.full(1, float(c.rank))], Ripples(), "second"))
        each(second, Synchroniser.step)
        each(second, Synchroniser.close)


def test_groups_of_ripples_are_no_other_schemes(hosts: list[Agent], tmp_path: Path) -> None:
    """Two workers may come to them in different orders, and would average one model with another one."""
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:

        def numbers(c: Communicator) -> list[int]:
            plans = [scheme.plan(c.connection, "sync") for scheme in (DsSync("pairs"), DsSync("grid"), Ripples(2))]
            return [plan.group((0, 1)).number for plan in plans]

        first, second = each(ranks, numbers)
        assert first == second
        assert first[0] == first[1] != first[2]
