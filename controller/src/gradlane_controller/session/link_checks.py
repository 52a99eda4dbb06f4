# SPDX-License-Identifier: Apache-2.0
"""Sends what shows whether links work, through the sessions with the switches."""

import asyncio
from collections.abc import Callable, Collection

from gradlane_controller.network.links import ENOUGH, EXAMINATION, EXAMINED, INTERVAL, Examination, Links
from gradlane_controller.session.managed_switch import ManagedSwitch

_LATE = 1.5  # of its time: a round that takes longer says nothing, as the machine is busy


class LinkChecks:
    """`known`: once it is known which links work. `on_change` runs when a link has failed, or works again."""

    def __init__(self, links: Links, switches: Collection[ManagedSwitch], on_change: Callable[[], None]) -> None:
        self.known = asyncio.Event()
        self._links, self._switches, self._on_change = links, switches, on_change
        self._rounds = 0

    async def run(self) -> None:
        """Checks every link, until cancelled."""
        while True:
            present = self._present()
            if not await self._round(present, INTERVAL):
                continue
            if self._links.tick(present & self._present()):
                self._on_change()
            if present and all(managed.connection.connected or managed.late for managed in self._switches):
                self._rounds += 1
            if self._rounds > ENOUGH:
                self.known.set()

    def begin_anew(self) -> None:
        """Others look after the links: what is known of them will be old."""
        self.known.clear()
        self._rounds = 0

    async def examine(self, switch: ManagedSwitch) -> None:
        """It has closed its session: whether it still forwards is known at once."""
        examination = Examination(self._links, switch.where.name)
        for _ in range(EXAMINATION):
            if not examination.neighbours or not examination.neighbours <= self._present():
                return
            timely = await self._round(examination.neighbours, EXAMINED)
            forwards = examination.round_over(timely)
            if forwards or switch.connection.connected:
                return
            if forwards is False:
                if self._links.silence(switch.where.name):
                    self._on_change()
                return

    def _present(self) -> frozenset[str]:
        """Those through which can be sent and listened."""
        return frozenset(managed.where.name for managed in self._switches if managed.connection.primary)

    async def _round(self, senders: Collection[str], seconds: float) -> bool:
        """Sends, and waits for what arrives; whether that was as short as it should be."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for managed in self._switches:
            if managed.where.name in senders:
                managed.send(self._links.frames(managed.where.name))
        await asyncio.sleep(seconds)
        return loop.time() <= begin + _LATE * seconds
