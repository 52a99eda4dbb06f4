# SPDX-License-Identifier: Apache-2.0
"""Who counts as a straggler, and when shares change."""

import random

import pytest
from gradlane._core import lib

from gradlane.job.ownership import UNITS, Case, Owner
from gradlane.job.stragglers import GAIN, LEAST_STEPS, REMEMBERED, Lateness, Report, better, merged, summary


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
    assert {rank: it.median for rank, it in merged(reports).items()} == {2: 0.2}
    old = Report(100 - REMEMBERED, 8, {0: late([0.9] * 8)})
    assert set(merged([old, *reports])) == {2}
    assert set(merged([old])) == {0}
    assert merged([Report(0, 0, {})]) == {}
    assert merged([]) == {}


def test_the_core_remembers_as_many_steps() -> None:
    assert int(lib.GL_LATE_STEPS) == REMEMBERED


def case(late: float, workers: int = 8) -> Case:
    return Case(10**6, workers, (*[Owner(1e9)] * (workers - 1), Owner(1e9, late)), late)


def test_shares_change_for_what_is_worth_it_and_back() -> None:
    for workers in (4, 8):
        found = better(case(0.3, workers), [1] * workers)
        assert found is not None
        assert found.weights[-1] == 0
        assert sum(found.weights) == UNITS
        assert found.times == pytest.approx(2 * (workers - 1) / workers, rel=1e-3)
        assert better(case(0.3, workers), found.weights) is None
        back = better(case(0.0, workers), found.weights)
        assert back is not None
        assert back.weights == [1] * workers


def test_a_little_gain_is_none() -> None:
    """Of a straggler among many that is only just late; and of two workers, of whom neither has more to send."""
    assert better(case(0.0), [1] * 8) is None
    assert better(case(0.0), [100, *[100 + int(90 * GAIN)] * 7]) is None
    assert better(case(0.3, 2), [1, 1]) is None
