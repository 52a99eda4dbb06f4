# SPDX-License-Identifier: Apache-2.0
"""Whether a job makes progress, and if not, which rank holds it up.

An agent that closes its connection is noticed at once, a silent one by its heartbeats (control/peers.py). Here is the
rest: stopped training processes, and operations that make no progress.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gradlane.control.board import MOST_NAME
from gradlane.datapath.exchange import Waiting
from gradlane.errors import listed

WATCH_SECONDS = 1.0
STOPPED_SECONDS = 5.0
SILENT_SECONDS = 6.0
# A rank whose results or partial sums are missing may wait for another. The rank that misses a contribution of that one
# reports first.
INDIRECT_SECONDS = 2.0
# A worker may be busy with something else, such as a checkpoint. It is not named before.
LATE_SECONDS = 10.0
_SHOWN = 500  # characters of what another rank says it waits for


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
    """Since when the operations in flight have made no progress. `idle` is called every WATCH_SECONDS.

    `excused`: seconds of that in which whoever is late has waited elsewhere.
    """

    def __init__(self) -> None:
        self._seen: object = None
        self._idle = self._last = self._excused_to = self.excused = 0.0

    def idle(self, seen: object, now: float) -> float:
        """Seconds for which `seen`, the counts of what arrived and the oldest operation, has been the same.

        A time in which this agent did not run (it was stopped, its host was busy) does not count: nothing could arrive.
        """
        passed, self._last = min(now - self._last, 2 * WATCH_SECONDS), now
        if seen == self._seen:
            self._idle += passed
        else:
            self._idle = self._excused_to = self.excused = 0.0
        self._seen = seen
        return self._idle

    def excuse(self, seconds: float) -> None:
        """Whoever is late waits elsewhere, and had done so for these seconds at the latest `idle`."""
        self.excused += min(seconds, self._idle - self._excused_to)
        self._excused_to = self._idle


@dataclass(frozen=True)
class Stall:
    """Who holds up an operation, and how. `over`: it ends the job; otherwise it is reported, and the job continues."""

    ranks: list[int]
    how: str
    over: bool


def late(waiting: Waiting, waits_for: Mapping[int, str | None]) -> list[int]:
    """Who has not submitted the operation, as far as that is known; `waits_for`: as `stall` takes it."""
    suspects: Iterable[int] = waits_for
    if waiting.direct:
        suspects = [rank for rank in waiting.ranks if rank in waits_for] or waits_for
    return [rank for rank in suspects if waits_for[rank] != waiting.what[:MOST_NAME]]


def waits_elsewhere(waiting: Waiting, waits_for: Mapping[int, str | None]) -> bool:
    """Whether all who have not submitted the operation wait for another one."""
    holders = late(waiting, waits_for)
    return bool(holders) and not waiting.processes and all(waits_for[rank] is not None for rank in holders)


def stall(
    waiting: Waiting,
    idle: float,
    waits_for: Mapping[int, str | None],
    patience: float,
    left: Collection[int] = (),
    excused: float = 0.0,
) -> Stall | None:
    """What is wrong with an operation that has made no progress for `idle` seconds, if that is known by now.

    `waits_for`: what the operation's other workers wait for themselves; `patience`: how long the job waits for a late
    worker, in s. `left`: workers that have left the job. `excused`: as of `Progress`.
    A worker that has not submitted the operation is late; one that has left will not. If it says that it has, and
    nothing comes from it, datagrams do not get through. Servers wait for workers, and so do ranks whose partial sums or
    results are missing. A worker that is late because it waits elsewhere, in another group, has whoever is late there
    as the cause: that is reported there, and before the job's patience with this one is over.
    """
    holders = late(waiting, waits_for)
    if (gone := [rank for rank in holders if rank in left]) and idle >= SILENT_SECONDS:
        return Stall(gone, "left the job before it was done", True)
    if holders or waiting.processes:
        elsewhere = {what[:_SHOWN] for rank in holders if (what := waits_for[rank]) is not None}
        excused = min(excused, patience)
        also = f", and {excused:.0f} s for which they waited elsewhere" if excused else ""
        how = f"did not start it; the job waits {patience:g} s for late workers (job.patience){also}"
        longest = patience + excused
        if waits_elsewhere(waiting, waits_for):
            longest = 2 * patience
            where = listed(sorted(elsewhere))
            how = f"did not start it, as it waits itself ({where}); the job waits {longest:g} s (twice job.patience)"
        return Stall(holders, how, idle >= longest) if idle >= LATE_SECONDS else None
    if idle < SILENT_SECONDS + (0 if waiting.direct else INDIRECT_SECONDS):
        return None
    how = "started it, but datagrams do not get through: check firewalls and the switch's guard"
    return Stall(waiting.ranks or list(waits_for), how, True)


def undecided(idle: float, patience: float) -> Stall | None:
    """What is wrong with an operation that has waited for a new plan for `idle` seconds: rank 0 ends each proposal."""
    how = f"proposed another plan, and has not ended that; the job waits {patience:g} s for it (job.patience)"
    return Stall([0], how, idle >= patience) if idle >= LATE_SECONDS else None
