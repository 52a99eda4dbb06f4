# SPDX-License-Identifier: Apache-2.0
"""Whether a process still runs."""

from pathlib import Path


def gone(pid: int) -> bool:
    """Whether no such process runs any more (one that nobody has waited for yet does not run)."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"
