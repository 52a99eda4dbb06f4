# SPDX-License-Identifier: Apache-2.0
"""What ranks make of sums that a switch owes them: without agents, at given times."""

import logging
from pathlib import Path

import pytest

from gradlane.daemon import sums
from gradlane.daemon.sums import (
    HALT_SECONDS,
    MOST_OVERDUE_SECONDS,
    MOST_SWITCH_REST_SECONDS,
    OVERDUE_SECONDS,
    SWITCH_REST_SECONDS,
    TICK_SECONDS,
)
from gradlane.job.plans import Plan
from tests.gradlane.sums.halting_ranks import GENERATION, WORKERS, Job


@pytest.fixture(name="ranks")
def _ranks(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_while_sums_come_nobody_halts(ranks: Job) -> None:
    for _ in range(20):
        ranks.begin()
        ranks.run(OVERDUE_SECONDS - TICK_SECONDS)
        ranks.sum()
    assert ranks.said == []


def test_a_late_worker_is_no_fault_and_all_ask_ever_more_seldom(ranks: Job, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ranks.begin(0, 2)
    begun = ranks.now
    ranks.run(18)
    waited = [at - begun for at in ranks.halts()]
    most = MOST_OVERDUE_SECONDS
    expected = [0.25, 0.5, 1.0, 2.0, 4.0, 4.0 + most, 4.0 + 2 * most, 4.0 + 3 * most]
    assert waited == pytest.approx(expected, abs=0.8)
    (line,) = [it.getMessage() for it in caplog.records]
    assert "the sums of tensor 2, step 4 wait for rank 1 (h1" in line
    ranks.begin(1)
    ranks.run(0.1)  # it has only just come
    ranks.sum()
    ranks.begin()
    begun = ranks.now
    ranks.run(0.65)  # patience is what it was at first
    assert [at - begun for at in ranks.halts()[-2:]] == pytest.approx([0.25, 0.5], abs=0.15)
    for rank in ranks.ranks:
        assert all(it == (GENERATION, True, ()) for it in rank.exchange.resumed[:-2]), (
            "who is late need not be reminded"
        )
        assert rank.exchange.resumed[-2:] == [(GENERATION, True, ((2, 5),)), (1, False, ((2, 5),))]


def test_who_has_only_just_come_does_not_look_like_a_dead_switch(ranks: Job) -> None:
    """The others have missed a sum for long by then."""
    ranks.begin(0, 1)
    ranks.run(2 * OVERDUE_SECONDS)
    ranks.begin(2)
    ranks.run(2 * TICK_SECONDS)
    assert len(ranks.halts()) == 2
    for rank in ranks.ranks:
        assert rank.exchange.resumed == [(GENERATION, True, ()), (GENERATION, True, ((2, 4),))]


@pytest.mark.parametrize("received", [0, 9])
def test_a_switch_that_does_not_answer_is_left_by_all_and_the_log_says_why(
    ranks: Job, received: int, caplog: pytest.LogCaptureFixture
) -> None:
    for rank in ranks.ranks:
        rank.exchange.received = received
    ranks.begin()
    ranks.run(0.65)
    for rank in ranks.ranks:
        assert rank.exchange.resumed == [(GENERATION, True, ((2, 4),)), (1, False, ((2, 4),))]
        status = rank.sums.status({"reduced_bytes": 8, "summed_bytes": 2})
        assert (status["by_switch"], status["generation"]) == (False, 1)
        assert (status["halts"], status["fallbacks"], status["share"]) == (2, 1, 0.25)
        expected = "does not answer any more" if received else "has no slots for the job, or does not sum"
        assert expected in status["reason"]
        assert "(tensor 2, step 4: all have begun it, and a sum is missing for 0.60 s" in status["reason"]
    lines = [it.getMessage() for it in caplog.records]
    assert len(lines) == WORKERS
    assert all("hosts sum from now on" in line and "tried again after 10 s" in line for line in lines)


def test_the_switch_is_tried_again_ever_more_seldom_and_soon_again_once_it_has_worked(ranks: Job) -> None:
    rest, number = SWITCH_REST_SECONDS, 0
    for _ in range(9):
        ranks.begin()
        ranks.run(0.7)
        for rank in ranks.ranks:
            assert rank.exchange.resumed[-1][:2] == (2 * number + 1, False)
        gone = ranks.now
        ranks.leader.ownership.may_propose = number != 1
        ranks.run(rest - 1)
        assert len(ranks.leader.ownership.proposed) == number
        ranks.run(1)
        if number == 1:  # the job rests just now
            assert len(ranks.leader.ownership.proposed) == number
            ranks.leader.ownership.may_propose = True
            ranks.run(TICK_SECONDS)
        plan, reason = ranks.leader.ownership.proposed[-1]
        assert ranks.now - gone < rest + 1
        assert plan == Plan((1,) * WORKERS, generation=2 * number + 2)
        assert reason == f"it is tried again after {ranks.now - gone:.0f} s by hosts"
        ranks.leader.ownership.proposed = [(plan, reason)] * (number + 1)
        for rank in ranks.ranks:
            rank.exchange.step = 8
        for rank in ranks.ranks:
            rank.ownership.plan = (9, plan)
            rank.sums.look(ranks.now)
            assert not rank.sums.status({"reduced_bytes": 0, "summed_bytes": 0})["by_switch"], "step 9 has not begun"
            rank.exchange.step = 9
            status = rank.sums.status({"reduced_bytes": 0, "summed_bytes": 0})
            assert (status["by_switch"], status["generation"]) == (True, 2 * number + 2)
            assert (status["reason"], status["share"]) == ("tried again from step 9 on", 0.0)
        number += 1
        rest = min(2 * rest, MOST_SWITCH_REST_SECONDS)
    ranks.run(MOST_SWITCH_REST_SECONDS)
    ranks.begin()
    ranks.run(0.7)
    ranks.run(SWITCH_REST_SECONDS)
    assert len(ranks.leader.ownership.proposed) > number


def test_a_rank_that_does_not_say_how_far_it_is_is_named(ranks: Job) -> None:
    ranks.cut = {2}
    ranks.begin()
    ranks.run(0.3 + HALT_SECONDS - 0.2)
    assert not any(rank.failures for rank in ranks.ranks)
    ranks.run(0.3)
    (reason,) = ranks.leader.failures
    assert "for 10 s rank 2 (h2" in reason
    assert "rank 1 " not in reason
    ranks.cut = {0, 2}
    ranks.run(2.2)
    (reason,) = ranks.ranks[1].failures
    assert "rank 0 (h0" in reason
    assert "has not ended that" in reason


def test_a_time_in_which_an_agent_did_not_run_does_not_count(ranks: Job) -> None:
    ranks.cut = {2}
    ranks.begin()
    ranks.run(0.3)
    ranks.now += 60
    ranks.run(HALT_SECONDS - 1)
    assert not ranks.leader.failures
    ranks.cut = set()
    ranks.run(0.1)
    assert all(len(rank.exchange.resumed) == 1 for rank in ranks.ranks)


def test_sums_that_are_late_as_no_agent_has_run_are_not_missing(ranks: Job) -> None:
    """The machine was busy; so was the switch."""
    ranks.begin()
    ranks.run(0.1)
    ranks.pause(5.0, *range(WORKERS))
    ranks.sum()
    assert ranks.halts() == []
    ranks.begin()
    ranks.pause(5.0, *range(WORKERS))
    ranks.run(0.1)
    assert ranks.halts() == []


def test_a_switch_that_was_only_busy_goes_on(ranks: Job) -> None:
    for _ in range(3):
        ranks.begin()
        ranks.run(2 * OVERDUE_SECONDS)
        ranks.sum()
        ranks.run(0.1)
    assert len(ranks.halts()) == 3
    for rank in ranks.ranks:
        assert rank.exchange.resumed == [(GENERATION, True, ((2, step),)) for step in (4, 5, 6)]


def test_while_a_worker_s_agent_has_no_time_nobody_blames_the_switch(ranks: Job) -> None:
    """It has begun the step, but its contributions may be here yet."""
    ranks.begin()
    ranks.run(0.1)
    for _ in range(3):
        ranks.pause(0.6, 2)
        ranks.run(TICK_SECONDS)
    assert len(ranks.halts()) == 3
    assert all(rank.exchange.resumed == [(GENERATION, True, ((2, 4),))] * 3 for rank in ranks.ranks)
    ranks.run(3)
    assert all(rank.exchange.resumed[-1] == (1, False, ((2, 4),)) for rank in ranks.ranks)


def test_who_misses_sums_all_the_time_can_t_have_all_halt_all_the_time(ranks: Job) -> None:
    for _ in range(40):
        for halt in range(len(ranks.halts()) + 1):
            ranks.leader.sums.hear(1, {"overdue": halt})
        ranks.run(TICK_SECONDS)
    assert len(ranks.halts()) <= 2 / OVERDUE_SECONDS + 1


def test_by_hosts_nobody_misses_a_sum(ranks: Job) -> None:
    ranks.begin()
    ranks.run(0.65)
    ranks.leader.sums.hear(1, {"overdue": 2})
    ranks.run(1)
    assert len(ranks.halts()) == 2


def test_states_that_contradict_each_other_end_the_job_and_both_are_named(ranks: Job) -> None:
    ranks.begin()
    ranks.ranks[1].exchange.completed = 4
    ranks.ranks[2].exchange.begun = 3
    ranks.run(0.3)
    (reason,) = ranks.leader.failures
    assert "rank 1 has completed step 4 of tensor 2, and rank 2 has not begun it" in reason


@pytest.mark.parametrize("rank", [0, 1])
def test_a_step_that_can_t_be_run_again_ends_the_job_where_it_can_t(ranks: Job, rank: int) -> None:
    ranks.ranks[rank].exchange.refuses = True
    ranks.begin()
    if rank == 0:
        ranks.run(0.3)
        (reason,) = ranks.leader.failures
        assert reason.startswith("rank 0 (h0")
        assert "can't be here" in reason
    else:
        with pytest.raises(ValueError, match="can't be here"):
            ranks.run(0.3)


def test_generations_are_serial_numbers() -> None:
    top = (1 << 32) - 1
    assert [sums._after(it) for it in (1, top - 1, top)] == [2, top, 1]
    assert sums._newer(2, 1)
    assert sums._newer(1, top)
    assert not sums._newer(top, 1)
    assert not sums._newer(5, 5)
    assert sums._newer(1 << 31, 1)
    assert not sums._newer((1 << 31) + 1, 1)
