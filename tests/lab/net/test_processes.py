# SPDX-License-Identifier: Apache-2.0
"""Processes are watched, named when they die, and never left behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.model.errors import ProcessError
from lab.net.processes import Supervisor, wait_for_exit
from tests.support.liveness import gone

SLEEP = ["sleep", "60"]


def test_a_killed_process_is_named_before_one_that_gave_up(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as supervisor:
        first = supervisor.start("worker 0", ["sh", "-c", "echo lost my peer; exit 1"])
        second = supervisor.start("switch s1", SLEEP)
        second.signal_group(signal.SIGKILL)
        for child in (first, second):
            wait_for_exit([child], 5)
        dead = supervisor.dead()
        assert [child.name for child in dead] == ["switch s1", "worker 0"]
        assert f"switch s1 (sleep, pid {second.pid}) died with signal 9; it wrote nothing" in dead[0].obituary()
        assert "exited with status 1; its last line: lost my peer" in dead[1].obituary()


def test_a_process_that_may_end_is_no_death_if_it_ended_well(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("worker 0", ["true"])
        wait_for_exit([child], 5)
        assert supervisor.dead(may_end=[child]) == []
        assert supervisor.dead() == [child]


def test_leaving_ends_all_even_who_ignores_sigterm(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as supervisor:
        stubborn = supervisor.start("stubborn", ["sh", "-c", "trap '' TERM; echo ready; sleep 60 & wait; sleep 60"])
        stubborn.wait_ready(5)
        polite = supervisor.start("polite", SLEEP)
    assert gone(stubborn.pid)
    assert gone(polite.pid)


def test_readiness_is_awaited_and_its_absence_named(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as supervisor:
        supervisor.start("a", ["sh", "-c", "echo 'gradlane: ready: here'; sleep 60"]).wait_ready(5)
        with pytest.raises(ProcessError, match=r"b \(sh, pid \d+\) is not ready after 0.2 s; its last line: not yet"):
            supervisor.start("b", ["sh", "-c", "echo not yet; sleep 60"]).wait_ready(0.2)
        with pytest.raises(ProcessError, match=r"c .*exited with status 3; its last line: no port"):
            supervisor.start("c", ["sh", "-c", "echo no port; exit 3"]).wait_ready(5)


def test_what_a_process_says_again_is_awaited(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start(
            "a", ["sh", "-c", f"echo read 1; until [ -e {go} ]; do sleep 0.01; done; echo read 2; sleep 60"]
        )
        child.wait_count("read", 1, 5)
        assert child.count("read") == 1
        with pytest.raises(ProcessError, match=r"is not ready after 0.2 s; its last line: read 1"):
            child.wait_count("read", 2, 0.2)
        go.touch()
        child.wait_count("read", 2, 5)


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("agent of h1", ["/nonexistent/gradlane"])
        with pytest.raises(ProcessError, match=r"agent of h1 .*No such file"):
            child.wait_ready(5)


def test_children_die_with_a_runner_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from lab.net.processes import Supervisor\n"
        f"child = Supervisor(Path({str(tmp_path)!r})).start('x', ['sleep', '60'])\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    runner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    pid = int(runner.stdout.readline())
    deadline = time.monotonic() + 60
    # The child is its own only once setpriv has become it.
    while Path(f"/proc/{pid}/comm").read_text().strip() != "sleep":
        assert time.monotonic() < deadline
    runner.kill()
    runner.wait()
    while not gone(pid):
        assert time.monotonic() < deadline
    runner.stdout.close()
