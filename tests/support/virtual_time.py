# SPDX-License-Identifier: Apache-2.0
"""An event loop whose time passes only while nobody has anything to do: what happens when is alike on all machines."""

import asyncio
import contextlib
import selectors
from collections.abc import Coroutine
from typing import Any


class Clock(selectors.SelectSelector):
    """Nothing comes from outside: what waits for a time is next."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nobody has anything to do any more"
        self.now += max(0.0, timeout)
        return []


def run(scene: Coroutine[Any, Any, None], clock: Clock | None = None) -> None:
    """To its end, in the time of `clock`, which what takes time may set forward."""
    clock = clock or Clock()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now
    try:
        loop.run_until_complete(scene)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        loop.close()
