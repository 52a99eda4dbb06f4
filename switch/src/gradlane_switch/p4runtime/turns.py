# SPDX-License-Identifier: Apache-2.0
"""Long work on the event loop, in short slices: the loop does everything else between two of them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

SLICE = 0.0005
"""s. One step may take it further."""
LOOKS = 4
"""How often the loop looks for what has come between two slices: a short request takes about 15 of them."""


@dataclass
class Work:
    """Work in short steps, each of which gives None or a message; see batch.py. `result` is there once it has ended."""

    steps: Generator[Any, None, Any]
    ended: bool = False
    result: Any = None

    def advance(self) -> list[Any]:
        """The messages of one slice. Raises what the work does."""
        end = time.perf_counter() + SLICE
        found: list[Any] = []
        while time.perf_counter() < end:
            try:
                message = next(self.steps)
            except StopIteration as stop:
                self.ended, self.result = True, stop.value
                break
            if message is not None:
                found.append(message)
        return found


@dataclass
class Turns:
    """Who goes on with long work: one at a time, clients in turn, and the requests of each in turn.

    Short requests do not ask for turns, so they wait for one slice at most.
    """

    _taken: bool = False
    _waiting: dict[str, deque[asyncio.Future[None]]] = field(default_factory=dict[str, deque[asyncio.Future[None]]])

    @asynccontextmanager
    async def of(self, client: str) -> AsyncGenerator[None]:
        """The turn of a client: its request has it within."""
        if self._taken:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(client, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._pass_on()
                raise
        self._taken = True
        try:
            yield
            for _ in range(LOOKS):
                await asyncio.sleep(0)
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        self._taken = False
        while self._waiting and not self._taken:
            client, queue = next(iter(self._waiting.items()))
            del self._waiting[client]
            turn = queue.popleft()
            if queue:
                self._waiting[client] = queue  # behind the other clients
            if not turn.done():
                turn.set_result(None)
                self._taken = True
