# SPDX-License-Identifier: Apache-2.0
"""Sends what shows whether links work, through the sessions with the switches."""

import asyncio
from collections.abc import Callable, Collection

from gradlane_controller.network.links import ENOUGH, OFTEN, ROUND, Links
from gradlane_controller.session.managed_switch import ManagedSwitch

_LATE = 1.5  # of its time: a round that takes longer says nothing, as the machine is busy
_PATIENCE = 6  # times as long as links take to be known where all is in time


class LinkChecks:
    """`known`: once it is known which links work. `on_change` runs when a link has failed, or works again."""

    def __init__(self, links: Links, switches: Collection[ManagedSwitch], on_change: Callable[[], None]) -> None:
        self.known = asyncio.Event()
        self._links, self._switches, self._on_change = links, switches, on_change
        self._together = 0  # rounds with sessions with all of them

    async def run(self) -> None:
        """Checks every link, until cancelled."""
        loop = asyncio.get_running_loop()
        part = 0  # of a round
        busy = False  # the machine is too busy for parts of rounds, as long as a link is in doubt
        while True:
            busy = busy and self._links.often
            often = self._links.often and not busy
            part = (part + 1) % OFTEN if often else 0
            seconds = ROUND / OFTEN if often else ROUND
            begun, present = loop.time(), self._present()
            frames = self._links.begin(whole=part == 0)
            sending = {
                managed.where.name: managed.send(frames.get(managed.where.name) or ())
                for managed in self._switches
                if managed.where.name in present
            }
            await asyncio.sleep(seconds)
            timely = loop.time() <= begun + _LATE * seconds
            busy = busy or (often and not timely)
            unsent = {name for name, sent in sending.items() if name in frames and (sent is None or not sent.done())}
            punctual = present - unsent if timely else frozenset[str]()
            if self._links.judge(present & self._present(), punctual):
                self._on_change()
            if present and all(managed.connection.connected or managed.late for managed in self._switches):
                if not self._together:
                    self._links.begin_anew()
                self._together += 1
                if self._links.settled or self._together > _PATIENCE * (self._links.rounds + ENOUGH):
                    self.known.set()

    def begin_anew(self) -> None:
        """Others look after the links: what is known of them will be old."""
        self.known.clear()
        self._together = 0

    def examine(self, switch: ManagedSwitch) -> None:
        """It has closed its session, so its process has probably ended."""
        self._links.doubt(switch.where.name)

    def _present(self) -> frozenset[str]:
        """Those through which can be sent and listened."""
        return frozenset(managed.where.name for managed in self._switches if managed.connection.primary)
