# SPDX-License-Identifier: Apache-2.0
"""Where the agents of other hosts call: TCP port 47401 of one address.

Anyone can connect there, so until a caller has proved to know a job it gets little: one of MAX_PENDING places, of which
an address has MAX_PENDING_OF_ONE, for HANDSHAKE_SECONDS (and PARK_SECONDS), and MAX_LINE bytes. In a flood the oldest
lose their places, and call again.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from typing import Protocol

from gradlane import wire
from gradlane.control import handshake
from gradlane.control.absent import Absent
from gradlane.control.handshake import HANDSHAKE_SECONDS, Call
from gradlane.control.security import Credentials
from gradlane.errors import cannot_bind
from gradlane.toml_file import Address

log = logging.getLogger("gradlane")

MAX_PENDING = 512
MAX_PENDING_OF_ONE = 64  # of 0.5 MiB, most of it TLS's
# A caller whose job is not here yet waits for it this long, then the listener hangs up, and it calls again. So a caller
# whose host is gone does not keep its place.
PARK_SECONDS = 5.0
# No descriptor is free, and nothing says when one will be.
_RETRY_SECONDS = 1.0


class Host(Protocol):
    """A job at this host, as the listener sees it. `absent` hears of calls that came to nothing before it was clear
    which job they are about."""

    absent: Absent

    def accept(self, call: Call) -> str:
        """Takes over a call about the job; or what is wrong with it, and it is refused.

        Raises OSError for one that may be tried again.
        """
        ...


class Listener:
    """Hands calls to the job that they are about. `statistics` counts their outcomes."""

    def __init__(self, address: Address, credentials: Credentials) -> None:
        """Binds the port. Raises AgentError."""
        self.credentials = credentials
        self.statistics = {"calls_accepted": 0, "calls_refused": 0, "calls_broken": 0, "calls_evicted": 0}
        self._hosts: dict[int, Host] = {}
        self._news = asyncio.Event()
        self._pending: dict[asyncio.Task[None], str] = {}
        self._socket = _bind(address)
        self._task = asyncio.get_running_loop().create_task(self._accept())

    def add(self, job: int, host: Host) -> None:
        """Calls about that job go to `host` from now on, those that wait for it first."""
        self._hosts[job] = host
        self._news.set()
        self._news = asyncio.Event()

    def remove(self, job: int) -> None:
        """The job has ended here."""
        self._hosts.pop(job, None)

    def pending(self) -> int:
        """Callers that have not been accepted yet."""
        return len(self._pending)

    def close(self) -> None:
        """Takes no more calls."""
        self._task.cancel()
        for task in self._pending:
            task.cancel()
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, (address, *_) = await loop.sock_accept(self._socket)
            except OSError as error:
                log.warning("a call could not be accepted: %s", error.strerror)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            same = [task for task, other in self._pending.items() if other == address]
            if len(same) >= MAX_PENDING_OF_ONE:
                self._evict(same[0])
            elif len(self._pending) >= MAX_PENDING:
                self._evict(next(iter(self._pending)))
            task = loop.create_task(self._take(sock, address))
            self._pending[task] = address
            task.add_done_callback(lambda task: self._pending.pop(task, None))
            await asyncio.sleep(0)  # sock_accept takes what waits at once: all of a flood before anything else

    def _evict(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        del self._pending[task]
        self.statistics["calls_evicted"] += 1

    async def _take(self, sock: socket.socket, address: str) -> None:
        """From the TCP connection to the job that it is for, or to its end."""
        writer = None
        taken = False
        credentials = self.credentials
        loop = asyncio.get_running_loop()
        deadline = loop.time() + HANDSHAKE_SECONDS
        try:
            reader, writer = await handshake.secure(sock, credentials.listening)
            call = Call(reader, writer, credentials)
            await asyncio.wait_for(call.listen(), max(0.0, deadline - loop.time()))
            taken = await self._hand_over(call)
        except ssl.SSLError as error:
            problem = credentials.problem(error)
            self._broken(address, problem or "TLS was broken off", known=bool(problem))
        except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
            self._broken(address, str(error) or type(error).__name__)
        finally:
            if writer is not None and not taken:
                writer.transport.abort()

    async def _hand_over(self, call: Call) -> bool:
        """Whether a job takes it."""
        problem = call.version_problem()
        if not problem and call.job not in self._hosts:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._joined(call.job), PARK_SECONDS)
        host = self._hosts.get(call.job)
        if host is not None:
            problem = host.accept(call)
        if problem:
            self.statistics["calls_refused"] += 1
            log.warning("the agent at %s %s", call.address, problem)
            await call.refuse(problem)
        elif host is not None:
            self.statistics["calls_accepted"] += 1
            return True
        return False

    async def _joined(self, job: int) -> None:
        while job not in self._hosts:
            await self._news.wait()

    def _broken(self, address: str, problem: str, known: bool = False) -> None:
        """`known`: if a member called, it will not do better."""
        self.statistics["calls_broken"] += 1
        log.info("a call from %s failed: %s", address, problem)
        for host in self._hosts.values():
            if known:
                host.absent.refused(address, problem)
            else:
                host.absent.broken(address, problem)


def _bind(address: Address) -> socket.socket:
    sock = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((str(address), wire.CONTROL_PORT))
        sock.listen(MAX_PENDING)
    except OSError as error:
        sock.close()
        raise cannot_bind(f"TCP port {wire.CONTROL_PORT} of {address}", error) from error
    return sock
