# SPDX-License-Identifier: Apache-2.0
"""Whoever dies whenever, also while another takes the leader's place: those that live go on, and agree."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gradlane.daemon.surviving_ranks import Rank, Ranks
from tests.support.effort import tries


def some_deaths(data: st.DataObject, ranks: Ranks, left: int, rarely: int = 8) -> int:
    """Kills somebody once in `rarely` times, every other time the leader; returns how many more may die."""
    if not left or data.draw(st.integers(1, rarely)) < rarely:
        return left
    living = [it.rank for it in ranks.living]
    victim = data.draw(st.sampled_from(living[:1] * len(living) + living))
    ranks.kill(victim, data.draw(st.integers(0, 3)))
    return left - 1


def agree(ranks: Ranks) -> None:
    living = {it.rank for it in ranks.living}
    assert [it.membership.living for it in ranks.living] == [living] * len(living)
    assert not [it.why for it in ranks.ranks if it.why], "nobody who lives is told that it is dead"


@settings(max_examples=tries(75, 750), deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("delay", [0, 1])
def test_whoever_dies_no_worker_waits_for_ever(delay: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 6))
    ranks = Ranks(size, data.draw(st.integers(2, min(3, size))), delay)
    deaths = data.draw(st.integers(0, size - 1))
    rarely = data.draw(st.sampled_from([8, 32]))
    slow = data.draw(st.integers(0, size))  # if it is a rank: it works when nothing else may happen
    for _ in range(data.draw(st.integers(0, 150))):
        deaths = some_deaths(data, ranks, deaths, rarely)
        moves = ranks.moves()
        if not moves:
            break
        moves = [move for move in moves if move[:2] != ("work", slow)] or moves
        ranks.move(*data.draw(st.sampled_from(moves)), pause=data.draw(st.integers(0, 9)) == 0)
    while moves := ranks.moves():
        ranks.move(*data.draw(st.sampled_from(moves)), pause=True)
        deaths = some_deaths(data, ranks, deaths, rarely)
    assert {it.state for it in ranks.living} <= {"paused"}, "a deadlock"
    agree(ranks)


def test_a_group_in_flight_outlives_the_leader_though_its_member_has_asked_again() -> None:
    """Worker 1 waits in it for another one, which has not asked yet, and the leader dies."""
    ranks = Ranks(5, 2, delay=1)
    while moves := [move for move in ranks.moves() if move[0] == "deliver" or move[1] == 1]:
        ranks.move(*moves[0])
    waiting = ranks.ranks[1]
    number, group = waiting.groups[0]
    assert waiting.state == "waits", "it has asked again"
    assert 0 not in group
    ranks.kill(0)
    while moves := ranks.moves():
        ranks.move(*moves[0], pause=True)
    assert ranks.entered[number, group] == set(group)
    assert {it.state for it in ranks.living} == {"paused"}


@settings(max_examples=tries(50, 500), deadline=None)
@given(st.data())
def test_whoever_dies_all_others_have_averaged_or_nobody(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 5))
    ranks = Ranks(size, 2)
    deaths = data.draw(st.integers(0, size - 1))
    failures = 6  # attempts that went wrong somewhere

    def vote(it: Rank) -> None:
        nonlocal failures
        well = not failures or data.draw(st.booleans())
        failures -= not well
        it.meet(well)

    for it in ranks.ranks:
        it.state = "paused"
    while True:
        able = [it for it in ranks.living if it.state == "paused"]
        moves = [*ranks.moves(), *(("vote", it.rank, 0) for it in able)]
        if not moves:
            break
        kind, a, b = data.draw(st.sampled_from(moves))
        if kind == "vote":
            vote(ranks.ranks[a])
        else:
            ranks.move(kind, a, b)
        deaths = some_deaths(data, ranks, deaths)
    assert {it.state for it in ranks.living} == {"done"}
    first = ranks.living[0].outcomes
    assert all(it.outcomes == first for it in ranks.living), "all got the same answers"
    assert [answer["agreed"] for answer in first.values()] == [False] * (len(first) - 1) + [True]
    agree(ranks)
