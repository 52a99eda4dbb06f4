# SPDX-License-Identifier: Apache-2.0
"""The agent: a daemon beside the training processes of one host."""

import asyncio
import contextlib
import errno
import grp
import logging
import os
import secrets
import socket
import stat
import time
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from gradlane import ipc, job, logs, peers, wire
from gradlane.config import RELOADED, AgentConfig
from gradlane.errors import AgentError, GradlaneError
from gradlane.session import Session
from gradlane.status import AgentStatus
from gradlane.toml_file import Address
from gradlane.transport import Transport

log = logging.getLogger("gradlane")


class Client:
    """A training process on the Unix socket."""

    def __init__(self, agent: "Agent", sock: socket.socket) -> None:
        self._agent = agent
        self._socket = sock
        self.session: Session | None = None
        self._leaving: asyncio.Task[None] | None = None
        sock.setblocking(False)
        asyncio.get_running_loop().add_reader(sock, self._readable)

    def tell(self, message: ipc.Message) -> None:
        """Sends a message; a client that does not take it is dropped."""
        try:
            ipc.send(self._socket, message)
        except BlockingIOError:
            log.warning("a training process does not read its answers; dropped")
            self.close()
        except OSError:
            self.close()

    def close(self) -> None:
        """Forgets the client; its session, if it still runs, fails."""
        if self not in self._agent.clients:
            return
        self._agent.clients.discard(self)
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        if self.session is not None and self._leaving is None:
            self.session.client_gone()

    def _readable(self) -> None:
        try:
            message, descriptors = ipc.receive(self._socket)
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
            if self.session is not None:
                self.session.fail(text)
            else:
                self.tell({"op": "error", "message": text})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _handle(self, message: ipc.Message, descriptors: list[int]) -> None:
        op = message["op"]
        if op == "join":
            self.session = self._agent.join(self, str(message["job"]), str(message["file"]), int(message["rank"]))
            return
        if op == "statistics":
            sessions = self._agent.status() if message.get("all") else None
            mine = self.session.statistics() if self.session is not None else {}
            self.tell({"op": "statistics", "statistics": mine, "agent": sessions})
            return
        if self.session is None:
            raise ValueError(f"{op!r} before join")
        if self.session.failure:
            return  # the client has been told
        if op == "tensor":
            if len(descriptors) != 1:
                raise ValueError("a tensor comes with one descriptor of shared memory")
            spans = [(int(start), int(layer)) for start, layer in message["layers"]]
            self.session.add_tensor(int(message["tensor"]), int(message["elements"]), spans, descriptors[0])
        elif op == "reduce":
            self.session.reduce(int(message["step"]), int(message["tensor"]))
        elif op == "close":
            self._leaving = asyncio.get_running_loop().create_task(self.session.leave())
        else:
            raise ValueError(f"unknown message {op!r}")


