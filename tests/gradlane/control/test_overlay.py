# SPDX-License-Identifier: Apache-2.0
"""Who watches whom, and what they hear of all others that way."""

import base64
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.control.overlay import hops, neighbours
from gradlane.control.signs import DEAD_SECONDS, HEARTBEAT_SECONDS, Signs
from tests.support.effort import tries


@st.composite
def survivors(draw: st.DrawFn) -> tuple[int, set[int]]:
    """The size of a job, and those of it that live."""
    size = draw(st.integers(2, 80))
    return size, draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=size))


@settings(max_examples=tries(150), deadline=None)
@given(survivors())
def test_those_who_live_are_connected_whoever_dies(job: tuple[int, set[int]]) -> None:
    size, living = job
    of = {rank: neighbours(rank, living, size) for rank in living}
    assert all(a in of[b] for a in living for b in of[a])
    assert all(rank not in of[rank] and of[rank] <= living for rank in living)
    reached, edge = {min(living)}, [min(living)]
    while edge:
        edge = [b for a in edge for b in of[a] if b not in reached and not reached.add(b)]
    assert reached == living


@settings(max_examples=tries(150), deadline=None)
@given(survivors())
def test_neighbours_stay_neighbours_while_both_live(job: tuple[int, set[int]]) -> None:
    size, living = job
    for rank in living:
        assert neighbours(rank, range(size), size) & living <= neighbours(rank, living, size)


@pytest.mark.parametrize("size", [*range(2, 40), 256, 1000, 1024])
def test_a_rank_has_few_neighbours_and_all_others_are_near(size: int) -> None:
    of = [neighbours(rank, range(size), size) for rank in range(size)]
    assert max(map(len, of)) <= 2 * (size - 1).bit_length()
    far, edge = {0: 0}, [0]
    while edge:
        edge = [b for a in edge for b in of[a] if b not in far and far.setdefault(b, far[a] + 1)]
    assert len(far) == size
    assert max(far.values()) <= hops(size)
    if size <= 5:
        assert all(len(it) == size - 1 for it in of)


class Ranks:
    """Each says its heartbeats at its own times."""

    def __init__(self, size: int, living: set[int], seed: int) -> None:
        self.now = 0.0
        self.living = living
        self._chance = random.Random(seed)
        self.signs = [Signs(rank, size, lambda: self.now) for rank in range(size)]
        self._of = {rank: neighbours(rank, living, size) for rank in living}
        self._next = {rank: self._chance.random() * HEARTBEAT_SECONDS for rank in living}

    def pass_(self, seconds: float) -> None:
        end = self.now + seconds
        while self._next[first := min(self.living, key=self._next.__getitem__)] <= end:
            self.now = self._next[first]
            self.signs[first].merge()
            packed = self.signs[first].packed()
            for other in self._of[first] & self.living:
                self.signs[other].hear(first, heartbeat=True)
                self.signs[other].take(first, packed)
            self._next[first] += HEARTBEAT_SECONDS * self._chance.uniform(0.95, 1.05)
        self.now = end


@settings(max_examples=tries(40), deadline=None)
@given(survivors(), st.integers(0, 1 << 30), st.data())
def test_all_know_of_all_when_they_were_heard_last(job: tuple[int, set[int]], seed: int, data: st.DataObject) -> None:
    size, living = job
    ranks = Ranks(size, set(living), seed)
    ranks.pass_(6)
    for rank in living:
        for other in living - {rank}:
            assert ranks.signs[rank].age(other) < DEAD_SECONDS / 2
    silent = data.draw(st.sampled_from(sorted(living)))
    last = ranks.now
    ranks.living.discard(silent)
    if not ranks.living:
        return
    ranks.pass_(DEAD_SECONDS - HEARTBEAT_SECONDS - 0.3)
    assert all(silent not in ranks.signs[rank].silence_of([silent]).silent for rank in ranks.living)
    ranks.pass_(HEARTBEAT_SECONDS + 0.6)
    connected = all(neighbours(rank, living, size) & ranks.living for rank in ranks.living) or len(ranks.living) == 1
    for rank in ranks.living if connected else ():
        assert ranks.signs[rank].silence_of([silent]).silent == [silent], (rank, silent, last)


def test_what_others_say_of_a_neighbour_counts_for_nothing() -> None:
    now = 0.0
    signs = Signs(0, 3, lambda: now)
    signs.hear(1, heartbeat=True)
    now = DEAD_SECONDS + 1
    signs.take(2, base64.b64encode(bytes([0, 0, 0])).decode())
    signs.merge()
    assert signs.age(1) > DEAD_SECONDS
    assert signs.age(2) < 1


def test_a_broken_connection_is_no_sign_of_life_whoever_speaks_for_it() -> None:
    signs = Signs(0, 3, lambda: 0.0)
    signs.lose(1)
    signs.hear(1)
    signs.take(2, base64.b64encode(bytes([0, 0, 0])).decode())
    signs.merge()
    assert signs.silence_of([1, 2]).silent == [1]


def test_an_agent_that_did_not_run_does_not_count_that_as_silence() -> None:
    now = 0.0
    signs = Signs(0, 2, lambda: now)
    now = 20.0
    signs.excuse(19.0)
    assert signs.age(1) == 1.0
