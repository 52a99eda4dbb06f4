# SPDX-License-Identifier: Apache-2.0
"""The group generator of Prague (arXiv 1909.08029): who averages with whom, decided while the training runs."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from gradlane.sync.pace import Paces
from gradlane.sync.schedule import Places


@dataclass(frozen=True)
class Decision:
    """The next group of a worker, itself alone if it gets none, and the number of the last group that it has got; in
    the order of their numbers groups were decided."""

    number: int
    group: Places


@dataclass
class Known:
    """What a worker knows: at which step it asked last, whether it takes no more, and the latest decisions that it got,
    in their order, with all that it may be waiting in."""

    step: int = 0
    paused: bool = False
    got: list[Decision] = field(default_factory=list[Decision])

    @property
    def last(self) -> int:
        """The number of the last group that it got."""
        return self.got[-1].number if self.got else 0


class Generator:
    """Decides on groups one after the other; each worker gets its groups in that order, so there is no deadlock.

    A worker that asks gets the next group of its Group Buffer. If that is empty, all workers whose buffers are empty
    are divided into groups at once (Group Division), apart from those that lag (the slowdown filter).
    """

    def __init__(self, size: int, members: int, slack: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`size`: of the job, `members`: of a group. Who will not ask soon (Paces), or is more than `slack` steps
        behind the worker that asks, is left out: it comes into a group when it asks itself, and so keeps nobody
        waiting."""
        self._members = members
        self._slack = slack
        self._buffers: list[deque[Decision]] = [deque() for _ in range(size)]
        self._steps = [0] * size
        self._paused = [False] * size
        self._taken = [0] * size
        self._decided = 0
        self._paces = Paces(size)
        self._clock = clock
        self._random = np.random.default_rng(size)

    def ask(self, worker: int, step: int) -> Decision:
        """The group of a worker that has done its local step number `step`; itself alone if nobody is there."""
        self._paused[worker] = False
        self._steps[worker] = step
        now = self._clock()
        self._paces.asked(worker, now)
        if not self._buffers[worker]:
            self._divide(worker, now)
        decision = self._take(worker)
        self._paces.came(worker, decision.group, now)
        return decision

    def pause(self, worker: int) -> Decision:
        """The next group that has been decided for a worker that takes no steps; itself alone: it gets no others until
        it asks again."""
        self._paused[worker] = True
        self._paces.left(worker)
        decision = self._take(worker)
        if len(decision.group) > 1:
            self._paces.came(worker, decision.group, self._clock())
        return decision

    def drop(self, worker: int) -> None:
        """A worker is dead: it comes into no group, and what was decided with it and not yet taken is taken back. Who
        has taken it already waits in vain, and must be told by others."""
        self._paused[worker] = True
        self._paces.died(worker)
        for k, buffer in enumerate(self._buffers):
            kept = () if k == worker else (decision for decision in buffer if worker not in decision.group)
            self._buffers[k] = deque(kept)

    def restore(self, known: Mapping[int, Known]) -> None:
        """A new one goes on where another one ended. `known`: by worker that lives; the others are `drop`ped before.

        A group that some members have got comes into the buffers of the others, which may be waited for. What nobody
        got is as if it had not been decided.
        """
        for worker, it in known.items():
            self._steps[worker], self._paused[worker], self._taken[worker] = it.step, it.paused, it.last
        self._decided = max((it.last for it in known.values()), default=0)
        for decision in sorted({it for worker in known.values() for it in worker.got}, key=lambda it: it.number):
            if all(worker in known for worker in decision.group):
                for worker in decision.group:
                    if known[worker].last < decision.number:
                        self._buffers[worker].append(decision)

    def _take(self, worker: int) -> Decision:
        if not self._buffers[worker]:
            return Decision(self._taken[worker], (worker,))
        decision = self._buffers[worker].popleft()
        self._taken[worker] = decision.number
        return decision

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
            if len(group) > 1:
                self._decided += 1
                for worker in group:
                    self._buffers[worker].append(Decision(self._decided, group))
