# SPDX-License-Identifier: Apache-2.0
"""How processes end, and what their job makes of it."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gradlane import AgentError
from tests.support.agents import Agent, until
from tests.support.communicators import job_file, join

BEGIN = """
import sys
import numpy, gradlane
c = gradlane.Communicator(sys.argv[1], 1, sys.argv[2])
c.all_reduce(numpy.ones(1000))
"""


@contextlib.contextmanager
def other(agent: Agent, file: Path, end: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", BEGIN + end, str(file), str(agent.socket)]
    with subprocess.Popen(command, text=True, stderr=subprocess.DEVNULL) as process:
        yield process


def counts(agent: Agent) -> tuple[int, int]:
    status = agent.status()
    return status["ended"], status["failed"]


@pytest.mark.parametrize("end", ["", "sys.exit(0)"])
def test_a_process_that_ends_leaves_its_job_in_order(hosts: list[Agent], tmp_path: Path, end: str) -> None:
    file = job_file(tmp_path, 2)
    before = [counts(agent) for agent in hosts[:2]]
    with other(hosts[1], file, end) as process:
        (first,) = join(file, hosts, 1)
        first.all_reduce(np.ones(1000))
        first.close()
        assert process.wait(60) == 0
    until(lambda: not any(agent.status()["jobs"] for agent in hosts[:2]))
    assert [counts(agent) for agent in hosts[:2]] == [(ended + 1, failed) for ended, failed in before]


def test_a_process_that_an_exception_ends_fails_its_job(hosts: list[Agent], tmp_path: Path) -> None:
    file = job_file(tmp_path, 2)
    with other(hosts[1], file, "raise RuntimeError") as process:
        (first,) = join(file, hosts, 1)
        first.all_reduce(np.ones(1000))
        with pytest.raises(AgentError, match=r"rank 1 .*: its training process ended without leaving the job"):
            first.barrier()
        with contextlib.suppress(AgentError):
            first.close()
        assert process.wait(60) == 1


FORKED = """
import multiprocessing, sys
import numpy, gradlane
def work():
    c = gradlane.Communicator(sys.argv[1], 1, sys.argv[2])
    c.all_reduce(numpy.ones(1000))
    sys.exit(int(sys.argv[3]))
child = multiprocessing.get_context("fork").Process(target=work)
child.start(), child.join()
sys.exit(child.exitcode)
"""


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_of_multiprocessing_leaves_in_order_if_it_says_so(
    hosts: list[Agent], tmp_path: Path, code: int
) -> None:
    file = job_file(tmp_path, 2)
    before = counts(hosts[0])
    command = [sys.executable, "-c", FORKED, str(file), str(hosts[1].socket), str(code)]
    with subprocess.Popen(command) as process:
        (first,) = join(file, hosts, 1)
        first.all_reduce(np.ones(1000))
        if code:
            with pytest.raises(AgentError, match=r"rank 1 .*: its training process ended without leaving the job"):
                first.barrier()
        with contextlib.suppress(AgentError):
            first.close()
        assert process.wait(60) == code
    until(lambda: not any(agent.status()["jobs"] for agent in hosts[:2]))
    assert counts(hosts[0]) == (before[0] + (code == 0), before[1] + (code != 0))


@pytest.mark.timed
def test_who_has_left_is_named_to_those_who_wait_for_it_within_10_seconds(hosts: list[Agent], tmp_path: Path) -> None:
    file = job_file(tmp_path, 2)
    with other(hosts[1], file, "sys.exit(3)") as process:
        (first,) = join(file, hosts, 1)
        first.all_reduce(np.ones(1000))
        began = time.monotonic()
        with pytest.raises(AgentError, match=r"rank 1 .* left the job before it was done"):
            first.barrier()
        assert time.monotonic() - began < 10
        with contextlib.suppress(AgentError):
            first.close()
        assert process.wait(60) == 3
