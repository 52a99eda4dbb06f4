# SPDX-License-Identifier: Apache-2.0
"""Who counts as a straggler."""

import random
from collections.abc import Sequence

import pytest
from gradlane._core import lib
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.job.stragglers import (
    LEAST_STEPS,
    REMEMBERED,
    Lateness,
    Neighbour,
    Report,
    around,
    before_sums,
    merged,
    summary,
    worst,
)
from tests.support.effort import tries


def late(seconds: list[float]) -> Lateness:
    found = summary(seconds)
    assert found is not None
    return found


def test_the_summary_says_how_late_how_often_and_how_evenly() -> None:
    seconds = [0.1 + k / 1000 for k in range(32)]
    random.Random(1).shuffle(seconds)
    found = late(seconds)
    assert (found.steps, found.late) == (32, 32)
    assert (found.low, found.median, found.high) == pytest.approx((0.107, 0.115, 0.123))
    assert str(late([0.3] * 31 + [0.0])) == "late by 300 ms (300 to 300) in 31 of the last 32 steps"
    assert summary([0.004] * 32) is None
    assert summary([]) is None


def test_one_slow_step_makes_no_straggler_and_every_other_one_does() -> None:
    assert not late([9.0] + [0.0] * 31).persistent
    assert not late([0.1] * 15 + [0.0] * 17).persistent
    assert late([0.1] * 16 + [0.0] * 16).persistent
    assert not late([0.1] * (LEAST_STEPS - 1)).persistent
    assert late([0.1] * LEAST_STEPS).persistent


def test_it_counts_as_late_by_what_it_is_late_in_three_of_four_steps() -> None:
    assert late([0.1] * 24 + [0.0] * 8).counted == 0.0
    assert late([0.1] * 25 + [0.0] * 7).counted == 0.1
    assert late([9.0] * 10 + [0.2] * 22).counted == 0.2


def test_owners_judge_by_their_median_and_old_reports_do_not_count() -> None:
    says = [{2: late([0.1] * 8)}, {2: late([0.2] * 8)}, {2: late([0.3] * 8), 1: late([0.4] * 8)}]
    reports = [Report(100, 8, it) for it in says]
    assert {rank: it.median for rank, it in merged(reports, 100).items()} == {2: 0.2}
    old = Report(100 - REMEMBERED, 8, {0: late([0.9] * 8)})
    assert set(merged([old, *reports], 100)) == {2}
    assert set(merged([old], 99)) == {0}
    assert merged([old], 100) == {}, "the job has come to step 100, though nobody reports on it"
    assert merged([Report(0, 0, {})], 0) == {}
    assert merged([], 0) == {}


def test_who_knows_its_row_alone_says_nothing_of_others() -> None:
    row = frozenset({2, 3})
    reports = [Report(100, 8, {}, frozenset({0, 1})), Report(100, 8, {}, frozenset({4, 5}))] * 3
    reports += [Report(100, 8, {2: late([0.1] * 8)}, row)] * 2
    assert {rank: it.median for rank, it in merged(reports, 100).items()} == {2: 0.1}
    assert merged([*reports, *[Report(100, 8, {}, row)] * 3], 100) == {}


def test_who_is_ahead_makes_nobody_elses_judgement_old() -> None:
    reports = [Report(100 + REMEMBERED, 8, {2: late([0.1] * 8)}), Report(100, 8, {}), Report(99, 8, {})]
    assert merged(reports, 100) == {}
    assert merged(reports, 100 + REMEMBERED).keys() == {2}


def test_the_core_remembers_as_many_steps() -> None:
    assert int(lib.GL_LATE_STEPS) == REMEMBERED


def ring(
    came: Sequence[Sequence[float]], bias: float = 0.0, order: Sequence[int] | None = None
) -> dict[int, Neighbour]:
    """What the ranks of a ring know of the one behind them, if in step k rank r came at came[k - 1][r]."""
    workers = len(came[0])
    behind = [(rank + 1) % workers for rank in range(workers)] if order is None else order
    return {
        rank: Neighbour(up, {(step, 3): at[up] - at[rank] + bias for step, at in enumerate(came, 1)})
        for rank, up in enumerate(behind)
    }


