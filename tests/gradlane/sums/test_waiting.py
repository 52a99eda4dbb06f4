# SPDX-License-Identifier: Apache-2.0
"""A step that a switch sums goes on without whoever has not come, once half of the workers have waited for long."""

from pathlib import Path
from typing import Any

import pytest

from gradlane import job, json_object
from gradlane.control.sums import MOST_STREAMS, Waits
from gradlane.daemon.sums import TICK_SECONDS
from tests.gradlane.sums.halting_ranks import AFTER, LATE, TRANSPORT, Job
from tests.support.agents import loopback
from tests.support.members import job_file


def said(*steps: tuple[int, int]) -> dict[str, Any]:
    return {"waiting": [list(it) for it in steps]}


@pytest.mark.parametrize(("workers", "least"), [(2, 1), (3, 2), (4, 2), (5, 3), (32, 16)])
def test_half_of_the_workers_say_it_and_it_is_told_once(workers: int, least: int) -> None:
    waits = Waits(workers)
    found = [waits.hear(rank, said((2, 7))) for rank in range(workers)]
    assert found == [[(2, 7)] if rank == least - 1 else [] for rank in range(workers)]
    assert waits.hear(0, said((2, 7))) == []


def test_each_worker_has_one_voice_for_each_tensor() -> None:
    waits = Waits(4)
    assert not any(waits.hear(0, said((2, 7))) for _ in range(5))
    assert waits.hear(1, said((3, 7), (2, 6))) == []
    assert waits.hear(2, said((2, 1 << 31))) == []  # a liar
    assert waits.hear(3, said((2, 7), (3, 7))) == [(2, 7), (3, 7)]
    assert waits.hear(1, said((2, 8))) == waits.hear(0, said((2, 6))) == waits.hear(3, said((2, 6))) == []
    assert waits.hear(0, said((2, 8))) == [(2, 8)]


@pytest.mark.parametrize("rows", [[[1]], [[1, 0]], [[-1, 3]], [[MOST_STREAMS, 3]], [[1, 1 << 32]], [[1, 1]] * 513, 3])
def test_what_nobody_can_wait_in_is_refused(tmp_path: Path, rows: Any) -> None:
    ranks = Job(tmp_path, LATE)
    with pytest.raises(json_object.NONSENSE):
        ranks.leader.sums.hear(1, {"waiting": rows})
    with pytest.raises(json_object.NONSENSE):
        ranks.ranks[1].sums.hear(0, {"go_on": rows})
    with pytest.raises(ValueError, match="does not lead"):
        ranks.ranks[1].sums.hear(2, {"go_on": [[1, 1]]})
    assert not any(rank.exchange.gone_on for rank in ranks.ranks)


@pytest.mark.parametrize("late", range(3))
def test_all_go_on_whoever_is_late_and_what_waits_is_told_once(tmp_path: Path, late: int) -> None:
    ranks = Job(tmp_path, LATE)
    for rank in range(3):
        if rank != late:
            ranks.ranks[rank].exchange.waiting = [(0, 4), (2, 4)]
    ranks.run(3 * TICK_SECONDS)
    assert [rank.exchange.gone_on for rank in ranks.ranks] == [[(0, 4), (2, 4)]] * 3
    ranks.ranks[1].exchange.waiting = [(0, 5)]
    ranks.run(3 * TICK_SECONDS)
    assert all(len(rank.exchange.gone_on) == 2 for rank in ranks.ranks)
    assert sum("waiting" in content for _, by, content in ranks.said if by == 1) <= 2


def test_a_job_may_leave_out_late_workers_where_a_switch_sums(tmp_path: Path) -> None:
    for lines in (TRANSPORT, TRANSPORT.replace('"switch"', '"auto"')):
        parsed = job.load(job_file(tmp_path, loopback(3), lines=lines + LATE))
        assert parsed.loss.late is not None
        assert parsed.loss.late.after == AFTER
