# SPDX-License-Identifier: Apache-2.0
"""The agent: a daemon beside the training processes of one host."""

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import signal
import socket
import stat
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from gradlane import ipc, job, peers, wire
from gradlane.errors import AgentError, GradlaneError
from gradlane.session import Session

log = logging.getLogger("gradlane")

NICE = -10


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
            sessions = self._agent.statistics() if message.get("all") else None
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

    def __init__(self, address: IPv4Address, socket_path: Path) -> None:
        self.address = address
        self.socket_path = socket_path
        self.clients: set[Client] = set()
        self._session: Session | None = None
        self._handshakes: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Runs until SIGTERM or SIGINT. Raises AgentError if a port or the socket can't be had."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        try:
            server = await asyncio.start_server(
                self._accept_peer, str(self.address), wire.CONTROL_PORT, limit=peers.MAX_LINE
            )
        except OSError as error:
            why = {
                errno.EADDRINUSE: "is in use: another agent runs on this address",
                errno.EADDRNOTAVAIL: "can't be bound: no interface of this host has the address",
            }.get(error.errno or 0, f"can't be bound: {error.strerror}")
            raise AgentError(f"TCP port {wire.CONTROL_PORT} of {self.address} {why}") from error
        with self._listen() as listener:
            loop.add_reader(listener, lambda: self._accept_client(listener))
            log.info("ready: address %s, socket %s", self.address, self.socket_path)
            await stop.wait()
            loop.remove_reader(listener)
        log.info("stopping")
        if self._session is not None:
            self._session.fail(f"the agent at {self.address} was stopped")
        for client in list(self.clients):
            client.close()
        server.close()

    @contextlib.contextmanager
    def _listen(self) -> Any:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        path = str(self.socket_path)
        try:
            self.socket_path.parent.mkdir(parents=True, exist_ok=True)
            if self.socket_path.exists():
                if not stat.S_ISSOCK(self.socket_path.stat().st_mode):
                    raise AgentError(f"{path} exists and is no socket")
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
                    try:
                        probe.connect(path)
                    except ConnectionRefusedError:
                        self.socket_path.unlink()  # left by an agent that was killed
                    else:
                        raise AgentError(f"another agent listens on {path}")
            listener.bind(path)
            os.chmod(path, 0o660)
            listener.listen()
        except OSError as error:
            listener.close()
            raise AgentError(f"socket {path}: {error.strerror}") from error
        except AgentError:
            listener.close()
            raise
        try:
            yield listener
        finally:
            listener.close()
            self.socket_path.unlink(missing_ok=True)

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
        if member.address != self.address:
            raise AgentError(
                f"{file}: rank {rank} has address {member.address}, but this is the agent of {self.address}"
            )
        if self._session is not None:
            busy = self._session
            raise AgentError(f"the agent of {self.address} is busy with job {busy.job.name!r}, rank {busy.rank}")
        log.info("job %s: rank %d joins", parsed.name, rank)
        self._session = Session(parsed, rank, client.tell, self._session_ended)
        return self._session

    def _session_ended(self) -> None:
        session = self._session
        self._session = None
        if session is not None:
            how = f"failed: {session.failure}" if session.failure else "ended"
            log.info("job %s: rank %d %s", session.job.name, session.rank, how)

    def statistics(self) -> dict[str, Any]:
        """What `gradlane status` shows."""
        session = self._session
        jobs = {} if session is None else {session.job.name: {"rank": session.rank, **session.statistics()}}
        return {"address": str(self.address), "clients": len(self.clients), "jobs": jobs}

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


def run(address: IPv4Address, socket_path: Path) -> None:
    """Runs an agent until it is told to stop. Raises AgentError."""
    # It does little, and the training waits for it: a bucket must not queue behind the backward pass of its neighbours.
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    except PermissionError:
        log.warning("not permitted to run at nice %d: busy training processes will delay it (CAP_SYS_NICE)", NICE)
    asyncio.run(Agent(address, socket_path).serve())
