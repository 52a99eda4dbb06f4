# SPDX-License-Identifier: Apache-2.0
"""What ranks tell of late workers and slow links, what the leader makes of it, and who leads after it."""

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.support.deciding import RATE, WORKERS, Rank


def test_workers_report_to_the_leader_and_show_what_it_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    worker, leader = Rank(tmp_path, 2), Rank(tmp_path, 0)
    worker.engine.late[3] = leader.engine.late[3] = 0.3
    worker.second(0)
    assert worker.peers.said == [], "it owns nothing"
    worker.second()
    (report, to) = worker.peers.said[-1]
    assert to == [0]
    leader.engine.late[3] = 0.1
    leader.exchange.step = 10
    leader.ownership.hear(1, report)
    leader.ownership.hear(2, report)
    leader.ownership.look(0.0)
    worker.ownership.hear(0, leader.peers.last("known"))
    for at in (worker, leader):
        (found,) = at.ownership.stragglers()
        assert (found["rank"], found["straggler"], found["median"], found["late_steps"]) == (3, True, 0.3, 10)
    assert sum("is a straggler: late by 300 ms" in record.getMessage() for record in caplog.records) == 2
    worker.ownership.hear(0, {"known": {"late": {}, "slow": {}}})
    assert worker.ownership.stragglers() == []
    assert "is no straggler any more" in caplog.records[-1].getMessage()


def test_in_a_grid_a_straggler_is_named_by_those_of_its_row(tmp_path: Path) -> None:
    ranks = [Rank(tmp_path, rank) for rank in range(WORKERS)]
    leader = ranks[0]
    leader.exchange.step = 20
    for number, rank in enumerate(ranks):
        rank.exchange.step = 20
        rank.engine.row = range(2, WORKERS) if number >= 2 else range(2)
        rank.engine.late[3] = 0.3
        rank.ownership.look(0.0)
        if number:
            (report, _) = rank.peers.said[-1]
            assert report["report"]["known"] == list(rank.engine.row)
            leader.ownership.hear(number, report)
    leader.ownership.look(1.0)
    (found,) = leader.ownership.stragglers()
    assert (found["rank"], found["straggler"], found["late_steps"]) == (3, True, 20)
    with pytest.raises(ValueError, match="rank 4"):
        leader.ownership.hear(1, {"report": {"step": 20, "steps": 20, "late": {}, "known": [WORKERS]}})


def test_who_has_waited_least_for_the_sums_of_a_switch_is_late(tmp_path: Path) -> None:
    ranks = [Rank(tmp_path, rank) for rank in range(WORKERS)]
    leader = ranks[0]
    leader.exchange.step = 20
    for number, rank in enumerate(ranks):
        rank.engine.waits = {(step, 3): 0.001 if number == 2 else 0.3 for step in range(1, 21)}
        rank.ownership.look(0.0)
        if number:
            (report, to) = rank.peers.said[-1]
            assert to == [0]
            leader.ownership.hear(number, report)
    leader.ownership.look(1.0)
    (found,) = leader.ownership.stragglers()
    assert (found["rank"], found["straggler"], found["steps"], found["late_steps"]) == (2, True, 20, 20)
    assert found["median"] == pytest.approx(0.299)


@pytest.mark.parametrize("rows", [[[1, 0]], [[21 + WORKERS, 0, 0.1]], [[1, 0, float("nan")]], 7, {"1": 2}])
def test_what_no_worker_can_have_waited_is_refused(tmp_path: Path, rows: Any) -> None:
    leader = Rank(tmp_path, 0)
    leader.exchange.step = 20
    with pytest.raises((ValueError, TypeError)):
        leader.ownership.hear(1, {"report": {"sums": rows}})


def report_of(step: int, late: int) -> dict[str, Any]:
    """What an owner says of a worker that was late in all of the latest steps."""
    return {"report": {"step": step, "steps": 20, "late": {str(late): [20, 20, 0.3, 0.3, 0.3]}}}


def test_what_was_late_in_a_seldom_tensor_long_ago_does_not_count(tmp_path: Path) -> None:
    """Gradients go round a ring, where nobody is late; what is reduced directly counts steps of its own."""
    leader = Rank(tmp_path, 0)
    for rank in range(1, WORKERS):
        leader.ownership.hear(rank, report_of(1, 2))
    leader.engine.late[2] = 0.3
    leader.second(20)
    assert [it["rank"] for it in leader.ownership.stragglers()] == [2]
    leader.engine.latest = 20
    leader.second(30_000)
    assert leader.ownership.stragglers() == []


def test_who_reports_on_steps_that_cannot_be_does_not_make_the_others_reports_old(tmp_path: Path) -> None:
    leader = Rank(tmp_path, 0)
    leader.second(20)
    leader.ownership.hear(1, report_of(21, 3))
    for step in (22, 10**12):
        with pytest.raises(ValueError, match=f"reports on step {step}, and no rank can have come beyond 21"):
            leader.ownership.hear(1, report_of(step, 3))
    leader.second(0)
    assert leader.ownership.stragglers() == [], "one of two says so"


def test_what_goes_by_multicast_is_reported(tmp_path: Path) -> None:
    rank = Rank(tmp_path, 2)
    rank.engine.delivered_to_group = 1000
    rank.second(0)
    assert [content["report"]["link"]["flows"] for content, _ in rank.peers.said] == [{"-1": False}]
    leader = Rank(tmp_path, 0)
    leader.ownership.hear(2, rank.peers.said[0][0])


SURVIVE = '\n[sync]\nscheme = "ripples"'


def surviving(folder: Path) -> list[Rank]:
    """Where the link of rank 2 is slow, as all know."""
    ranks = [Rank(folder, rank, SURVIVE, deaths="survive") for rank in range(WORKERS)]
    for rank in ranks:
        rank.ownership.hear(0, {"known": {"late": {}, "slow": {"2": RATE / 2, "0": RATE / 4}}})
    return ranks


def test_the_successor_of_a_dead_leader_judges_on_and_nobody_keeps_what_is_dead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    _, first, _, last = surviving(tmp_path)
    caplog.clear()
    for rank in (first, last):
        rank.peers.leading.leader, rank.peers.dead = 1, {0: "its host is off"}
    last.engine.delivered = 1000
    last.second(0)
    (report, to) = last.peers.said[-1]
    assert to == [1]
    first.ownership.hear(3, report)
    first.second(0)
    last.ownership.hear(1, first.peers.last("known"))
    for rank in (first, last):
        assert [(it["rank"], it["link"]) for it in rank.ownership.stragglers()] == [(2, RATE / 2)]
    assert all("rank 2 " not in record.getMessage() for record in caplog.records), "it has been slow all the time"
    first.peers.dead = last.peers.dead = {**first.peers.dead, 2: "its host is off"}
    for _ in range(2):
        first.second(0)
        last.ownership.hear(1, first.peers.last("known"))
        assert first.ownership.stragglers() == last.ownership.stragglers() == []
    assert all("sound again" not in record.getMessage() for record in caplog.records)


def test_who_hears_of_a_leaders_death_later_than_its_successor_waits(tmp_path: Path) -> None:
    _, first, _, last = surviving(tmp_path)
    first.ownership.hear(0, {"known": {"late": {}, "slow": {}}})  # the others did not hear this any more
    first.peers.leading.leader, first.peers.dead = 1, {0: "its host is off"}
    for waits in (True, False):
        first.second(0)
        last.ownership.hear(1, first.peers.last("known"))
        assert [it["rank"] for it in last.ownership.stragglers()] == ([0, 2] if waits else [])
        last.peers.leading.leader = 1
