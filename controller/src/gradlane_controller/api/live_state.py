# SPDX-License-Identifier: Apache-2.0
"""Who watches gets a new picture each second; while nobody does, only the history has some made, now and then."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gradlane import GradlaneError
from gradlane_controller.alarms import Alarms
from gradlane_controller.api.errors import render
from gradlane_controller.live import Paths, snapshot
from gradlane_controller.service import Controller
from gradlane_controller.session.counters import Glances

SECONDS = 1.0  # between two pictures
COUNTER_SECONDS = 2.0  # between two readings of the switches' counters while somebody watches,
SELDOM_SECONDS = 10.0  # and while nobody does,
OLD_SECONDS = 15.0  # which are forgotten after so long
INTEREST_SECONDS = 5.0  # after somebody has asked
QUIET_SECONDS = 60.0  # after an error of this program

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Picture:
    """`content` in JSON; `number` grows. `made_at` by the loop's clock."""

    number: int
    made_at: float
    at: datetime
    content: bytes


class LiveState:
    """The latest picture of a controller's network; `number`: how many there were."""

    def __init__(self, controller: Controller, of_jobs: Callable[[], Mapping[str, Mapping[str, Any]]] = dict) -> None:
        """`of_jobs`: what agents say of jobs, by name."""
        self._controller, self._of_jobs = controller, of_jobs
        self._alarms = Alarms()
        self._paths: Paths | None = None
        self._latest: Picture | None = None
        self.number = 0
        self._counters: dict[str, Any] | None = None
        self._glances = Glances()
        self._counted_at = -OLD_SECONDS
        self._asked_at = -SELDOM_SECONDS
        self._reading: asyncio.Task[None] | None = None
        self._making = asyncio.Lock()
        self._until = 0.0  # somebody is interested
        self._interest = asyncio.Event()
        self._news = asyncio.Event()

    async def now(self) -> bytes:
        """A picture that is at most a second old."""
        self._show_interest()
        async with self._making:
            if self._latest is None or _clock() > self._latest.made_at + SECONDS:
                await self._renew()
            assert self._latest is not None
            return self._latest.content

    async def look(self) -> Picture:
        """One that is at most a second old, for who looks now and then: nobody watches because of it, and the switches
        are seldom asked for their counters."""
        async with self._making:
            if self._latest is not None and _clock() <= self._latest.made_at + SECONDS:
                return self._latest
            return await self._make(SELDOM_SECONDS)

    async def after(self, number: int) -> Picture:
        """The first one that is younger than that of this number, 0: any; waits for it."""
        while self._latest is None or self._latest.number <= number:
            self._show_interest()
            await self._news.wait()
        self._show_interest()
        return self._latest

    async def run(self) -> None:
        """Makes them, until it is cancelled."""
        try:
            while True:
                await self._interest.wait()
                try:
                    async with self._making:
                        await self._renew()
                except Exception:  # noqa: BLE001 - of this program; it must go on
                    _LOG.exception("the live state can't be made")
                    await asyncio.sleep(QUIET_SECONDS)
                await asyncio.sleep(SECONDS)
                if _clock() > self._until:
                    self._interest.clear()
                    self._latest = None
        finally:
            if self._reading is not None:
                self._reading.cancel()

    @property
    def counters(self) -> Mapping[str, Any] | None:
        """Those of the switches that were read last, for whoever looks; None: they are not known, or old."""
        return self._counters if _clock() < self._counted_at + OLD_SECONDS else None

    @property
    def idle(self) -> bool:
        """Whether nobody watches."""
        return not self._interest.is_set()

    def _show_interest(self) -> None:
        self._until = _clock() + INTEREST_SECONDS
        self._interest.set()

    async def _renew(self) -> None:
        self._latest = await self._make(COUNTER_SECONDS)
        self._news.set()
        self._news.clear()

    async def _make(self, apart: float) -> Picture:
        """`apart`: how many s there are to be between two readings of counters."""
        controller, plan = self._controller, self._controller.plan
        status, links, violations = controller.status(), controller.links(), controller.violations()
        down = frozenset(_end(name) for it in links["links"] if not it["up"] for name in it["ends"])
        if self._paths is None or self._paths.plan is not plan or self._paths.down != down:
            self._paths = await asyncio.to_thread(Paths, plan, down)
        self._read_counters(apart)
        alarms = self._alarms.look(status, links, violations)
        args = (plan, status, links, controller.host_ports(), self.counters, self._paths, alarms, self._of_jobs())
        at, content = await asyncio.to_thread(lambda: _rendered(snapshot(*args)))
        self.number += 1
        return Picture(self.number, _clock(), at, content)

    def _read_counters(self, apart: float) -> None:
        if (self._reading is None or self._reading.done()) and _clock() > self._asked_at + apart:
            self._asked_at = _clock()
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(GradlaneError):
            self._counters = (await self._controller.counters(self._glances)).to_json()
            self._counted_at = _clock()


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _rendered(it: dict[str, Any]) -> tuple[datetime, bytes]:
    return datetime.fromisoformat(it["at"]), render(it)


def _end(name: str) -> tuple[str, int]:
    switch, _, port = name.rpartition(":")
    return switch, int(port)
