# SPDX-License-Identifier: Apache-2.0
"""Changes of fabric and jobs are made one at a time: each is made of what the one before has left."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from gradlane_controller.errors import BusyError

LOOK_SECONDS = 0.25


class Turns:
    """`silent` says which switch has not answered for long, empty: none. Who comes waits for the change at work as long
    as switches answer it, but not for one that may hang: BusyError names it."""

    def __init__(self, silent: Callable[[], str]) -> None:
        self._silent = silent
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, *, patient: bool = False) -> AsyncGenerator[None]:
        """Around a change. Raises BusyError, if not `patient`: for what nobody waits for, and can't be tried again."""
        taking = asyncio.ensure_future(self._lock.acquire())
        try:
            while not (await asyncio.wait((taking,), timeout=LOOK_SECONDS))[0]:
                if not patient and (why := self._silent()):
                    raise BusyError(f"another change waits for {why}; try again")
            yield
        finally:
            if not taking.cancel():
                self._lock.release()