class Agent:
    """Listens on the Unix socket for training processes and on TCP for the agents of other hosts."""

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        self.clients: set[Client] = set()
        self._started = time.time()
        self._ended = self._failed = 0
        self._session: Session | None = None

    def reload(self, config: AgentConfig) -> None:
        """Takes over what a running agent can (`config.RELOADED`), for jobs and connections from now on."""
        self.config = replace(self.config, **{name: getattr(config, name) for name in RELOADED})

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Listens; at the end all jobs fail with the reason. Raises AgentError if a port or the socket can't be had."""
        loop = asyncio.get_running_loop()
        servers: list[asyncio.Server] = []
        try:
            for address in self.config.addresses:
                servers.append(await self._listen_for_peers(address))
            with self._listen() as listener, self._carrying():
                loop.add_reader(listener, lambda: self._accept_client(listener))
                try:
                    yield
                finally:
                    loop.remove_reader(listener)
        finally:
            for server in servers:
                server.close()

    @contextlib.contextmanager
    def _carrying(self) -> Generator[None]:
        """The transport runs; it ends after the sessions and clients that use it."""
        loop = asyncio.get_running_loop()
        self._transport = Transport(self.config.addresses, self._transport_failed, self.config.realtime)
        loop.add_reader(self._transport.notify, self._transport.dispatch)
        try:
            yield
        finally:
            if self._session is not None:
                self._session.fail(f"the agent at {self._session.address} was stopped")
            for client in list(self.clients):
                client.close()
            loop.remove_reader(self._transport.notify)
            self._transport.close()

    def _transport_failed(self, reason: str) -> None:
        if self._session is not None:
            self._session.fail(reason)

    async def _listen_for_peers(self, address: Address) -> asyncio.Server:
        try:
            return await asyncio.start_server(self._accept_peer, str(address), wire.CONTROL_PORT, limit=peers.MAX_LINE)
        except OSError as error:
            why = {
                errno.EADDRINUSE: "is in use: another agent runs on this address",
                errno.EADDRNOTAVAIL: "can't be bound: no interface of this host has the address",
            }.get(error.errno or 0, f"can't be bound: {error.strerror}")
            raise AgentError(f"TCP port {wire.CONTROL_PORT} of {address} {why}") from error

    @contextlib.contextmanager
    def _listen(self) -> Any:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        file = self.config.socket
        path = str(file)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.exists():
                if not stat.S_ISSOCK(file.stat().st_mode):
                    raise AgentError(f"{path} exists and is no socket")
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
                    try:
                        probe.connect(path)
                    except ConnectionRefusedError:
                        file.unlink()  # left by an agent that was killed
                    else:
                        raise AgentError(f"another agent listens on {path}")
            listener.bind(path)
            self._restrict(path)
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
            file.unlink(missing_ok=True)

    def _restrict(self, path: str) -> None:
        """Before anybody can connect: who may."""
        if self.config.group is not None:
            os.chown(path, -1, grp.getgrnam(self.config.group).gr_gid)
        os.chmod(path, self.config.mode)

    def _accept_client(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return
        self.clients.add(Client(self, sock))

    def join(self, client: Client, text: str, file: str, rank: int) -> Session:
        """Starts a session for a training process. Raises AgentError or JobError."""
        parsed = job.parse(text, file)
        member = parsed.member(rank)
        if member.address not in self.config.addresses:
            mine = " and ".join(map(str, self.config.addresses))
            raise AgentError(f"{file}: rank {rank} has address {member.address}, but this is the agent of {mine}")
        if self._session is not None:
            busy = self._session
            raise AgentError(f"the agent of {busy.address} is busy with job {busy.job.name!r}, rank {busy.rank}")
        log.info("job %s: rank %d joins", parsed.name, rank, extra={"job": parsed.name, "rank": rank})
        self._session = Session(parsed, rank, self._transport, client.tell, self._session_ended)
        return self._session

    def _session_ended(self) -> None:
        session = self._session
        self._session = None
        if session is None:
            return
        context = {"job": session.job.name, "rank": session.rank}
        if session.failure:
            self._failed += 1
            log.error("job %s: rank %d failed: %s", session.job.name, session.rank, session.failure, extra=context)
        else:
            self._ended += 1
            log.info("job %s: rank %d ended", session.job.name, session.rank, extra=context)

    def status(self) -> AgentStatus:
        """What `gradlane status` shows."""
        session = self._session
        return {
            "version": version("gradlane"),
            "addresses": [str(address) for address in self.config.addresses],
            "pid": os.getpid(),
            "started": self._started,
            "clients": len(self.clients),
            "ended": self._ended,
            "failed": self._failed,
            "log_lines_lost": logs.lines_lost(),
            "transport": self._transport.statistics(),
            "limits": {"jobs": self.config.jobs, "memory": self.config.memory},
            "jobs": {} if session is None else {session.job.name: session.status()},
        }

    async def _accept_peer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.mark_as_control(writer)
        nonce = secrets.token_hex(16)
        try:
            writer.write(b'{"nonce":"%s"}\n' % nonce.encode())
            hello = await asyncio.wait_for(peers.read_line(reader), 5.0)
        except (OSError, EOFError, ValueError, asyncio.TimeoutError):
            writer.close()
            return
        session = self._session
        if session is None or hello.get("job") != session.job.id:
            writer.close()  # this host has not joined that job yet; the other agent calls again
            return
        session.peers.accept(hello, nonce, reader, writer)
