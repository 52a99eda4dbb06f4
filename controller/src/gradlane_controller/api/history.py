# SPDX-License-Identifier: Apache-2.0
"""The live state as it was: pictures that the leader keeps in the store, for all controllers and over restarts.

One each 5 s, as often as loads are new to within a third, and one at once when the timeline has something new: so what
has failed is seen from when it did. They are written behind: nobody waits for it.
"""

import asyncio
import logging
import time
import zlib
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from gradlane_controller.api.live_state import LiveState, Picture
from gradlane_controller.errors import StoreError
from gradlane_controller.service import Controller
from gradlane_controller.store import Store, pictures
from gradlane_controller.store.pictures import Kept

EVERY_SECONDS = 5.0
LEAST_SECONDS = 1.0  # between two, however much happens
LASTING_SECONDS = 60  # the first picture of each so many since 1970 is kept for longer
TRY_SECONDS = 1.0  # between two tries to write
QUIET_SECONDS = 60.0  # after an error of this program
MAX_BYTES = 8 << 20  # of a picture; larger ones are not kept
WAITING = 720  # pictures that wait for the store, at most: an hour of them,
WAITING_BYTES = 16 << 20  # and so many bytes of them
ANSWER_BYTES = 4 << 20  # of pictures that are read at once

_LOG = logging.getLogger(__name__)


class History:
    """`problem` is why the store does not take pictures."""

    def __init__(self, controller: Controller, store: Store, live: LiveState) -> None:
        self.problem = ""
        self._controller, self._store, self._live = controller, store, live
        self._waiting = deque[Kept]()
        self._new = asyncio.Event()  # something waits
        self._turn = -1  # of which there is a lasting picture
        self._thinned_at = -LASTING_SECONDS
        self._reading = asyncio.Lock()

    async def run(self) -> None:
        """Keeps pictures while this controller leads, until it is cancelled."""
        await asyncio.gather(self._record(), self._write())

    async def read(
        self, first: datetime, last: datetime, step: timedelta, most: int
    ) -> tuple[Sequence[bytes], datetime | None]:
        """Pictures in JSON, as `pictures.between` chooses them, and from when to read on. Raises StoreError."""
        now, reach = datetime.now(timezone.utc), 2 * pictures.LONGEST  # there is nothing beyond
        begin, end = (max(now - reach, min(it, now + reach)) for it in (first, last))
        async with self._reading:  # the store's other thread is for others
            args = (begin, end, step, most, ANSWER_BYTES)
            kept, following = await self._store.run(self._store.read, pictures.between, *args)
        return await asyncio.to_thread(lambda: [zlib.decompress(it.content) for it in kept]), following

    async def _record(self) -> None:
        """While this one leads."""
        journal = self._controller.journal
        known = max((it.id for it in journal.after(0)), default=0)
        while True:
            await asyncio.sleep(LEAST_SECONDS)
            news = asyncio.create_task(journal.wait(known))
            try:
                await asyncio.wait((news,), timeout=EVERY_SECONDS - LEAST_SECONDS)
                if news.done():
                    known = news.result()[-1].id
            finally:
                news.cancel()
            if self._controller.leadership.held is None:
                continue
            try:
                await self._keep(await self._live.look())
            except Exception:  # noqa: BLE001 - of this program; it must go on
                _LOG.exception("no picture can be made for the history")
                await asyncio.sleep(QUIET_SECONDS)

    async def _keep(self, picture: Picture) -> None:
        size, turn = len(picture.content), int(picture.at.timestamp() // LASTING_SECONDS)
        if size > MAX_BYTES:
            self._complain(f"pictures of the network are longer than {MAX_BYTES >> 20} MiB; none is kept")
            return
        content = await asyncio.to_thread(zlib.compress, picture.content)
        self._waiting.append(Kept(picture.at, turn != self._turn, size, content))
        self._turn = turn
        while len(self._waiting) > WAITING or sum(len(it.content) for it in self._waiting) > WAITING_BYTES:
            self._waiting.popleft()
        self._new.set()

    async def _write(self) -> None:
        """What waits, the oldest first; of what waits too long the oldest is lost."""
        while True:
            await self._new.wait()
            self._new.clear()
            try:
                while self._waiting:
                    it = self._waiting[0]
                    await self._store.run(self._store.append, pictures.add, it)
                    if self._waiting and self._waiting[0] is it:
                        self._waiting.popleft()
                if time.monotonic() > self._thinned_at + LASTING_SECONDS:
                    await self._store.run(self._store.update, pictures.thin, datetime.now(timezone.utc))
                    self._thinned_at = time.monotonic()
                self.problem = ""
            except StoreError as problem:
                self._complain(f"pictures wait: {problem}")
                await asyncio.sleep(TRY_SECONDS)
                self._new.set()

    def _complain(self, problem: str) -> None:
        if not self.problem:
            _LOG.warning("%s", problem)
        self.problem = problem
