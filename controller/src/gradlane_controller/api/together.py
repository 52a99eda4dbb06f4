# SPDX-License-Identifier: Apache-2.0
"""Answers that take long to make in a large fabric: who waits for one gets it together with all others, and making them
leaves most of the time to what the controller is for."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from gradlane_controller.api.errors import render

REST = 4.0  # times as long as an answer took, before the next one is made


class Together:
    """One kind of answer, as JSON."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._next: asyncio.Task[bytes] | None = None
        self._rested_at = 0.0

    async def answer(self) -> bytes:
        """As it is after this was called."""
        if self._next is None:
            self._next = asyncio.create_task(self._run())
        return await asyncio.shield(self._next)

    async def _run(self) -> bytes:
        await asyncio.sleep(max(0.0, self._rested_at - time.monotonic()))
        self._next = None  # who comes now would get what is made too early
        begun = time.monotonic()
        answer = render(self._make())
        ended = time.monotonic()
        self._rested_at = ended + REST * (ended - begun)
        return answer
