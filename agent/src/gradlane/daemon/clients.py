# SPDX-License-Identifier: Apache-2.0
"""The agent's Unix socket, and the training processes on it."""

import asyncio
import contextlib
import grp
import logging
import os
import socket
import stat
import struct
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Protocol

from gradlane.daemon.local_job import LocalJob
from gradlane.errors import AgentError, GradlaneError
from gradlane.ipc import messages
from gradlane.ipc.status import AgentStatus

log = logging.getLogger("gradlane")

MAX_GUESTS = 64
MAX_REQUESTS = 32  # of a process, unanswered
# No descriptor is free, and nothing says when one will be.
_RETRY_SECONDS = 1.0
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


class Agent(Protocol):
    """What a client needs of its agent."""

    async def join(self, client: "Client", message: messages.Message) -> tuple[LocalJob, int]: ...
    def status(self) -> AgentStatus: ...


class Client:
    """A training process on the Unix socket, or a program that asks for the status. `gone` is called at its end."""

    def __init__(self, agent: Agent, sock: socket.socket, gone: Callable[["Client"], None]) -> None:
        self._agent = agent
        self._socket = sock
        self._gone = gone
        self._job: LocalJob | None = None
        self._process = 0
        self._joining: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self._closed = False
        # The pid is 0 if it is in another PID namespace.
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid, self.user, _ = _CREDENTIALS.unpack(credentials)
        sock.setblocking(False)
        asyncio.get_running_loop().add_reader(sock, self._readable)

    @property
    def joined(self) -> bool:
        """Whether it is in a job, and does not merely ask for the status."""
        return self._job is not None

    def tell(self, message: messages.Message, descriptors: tuple[int, ...] = ()) -> None:
        """Sends a message; a client that does not take it is dropped."""
        if self._closed:
            return
        try:
            messages.answer(self._socket, message, descriptors)
        except BlockingIOError:
            log.warning("training process %d does not read its answers; dropped", self.pid)
            self.close()
        except OSError:
            self.close()

    def dismiss(self, reason: str) -> None:
        """Closes the connection of one who is in no job, and says why."""
        self.tell({"op": "error", "message": reason})
        self.close()

    def close(self) -> None:
        """Forgets the client; if it has not left its job, the job fails."""
        if self._closed:
            return
        self._closed = True
        self._gone(self)
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        if self._joining is not None:
            self._joining.cancel()
        if self._job is not None:
            self._job.client_gone(self._process)

    def _readable(self) -> None:
        message: messages.Message = {}
        try:
            message = messages.receive_request(self._socket)
            messages.check(message)
            self._handle(message)
        except BlockingIOError:
            return
        except (EOFError, ConnectionError):
            self.close()
        except (GradlaneError, ValueError, OSError) as error:
            self._refuse(message, str(error))
        except Exception as error:  # a bug here must not leave it waiting
            log.exception("training process %d: %s", self.pid, error)
            self._refuse(message, repr(error))

    def _refuse(self, message: messages.Message, problem: str) -> None:
        """A request gets its answer, and the job continues. Anything else ends the job, or a guest's connection."""
        if self._job is None:
            self.dismiss(problem)
        elif isinstance(number := message.get("request"), int):
            self.tell({"op": "answer", "request": number, "error": problem})
        else:
            self._job.fail(f"process {self._process} of {self._job.peers.name(self._job.rank)}: {problem}")

    def _handle(self, message: messages.Message) -> None:
        op = message["op"]
        if op == "join":
            if self._joining is not None:
                raise ValueError("a connection joins one job, once")
            self._joining = asyncio.get_running_loop().create_task(self._join(message))
        elif op == "statistics":
            status = self._agent.status() if message.get("all") else None
            mine = self._job.statistics() if self._job is not None else {}
            self.tell({"op": "statistics", "request": message.get("request"), "statistics": mine, "agent": status})
        elif self._job is None:
            raise ValueError(f"{op!r} before the job has been joined")
        elif self._job.failure:
            return  # the client has its error already
        elif op == "close":
            self._job.leave(self._process)
        elif request := self._job.handle(self._process, message):
            self._wait_for(request)

    def _wait_for(self, request: "asyncio.Task[None]") -> None:
        """Nothing more is read of a client that has MAX_REQUESTS unanswered."""
        self._requests.add(request)
        request.add_done_callback(self._answered)
        if len(self._requests) == MAX_REQUESTS:
            asyncio.get_running_loop().remove_reader(self._socket)

    def _answered(self, request: "asyncio.Task[None]") -> None:
        self._requests.discard(request)
        if len(self._requests) == MAX_REQUESTS - 1 and not self._closed:
            asyncio.get_running_loop().add_reader(self._socket, self._readable)

    async def _join(self, message: messages.Message) -> None:
        try:
            self._job, self._process = await self._agent.join(self, message)
        except (GradlaneError, ValueError) as error:
            self.dismiss(str(error))
        except Exception as error:
            log.exception("training process %d: %s", self.pid, error)
            self.dismiss(repr(error))


