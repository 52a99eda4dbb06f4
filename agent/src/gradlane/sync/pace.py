# SPDX-License-Identifier: Apache-2.0
"""When workers will have computed their next step, as a group generator foresees it from their questions alone."""

import statistics
from collections import deque

from gradlane.sync.schedule import Places

_LATEST = 5  # computations that count
_SOON = 0.5  # of the usual computation of who would wait


class Paces:
    """Of all workers. Times are seconds of one clock.

    Steps alone do not tell who is slow: while a slow worker's partners wait for it, and theirs for them, nobody gets
    ahead of it by more than one.
    """

    def __init__(self, size: int) -> None:
        self._latest: list[deque[float]] = [deque(maxlen=_LATEST) for _ in range(size)]
        self._groups: list[Places | None] = [None] * size  # after which it computes, or in which it waits
        self._began: list[float | None] = [None] * size  # to compute: the last one had come

    def asked(self, worker: int, now: float) -> None:
        """A worker has computed."""
        began = self._began[worker]
        if began is not None:
            self._latest[worker].append(now - began)
        self.left(worker)

    def left(self, worker: int) -> None:
        """What a worker does now is no computation."""
        self._groups[worker], self._began[worker] = None, None

    def died(self, worker: int) -> None:
        """Who waits for that worker waits no longer."""
        for k, group in enumerate(self._groups):
            if group is not None and worker in group:
                self.left(k)

    def came(self, worker: int, group: Places, now: float) -> None:
        """A worker was told its group, and waits in it for the others. All come to equal groups in the same order."""
        self._groups[worker] = group
        if all(self._groups[member] == group and self._began[member] is None for member in group):
            for member in group:
                self._began[member] = now

    def comes_soon(self, worker: int, other: int, now: float) -> bool:
        """Whether a worker is to ask soon enough for another one to wait for it.

        That is within half of what the other one computes, as far as is known. Who waits in a group will compute first.
        The longer a worker is overdue, the longer it will take.
        """
        began = self._began[worker]
        if began is None:
            return self._groups[worker] is None
        if not self._latest[worker] or not self._latest[other]:
            return True
        return abs(self._usual(worker) - (now - began)) <= _SOON * self._usual(other)

    def _usual(self, worker: int) -> float:
        return statistics.median(self._latest[worker])
