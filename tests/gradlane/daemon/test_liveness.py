# SPDX-License-Identifier: Apache-2.0
"""Who is named when nothing comes of an operation, and when."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from gradlane.daemon import liveness
from gradlane.daemon.liveness import (
    INDIRECT_SECONDS,
    LATE_SECONDS,
    SILENT_SECONDS,
    STOPPED_SECONDS,
    WATCH_SECONDS,
    Progress,
    Stopped,
    stall,
    undecided,
)


@dataclass
class Waiting:
    what: str = "the all-reduce"
    ranks: list[int] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    direct: bool = True
    seconds: float = 0.0


HERE, OTHER, ELSEWHERE = "the all-reduce", "another one", None
PATIENCE = 40.0


@pytest.mark.parametrize(
    ("waiting", "idle", "waits_for", "named", "words"),
    [
        # All have contributed, and nothing comes: the network.
        (Waiting(ranks=[1]), SILENT_SECONDS, {1: HERE, 2: HERE}, [1], "do not get through"),
        (Waiting(), SILENT_SECONDS, {1: HERE, 2: HERE}, [1, 2], "do not get through"),
        # What is missing may wait for another, whom somebody else can name.
        (Waiting(ranks=[1], direct=False), SILENT_SECONDS, {1: HERE, 2: HERE}, None, ""),
        (Waiting(ranks=[1], direct=False), SILENT_SECONDS + INDIRECT_SECONDS, {1: HERE, 2: HERE}, [1], "do not get"),
        # ... or is known to wait for another.
        (Waiting(ranks=[1], direct=False), SILENT_SECONDS + INDIRECT_SECONDS, {1: HERE, 2: ELSEWHERE}, None, ""),
        (Waiting(ranks=[1], direct=False), LATE_SECONDS, {1: HERE, 2: ELSEWHERE}, [2], "did not start"),
        # Its own contribution waits for nobody.
        (Waiting(ranks=[1]), SILENT_SECONDS, {1: HERE, 2: ELSEWHERE}, [1], "do not get through"),
        # A server, which submits nothing itself, and waits for workers.
        (Waiting(ranks=[4]), SILENT_SECONDS, {1: HERE}, [4], "do not get through"),
        (Waiting(ranks=[4]), SILENT_SECONDS, {1: ELSEWHERE, 2: HERE}, None, ""),
        (Waiting(ranks=[4]), LATE_SECONDS, {1: ELSEWHERE, 2: HERE}, [1], "did not start"),
        # One has not: it may be busy for long.
        (Waiting(ranks=[1]), SILENT_SECONDS, {1: ELSEWHERE, 2: HERE}, None, ""),
        (Waiting(ranks=[1, 2]), LATE_SECONDS, {1: ELSEWHERE, 2: HERE}, [1], "did not start"),
        (Waiting(), LATE_SECONDS, {1: HERE, 2: ELSEWHERE}, [2], "the job waits 40 s"),
        # It waits in another group, for whoever is late there.
        (Waiting(ranks=[1]), LATE_SECONDS, {1: OTHER}, [1], "as it waits itself (another one); the job waits 80 s"),
        # A process of this host has not.
        (Waiting(processes=[1]), SILENT_SECONDS, {1: HERE}, None, ""),
        (Waiting(processes=[1]), LATE_SECONDS, {1: HERE}, [], "did not start"),
        # Something comes.
        (Waiting(ranks=[1]), SILENT_SECONDS - 1, {1: HERE}, None, ""),
    ],
)
def test_who_is_named(
    waiting: Waiting, idle: float, waits_for: dict[int, str | None], named: list[int] | None, words: str
) -> None:
    found = stall(waiting, idle, waits_for, PATIENCE)
    assert (None if found is None else found.ranks) == named
    assert words in ("" if found is None else found.how)


def test_who_is_late_ends_the_job_when_its_patience_is_over_and_the_network_at_once() -> None:
    late, here, held_up = {1: ELSEWHERE}, {1: HERE}, {1: OTHER}
    cases: list[tuple[float, dict[int, str | None], bool]] = [
        (PATIENCE - 1, late, False),
        (PATIENCE, late, True),
        (SILENT_SECONDS, here, True),
        (2 * PATIENCE - 1, held_up, False),
        (2 * PATIENCE, held_up, True),
        (PATIENCE, {**held_up, 2: ELSEWHERE}, True),
    ]
    for idle, waits_for, over in cases:
        found = stall(Waiting(ranks=list(waits_for)), idle, waits_for, PATIENCE)
        assert found is not None
        assert found.over == over


def test_who_has_waited_elsewhere_has_as_much_time_as_any_from_then_on() -> None:
    """That it waits is heard at second 24, and that it has done so from 20.5 on; then it waits again, from 38 on."""
    progress = Progress()
    for second in range(10, 41):
        idle = progress.idle("a", float(second))
        if 24 <= second <= 35:
            assert liveness.waits_elsewhere(Waiting(ranks=[1]), {1: OTHER})
            progress.excuse(second - 20.5)
        if second == 40:
            progress.excuse(2)
    assert (idle, progress.excused) == (30, 14.5 + 2)
    assert not liveness.waits_elsewhere(Waiting(ranks=[1]), {1: ELSEWHERE})
    for idle, excused, over in ((PATIENCE, 15, False), (PATIENCE + 15, 15, True), (2 * PATIENCE, 3 * PATIENCE, True)):
        found = stall(Waiting(ranks=[1]), idle, {1: ELSEWHERE}, PATIENCE, excused=excused)
        assert found is not None
        assert found.over == over
    assert progress.idle("b", 41.0) == progress.excused == 0


def test_no_more_is_excused_than_nothing_came_for() -> None:
    progress = Progress()
    progress.idle("a", 10.0)
    progress.idle("a", 12.0)
    progress.excuse(100.0)
    progress.idle("a", 13.0)
    progress.excuse(101.0)
    assert progress.excused == 3
    progress.idle("b", 14.0)
    progress.idle("b", 15.0)
    progress.excuse(5.0)
    assert progress.excused == 1


def test_who_has_left_and_is_waited_for_ends_the_job() -> None:
    suspects, waits_for = Waiting(ranks=[1, 2, 3]), {1: ELSEWHERE, 2: HERE, 3: ELSEWHERE}
    for idle, left, named in ((SILENT_SECONDS - 1, [1], None), (SILENT_SECONDS, [1], [1]), (SILENT_SECONDS, [2], None)):
        found = stall(suspects, idle, waits_for, PATIENCE, left)
        assert (None if found is None else (found.ranks, found.over)) == (None if named is None else (named, True))


def test_progress_is_any_change() -> None:
    progress = Progress()
    assert progress.idle(("a", 1), 10.0) == 0
    assert [progress.idle(("a", 1), 11.0 + second) for second in range(7)] == [1, 2, 3, 4, 5, 6, 7]
    assert progress.idle(("a", 2), 18.0) == 0
    assert progress.idle(("b", 2), 19.0) == 0


def test_while_an_agent_does_not_run_nobody_is_idle() -> None:
    progress = Progress()
    progress.idle("a", 10.0)
    assert progress.idle("a", 11.0) == 1
    assert progress.idle("a", 31.0) <= 1 + 2 * WATCH_SECONDS


def test_a_stopped_process_is_seen_after_a_while_and_one_that_goes_on_is_not() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        stopped = Stopped()
        assert stopped.look({0: process.pid, 1: os.getpid()}, 0.0) is None
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert liveness.is_stopped(process.pid)
        assert stopped.look({0: process.pid}, 1.0) is None
        assert stopped.look({0: process.pid}, 1.0 + STOPPED_SECONDS) == (0, process.pid)
        process.send_signal(signal.SIGCONT)
        while liveness.is_stopped(process.pid):
            pass
        assert stopped.look({0: process.pid}, 20.0) is None
    finally:
        process.kill()
        process.wait()
    assert not liveness.is_stopped(0)


def test_of_what_others_wait_for_a_few_are_shown() -> None:
    waits_for: dict[int, str | None] = {rank: f"{rank} " + "x" * 5000 for rank in range(1, 200)}
    waiting: Any = Waiting()
    found = stall(waiting, LATE_SECONDS, waits_for, PATIENCE)
    assert found is not None
    assert len(found.how) < 6000
    assert "and 191 more" in found.how


def test_a_plan_that_is_not_decided_is_reported_and_ends_the_job() -> None:
    """Rank 0 withdraws it soon, if it lives."""
    assert undecided(LATE_SECONDS - 1, PATIENCE) is None
    reported, ended = undecided(LATE_SECONDS, PATIENCE), undecided(PATIENCE, PATIENCE)
    assert reported is not None
    assert ended is not None
    assert (reported.ranks, reported.over, ended.over) == ([0], False, True)
