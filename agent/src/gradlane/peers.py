# SPDX-License-Identifier: Apache-2.0
"""Control connections between the agents of a job: rendezvous, liveness and the orderly end.

One TCP connection between every two ranks, opened by the higher rank, lines of JSON. Both sides prove that they know
the job's key (HMAC-SHA256 over a nonce of the other side) and that they read the same job. They carry nothing that
a step of training waits for: what the transport itself has to say goes as datagrams in the top queue class.
"""

import asyncio
import hashlib
import hmac
import json
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from gradlane import wire
from gradlane.agreement import Agreement
from gradlane.errors import AgentError
from gradlane.job import Job, largest_slice

HEARTBEAT_SECONDS = 1.0
DEAD_SECONDS = 5.0
RETRY_SECONDS = 0.2
MAX_LINE = 4096
USUAL_PACKET = 1500


def digest(job: Job) -> str:
    """What two agents must agree on, whatever their files look like."""
    shared: list[object] = [job.name, job.id, job.aggregation, job.members, job.transport, job.loss, job.slots]
    if job.transport.tagging == "host":
        shared.append(job.policy)  # otherwise it is the controller's alone, and may change
    return hashlib.sha256(repr(shared).encode()).hexdigest()


def _proof(job: Job, nonce: str, rank: int) -> str:
    return hmac.new(job.key, f"{nonce}:{job.id}:{rank}".encode(), hashlib.sha256).hexdigest()


class Peer:
    """The connection to one rank."""

    def __init__(self, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.rank = rank
        self.reader = reader
        self.writer = writer
        self.heard = time.monotonic()
        self.ready = False
        self.left = False
        self.step = -1

    def send(self, message: dict[str, Any]) -> None:
        """Queues one line."""
        if not self.writer.is_closing():
            self.writer.write(json.dumps(message).encode() + b"\n")


async def read_line(reader: asyncio.StreamReader) -> dict[str, Any]:
    """One message. Raises EOFError at the end, ValueError if it is none."""
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"{line[:60]!r} is not a message of an agent")
    return message


