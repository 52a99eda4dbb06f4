# SPDX-License-Identifier: Apache-2.0
"""AD-PSGD (arXiv 1710.06952): pairs drawn by chance average their parameters while the next gradient is computed."""

import functools
from dataclasses import dataclass

from gradlane.sync.averaging import Averaging
from gradlane.sync.schedule import Places, Schedule, random_pairs


@dataclass(frozen=True)
class AdPsgd(Averaging):
    """x becomes (x + y) / 2 - rate * gradient(x), where y is the partner's x: the gradient does not wait for y.

    The pairs of a step are a perfect matching that all workers draw from the same `seed`, so there is no deadlock.

    Volume: a worker sends and receives its parameters once in each step, hidden behind the computation of the next
    one. It waits for one other, if that is late by more than it computes itself; of an odd number one rests.
    """

    seed: int = 0

    @property
    def behind(self) -> int:
        """The next gradient is computed meanwhile."""
        return 1

    def group(self, step: int, place: int, size: int) -> Places | None:
        """The pair of the step, or the worker alone."""
        return _schedule(self.seed, size).group(step, place)

    def groups(self, place: int, size: int) -> list[Places]:
        """All pairs that will be drawn."""
        return _schedule(self.seed, size).groups(place)


@functools.lru_cache(maxsize=8)
def _schedule(seed: int, size: int) -> Schedule:
    return random_pairs(size, seed)
