# SPDX-License-Identifier: Apache-2.0
"""When a run ends by the clock: at all workers after the same step, where they take equally many."""

from pathlib import Path

import numpy as np

_MARGIN = 2  # steps that a worker may take between rank 0's look at the others and its word


class Finish:
    """Workers share a file, not the network, which is what is measured."""

    def __init__(self, path: Path, rank: int, size: int, lockstep: bool) -> None:
        """`path`: what `prepare` made. lockstep: all workers take equally many steps."""
        self._shared = np.memmap(path, np.int64, "r+", shape=(size + 1,))
        self._rank, self._lockstep = rank, lockstep

    def reached(self, step: int, over: bool) -> bool:
        """Before each step: whether the worker is not to take it. over: whether the time is."""
        if not self._lockstep:
            return over
        self._shared[self._rank] = step
        if over and self._rank == 0 and self._shared[-1] < 0:
            self._shared[-1] = self._shared[:-1].max() + _MARGIN
        return 0 <= self._shared[-1] <= step


def prepare(path: Path, size: int) -> None:
    """Makes the file of a run."""
    shared = np.full(size + 1, 0, np.int64)
    shared[-1] = -1
    shared.tofile(path)
