# SPDX-License-Identifier: Apache-2.0
"""What a controller does with its leadership: it reads what was kept meanwhile, and then bids at every switch."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from gradlane import GradlaneError
from gradlane_controller.background import Background
from gradlane_controller.errors import NotLeadingError
from gradlane_controller.journal import Record
from gradlane_controller.leadership import Held, Leadership
from gradlane_controller.session.managed_switch import ManagedSwitch

LOOK_SECONDS = 0.25  # between two looks at who is primary where

_LOG = logging.getLogger(__name__)


class Leading:
    """Leads, or stands by, at all switches together.

    `refresh` is to read what the leader before has kept; it is not begun before the switches have been told that this
    one leads. While this one stands by it runs, too, when another one has changed jobs. `on_end` runs when this one
    leads no more: it must not believe what it knows of the switches any longer.
    """

    def __init__(
        self,
        leadership: Leadership,
        switches: Callable[[], Collection[ManagedSwitch]],
        refresh: Callable[[], Awaitable[int]],
        on_end: Callable[[], None],
        record: Record,
    ) -> None:
        self.leadership = leadership
        self._switches, self._refresh, self._on_end = switches, refresh, on_end
        self._record = record
        self._term: int | None = None  # for which `refresh` has run
        self._revision: int | None = None  # of the jobs that it has read
        self._background = Background()

    def number(self) -> int | None:
        """By which to bid at switches; None: this one stands by."""
        held = self.leadership.held
        return held.number if held is not None and held.term == self._term else None

    def check(self) -> int:
        """The number. Raises NotLeadingError that says who leads."""
        number = self.number()
        if number is None:
            raise NotLeadingError(f"this controller ({self.leadership.name}) stands by: {self.leadership.describe()}")
        return number

    async def start(self, revision: int) -> None:
        """Leads, if nobody else does, before there are sessions. `revision`: of the jobs that were read just now; they
        are read again only if another controller has changed them since."""
        self._revision = revision
        try:
            await self.leadership.start()
            if (held := self.leadership.held) is not None:
                known = self.leadership.known
                await self._begin(held, read=known is None or known.revision != revision)
        except BaseException:
            self.leadership.stop()
            raise

    async def run(self) -> None:
        """Until cancelled; then this one leads no more."""
        tasks = [asyncio.create_task(self.leadership.watch(self._changed)), asyncio.create_task(self._look())]
        try:
            await asyncio.gather(*tasks)
        finally:
            self._end()
            for task in (*tasks, *self._background.tasks):
                task.cancel()
            await asyncio.gather(*tasks, *self._background.tasks, return_exceptions=True)

    def _changed(self, held: Held | None) -> None:
        if held is None:
            _LOG.warning("leads no more; %s", self.leadership.describe())
            name = self.leadership.name
            self._record("leader", name, f"{name} leads no more", leads=False)
            self._end()
            self._background.begin(self._bid())
        else:
            self._background.begin(self._begin(held))

    async def _begin(self, held: Held, *, read: bool = True) -> None:
        if self._term != held.term:
            try:
                if read:
                    self._revision = await self._refresh()
            except GradlaneError as problem:
                _LOG.error("can't lead: %s", problem)
                self.leadership.resign()
                return
            if (now := self.leadership.held) is None or now.term != held.term:
                return
            self._term = held.term
            _LOG.info("leads, as number %d", held.number)
            text = f"{self.leadership.name} leads, as number {held.number}"
            self._record("leader", self.leadership.name, text, number=held.number, leads=True)
        await self._bid()

    def _end(self) -> None:
        self._term = None
        self._on_end()
        for managed in self._switches():
            managed.connection.step_down()

    async def _bid(self) -> None:
        await asyncio.gather(*(managed.connection.bid() for managed in self._switches()))

    async def _look(self) -> None:
        """Sees whether this one can lead, and what others have changed."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            it = self.leadership
            number = self.number()
            known = number if number is not None else it.known.number if it.known is not None else 0
            switches = self._switches()
            others = [other for managed in switches if (other := managed.connection.other) is not None]
            strangers = sum(other > known for other in others)
            it.needed = len(switches) // 2 + 1
            it.reach = sum(managed.connection.connected for managed in switches) - strangers
            it.eligible = strangers < it.needed
            if number is not None and not it.eligible:
                _LOG.warning(
                    "another client is primary at %d of %d switches: gives up", strangers, len(self._switches())
                )
                it.resign()
            if number is None and it.held is None and it.known is not None and it.known.revision != self._revision:
                try:
                    self._revision = await self._refresh()
                except GradlaneError as problem:
                    _LOG.debug("not read yet: %s", problem)
