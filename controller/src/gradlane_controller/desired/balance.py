# SPDX-License-Identifier: Apache-2.0
"""When trees move away from other traffic, and back."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping

from gradlane_controller.desired.plan import Plan
from gradlane_controller.network.links import End
from gradlane_controller.network.loads import Loads
from gradlane_controller.policy import carried
from gradlane_controller.policy.sharing import Room, gain

LOOK_SECONDS = 2.0
BUSY_PART = 0.05  # of the time, at most, that looking may take
REST_SECONDS = 10.0  # from one move to the next: slices that are on their way have to be sent again
GAIN = 1.2  # by so much the fullest link has to be fuller than need be for anything to move
SLIGHT_GAIN = 1.05  # ... or by so much
PATIENCE_SECONDS = 60.0  # for so long

_LOG = logging.getLogger(__name__)

State = tuple[Plan, Collection[End], Collection[str], Collection[str]]
"""The plan, which links are down, which switches lack their part of sums, which are avoided."""


class Balance:
    """`loads`: those by which trees are laid; others are taken when that is worth while, and then `on_change` runs.
    `measured`: what switches say."""

    def __init__(
        self,
        measured: Loads,
        state: Callable[[], State],
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.measured = measured
        self.loads: Mapping[End, float] = {}
        self._state, self._on_change, self._clock = state, on_change, clock
        self._judged: object = None
        self._gain = 1.0
        self._slight_since = clock()  # when the gain was less than slight, or something moved
        self._moved_at = self._slight_since - REST_SECONDS

    async def run(self) -> None:
        """Looks every two seconds, until cancelled; less often where that takes long, as all else waits then."""
        took = 0.0
        while True:
            await asyncio.sleep(LOOK_SECONDS + took / BUSY_PART)
            begun = self._clock()
            self.look()
            took = self._clock() - begun

    def look(self) -> None:
        """Moves what is worth moving, unless something has moved shortly before."""
        plan, down, lacking, avoided = self._state()
        self.measured.follow(plan.fabric)
        loads, now = self.measured.now(), self._clock()
        judged = plan, frozenset(down), frozenset(lacking), frozenset(avoided), self.loads, loads
        if judged != self._judged:  # a large fabric takes a while
            self._judged, self._gain = judged, self._gain_of(plan, down, lacking, avoided, loads)
        if self._gain < SLIGHT_GAIN:
            self._slight_since = now
        if now < self._moved_at + REST_SECONDS or (self._gain < GAIN and now < self._slight_since + PATIENCE_SECONDS):
            return
        self.loads, self._moved_at, self._slight_since = loads, now, now
        _LOG.info("trees of sums and of multicast are laid anew, by what other traffic takes of links")
        self._on_change()

    def _gain_of(
        self,
        plan: Plan,
        down: Collection[End],
        lacking: Collection[str],
        avoided: Collection[str],
        loads: Mapping[End, float],
    ) -> float:
        """Of trees that are laid by these loads, which are those now."""
        now, then = (
            carried(plan.fabric, plan.jobs.values(), plan.numbers, down, lacking, it, avoided)
            for it in (self.loads, loads)
        )
        return gain(now, then, Room(plan.fabric, loads).of)