@settings(max_examples=tries(100), deadline=None)
@given(data=st.data(), workers=st.integers(3, 12), steps=st.integers(1, 32), bias=st.floats(0, 0.5))
def test_what_all_know_of_their_neighbours_is_what_each_owner_would_know(
    data: st.DataObject, workers: int, steps: int, bias: float
) -> None:
    """By the median of all arrivals, whatever slices wait behind at all ranks alike; or from how long each has waited
    for a switch's sum, which comes to all `bias` after the last of them."""
    at = st.sampled_from([0.0, 0.0, 0.001, 0.2, 0.7])
    came = [data.draw(st.lists(at, min_size=workers, max_size=workers)) for _ in range(steps)]
    expected: dict[int, Lateness] = {}
    for rank in range(workers):
        medians = [sorted(of)[(workers - 1) // 2] for of in came]
        found = summary([max(0.0, of[rank] - median) for of, median in zip(came, medians, strict=True)])
        if found is not None:
            expected[rank] = found
    waits = {rank: {(k, 3): max(of) + bias - of[rank] for k, of in enumerate(came, 1)} for rank in range(workers)}
    for found in (around(ring(came, bias), workers, steps), before_sums(waits, workers, steps)):
        assert set(found) == set(expected)
        for rank, it in found.items():
            assert (it.steps, it.late) == (steps, expected[rank].late)
            assert (it.low, it.median, it.high) == pytest.approx(
                (expected[rank].low, expected[rank].median, expected[rank].high), abs=1e-6
            )


def test_of_a_switch_s_sums_only_what_all_say_counts_and_nothing_that_is_old() -> None:
    waits = {rank: {(k, 3): 0.0 if rank == 1 else 0.3 for k in range(1, 21)} for rank in range(4)}
    assert set(before_sums(waits, 4, 20)) == {1}
    assert before_sums(waits, 4, 20)[1].steps == 20
    assert before_sums(waits, 4, 10 + REMEMBERED)[1].steps == 10
    assert before_sums(waits, 4, 20 + REMEMBERED) == {}
    assert before_sums({rank: waits[rank] for rank in range(3)}, 4, 20) == {}
    some = {**waits, 2: {(k, 3): 0.3 for k in range(5, 21)}}
    assert before_sums(some, 4, 20)[1].steps == 16
    assert before_sums({**waits, 2: {(k, 4): 0.3 for k in range(1, 21)}}, 4, 20) == {}, "of another tensor"
    assert before_sums({}, 4, 20) == {}


def test_only_steps_that_all_ranks_know_count_and_none_that_is_old() -> None:
    came = [[0.0, 0.3, 0.0, 0.0]] * 20
    known = ring(came)
    some = {rank: Neighbour(it.rank, {m: v for m, v in it.later.items() if m[0] > rank}) for rank, it in known.items()}
    assert around(some, 4, 20)[1].steps == 17
    assert around(known, 4, newest=10 + REMEMBERED)[1].steps == 10
    assert around(known, 4, newest=20 + REMEMBERED) == {}
    other = {**known, 2: Neighbour(3, {(step, 4): 0.0 for step in range(1, 21)})}
    assert around(other, 4, 20) == {}, "another tensor says nothing of this one"


@pytest.mark.parametrize("order", [[1, 2, 3, 1], [1, 0, 3, 2], [0, 0, 0, 0], [1, 2, 3, 3]])
def test_neighbours_that_are_no_ring_say_nothing(order: list[int]) -> None:
    assert around(ring([[0.0, 0.3, 0.0, 0.0]] * 20, order=order), 4, 20) == {}
    whole = ring([[0.0, 0.3, 0.0, 0.0]] * 20)
    assert around({rank: it for rank, it in whole.items() if rank != 2}, 4, 20) == {}
    assert around({}, 4, 0) == {}


def test_of_direct_all_reduces_and_rings_the_worse_counts() -> None:
    a, b = late([0.1] * 8), late([0.2] * 8)
    assert worst({1: a, 2: b}, {1: b, 3: a}) == {1: b, 2: b, 3: a}
    assert worst({}, {}) == {}
