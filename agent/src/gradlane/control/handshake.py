# SPDX-License-Identifier: Apache-2.0
"""How two agents introduce themselves on a control connection, inside TLS.

    listener: version, nonce
    caller:   version, job, ranks, nonce, digest, proof
    listener: version, digest, proof            or: refused, and why

Lines of JSON. Versions are looked at first, then the proof, then the digest of what both job files must have in common.
"""

import asyncio
import contextlib
import json
import secrets
import socket
import ssl
from collections.abc import Mapping
from typing import Any

from gradlane import json_object, wire
from gradlane.control import tls
from gradlane.control.security import Binding, Credentials, fingerprint, misnamed
from gradlane.control.tls import Connected
from gradlane.errors import GradlaneError
from gradlane.job import Job

# Of what agents say to each other, on control connections and in the payloads of control datagrams.
AGENTS_VERSION = 11
# Both must match; wire.VERSION is that of the datagrams' header, which switches read too.
VERSION = f"{AGENTS_VERSION}.{wire.VERSION}"
MAX_LINE = 16384
HANDSHAKE_SECONDS = 10.0  # many at once, on a busy machine
# What is queued for an agent that does not read, in bytes; then it is hung up.
MAX_BACKLOG = 1 << 20
_LAST_SECONDS = 2.0  # in which the other side may take in our last words, and hang up

_HELLO = {"job": int, "rank": int, "to": int, "nonce": str, "digest": str, "proof": str}

Message = dict[str, Any]


class Refused(GradlaneError):
    """The other side is not who it should be, or does not accept us. Trying again would not help."""


async def read(reader: asyncio.StreamReader) -> Message:
    """One message. Raises EOFError at the end, ValueError if it is none or has more than MAX_LINE bytes."""
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return json_object.parse(line)


