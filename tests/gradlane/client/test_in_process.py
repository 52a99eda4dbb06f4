# SPDX-License-Identifier: Apache-2.0
"""An agent in the training process: what a job does over it, and how it begins and ends."""

import contextlib
import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradlane import AgentError, Communicator
from gradlane.client import agent_socket
from tests.support import members
from tests.support.agents import Agent, agents, loopback, until
from tests.support.communicators import Ranks, each

BEGIN = """
import ctypes, os, signal, sys, time
import numpy, gradlane
c = gradlane.Communicator(sys.argv[1], 1, "process")
c.all_reduce(numpy.ones(1000))
"""
FIRST = 11  # of the addresses: others on this machine have agents of the fixture
PROMPT = 5.0  # s, less than any silence is noticed in


def job_file(folder: Path, count: int = 2, **job: Any) -> Path:
    return members.job_file(folder, loopback(count, FIRST), lines='buffer = "4MB"', **job)


def joined(file: Path, count: int) -> Ranks:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda rank: Communicator(file, rank, "process"), range(count)))


@contextlib.contextmanager
def beside(file: Path, end: str) -> Iterator[tuple[Communicator, "subprocess.Popen[str]"]]:
    """Rank 0 here, which has reduced something with rank 1: that of another process, which goes on with `end`."""
    with subprocess.Popen([sys.executable, "-c", BEGIN + end, str(file)], text=True, stderr=subprocess.PIPE) as process:
        first = Communicator(file, 0, "process")
        first.all_reduce(np.ones(1000))
        try:
            yield first, process
        finally:
            with contextlib.suppress(AgentError):
                first.close()
            process.kill()


def threads() -> set[str]:
    """Those of agents and clients; what makes memory is the process's."""
    names = {thread.name for thread in threading.enumerate()}
    return {name for name in names if name.startswith("gradlane") and not name.startswith("gradlane-memory")}


def descriptors() -> Counter[str]:
    """Of files, sockets, pipes, events: how many of each kind."""
    names: list[str] = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            names.append(os.readlink(f"/proc/self/fd/{descriptor}").partition(":[")[0])
    return Counter(names)


def work(file: Path) -> None:
    random = np.random.default_rng(1)
    arrays = [random.integers(-9999, 9999, 300_001).astype(np.float32) for _ in range(3)]
    ranks = joined(file, 3)
    for name in (None, "gradient"):
        with ThreadPoolExecutor(3) as pool:
            started = [pool.submit(c.all_reduce, a, name, "sum") for c, a in zip(ranks, arrays, strict=True)]
        for it in started:
            np.testing.assert_array_equal(it.result(), sum(arrays))
    gathered = each(ranks, lambda c: c.all_gather(np.full(5, c.rank)))
    np.testing.assert_array_equal(gathered[2], np.repeat(np.arange(3), 5).reshape(3, 5))
    counts = each(ranks, Communicator.close)
    assert all(it["budget_violations"] == 0 and it["completed"] == 3 for it in counts)


def test_jobs_without_daemons_are_exact_and_leave_nothing_behind(tmp_path: Path) -> None:
    file = job_file(tmp_path, 3)
    work(file)
    gc.collect()
    until(lambda: not threads(), threads)
    before = descriptors()
    work(file)  # the ports are free again at once
    gc.collect()
    until(lambda: not threads(), threads)
    assert descriptors() == before


def test_ranks_with_a_daemon_and_without_are_one_job(tmp_path: Path) -> None:
    addresses = loopback(2, FIRST)
    file = job_file(tmp_path)
    with agents(tmp_path, addresses[:1]) as (agent,), ThreadPoolExecutor(2) as pool:
        ranks = list(pool.map(lambda k: Communicator(file, k, ("process", agent.socket)[k == 0]), range(2)))
        for total in each(ranks, lambda c: c.all_reduce(np.array([c.rank + 1]), op="sum")):
            assert total == [3]
        each(ranks, Communicator.close)


def test_the_environment_may_say_so_and_name_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(f'address = "{loopback(1, FIRST)[0]}"\n[limits]\nshared = "9MiB"\n')
    monkeypatch.setenv("GRADLANE_SOCKET", f"process:{config}")
    with Communicator(job_file(tmp_path, 1), 0) as alone:
        assert alone.all_reduce(np.ones(10)).sum() == 10
        with pytest.raises(AgentError, match=r"limits.shared"):
            alone.empty(16 << 20, np.uint8)
    config.write_text("addres = 1\n")
    with pytest.raises(Exception, match=r"agent.toml.*addres\b"):
        Communicator(job_file(tmp_path, 1), 0)


def test_errors_say_what_to_do(tmp_path: Path, hosts: list[Agent]) -> None:
    with pytest.raises(AgentError, match=r"rank 0 has 2 processes.*start `gradlane agent --address 127\."):
        Communicator(job_file(tmp_path, processes=2), 0, "process")
    taken = members.job_file(tmp_path, [hosts[0].address])
    with pytest.raises(AgentError, match=rf"port 47401 of {hosts[0].address} is in use: another agent"):
        Communicator(taken, 0, "process")
    with pytest.raises(AgentError, match=r"job.key: is missing"):
        Communicator(job_file(tmp_path, key=""), 0, "process")
    with pytest.raises(AgentError, match=r"a controller makes jobs of hosts whose daemons report to it"):
        Communicator(None, 0, "process", controller="127.0.0.1:1", job="x", workers=1)
    with pytest.raises(AgentError, match=r"that agent is in a training process, and has no socket"):
        agent_socket.status("process")
    until(lambda: not threads(), threads)


