# SPDX-License-Identifier: Apache-2.0
"""What a process holds of the machine."""

import os
from pathlib import Path


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    words = Path(f"/proc/{pid}/statm").read_text().split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int) -> int:
    """Open files of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
