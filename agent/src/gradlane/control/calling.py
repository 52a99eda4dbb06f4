# SPDX-License-Identifier: Apache-2.0
"""The caller's side of a control connection: calling another rank's agent until it accepts, or refuses for good."""

import asyncio
import socket
import ssl
from collections.abc import Callable

from gradlane import wire
from gradlane.control import handshake
from gradlane.control.handshake import Refused
from gradlane.control.security import Credentials
from gradlane.control.tls import Connected
from gradlane.job import Job

# Nothing announces that an agent has started.
RETRY_SECONDS = 0.2
CONNECT_SECONDS = 5.0
# Calls that one rank makes at once: more of them would only run out of time together.
MAX_CALLS = 4
# More than PARK_SECONDS, after which the other side hangs up, on a busy machine: a call that was taken is not given up.
ANSWER_SECONDS = 20.0


class Caller:
    """Calls the agents of a job's other ranks, from one rank of it."""

    def __init__(self, job: Job, rank: int, credentials: Credentials) -> None:
        self._job = job
        self._rank = rank
        self._credentials = credentials
        self._calls = asyncio.Semaphore(MAX_CALLS)

    async def call(self, rank: int, note: Callable[[str], None]) -> Connected:
        """The connection to that rank, once it accepts. `note` gets the reason of each failed try.

        Raises Refused where another try would not help.
        """
        while True:
            streams = None
            try:
                async with self._calls:
                    sock = await asyncio.wait_for(self._connect(rank), CONNECT_SECONDS)
                    streams = await handshake.secure(sock, self._credentials.calling)
                await asyncio.wait_for(
                    handshake.introduce(*streams, self._job, self._rank, rank, self._credentials), ANSWER_SECONDS
                )
            except (OSError, EOFError, ValueError, asyncio.TimeoutError, Refused) as error:
                if streams is not None:
                    streams[1].close()
                if isinstance(error, Refused):
                    raise
                if isinstance(error, ssl.SSLError):
                    if problem := self._credentials.problem(error):
                        raise Refused(problem) from error
                elif streams is not None and isinstance(error, EOFError):  # after PARK_SECONDS
                    note("its agent runs, but its training has not joined yet")
                else:
                    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                    note(f"no agent answers ({reason})" if streams is None else f"its agent hung up ({reason})")
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return streams

    async def _connect(self, rank: int) -> socket.socket:
        own, other = self._job.member(self._rank).address, self._job.member(rank).address
        sock = socket.socket(socket.AF_INET if own.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.bind((str(own), 0))
            await asyncio.get_running_loop().sock_connect(sock, (str(other), wire.CONTROL_PORT))
        except BaseException:
            sock.close()
            raise
        return sock
