# SPDX-License-Identifier: Apache-2.0
"""The connection to one rank of a job, and how far that rank has come."""

import asyncio
from enum import IntEnum

from gradlane.control import handshake
from gradlane.control.handshake import Message


class Stage(IntEnum):
    """How far a rank has come. All wait for all at each."""

    CONNECTED = 0
    TOKEN_KNOWN = 1  # it answers probes
    READY = 2  # its engine takes datagrams
    LEFT = 3
    GONE = 4  # it knows that all have left, so it needs no connection any more


class Peer:
    """The connection to one rank. `beats`: how many heartbeats came on it, one each HEARTBEAT_SECONDS that the other
    agent runs."""

    def __init__(self, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.rank = rank
        self.reader = reader
        self.writer = writer
        self.beats = 0
        self.stage = Stage.CONNECTED
        self.listening: asyncio.Task[None] | None = None

    def send(self, message: Message) -> None:
        """Queues one message."""
        handshake.write(self.writer, message)

    def hang_up(self) -> None:
        """Ends the connection; what was queued is still sent."""
        if self.listening is not None and self.listening is not asyncio.current_task():
            self.listening.cancel()
        if self.stage == Stage.GONE:
            self.writer.close()
            return
        _lingering.add(task := asyncio.get_running_loop().create_task(handshake.hang_up(self.reader, self.writer)))
        task.add_done_callback(_lingering.discard)


_lingering: "set[asyncio.Task[None]]" = set()