@pytest.mark.parametrize("end", ["", "sys.exit(0)"])
def test_a_process_that_ends_leaves_in_order(tmp_path: Path, end: str) -> None:
    with beside(job_file(tmp_path), end) as (first, process):
        first.close()  # raises if the job has failed
        assert process.wait(30) == 0


def test_who_leaves_early_ends_after_5_seconds_and_the_others_go_on(tmp_path: Path) -> None:
    with beside(job_file(tmp_path), "time.sleep(8); c.close()") as (first, process):
        began = time.monotonic()
        first.close()
        assert 4 < time.monotonic() - began < 7
        until(lambda: not threads(), threads)
        assert process.wait(30) == 0, process.stderr and process.stderr.read()


ENDED = r"rank 1 \(h1, .*\): its training process ended without leaving the job"
GONE = r"rank 1 \(h1, .*\) is gone: its agent closed the connection"


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("raise RuntimeError", ENDED),
        ("sys.exit(3)", r"rank 1 .* left the job before it was done"),
        # Python's own handler, as it has none where SIGINT is ignored: in a shell's background.
        (
            "signal.signal(signal.SIGINT, signal.default_int_handler); os.kill(os.getpid(), signal.SIGINT)\n"
            "time.sleep(60)",
            ENDED,
        ),
        ("time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)", GONE),
        ("time.sleep(0.5); os._exit(0)", GONE),
        ("c.all_reduce(numpy.ones(1 << 22), asynchronous=True); raise RuntimeError", ENDED),
    ],
)
def test_the_others_hear_at_once_who_has_ended_and_how(tmp_path: Path, end: str, why: str) -> None:
    with beside(job_file(tmp_path), end) as (first, process):
        began = time.monotonic()
        with pytest.raises(AgentError, match=why):
            first.receive(np.ones(2), 1)
        assert time.monotonic() - began < (PROMPT if "left" not in why else 10)
        code = process.wait(30)
        assert code in (0, 1, 3, -signal.SIGKILL, -signal.SIGINT), process.stderr and process.stderr.read()


@pytest.mark.timed
def test_who_is_stopped_is_named_within_10_seconds(tmp_path: Path) -> None:
    with beside(job_file(tmp_path), "time.sleep(0.5); os.kill(os.getpid(), signal.SIGSTOP)") as (first, _):
        began = time.monotonic()
        with pytest.raises(AgentError, match=r"rank 1 \(h1, .*\): no answer for 7.5 s"):
            first.receive(np.ones(2), 1)
        assert time.monotonic() - began < 10


FORKED = """
if os.fork() == 0:
    try:
        c.all_reduce(numpy.ones(1))
    except gradlane.AgentError as error:
        named = "belongs to the parent process" in str(error)
        try:
            c.close()
        except gradlane.AgentError:
            os._exit(7 if named else 8)
    os._exit(9)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
c.all_reduce(numpy.ones(1000))
"""


def test_a_child_can_neither_use_nor_harm_the_agent_of_its_parent(tmp_path: Path) -> None:
    with beside(job_file(tmp_path), FORKED) as (first, process):
        assert first.all_reduce(np.ones(1000)).sum() == 1000
        first.close()
        assert process.wait(30) == 0, process.stderr and process.stderr.read()


def test_a_child_that_lives_longer_hides_no_death_and_keeps_no_port(tmp_path: Path) -> None:
    file = job_file(tmp_path)
    orphan = "pid = os.fork()\nif not pid: time.sleep(60); os._exit(0)\nprint(pid, file=sys.stderr, flush=True)\n"
    with beside(file, orphan + "os.kill(os.getpid(), signal.SIGKILL)") as (first, process):
        began = time.monotonic()
        with pytest.raises(AgentError, match=GONE):
            first.barrier()
        assert time.monotonic() - began < PROMPT
        assert process.stderr is not None
        child = int(process.stderr.readline())
        with contextlib.suppress(AgentError):
            first.close()
        os.kill(child, 0)  # it lives
        each(joined(file, 2), Communicator.close)
        os.kill(child, signal.SIGKILL)


HOLDS = "ctypes.PyDLL(None).sleep(13)\nc.all_reduce(numpy.ones(1000))"


def test_who_holds_the_interpreter_for_13_seconds_is_late_and_not_dead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert hasattr(ctypes.PyDLL(None), "sleep")
    with beside(job_file(tmp_path), HOLDS) as (first, process):
        began = time.monotonic()
        assert first.all_reduce(np.ones(1000)).sum() == 1000
        assert time.monotonic() - began > 12
        first.close()
        assert process.wait(30) == 0
    late = [record for record in caplog.records if "has made no progress for" in record.message]
    assert len(late) == 1, "once: client and agent have one log"
    assert "rank 1 (h1" in late[0].message
    assert "did not start it; the job waits 60 s" in late[0].message
