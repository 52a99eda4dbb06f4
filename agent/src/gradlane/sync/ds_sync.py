# SPDX-License-Identifier: Apache-2.0
"""DS-Sync (arXiv 2007.03298): disjoint groups average their parameters, and are others in the next step."""

import functools
from dataclasses import dataclass

from gradlane.sync.averaging import Averaging
from gradlane.sync.schedule import SCHEDULES, Places, Schedule


@dataclass(frozen=True)
class DsSync(Averaging):
    """Divide and shuffle. `schedule`: "grid" (rows and columns) or "pairs". `delay`: 1, if an average may take as long
    as the next step computes; 0.

    Volume: in each step a worker sends and receives 2(g - 1)/g times its parameters in a group of g: once in pairs,
    and about 2 - 2/sqrt(n) times in a grid of n workers, where an all-reduce takes 2 - 2/n times. It waits for g - 1
    others.
    """

    schedule: str = "grid"
    delay: int = 0

    def __post_init__(self) -> None:
        if self.delay not in (0, 1):
            raise ValueError(f"{self}: delay is 0 or 1")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"no schedule {self.schedule!r}: there are {', '.join(SCHEDULES)}")

    @property
    def behind(self) -> int:
        """With a delay the next gradient is computed meanwhile."""
        return self.delay

    def group(self, step: int, place: int, size: int) -> Places | None:
        """That of the schedule, in every step."""
        return _schedule(self.schedule, size).group(step, place)

    def groups(self, place: int, size: int) -> list[Places]:
        """All of the schedule."""
        return _schedule(self.schedule, size).groups(place)


@functools.lru_cache(maxsize=8)
def _schedule(name: str, size: int) -> Schedule:
    return SCHEDULES[name](size)