def write(writer: asyncio.StreamWriter, message: Message) -> None:
    """Queues one message. Where the connection is gone it goes nowhere."""
    try:
        queued = writer.transport.get_write_buffer_size()
    except AttributeError:  # what TLS of Python 3.10 does once the other side is gone
        return
    if queued > MAX_BACKLOG:
        writer.transport.abort()
    if not writer.is_closing():
        writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ends a connection, the other side first: closing while it sends would reset it, and lose our last messages."""

    async def rest() -> None:
        while await reader.read(MAX_LINE):
            pass

    try:
        with contextlib.suppress(asyncio.TimeoutError, OSError):
            await asyncio.wait_for(rest(), _LAST_SECONDS)
    finally:
        writer.transport.abort()


def _version_problem(message: Mapping[str, Any]) -> str:
    json_object.check(message, {"version": str})
    found = message["version"]
    return (
        "" if found == VERSION else f"speaks version {found[:20]} of the agents' protocol, this agent version {VERSION}"
    )


def _problem(message: Mapping[str, Any], job: Job, binding: Binding, role: str) -> str:
    if problem := _version_problem(message):
        return problem
    if not binding.proves(message.get("proof"), job, role):
        return f"does not know the key of job {job.name!r}"
    if message.get("digest") != job.digest:
        return f"has another job file for job {job.name!r}: patience, ranks, transport, loss and slots must be equal"
    return ""


def _tls(writer: asyncio.StreamWriter) -> ssl.SSLObject:
    return writer.get_extra_info("ssl_object")


async def secure(sock: socket.socket, context: tls.Context) -> Connected:
    """Streams over TLS on a connected socket, which they take over. Raises as `tls.secure`."""
    reader, writer = await tls.secure(sock, context, MAX_LINE, HANDSHAKE_SECONDS)
    _mark_as_control(writer)
    return reader, writer


def _mark_as_control(writer: asyncio.StreamWriter) -> None:
    """The DSCP that switches serve in the top class; no delay."""
    sock: socket.socket | None = writer.get_extra_info("socket")
    if sock is None:
        return  # the connection is lost already, and the reader knows why
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, wire.CONTROL_DSCP << 2)
    else:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, wire.CONTROL_DSCP << 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


async def introduce(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, job: Job, rank: int, to: int, credentials: Credentials
) -> None:
    """The caller's side: `rank` calls rank `to`. Returns when that one has accepted us.

    Raises Refused, or EOFError, OSError, ValueError if the connection broke, as when that agent has not joined the job.
    """
    challenge = await read(reader)
    if credentials.certified and (problem := misnamed(_tls(writer).getpeercert(), job.member(to))):
        raise Refused(problem)
    certificate = _tls(writer).getpeercert(binary_form=True)
    binding = Binding(fingerprint(certificate or b""), secrets.token_hex(16), str(challenge.get("nonce")), rank, to)
    hello = {"version": VERSION, "job": job.id, "rank": rank, "to": to, "nonce": binding.caller_nonce}
    write(writer, {**hello, "digest": job.digest, "proof": binding.proof(job, "caller")})
    if problem := _version_problem(challenge):
        raise Refused(problem)  # the other side knows enough to say the same
    answer = await read(reader)
    problem = str(answer["refused"]) if "refused" in answer else _problem(answer, job, binding, "listener")
    if problem:
        raise Refused(problem)


class Call:
    """The listener's side: a caller that has introduced itself, but is not trusted yet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, credentials: Credentials) -> None:
        self.reader = reader
        self.writer = writer
        self._credentials = credentials
        self._nonce = secrets.token_hex(16)
        self._hello: Message = {}
        self.address = str(writer.get_extra_info("peername")[0])

    async def listen(self) -> None:
        """Takes in the introduction. Raises EOFError, OSError or ValueError if there is none."""
        write(self.writer, {"version": VERSION, "nonce": self._nonce})
        hello = await read(self.reader)
        if not _version_problem(hello):
            json_object.check(hello, _HELLO)
        self._hello = hello

    @property
    def job(self) -> int:
        """The id of the job that the caller is about; -1 if it says none, in another version."""
        job = self._hello.get("job")
        return job if isinstance(job, int) else -1

    @property
    def rank(self) -> int:
        """The caller's rank, as it says; -1 if it says none, in another version."""
        rank = self._hello.get("rank")
        return rank if isinstance(rank, int) else -1

    def version_problem(self) -> str:
        """What is wrong with the caller's version, or ""."""
        return _version_problem(self._hello)

    def knows(self, job: Job, rank: int) -> bool:
        """Whether this is an agent of the job, whatever else is wrong: it has the key, or the member's certificate."""
        if not rank < self.rank < len(job.members) or self.version_problem():
            return False
        if self._credentials.certified and misnamed(_tls(self.writer).getpeercert(), job.member(self.rank)):
            return False
        return self._binding(rank).proves(self._hello["proof"], job, "caller")

    def problem(self, job: Job, rank: int) -> str:
        """What is wrong with this caller for that job and our rank there, or ""."""
        if not rank < self.rank < len(job.members) or self._hello.get("to") != rank:
            return self.version_problem() or f"must not call rank {rank} of job {job.name!r}"
        if self._credentials.certified and (
            problem := misnamed(_tls(self.writer).getpeercert(), job.member(self.rank))
        ):
            return problem
        return _problem(self._hello, job, self._binding(rank), "caller")

    def _binding(self, rank: int) -> Binding:
        nonce = str(self._hello.get("nonce"))
        return Binding(self._credentials.fingerprint, nonce, self._nonce, self.rank, rank)

    def accept(self, job: Job, rank: int) -> None:
        """Says who we are, to a caller without a problem."""
        proof = self._binding(rank).proof(job, "listener")
        write(self.writer, {"version": VERSION, "digest": job.digest, "proof": proof})

    async def refuse(self, problem: str) -> None:
        """Says why not, and ends the connection."""
        write(self.writer, {"refused": f"says that this agent {problem}"})
        await hang_up(self.reader, self.writer)
