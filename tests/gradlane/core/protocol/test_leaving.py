# SPDX-License-Identifier: Apache-2.0
"""Steps that go on without workers that are late: within their budget, and nothing is lost."""

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from gradlane._core import ffi, lib
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gradlane.core.protocol.network import Cluster, Impairment
from tests.gradlane.core.protocol.test_collectives import shares
from tests.gradlane.core.protocol.test_conservation import Host, pointer
from tests.support.effort import tries

MS = 1000  # us
SLICE = 16  # elements
LOST, LATE, COMPLETED = 2, 6, 1
NEVER = 1 << 62


class Worker:
    """A training process with its agent: it submits a step some time after the one before is complete."""

    def __init__(self, cluster: Cluster, rank: int, elements: int, pause: Callable[[int], int], seed: int) -> None:
        self.cluster, self.rank, self.pause, self.seen = cluster, rank, pause, 0
        self.host, self.random = Host(elements), np.random.default_rng([seed, rank])
        self.step, self.submitted, self.wakes = 1, 0, cluster.now + pause(1)
        self.given = np.zeros(elements)
        self.contributions: dict[int, np.ndarray] = {}
        self.results: dict[int, np.ndarray] = {}
        self.missing: dict[int, set[int]] = defaultdict(set)  # by step: slices that did not count
        self.left_out: dict[int, set[int]] = defaultdict(set)  # by slice: steps that its owner did without this worker
        self.done: dict[int, int] = {}  # when, by step

    def look(self) -> None:
        """Takes what the engine tells, and does what is due."""
        for event in self.cluster.events[self.rank][self.seen :]:
            self.seen += 1
            if event.kind == LATE and event.step > self.submitted:
                self.cluster.begin_without(self.rank, event.step, 0, self.host.elements)
            elif event.kind == LOST:
                self.host.keep(event.first_slice, event.slices, event.lost)
                self.missing[event.step] |= {event.first_slice + k for k in event.lost}
                if len(event.lost) == event.slices:
                    for number in range(event.first_slice, event.first_slice + event.slices):
                        self.left_out[number].add(event.step)
            elif event.kind == COMPLETED:
                assert event.step == self.step
                lib.gl_residual_subtract(self.host.residual, pointer(self.results[self.step]), 1)
                self.done[self.step] = self.cluster.now
                self.step += 1
                self.wakes = self.cluster.now + self.pause(self.step)
        if self.wakes <= self.cluster.now:
            self.wakes, self.submitted = NEVER, self.step
            gradient = self.random.standard_normal(self.host.elements).astype(np.float32)
            self.given += gradient
            contribution = self.contributions[self.step] = self.host.contribute(gradient)
            self.results[self.step] = self.cluster.submit(self.rank, self.step, 0, contribution)


