# SPDX-License-Identifier: Apache-2.0
"""Time as processes have it that get a processor whenever they want one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

_LEAST = 0.05  # of each second counts all the same


def waited(pids: Iterable[int]) -> dict[int, float]:
    """How long each process that is there has been ready to run and had no processor, in seconds (proc(5))."""
    found: dict[int, float] = {}
    for pid in pids:
        with suppress(OSError):
            found[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return found


class Patience:
    """So many seconds; what processes of a run wait for a processor does not count, as each waits for others. `taken`:
    all seconds until now."""

    def __init__(self, seconds: float, pids: Callable[[], Iterable[int]]) -> None:
        self._left, self._pids = seconds, pids
        self._begun = self._last = time.monotonic()
        self._waited = waited(pids())

    @property
    def taken(self) -> float:
        return time.monotonic() - self._begun

    def is_over(self) -> bool:
        """Asked again and again."""
        now, waiting = time.monotonic(), waited(self._pids())
        taken, self._last = now - self._last, now
        lost = sum(it - self._waited.get(pid, 0.0) for pid, it in waiting.items())
        self._waited = waiting
        self._left -= max(taken - lost, _LEAST * taken)
        return self._left < 0
