# SPDX-License-Identifier: Apache-2.0
"""Who lives: deaths, silence and parted networks, with messages that take any time. Those that go on agree."""

import json
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.control.handshake import MAX_LINE
from gradlane.control.membership import Membership, Message
from tests.support.effort import tries


class World:
    """Ranks, and what is in flight between them. Between the two `sides` of a parted network nothing comes through."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.flights: dict[tuple[int, int], deque[Message]] = {
            (a, b): deque() for a in range(size) for b in range(size) if a != b
        }
        self.dead: set[int] = set()
        self.sides: tuple[set[int], set[int]] = set(range(size)), set()
        self.noticed: set[int] = set()  # of a parted network
        self.out: dict[int, str] = {}
        self.ranks = [self._rank(rank) for rank in range(size)]

    def _rank(self, rank: int) -> Membership:
        def send(to: int, message: Message) -> None:
            if not self.parted(rank, to):
                self.flights[rank, to].append(message)

        def out(why: str) -> None:
            self.out[rank] = why
            self.kill(rank)

        return Membership(rank, range(self.size), send, lambda _, __: None, out)

    def parted(self, a: int, b: int) -> bool:
        return (a in self.sides[0]) != (b in self.sides[0])

    def kill(self, rank: int) -> None:
        """Its connections close, where the network tells that; behind a broken link it is silent."""
        if rank not in self.dead:
            self.dead.add(rank)
            for other in range(self.size):
                if other != rank:
                    self.flights[other, rank].clear()
                    if not self.parted(rank, other):
                        self.flights[rank, other].append({"gone": rank})

    def part(self, side: set[int]) -> None:
        """From now on nothing comes through between these and the others; what was in flight is lost."""
        self.sides = side, set(range(self.size)) - side
        for (a, b), flight in self.flights.items():
            if self.parted(a, b):
                flight.clear()

    def moves(self) -> list[tuple[str, int, int]]:
        found = [("deliver", a, b) for (a, b), flight in self.flights.items() if flight and b not in self.dead]
        for rank in range(self.size):
            parted = all(self.sides) and rank not in self.dead and rank not in self.noticed
            if parted and not any(self.flights[a, b] for a, b in self.flights if b == rank):  # that takes its time
                found.append(("silence", rank, 0))
        return found

    def move(self, kind: str, a: int, b: int) -> None:
        if kind == "silence":
            self.noticed.add(a)
            there = [rank for rank in range(self.size) if self.parted(a, rank)]
            self.ranks[a].silent(there, there, there, lambda _: "no answer")
            return
        message = self.flights[a, b].popleft()
        if a not in self.ranks[b].living:
            return
        if "gone" in message:
            self.ranks[b].lost(a, f"rank {a} is gone")
        else:
            self.ranks[b].hear(a, message)


@settings(max_examples=tries(60, 1500), deadline=None)
@given(st.data())
def test_those_that_go_on_agree_whoever_dies_and_however_the_network_parts(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 6))
    world = World(size)
    deaths = data.draw(st.integers(0, size - 1))
    parts = data.draw(st.booleans())
    while True:
        if deaths and data.draw(st.integers(0, 3)) == 0 and len(world.dead) < size - 1:
            deaths -= 1
            world.kill(data.draw(st.sampled_from(sorted(set(range(size)) - world.dead))))
        if parts and data.draw(st.integers(0, 3)) == 0:
            parts = False
            world.part(data.draw(st.sets(st.sampled_from(range(size)), min_size=1, max_size=size - 1)))
        moves = world.moves()
        if not moves and not deaths and not parts:
            break
        if moves:
            world.move(*data.draw(st.sampled_from(moves)))
    going = set(range(size)) - world.dead
    for rank in going:
        assert world.ranks[rank].living == going, (world.sides, world.out)
    if all(world.sides):
        assert going <= world.sides[0] or going <= world.sides[1], "both sides go on"


def test_the_smaller_side_of_a_network_ends_and_says_why() -> None:
    world = World(5)
    world.part({0, 1})
    while moves := world.moves():
        world.move(*moves[0])
    assert world.dead == {0, 1}
    assert world.out[0] == ("no answer; the others may have gone on without this rank, which is in touch with 1 of 4")
    assert [world.ranks[rank].living for rank in (2, 3, 4)] == [{2, 3, 4}] * 3


def test_of_two_halves_the_one_with_the_lowest_rank_goes_on() -> None:
    world = World(4)
    world.part({1, 2})
    while moves := world.moves():
        world.move(*moves[-1])
    assert world.dead == {1, 2}
    assert world.ranks[0].living == world.ranks[3].living == {0, 3}


def test_nobody_decides_while_others_may_be_behind_the_same_link() -> None:
    sent: list[tuple[int, Message]] = []
    it = Membership(0, range(3), lambda to, message: sent.append((to, message)), lambda _, __: None, pytest.fail)
    it.silent([1], [1], [1, 2], lambda _: "no answer")
    assert it.living == {0, 1, 2}, "rank 2 may be silent, too"
    assert not sent
    it.silent([1], [1], [1], lambda _: "no answer")
    assert it.living == {0, 2}
    assert (2, {"dead": {"1": "no answer"}}) in sent


def test_of_two_that_have_lost_one_another_the_first_to_say_so_stays() -> None:
    world = World(4)
    world.ranks[2].lost(3, "rank 3 is out of reach")
    world.ranks[3].lost(2, "rank 2 is out of reach")
    world.move("deliver", 3, 0)
    while moves := world.moves():
        world.move(*moves[0])
    assert world.dead == {2}
    assert "the others have gone on without this rank: rank 2 is out of reach" in world.out[2]


def test_however_many_die_each_message_fits_into_a_line_and_tells_news() -> None:
    """Rank 0, too, so the next one is told, and decides."""
    world = World(60)
    dying = [0, *range(20, 60)]
    told: dict[tuple[int, int], list[str]] = {}
    for victim in dying:
        world.kill(victim)
    while moves := world.moves():
        kind, a, b = moves[0]
        message = world.flights[a, b][0]
        if "gone" in message:
            world.flights[a, b].popleft()
            world.ranks[b].lost(a, "\U0001f525" * 5000)
            continue
        told.setdefault((a, b), []).append(line := json.dumps(message))
        assert len(line) < MAX_LINE
        world.move(kind, a, b)
    assert all(world.ranks[rank].living == set(range(1, 20)) for rank in range(1, 20))
    assert told
    for lines in told.values():
        assert len(lines) == len(set(lines)), [line[:40] for line in lines]


def test_who_is_silent_is_named_alone() -> None:
    dropped: dict[int, str] = {}
    it = Membership(0, range(30), lambda _, __: None, lambda rank, why: dropped.update({rank: why}), pytest.fail)
    it.silent(range(20, 30), range(20, 30), range(20, 30), lambda ranks: f"{list(ranks)}: no answer")
    assert dropped == {rank: f"[{rank}]: no answer" for rank in range(20, 30)}


def test_what_makes_no_sense_is_refused() -> None:
    it = Membership(0, range(3), lambda _, __: None, lambda _, __: None, pytest.fail)
    for message in ({"dead": {"7": "x"}}, {"lost": {"1": "x"}}, {"dead": {"a": "x"}}, {"lost": 3}):
        with pytest.raises((ValueError, AttributeError)):
            it.hear(1, message)
    assert it.living == {0, 1, 2}
