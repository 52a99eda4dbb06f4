# SPDX-License-Identifier: Apache-2.0
"""The timeline: what has happened in the network, as all controllers of a store tell it.

An entry gets its number from the store, so who has seen one has seen all before it, whichever controller told of it.
"""

import asyncio
import logging
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, Protocol

from prometheus_client import Counter

from gradlane_controller.errors import StoreError
from gradlane_controller.store import Store, events
from gradlane_controller.store.events import Event

RECENT = 2000  # entries in memory
WAITING = 1000  # entries that wait for the store, at most
BATCH = 200  # entries that are written at once
LOOK_SECONDS = 1.0  # between two looks at what others have written, or tries
THIN_SECONDS = 600.0
MAX_TEXT = 1000  # characters of an entry's text
MAX_SUBJECT = 255

_LOG = logging.getLogger(__name__)


class Record(Protocol):
    """As `Journal.record`."""

    def __call__(self, kind: str, subject: str, text: str, **data: Any) -> None: ...


class Journal:
    """Takes entries, and has the latest ones of all controllers. `problem` is why the store does not take them;
    `recorded`, `lost`: how many there were of each kind, and were lost, for Prometheus."""

    def __init__(self, store: Store, controller: str) -> None:
        self.problem = ""
        self._store, self._controller = store, controller
        self._waiting = deque[dict[str, Any]]()
        self._lost = 0
        name, text = "gradlane_controller_events", "Entries of the timeline that this controller has made"
        self.recorded = Counter(name, text, ("kind",), registry=None)
        text = "Entries of the timeline that the store could not take"
        self.lost = Counter("gradlane_controller_events_lost", text, registry=None)
        self._recent = deque[Event](maxlen=RECENT)
        self._new = asyncio.Event()  # something waits for the store
        self._arrived = asyncio.Event()  # something came from it; another one each time
        self._thinned_at = time.monotonic()

    def record(self, kind: str, subject: str, text: str, **data: Any) -> None:
        """Something has happened to the subject: `text` for people, `data` (that is JSON) for programs. Never waits; of
        too many while the store is away the oldest are lost."""
        self._waiting.append(self._row(kind, subject, text, data))
        self.recorded.labels(kind).inc()
        self._forget()
        self._new.set()

    def after(self, last: int) -> Sequence[Event]:
        """The entries in memory with a greater number."""
        recent = list(self._recent)
        return recent[bisect_right(recent, last, key=lambda it: it.id) :]

    async def wait(self, last: int) -> Sequence[Event]:
        """As `after`, once there is one at least."""
        while not (found := self.after(last)):
            await self._arrived.wait()
        return found

    async def read(self, last: int, most: int, kind: str | None = None) -> Sequence[Event]:
        """As `after`, also what is not in memory any more: the first ones, at most so many. Raises StoreError."""
        return await self._store.run(self._store.read, events.after, last, most, kind)

    async def run(self) -> None:
        """Writes what waits, and reads what others have written, until cancelled; then it tries once more to write."""
        try:
            while True:
                try:
                    await self._write()
                    await self._read()
                    self.problem = ""
                except StoreError as problem:
                    if not self.problem:
                        _LOG.warning("events wait: %s", problem)
                    self.problem = str(problem)
                    await asyncio.sleep(LOOK_SECONDS)
                await _within(LOOK_SECONDS, self._new)
        finally:
            with suppress(StoreError):
                await self._write()

    async def _write(self) -> None:
        self._new.clear()
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            lost, self._lost = self._lost, 0
            text = f"{lost} entries are lost, as the store could not take them"
            missing = [self._row("store", self._controller, text, {"lost": lost})] if lost else []
            try:
                await self._store.run(self._store.append, events.add, [*missing, *batch])
            except BaseException:
                self._lost += lost
                self._waiting.extendleft(reversed(batch))
                self._forget()  # others may have come meanwhile
                raise
            if time.monotonic() > self._thinned_at + THIN_SECONDS:
                self._thinned_at = time.monotonic()
                await self._store.run(self._store.update, events.thin)

    def _forget(self) -> None:
        while len(self._waiting) > WAITING:
            self._waiting.popleft()
            self._lost += 1
            self.lost.inc()

    async def _read(self) -> None:
        if not self._recent:
            found: Sequence[Event] = await self._store.run(self._store.read, events.newest, RECENT)
        else:
            found = await self.read(self._recent[-1].id, RECENT)
        if found:
            self._recent.extend(found)
            arrived, self._arrived = self._arrived, asyncio.Event()
            arrived.set()

    def _row(self, kind: str, subject: str, text: str, data: dict[str, Any]) -> dict[str, Any]:
        at = datetime.now(timezone.utc)
        texts = {"kind": kind, "subject": subject[:MAX_SUBJECT], "text": text[:MAX_TEXT]}
        return {"at": at, "controller": self._controller, **texts, "data": data}


async def _within(seconds: float, what: asyncio.Event) -> None:
    """Waits for it, but not longer."""
    task = asyncio.ensure_future(what.wait())
    try:
        await asyncio.wait((task,), timeout=seconds)
    finally:
        task.cancel()
