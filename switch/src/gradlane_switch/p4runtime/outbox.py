# SPDX-License-Identifier: Apache-2.0
"""The messages that wait until a controller reads them from its stream.

Their number and size are bounded; what finds no room is lost and counted. Answers to arbitration have some room of
their own, so that a slow controller still learns whether it is the primary one. If these find no room either, the
stream ends.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from finsy.proto import rpc_code

from gradlane_switch.errors import EntityError

MOST_MESSAGES = 4096
MOST_BYTES = 16 << 20
"""Of the messages that wait; one that is longer goes alone."""
MOST_ARBITRATION = 256
"""Messages of arbitration beyond MOST_MESSAGES."""


@dataclass
class StreamLosses:
    """What controllers did not get because they did not read: messages, and streams that ended for it."""

    unsent: int = 0
    streams_ended: int = 0


@dataclass(frozen=True)
class End:
    """Of a controller's stream; `failure` is what the stream ends with, None if the controller ended it."""

    failure: EntityError | None


class Outbox:
    """The messages that wait for one controller, and the end of its stream."""

    def __init__(self, losses: StreamLosses) -> None:
        self._losses = losses
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._bytes = 0
        self._ended = False

    def send(self, message: Any) -> None:
        """Adds a p4.v1.StreamMessageResponse, if it finds room."""
        if self._ended:
            return
        count, size = self._queue.qsize(), message.ByteSize()
        if count and (count >= MOST_MESSAGES or self._bytes + size > MOST_BYTES):
            if message.WhichOneof("update") != "arbitration":
                self._losses.unsent += 1
                return
            if count >= MOST_MESSAGES + MOST_ARBITRATION:
                self._losses.streams_ended += 1
                self._queue = asyncio.Queue()
                text = f"more than {count} messages wait: this controller does not read its stream"
                self.end(EntityError(rpc_code.RESOURCE_EXHAUSTED, text))
                return
        self._bytes += size
        self._queue.put_nowait(message)

    def end(self, failure: EntityError | None) -> None:
        """Ends the stream behind what waits."""
        if not self._ended:
            self._ended = True
            self._queue.put_nowait(End(failure))

    async def next(self) -> Any:
        """The oldest message, or the End."""
        message = await self._queue.get()
        if not isinstance(message, End):
            self._bytes -= message.ByteSize()
        return message
