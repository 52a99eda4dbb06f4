# SPDX-License-Identifier: Apache-2.0
"""The connection to one rank of a job, and how far that rank has come."""

import asyncio
import fcntl
import socket
import termios
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
    """The connection to one rank. `lived`: seconds for which the other agent has run, by its heartbeats."""

    def __init__(self, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.rank = rank
        self.reader = reader
        self.writer = writer
        self.lived = 0.0
        self.stage = Stage.CONNECTED
        self.listening: asyncio.Task[None] | None = None

    def send(self, message: Message) -> None:
        """Queues one message."""
        handshake.write(self.writer, message)

    @property
    def stalled(self) -> bool:
        """Whether the other host has not acknowledged yet what was sent last: something was lost, or it is gone."""
        sock: socket.socket | None = self.writer.get_extra_info("socket")
        if sock is None or sock.fileno() < 0:
            return True
        return fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)) != bytes(4)

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


async def lingering() -> None:
    """Returns when all connections of this loop have ended that `hang_up` was called of."""
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(task for task in _lingering if task.get_loop() is loop))