class Training:
    """All workers, as fast as they are; `pause(rank, step)`: us that a worker needs before it submits a step."""

    def __init__(self, cluster: Cluster, elements: int, pause: Callable[[int, int], int], seed: int = 0) -> None:
        self.cluster, self.elements = cluster, elements
        self.workers = [
            Worker(cluster, rank, elements, lambda step, rank=rank: pause(rank, step), seed)
            for rank in range(cluster.workers)
        ]

    def run(self, steps: int) -> None:
        """Until every worker has done so many. Raises AssertionError if that does not come."""
        for worker in self.workers:
            pause = worker.pause
            worker.pause = lambda step, pause=pause: pause(step) if step <= steps else NEVER
        cluster, end = self.cluster, self.cluster.now + 600_000 * MS
        while not all(steps in worker.done for worker in self.workers):
            assert cluster.now < end, "it hangs"
            for worker in self.workers:
                worker.look()
            wakes = min(worker.wakes for worker in self.workers)
            seen = [worker.seen for worker in self.workers]
            if wakes <= cluster.now:
                continue
            try:
                cluster.run(
                    lambda seen=seen: any(len(e) > n for e, n in zip(cluster.events, seen, strict=False)),
                    limit=min(wakes, end) - cluster.now,
                )
            except TimeoutError:
                cluster.now = min(wakes, end)

    def check(self, steps: int, budget: int, window: int) -> None:
        """Results are the mean of what counted and the same at all; what is applied and owed is all that was given; no
        element was left out too often."""
        applied = np.zeros(self.elements)
        for step in range(1, steps + 1):
            results = [worker.results[step] for worker in self.workers]
            for other in results[1:]:
                np.testing.assert_array_equal(results[0], other)
            applied += results[0] * np.float64(len(results))
            for number in range(-(-self.elements // SLICE)):
                part = slice(number * SLICE, (number + 1) * SLICE)
                counted = [w.contributions[step][part] for w in self.workers if number not in w.missing[step]]
                expected = np.mean(counted, axis=0) if counted else np.zeros_like(results[0][part])
                np.testing.assert_allclose(results[0][part], expected, rtol=0, atol=1e-5)
        owed = sum((worker.host.owed() for worker in self.workers), np.zeros(self.elements))
        np.testing.assert_allclose(applied + owed, sum(w.given for w in self.workers), rtol=0, atol=1e-3)
        for worker in self.workers:
            for missed in worker.left_out.values():
                for first in missed:
                    assert sum(first <= step < first + window for step in missed) <= budget

    def left_out(self, rank: int) -> list[int]:
        """The steps that something was reduced without a worker in."""
        return sorted(set().union(*self.workers[rank].left_out.values()))


def counts(cluster: Cluster, owner: int, rank: int) -> tuple[int, int]:
    """How often an owner says that it has left a worker out: at all, and of late."""
    found = ffi.new("gl_left_out *")
    assert lib.gl_engine_left_out(cluster.engines[owner], rank, found) == 0
    return found.steps, found.recent


@pytest.mark.parametrize("servers", [0, 1, 2])
@pytest.mark.parametrize("multicast", [False, True])
def test_a_step_does_not_wait_for_a_worker_that_is_later_than_the_deadline(servers: int, multicast: bool) -> None:
    """And the late one, which owns a part itself where there are no servers, has the results as soon as it comes."""
    late = (20 * MS, 3, 10)
    cluster = Cluster(4, servers, multicast=multicast, late=late)
    training = Training(cluster, 700, lambda rank, step: 400 * MS if (rank, step) == (2, 2) else 50 * MS)
    training.run(6)
    training.check(6, *late[1:])
    assert training.left_out(2) == [2, 3, 4]
    others = [w for w in training.workers if w.rank != 2]
    for worker in others:
        assert training.left_out(worker.rank) == []
        assert worker.done[4] - worker.done[1] < 3 * (50 + 20 + 10) * MS
        assert worker.done[5] > training.workers[2].done[4], "the budget is used up"
    came = training.workers[2].done[1] + 400 * MS
    assert training.workers[2].done[2] < came + 10 * MS
    for owner in cluster.aggregators:
        assert [counts(cluster, owner, rank) for rank in range(4)] == [(0, 0), (0, 0), (3, 3), (0, 0)]


def test_nobody_is_left_out_who_comes_before_the_deadline() -> None:
    cluster = Cluster(4, late=(20 * MS, 3, 10))
    training = Training(cluster, 700, lambda rank, step: (50 + 15 * (rank == 2)) * MS)
    training.run(6)
    training.check(6, 0, 10)


def test_the_deadline_is_counted_from_the_first_half() -> None:
    """One that is early makes nobody late."""
    cluster = Cluster(4, late=(20 * MS, 3, 10))
    training = Training(cluster, 700, lambda rank, step: (1 if rank == 0 else 100) * MS)
    training.run(4)
    training.check(4, 0, 10)


def test_after_a_window_a_worker_may_be_left_out_again() -> None:
    late = (20 * MS, 2, 6)
    cluster = Cluster(3, late=late)
    training = Training(cluster, 300, lambda rank, step: (100 if rank == 2 else 10) * MS)
    training.run(20)
    training.check(20, *late[1:])
    assert training.left_out(2) == [step for start in (1, 7, 13, 19) for step in (start, start + 1) if step <= 20]
    assert counts(cluster, 0, 2) == (8, 2)


def test_of_two_workers_either_may_be_left_out() -> None:
    late = (20 * MS, 1, 4)
    cluster = Cluster(2, late=late)
    training = Training(cluster, 300, lambda rank, step: (200 if rank == step % 2 else 10) * MS)
    training.run(12)
    training.check(12, *late[1:])
    assert training.left_out(0)
    assert training.left_out(1)


def test_what_is_exact_waits_for_everybody() -> None:
    """Sums, means of all contributions, and collectives of groups."""
    cluster = Cluster(3, mean_of_arrived=False, late=(20 * MS, 3, 10))
    cluster.window = 0
    results = [cluster.submit(rank, 1, 0, np.ones(100, np.float32)) for rank in (0, 1)]
    with pytest.raises(TimeoutError):
        cluster.run(lambda: bool(cluster.completed(0)), limit=1000 * MS)
    cluster.now += 1000 * MS
    results.append(cluster.submit(2, 1, 0, np.ones(100, np.float32)))
    cluster.run(lambda: cluster.all_completed(1))
    assert all((result == 1).all() for result in results)
    cluster.window = 10
    with pytest.raises(AssertionError):
        cluster.submit(0, 2, 0, np.ones(100, np.float32))


def test_what_makes_no_sense_is_refused() -> None:
    cluster = Cluster(3, late=(20 * MS, 1, 10), weights=[1, 1, 0])
    assert cluster.begin_without(2, 1, 0, 100) == -1, "it owns nothing"
    assert cluster.begin_without(1, 1, 0, 100) == 0
    assert cluster.begin_without(1, 1, 0, 100) == -1, "it has begun"
    assert cluster.begin_without(1, 2, 0, 100) == -1, "its budget is used up"
    assert cluster.begin_without(1, 1, 1, 100) == 0, "each tensor has one"
    assert Cluster(3).begin_without(1, 1, 0, 100) == -1, "nobody may be left out"


def test_an_older_step_than_the_latest_that_was_missed_is_waited_for() -> None:
    """Its window may be full."""
    cluster = Cluster(3, late=(20 * MS, 2, 10))
    assert [cluster.begin_without(1, step, 0, 100) for step in (5, 6, 3, 14, 15)] == [0, 0, -1, -1, 0]


@pytest.mark.parametrize("servers", [0, 2])
def test_new_owners_leave_nobody_out_before_a_window_is_over(servers: int) -> None:
    """They do not know what their elements have missed. Here all of them change hands at once."""
    late = (20 * MS, 2, 6)
    cluster = Cluster(3, servers, late=late)
    others = [0] * (servers or 3)
    cluster.weights_of = lambda step: [1, *others[1:]] if step < 4 else [0, 1, *others[2:]]
    for engine in cluster.engines:
        assert lib.gl_engine_owners_change(engine, 4) == 0
    training = Training(cluster, 300, lambda rank, step: (100 if rank == 2 else 10) * MS)
    training.run(12)
    training.check(12, *late[1:])
    assert training.left_out(2) == [1, 2, 9, 10]


@pytest.mark.parametrize("servers", [0, 1])
def test_nobody_is_left_out_of_steps_whose_owners_are_not_agreed_on(servers: int) -> None:
    cluster = Cluster(3, servers, late=(20 * MS, 3, 10))
    for engine in cluster.engines:
        lib.gl_engine_hold(engine, 1)
    training = Training(cluster, 300, lambda rank, step: NEVER if rank == 2 else 10 * MS)
    with pytest.raises(AssertionError, match="it hangs"):
        training.run(4)
    assert all(set(worker.done) == {1} for worker in training.workers[:2])
    cluster, told = Cluster(3, servers, late=(20 * MS, 3, 10)), (1, (1 << 32) - 1)
    for engine, last in itertools.product(cluster.engines, told):
        lib.gl_engine_hold(engine, last)
    training = Training(cluster, 300, lambda rank, step: (400 if (rank, step) == (2, 2) else 10) * MS)
    training.run(4)
    assert training.left_out(2) == [2, 3, 4]


def test_the_late_worker_is_the_one_that_all_wait_for_when_its_budget_is_used_up() -> None:
    cluster = Cluster(3, late=(20 * MS, 1, 10))
    training = Training(cluster, 300, lambda rank, step: NEVER if rank == 2 and step > 1 else 10 * MS)
    with pytest.raises(AssertionError, match="it hangs"):
        training.run(9)
    waiting = ffi.new("gl_waiting *")
    for rank in (0, 1):
        assert lib.gl_oldest(cluster.engines[rank], cluster.now, waiting) == 1
        assert (waiting.step, waiting.missing[0], waiting.direct) == (3, 1 << 2, 1)


@settings(max_examples=tries(25), deadline=None)
@given(
    workers=st.integers(2, 8),
    servers=st.sampled_from([0, 0, 1, 3]),
    elements=st.integers(1, 400),
    budget=st.integers(1, 4),
    slack=st.integers(1, 6),
    tolerance=st.sampled_from([0.0, 0.3, 0.7]),
    multicast=st.booleans(),
    loss=st.sampled_from([0.0, 0.0, 0.1, 0.4]),
    jitter=st.sampled_from([0, 3000]),
    memory=st.sampled_from([1 << 26, 4096]),
    data=st.data(),
    seed=st.integers(0, 1 << 32),
)
def test_whoever_is_late_nothing_is_lost_the_budget_holds_and_nothing_hangs(
    workers: int,
    servers: int,
    elements: int,
    budget: int,
    slack: int,
    tolerance: float,
    multicast: bool,
    loss: float,
    jitter: int,
    memory: int,
    data: st.DataObject,
    seed: int,
) -> None:
    pauses = random.Random(seed)
    impairment = Impairment(loss=loss, duplicate=0.05, jitter=jitter)
    weights: Sequence[int] | None = data.draw(st.none() | shares(servers or workers))
    cluster = Cluster(
        workers, servers, tolerance, multicast=multicast, impairment=impairment, seed=seed, memory=memory,
        weights=weights, late=(5 * MS, budget, budget + slack),
    )  # fmt: skip
    if first := data.draw(st.none() | st.integers(2, 9)):
        then = data.draw(shares(servers or workers))
        cluster.weights_of = lambda step: weights if step < first else then
        for engine in cluster.engines:
            assert lib.gl_engine_owners_change(engine, first) == 0
    training = Training(cluster, elements, lambda rank, step: pauses.choice([0, 1, 2, 20, 100]) * MS, seed)
    training.run(10)
    training.check(10, budget, budget + slack)
