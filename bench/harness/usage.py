# SPDX-License-Identifier: Apache-2.0
"""What a process holds of the machine."""

import os
import time
from pathlib import Path


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    words = Path(f"/proc/{pid}/statm").read_text().split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE")


def private_memory(pid: int) -> int:
    """Bytes that a process shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))


def descriptors(pid: int) -> int:
    """Open files of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def processor_time(pid: int) -> float:
    """Seconds of a core that a process has used. /proc has it in steps of 10 ms only."""
    return time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3)