class Clients:
    """Everyone on the Unix socket.

    Anyone whom its mode admits can connect. So those who are in no job, the guests, are MAX_GUESTS at most: when one
    more comes, the first one of the user who has most of them loses its place.
    """

    def __init__(self, agent: Agent, listener: socket.socket | None) -> None:
        """`deserted` is set when the last one has gone. Without a listener nobody comes but whom `admit` brings."""
        self._agent = agent
        self._listener = listener
        self._clients: dict[Client, None] = {}  # in the order in which they came
        self._retry: asyncio.TimerHandle | None = None
        self.deserted = asyncio.Event()
        self._listen()

    def admit(self, sock: socket.socket) -> None:
        """Someone on that connection."""
        self._clients[Client(self._agent, sock, self._forget)] = None

    def joined(self) -> int:
        """How many are in a job."""
        return sum(client.joined for client in self._clients)

    def close(self) -> None:
        """Accepts nobody any more, and hangs up."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
        if self._retry is not None:
            self._retry.cancel()
        for client in list(self._clients):
            client.close()

    def _listen(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return  # it has hung up already
        except OSError as error:
            log.warning("a training process could not be accepted: %s", error.strerror)
            loop = asyncio.get_running_loop()
            loop.remove_reader(listener)
            self._retry = loop.call_later(_RETRY_SECONDS, self._listen)
            return
        self.admit(sock)
        guests = [client for client in self._clients if not client.joined]
        if len(guests) > MAX_GUESTS:
            [(user, _)] = Counter(client.user for client in guests).most_common(1)
            first = next(client for client in guests if client.user == user)
            first.dismiss(f"user {user} has too many connections that are in no job")

    def _forget(self, client: Client) -> None:
        del self._clients[client]
        if not self._clients:
            self.deserted.set()


@contextlib.contextmanager
def listening(path: Path, group: str | None, mode: int) -> Generator[socket.socket]:
    """The socket of that path, for the users that `group` and `mode` admit. Raises AgentError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_remains(path)
        listener.bind(str(path))
        # Before anybody can connect: who may.
        if group is not None:
            os.chown(path, -1, grp.getgrnam(group).gr_gid)
        os.chmod(path, mode)
        listener.listen()
    except OSError as error:
        listener.close()
        why = error.strerror
        if isinstance(error, PermissionError):
            why = "not permitted: the agent's user must be able to write in its folder, and be in its group"
        raise AgentError(f"socket {path}: {why}") from error
    except AgentError:
        listener.close()
        raise
    try:
        yield listener
    finally:
        listener.close()
        path.unlink(missing_ok=True)


def _remove_remains(path: Path) -> None:
    """Removes the socket of an agent that was killed. Raises AgentError if anything else has that path."""
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise AgentError(f"{path} exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise AgentError(f"another agent listens on {path}")
