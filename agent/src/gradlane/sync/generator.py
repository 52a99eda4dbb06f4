# SPDX-License-Identifier: Apache-2.0
"""The group generator of Prague (arXiv 1909.08029): who averages with whom, decided while the training runs."""

import time
from collections import deque
from collections.abc import Callable

import numpy as np

from gradlane.sync.pace import Paces
from gradlane.sync.schedule import Places


class Generator:
    """Decides on groups one after the other; each worker gets its groups in that order, so there is no deadlock.

    A worker that asks gets the next group of its Group Buffer. If that is empty, all workers whose buffers are empty
    are divided into groups at once (Group Division), apart from those that lag (the slowdown filter).
    """

    def __init__(self, size: int, members: int, slack: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`size`: of the job, `members`: of a group. Who will not ask soon (Paces), or is more than `slack` steps behind
        the worker that asks, is left out: it comes into a group when it asks itself, and so keeps nobody waiting."""
        self._members = members
        self._slack = slack
        self._buffers: list[deque[Places]] = [deque() for _ in range(size)]
        self._steps = [0] * size
        self._paused = [False] * size
        self._paces = Paces(size)
        self._clock = clock
        self._random = np.random.default_rng(size)

    def ask(self, worker: int, step: int) -> Places:
        """The group of a worker that has done its local step number `step`; itself alone if nobody is there."""
        self._paused[worker] = False
        self._steps[worker] = step
        now = self._clock()
        self._paces.asked(worker, now)
        if not self._buffers[worker]:
            self._divide(worker, now)
        return self._take(worker, now)

    def pause(self, worker: int) -> Places | None:
        """The next group that has been decided for a worker that takes no steps; None: it gets no others until it asks
        again."""
        self._paused[worker] = True
        self._paces.left(worker)
        return self._take(worker, self._clock()) if self._buffers[worker] else None

    def _take(self, worker: int, now: float) -> Places:
        group = self._buffers[worker].popleft()
        self._paces.came(worker, group, now)
        return group

    def _divide(self, asking: int, now: float) -> None:
        least = self._steps[asking] - self._slack
        free = [
            worker
            for worker, buffer in enumerate(self._buffers)
            if worker != asking
            and not buffer
            and not self._paused[worker]
            and self._steps[worker] >= least
            and self._paces.comes_soon(worker, asking, now)
        ]
        order = [asking, *(free[k] for k in self._random.permutation(len(free)).tolist())]
        for start in range(0, len(order), self._members):
            group = tuple(sorted(order[start : start + self._members]))
            if len(group) > 1 or asking in group:
                for worker in group:
                    self._buffers[worker].append(group)