def mark_as_control(writer: asyncio.StreamWriter) -> None:
    """The DSCP that switches serve in the top class; a small buffer of pending data, and no delay."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, wire.CONTROL_DSCP << 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Peers:
    """All connections of one job at one rank. `failed` is called once, with the reason, when the job can't go on."""

    def __init__(self, job: Job, rank: int, failed: Callable[[str], None]) -> None:
        self.job = job
        self.rank = rank
        self.agreement: Agreement | None = None
        if rank == 0:
            slice_bytes = job.transport.slice_bytes or largest_slice(USUAL_PACKET, job.family)
            self.agreement = Agreement(secrets.randbits(64), int(time.time() * 1000) & 0xFFFFFFFF, slice_bytes)
        self.step = -1
        self._failed = failed
        self._peers: dict[int, Peer] = {}
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._refusal = ""

    def name(self, rank: int) -> str:
        """A rank as errors name it."""
        member = self.job.member(rank)
        return f"rank {rank} ({member.host}, {member.address})"

    def start(self) -> None:
        """Begins to call the lower ranks; the higher ones call us, see `accept`."""
        for rank in range(self.rank):
            self._spawn(self._call(rank))
        self._spawn(self._beat())

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(f"control connection of {self.name(self.rank)}: {error!r}")

    def _hello(self, nonce: str) -> dict[str, Any]:
        return {
            "version": wire.VERSION,
            "rank": self.rank,
            "digest": digest(self.job),
            "proof": _proof(self.job, nonce, self.rank),
            "agreement": None if self.agreement is None else asdict(self.agreement),
        }

    def _check(self, hello: dict[str, Any], rank: int, nonce: str) -> str:
        """What is wrong with the other side's introduction, or ""."""
        if hello.get("version") != wire.VERSION:
            return f"speaks version {hello.get('version')} of the transport, this agent version {wire.VERSION}"
        if not hmac.compare_digest(str(hello.get("proof")), _proof(self.job, nonce, rank)):
            return f"does not know the key of job {self.job.name!r}"
        if hello.get("digest") != digest(self.job):
            return f"reads another job file for job {self.job.name!r}: ranks, transport, loss and slots must be equal"
        return ""

    async def _call(self, rank: int) -> None:
        address = str(self.job.member(rank).address)
        local = (str(self.job.member(self.rank).address), 0)
        while rank not in self._peers and not self._closing:
            try:
                reader, writer = await asyncio.wait_for(
                    asyncio.open_connection(address, wire.CONTROL_PORT, local_addr=local, limit=MAX_LINE), 2.0
                )
            except (OSError, asyncio.TimeoutError):
                await asyncio.sleep(RETRY_SECONDS)
                continue
            mark_as_control(writer)
            try:
                ours = secrets.token_hex(16)
                challenge = await asyncio.wait_for(read_line(reader), 2.0)
                hello = self._hello(str(challenge.get("nonce")))
                writer.write(json.dumps({**hello, "job": self.job.id, "nonce": ours}).encode() + b"\n")
                answer = await asyncio.wait_for(read_line(reader), 2.0)
            except (OSError, EOFError, ValueError, asyncio.TimeoutError):
                # The other agent may not have its part of the job yet; it closes then, and is called again.
                writer.close()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            problem = str(answer["refused"]) if "refused" in answer else self._check(answer, rank, ours)
            if problem:
                self._refusal = f"{self.name(rank)} {problem}"
                self._changed.set()
                writer.close()
                return
            self._adopt(rank, answer, reader, writer)

    def accept(
        self, hello: dict[str, Any], nonce: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Takes over a connection that another agent opened, after its introduction was read."""
        rank = hello.get("rank")
        if not isinstance(rank, int) or not self.rank < rank < len(self.job.members):
            problem = f"has no business calling rank {self.rank}"
        else:
            problem = self._check(hello, rank, nonce)
        if problem:
            peer = writer.get_extra_info("peername")
            self._refusal = f"the agent at {peer[0] if peer else 'an unknown address'} {problem}"
            writer.write(json.dumps({"refused": f"says that this agent {problem}"}).encode() + b"\n")
            writer.close()
            self._changed.set()
            return
        assert isinstance(rank, int)
        writer.write(json.dumps(self._hello(str(hello.get("nonce")))).encode() + b"\n")
        self._adopt(rank, hello, reader, writer)

    def _adopt(
        self, rank: int, hello: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if rank == 0:
            self.agreement = Agreement(**hello["agreement"])
        peer = Peer(rank, reader, writer)
        self._peers[rank] = peer
        self._spawn(self._listen(peer))
        self._changed.set()

    async def _wait(self, condition: Callable[[], bool], deadline: float) -> bool:
        while not condition():
            self._changed.clear()
            left = deadline - time.monotonic()
            if self._refusal or left <= 0:
                return False
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except asyncio.TimeoutError:
                return condition()
        return True

    async def connected(self, timeout: float) -> None:
        """Until all ranks are connected. Raises AgentError naming who is missing after `timeout` seconds."""
        others = [rank for rank in range(len(self.job.members)) if rank != self.rank]
        if not await self._wait(lambda: all(r in self._peers for r in others), time.monotonic() + timeout):
            missing = ", ".join(self.name(rank) for rank in others if rank not in self._peers)
            raise AgentError(self._refusal or f"after {timeout:g} s these have not joined the job: {missing}")

    async def all_ready(self, timeout: float) -> None:
        """Says that this rank's sockets are open, and waits for the others'. Raises AgentError naming who is not."""
        for peer in self._peers.values():
            peer.send({"ready": True})
        if not await self._wait(lambda: all(p.ready for p in self._peers.values()), time.monotonic() + timeout):
            missing = ", ".join(self.name(p.rank) for p in self._peers.values() if not p.ready)
            raise AgentError(f"after {timeout:g} s these have not opened their sockets: {missing}")

    async def leave(self, timeout: float) -> bool:
        """Says goodbye and waits, so that nobody is left waiting for an answer of ours. True if all have left."""
        for peer in self._peers.values():
            peer.send({"left": True})
        return await self._wait(lambda: all(p.left for p in self._peers.values()), time.monotonic() + timeout)

    async def all_left(self) -> None:
        """Until every worker has said goodbye (for a server, which has no end of its own)."""
        workers = len(self.job.workers)
        while not await self._wait(
            lambda: all(p.left for p in self._peers.values() if p.rank < workers), time.monotonic() + 3600
        ):
            pass

    def abort(self, reason: str) -> None:
        """Tells the others why this rank gives up."""
        for peer in self._peers.values():
            peer.send({"failed": reason})

    def close(self) -> None:
        """Ends all connections; what was queued is still sent."""
        self._closing = True
        for peer in self._peers.values():
            peer.writer.close()
        for task in self._tasks:
            task.cancel()

    def behind(self) -> list[int]:
        """The ranks of workers whose training is behind ours, as far as they told."""
        workers = len(self.job.workers)
        return [p.rank for p in self._peers.values() if p.rank < workers and p.step < self.step]

    def _lost(self, peer: Peer, what: str) -> None:
        if not self._closing and not peer.left:
            self._failed(f"{self.name(peer.rank)} {what}")

    async def _listen(self, peer: Peer) -> None:
        try:
            while True:
                message = await read_line(peer.reader)
                peer.heard = time.monotonic()
                peer.step = int(message.get("step", peer.step))
                if "failed" in message:
                    peer.left = True
                    self._failed(str(message["failed"]))
                    return
                peer.ready = peer.ready or "ready" in message
                peer.left = peer.left or "left" in message
                self._changed.set()
        except (EOFError, ConnectionError):
            self._lost(peer, "is gone: its agent closed the connection")
        except (OSError, ValueError) as error:
            self._lost(peer, f"is out of reach: {error}")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            now = time.monotonic()
            silent = [p for p in self._peers.values() if not p.left and now - p.heard > DEAD_SECONDS]
            if silent and len(silent) == len(self._peers) and len(self._peers) > 1:
                self._failed(
                    f"no agent of the job has answered for {DEAD_SECONDS:g} s: the switch or the link of "
                    f"{self.name(self.rank)} is down"
                )
            elif silent:
                who = ", ".join(self.name(p.rank) for p in silent)
                self._failed(f"{who}: no answer for {DEAD_SECONDS:g} s; the host, its agent or the network is down")
            for peer in self._peers.values():
                peer.send({"step": self.step})
