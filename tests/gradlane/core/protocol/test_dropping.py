# SPDX-License-Identifier: Apache-2.0
"""A rank that dies: the others drop what they do with it, and all else goes on as if it had never been."""

import heapq

import numpy as np
from gradlane._core import lib
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.wire import Header
from tests.gradlane.core.protocol.network import Cluster, Impairment
from tests.support.effort import tries

FIRST = int(lib.GL_FIRST_GROUP)
GROUPS = {FIRST: [0, 1, 2], FIRST + 1: [0, 1, 3], FIRST + 2: [2, 3], FIRST + 3: [0, 2], FIRST + 4: [0, 1, 2, 3]}
DEAD = 3
CLEAN = Impairment()
ELEMENTS = 300


class Job:
    """Four ranks, and all-reduces in groups of them."""

    def __init__(self, impairment: Impairment = CLEAN, seed: int = 0) -> None:
        self.cluster = Cluster(4, impairment=impairment, seed=seed)
        self.alive = [0, 1, 2, 3]
        self.results: dict[tuple[int, int, int], np.ndarray] = {}
        self.cluster.filter = self._passes

    def _passes(self, source: int, to: int, _header: Header) -> bool:
        return source in self.alive and to in self.alive

    def start(self, rank: int, step: int, tensor: int, algorithm: int, size: int = ELEMENTS) -> int:
        source, result = np.full(size, rank + step, np.float32), np.zeros(size, np.float32)
        self.results[rank, step, tensor] = result
        return self.cluster.start(
            rank, step, tensor, lib.GL_ALL_REDUCE, source, result, source.size, algorithm=algorithm,
            reduction=lib.GL_SUM, group=GROUPS[tensor],
        )  # fmt: skip

    def die(self) -> None:
        self.alive.remove(DEAD)
        lib.gl_engine_leave(self.cluster.engines[DEAD])

    def drop(self, rank: int) -> None:
        """What an exchange does at a rank that goes on."""
        for tensor, group in GROUPS.items():
            if DEAD in group:
                lib.gl_engine_close(self.cluster.engines[rank], tensor)
        lib.gl_engine_drop(self.cluster.engines[rank], DEAD)

    def right(self, rank: int, step: int, tensor: int) -> bool:
        wanted = sum(member + step for member in GROUPS[tensor])
        return bool((self.results[rank, step, tensor] == wanted).all())


@settings(max_examples=tries(30), deadline=None)
@given(st.data())
def test_what_goes_on_is_exact_and_of_the_rest_nothing_is_left(data: st.DataObject) -> None:
    bad = Impairment(loss=data.draw(st.sampled_from([0.0, 0.2])), duplicate=0.1, delay=100, jitter=300)
    job = Job(bad, data.draw(st.integers(0, 1000)))
    cluster = job.cluster
    algorithm = data.draw(st.sampled_from([lib.GL_DIRECT, lib.GL_RING]))
    calls = [(rank, step, tensor) for step in (1, 2) for tensor, group in GROUPS.items() for rank in group]
    calls = data.draw(st.permutations(calls))
    death = data.draw(st.integers(0, len(calls)))
    unaware = {rank: death + data.draw(st.integers(0, 10)) for rank in (0, 1, 2)}  # until then
    for number in range(max(len(calls), *unaware.values()) + 1):
        if number == death:
            job.die()
        for rank in [rank for rank, until in unaware.items() if until == number]:
            job.drop(rank)
        if number < len(calls):
            rank, step, tensor = calls[number]
            refused = number >= unaware.get(rank, death) and DEAD in GROUPS[tensor]
            if rank in job.alive:
                assert job.start(rank, step, tensor, algorithm) == (-1 if refused else 0)
        later = cluster.now + data.draw(st.integers(0, 800))
        cluster.counter += 1
        heapq.heappush(cluster.queue, (later, cluster.counter, DEAD, b""))  # so that time passes
        cluster.run(until=lambda later=later: cluster.now >= later)
    live = [(step, tensor) for step in (1, 2) for tensor, group in GROUPS.items() if DEAD not in group]
    cluster.run(until=lambda: all(
        call in cluster.completed(rank) for call in live for rank in GROUPS[call[1]]
    ))  # fmt: skip
    assert all(job.right(rank, *call) for call in live for rank in GROUPS[call[1]])
    cluster.run()  # nobody asks the dead for anything for ever
    for rank in (0, 1, 2):
        assert lib.gl_engine_idle(cluster.engines[rank])
        assert cluster.statistics(rank).memory_used == 0


def test_its_late_datagrams_are_refused() -> None:
    job = Job()
    job.start(DEAD, 1, FIRST + 4, lib.GL_DIRECT)
    job.cluster.run(until=lambda: job.cluster.queue)
    job.drop(0)
    before = job.cluster.statistics(0).bad_source
    job.cluster.run(until=lambda: job.cluster.statistics(0).bad_source > before)
    assert lib.gl_heard(job.cluster.engines[0], DEAD) == 0
    assert job.cluster.statistics(0).memory_used == 0


def test_numbers_of_messages_that_never_ended_come_round_again() -> None:
    """Rank 1 has begun what rank 0 has closed; then so many other messages come that its numbers are used again."""
    job = Job()
    cluster = job.cluster
    job.start(1, 1, FIRST + 1, lib.GL_DIRECT)
    cluster.run(until=lambda: cluster.statistics(0).memory_used > 0)
    job.die()
    for rank in (0, 1, 2):
        job.drop(rank)
    for step in range(1, 1100):
        for rank in (0, 1, 2):
            job.start(rank, step, FIRST, lib.GL_DIRECT, 48)
        cluster.run(until=lambda step=step: all((step, FIRST) in cluster.completed(r)[-1:] for r in (0, 1, 2)))
        assert job.right(0, step, FIRST)
    assert cluster.statistics(1).messages_sent > 4096
