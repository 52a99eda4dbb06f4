# SPDX-License-Identifier: Apache-2.0
"""What the parameter server and its clients say to each other over TCP.

Each frame is a header (big-endian) and a payload. A gradient goes out in PUSH frames of one chunk each, and the mean
comes back in MEAN frames of the same chunks. Elements are in the machine's own byte order.
"""

import enum
import itertools
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradlane.errors import GradlaneError

_HEADER = struct.Struct(">HBBIIII")
HEADER_BYTES = _HEADER.size
_MAGIC = 0x5053
_FRAMES_PER_CALL = 256  # two buffers each, and the kernel takes 1024 in one call
WIRE_TYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16)}


class PeerError(GradlaneError):
    """A peer is lost, late or speaks nonsense; the message names its rank and address."""


class Kind(enum.IntEnum):
    """What a frame is. HELLO: a client's rank. ERROR: text. BYE: the client is done, its connection may end."""

    HELLO = 1
    PUSH = 2
    MEAN = 3
    ERROR = 4
    BYE = 5


@dataclass(frozen=True)
class Header:
    """One frame's header.

    sequence: number of the reduction, counted by every client in the same order (HELLO: the rank).
    offset, length: the chunk within the shard, bytes. total: size of the shard, bytes.
    """

    kind: Kind
    sequence: int = 0
    offset: int = 0
    length: int = 0
    total: int = 0

    def encode(self) -> bytes:
        return _HEADER.pack(_MAGIC, self.kind, 0, self.sequence, self.offset, self.length, self.total)

    @staticmethod
    def decode(data: bytes | bytearray) -> "Header":
        """Raises ValueError if these HEADER_BYTES bytes are no header."""
        magic, kind, _, sequence, offset, length, total = _HEADER.unpack(data)
        if magic != _MAGIC:
            raise ValueError(f"frame starts with {magic:#06x}, not {_MAGIC:#06x}")
        return Header(Kind(kind), sequence, offset, length, total)


def shard(array: NDArray[np.generic], index: int, count: int) -> NDArray[np.generic]:
    """The part of a flat array that server `index` of `count` reduces: contiguous, sizes differ by at most one."""
    return array[len(array) * index // count : len(array) * (index + 1) // count]


def chunks(total: int, chunk: int) -> Iterator[tuple[int, int]]:
    """(offset, length) in bytes of each chunk of a shard."""
    return ((offset, min(chunk, total - offset)) for offset in range(0, total, chunk))


class Connection:
    """One TCP connection with frames on it. Every error is a PeerError that names the peer."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        self.socket = sock
        self.peer = peer
        self._header = bytearray(HEADER_BYTES)

    def send(self, frames: Sequence[tuple[Header, memoryview]]) -> None:
        """Sends frames with as few system calls as the kernel allows; the payloads are not copied here."""
        for start in range(0, len(frames), _FRAMES_PER_CALL):
            batch = frames[start : start + _FRAMES_PER_CALL]
            self._send_all(list(itertools.chain.from_iterable((memoryview(h.encode()), p) for h, p in batch)))

    def receive_header(self) -> Header | None:
        """The next frame's header; None if the peer closed its side between two frames."""
        if not self._receive(memoryview(self._header), at_boundary=True):
            return None
        try:
            return Header.decode(self._header)
        except ValueError as problem:
            raise PeerError(f"{self.peer} sent what is no frame: {problem}") from None

    def receive_into(self, view: memoryview) -> None:
        """Fills the view (bytes) with payload."""
        self._receive(view, at_boundary=False)

    def receive_text(self, header: Header) -> str:
        """The payload of an ERROR frame."""
        data = bytearray(min(header.length, 4096))
        self.receive_into(memoryview(data))
        return data.decode(errors="replace")

    def _send_all(self, buffers: list[memoryview]) -> None:
        while buffers:
            try:
                sent = self.socket.sendmsg(buffers)
            except BlockingIOError:
                raise PeerError(f"{self.peer} has taken no data for too long") from None
            except OSError as problem:
                raise PeerError(f"{self.peer} is lost: {problem.strerror}") from None
            done = 0
            while done < len(buffers) and sent >= len(buffers[done]):
                sent -= len(buffers[done])
                done += 1
            del buffers[:done]
            if sent:
                buffers[0] = buffers[0][sent:]

    def _receive(self, view: memoryview, at_boundary: bool) -> bool:
        received = 0
        while received < len(view):
            try:
                # One call for all of it: the kernel fills the caller's memory, Python wakes up once.
                count = self.socket.recv_into(view[received:], 0, socket.MSG_WAITALL)
            except BlockingIOError:
                raise PeerError(f"{self.peer} has sent nothing for too long") from None
            except OSError as problem:
                raise PeerError(f"{self.peer} is lost: {problem.strerror}") from None
            if count == 0:
                if at_boundary and not received:
                    return False
                raise PeerError(f"{self.peer} is lost: it closed the connection within a frame")
            received += count
        return True
