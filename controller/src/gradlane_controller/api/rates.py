# SPDX-License-Identifier: Apache-2.0
"""How often somebody may do something: a token bucket for each."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MAX_KNOWN = 4096  # of whom it is remembered; those not seen for longest are forgotten, as if they had done nothing


@dataclass(frozen=True)
class Rate:
    """So many a second, and so many at once after a pause."""

    per_second: float
    at_once: int


class Buckets:
    """What each has left of a rate."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # what was left when

    def take(self, key: Hashable) -> float:
        """Takes one; or returns the seconds after which there will be one."""
        now = self._clock()
        level, since = self._levels.get(key, (float(self._rate.at_once), now))
        level = min(level + (now - since) * self._rate.per_second, float(self._rate.at_once))
        wait = 0.0 if level >= 1 else (1 - level) / self._rate.per_second
        self._levels[key] = level - (not wait), now
        self._levels.move_to_end(key)
        if len(self._levels) > MAX_KNOWN:
            self._levels.popitem(last=False)
        return wait
