# SPDX-License-Identifier: Apache-2.0
"""Whether a job still moves, and who is the one that does not.

What closes its connection is noticed at once, what falls silent by heartbeats (peers.py). Here is the rest: training
processes that are stopped, and operations that nothing comes of.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

STOPPED_SECONDS = 5.0
SILENT_SECONDS = 6.0
# Whose results or partial sums are missing may wait for another: who misses a contribution of that one speaks first.
INDIRECT_SECONDS = 2.0
# A worker may be busy with something else that long, such as a checkpoint.
STALL_SECONDS = 60.0


class Waiting(Protocol):
    """The operation that is longest under way, and who is missing: ranks ([]: not known), local processes. `direct`:
    of these ranks nothing has come that could wait for others."""

    @property
    def seconds(self) -> float: ...
    @property
    def what(self) -> str: ...
    @property
    def ranks(self) -> list[int]: ...
    @property
    def direct(self) -> bool: ...
    @property
    def processes(self) -> list[int]: ...


def is_stopped(pid: int) -> bool:
    """Whether a process has been stopped (SIGSTOP, Ctrl-Z). False if it can't be seen, as in another container."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state == "T"


class Stopped:
    """Since when training processes are stopped. `look` is called now and then."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def look(self, processes: Mapping[int, int], now: float) -> tuple[int, int] | None:
        """(index, pid) of one that has been stopped for STOPPED_SECONDS. `processes`: pids by index."""
        for index, pid in processes.items():
            if not is_stopped(pid):
                self._since.pop(index, None)
            elif now - self._since.setdefault(index, now) >= STOPPED_SECONDS:
                return index, pid
        return None


class Progress:
    """Since when nothing has come of the operations under way."""

    def __init__(self) -> None:
        self._seen: object = None
        self._since = 0.0

    def idle(self, seen: object, now: float) -> float:
        """Seconds for which `seen`, the counts of what arrived and the oldest operation, has been the same."""
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since


def stall(waiting: Waiting, idle: float, waits_for: Mapping[int, str | None]) -> tuple[list[int], str] | None:
    """Who holds up an operation, and how, if it can be said by now. `waits_for`: the other workers' oldest operations.

    Datagrams do not get through from a rank that has submitted the operation, as it says, and of whom nothing comes.
    A rank that has not is late.
    """
    suspects: Iterable[int] = waiting.ranks or waits_for
    blocked = [rank for rank in suspects if waits_for.get(rank) == waiting.what]
    late = [rank for rank in suspects if rank in waits_for and waits_for[rank] != waiting.what]
    patience = SILENT_SECONDS if waiting.direct else SILENT_SECONDS + INDIRECT_SECONDS
    if blocked and not late and not waiting.processes and idle >= patience:
        return blocked, "have contributed, but their datagrams do not get through: check the switch's guard, firewalls"
    if idle >= STALL_SECONDS:
        if late or waiting.processes:
            return late, "have not contributed"
        return blocked, "have contributed, but nothing moves"
    return None
