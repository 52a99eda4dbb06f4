# SPDX-License-Identifier: Apache-2.0
"""How two agents introduce themselves on a control connection, inside TLS.

    listener: version, nonce
    caller:   version, job, ranks, nonce, digest, proof
    listener: version, digest, proof            or: refused, and why

Lines of JSON. Versions are looked at first, then the proof, then the digest of what both job files must have in common.
"""

import asyncio
import json
import secrets
import socket
import ssl
from collections.abc import Mapping
from typing import Any

from gradlane import wire
from gradlane.control import tls
from gradlane.control.security import Binding, Credentials, fingerprint, misnamed
from gradlane.control.tls import Connected
from gradlane.errors import GradlaneError
from gradlane.job import Job

# Of what agents say to each other, on control connections and in the payloads of control datagrams.
AGENTS_VERSION = 3
# Both must match; wire.VERSION is that of the datagrams' header, which switches read too.
VERSION = f"{AGENTS_VERSION}.{wire.VERSION}"
MAX_LINE = 16384
HANDSHAKE_SECONDS = 10.0  # many at once, on a busy machine

Message = dict[str, Any]


class Refused(GradlaneError):
    """The other side is not who it should be, or does not accept us. Trying again would not help."""


async def read(reader: asyncio.StreamReader) -> Message:
    """One message. Raises EOFError at the end, ValueError if it is none or has more than MAX_LINE bytes."""
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"{line[:60]!r} is not a message of an agent")
    return message


def write(writer: asyncio.StreamWriter, message: Message) -> None:
    """Queues one message."""
    if not writer.is_closing():
        writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")


def _version_problem(message: Mapping[str, Any]) -> str:
    found = message.get("version")
    return "" if found == VERSION else f"speaks version {found} of the agents' protocol, this agent version {VERSION}"


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
        self._hello = await read(self.reader)

    @property
    def job(self) -> object:
        """The id of the job that the caller is about."""
        return self._hello.get("job")

    @property
    def rank(self) -> int:
        """The caller's rank, as it says; -1 if it says none."""
        rank = self._hello.get("rank")
        return rank if isinstance(rank, int) else -1

    def version_problem(self) -> str:
        """What is wrong with the caller's version, or ""."""
        return _version_problem(self._hello)

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

    def refuse(self, problem: str) -> None:
        """Says why not, and ends the connection."""
        write(self.writer, {"refused": f"says that this agent {problem}"})
        self.writer.close()
