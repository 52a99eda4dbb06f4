# SPDX-License-Identifier: Apache-2.0
"""What a process holds, as the kernel counts it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tests.support.agents import AgentProcess, until

AGENT_THREADS = 3  # Python's, the log's, one for packets


def descriptors(pid: int) -> int:
    """One more for moments: an agent reads /proc/PID/stat of its training processes every second."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def held(pid: int) -> tuple[int, int]:
    """Descriptors, and threads beside the two that an agent starts when they are first needed to make memory."""
    return descriptors(pid), max(len(os.listdir(f"/proc/{pid}/task")), 2 + AGENT_THREADS)


@contextlib.contextmanager
def holds_no_more_after(agent: AgentProcess) -> Iterator[None]:
    """Waits after the block until the agent holds no more than before it, and has not died."""
    pid, before = agent.process.pid, held(agent.process.pid)
    yield
    until(lambda: all(a <= b for a, b in zip(held(pid), before, strict=True)), lambda: f"{held(pid)} after {before}")
    assert agent.process.poll() is None
