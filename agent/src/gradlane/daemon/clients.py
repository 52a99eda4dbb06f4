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
from collections.abc import Generator
from pathlib import Path
from typing import Protocol

from gradlane.daemon.local_job import LocalJob
from gradlane.errors import AgentError, GradlaneError
from gradlane.ipc import messages
from gradlane.ipc.status import AgentStatus

log = logging.getLogger("gradlane")

_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


class Agent(Protocol):
    """What a client needs of its agent."""

    async def join(self, client: "Client", message: messages.Message) -> tuple[LocalJob, int]: ...
    def forget(self, client: "Client") -> None: ...
    def status(self) -> AgentStatus: ...


class Client:
    """A training process on the Unix socket."""

    def __init__(self, agent: Agent, sock: socket.socket) -> None:
        self._agent = agent
        self._socket = sock
        self._job: LocalJob | None = None
        self._process = 0
        self._joining: asyncio.Task[None] | None = None
        self._closed = False
        # 0 if it is in another PID namespace.
        self.pid, _, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
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
            messages.send(self._socket, message, descriptors)
        except BlockingIOError:
            log.warning("training process %d does not read its answers; dropped", self.pid)
            self.close()
        except OSError:
            self.close()

    def close(self) -> None:
        """Forgets the client; if it has not left its job, the job fails."""
        if self._closed:
            return
        self._closed = True
        self._agent.forget(self)
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        if self._joining is not None:
            self._joining.cancel()
        if self._job is not None:
            self._job.client_gone(self._process)

    def _readable(self) -> None:
        try:
            message, descriptors = messages.receive(self._socket)
        except BlockingIOError:
            return
        except (EOFError, ConnectionError):
            self.close()
            return
        except ValueError as error:
            self.tell({"op": "error", "message": str(error)})
            self.close()
            return
        try:
            self._handle(message, descriptors)
        except (GradlaneError, ValueError, KeyError, TypeError) as error:
            text = f"message {message['op']!r} lacks {error}" if isinstance(error, KeyError) else str(error)
            if self._job is not None:
                self._job.fail(text)
            else:
                self.tell({"op": "error", "message": text})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _handle(self, message: messages.Message, descriptors: list[int]) -> None:
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
        else:
            self._job.handle(self._process, message, descriptors)

    async def _join(self, message: messages.Message) -> None:
        try:
            self._job, self._process = await self._agent.join(self, message)
        except (GradlaneError, ValueError, KeyError, TypeError) as error:
            text = f"message 'join' lacks {error}" if isinstance(error, KeyError) else str(error)
            self.tell({"op": "error", "message": text})


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
