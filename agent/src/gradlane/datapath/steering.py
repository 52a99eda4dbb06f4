# SPDX-License-Identifier: Apache-2.0
"""Which of several sockets of one port gets a datagram: the one of the thread that has its engine.

The sockets are one group (SO_REUSEPORT), and a program of the kernel's classic BPF looks into each datagram's header.
It needs no privilege.
"""

import ctypes
import socket
import struct
from collections.abc import Mapping, Sequence

from gradlane import wire
from gradlane._core import lib

_ATTACH_REUSEPORT_CBPF = 51  # SO_ATTACH_REUSEPORT_CBPF, which the socket module does not name
# Of linux/bpf_common.h: load a half-word or a word at a place, operate with a constant or with X, copy A to X, jump,
# return.
_LOAD_HALF, _LOAD_WORD, _AND, _SHIFT, _OR_X, _TO_X, _IF_EQUAL, _RETURN = 0x28, 0x20, 0x54, 0x64, 0x4C, 0x07, 0x15, 0x06
_SHARDS = int(lib.GL_MAX_SHARDS)
_BITS = _SHARDS.bit_length() - 1
MOST_INSTRUCTIONS = 4096  # BPF_MAXINSNS


def _offset(name: str) -> int:
    """The byte of the header at which a field begins."""
    names = [field for field, _ in wire.FIELDS]
    return sum(bits for _, bits in wire.FIELDS[: names.index(name)]) // 8


def key_of(job: int, token: int) -> int:
    """Of an engine: of a job with several at a host each has a token with other lowest bits."""
    return job << _BITS | token & (_SHARDS - 1)


def program(places: Mapping[int, int]) -> list[tuple[int, int, int, int]]:
    """Instructions (code, where to jump if true, and if false, constant) that return the socket of a datagram's key.

    What is too short for a header, or has another key, goes to socket 0.
    """
    head = [
        (_LOAD_WORD, 0, 0, _offset("token") + 4),
        (_AND, 0, 0, _SHARDS - 1),
        (_TO_X, 0, 0, 0),
        (_LOAD_HALF, 0, 0, _offset("job")),
        (_SHIFT, 0, 0, _BITS),
        (_OR_X, 0, 0, 0),
    ]
    rows = [row for key, place in places.items() if place for row in ((_IF_EQUAL, 0, 1, key), (_RETURN, 0, 0, place))]
    return [*head, *rows, (_RETURN, 0, 0, 0)]


def steer(group: Sequence[socket.socket], places: Mapping[int, int]) -> None:
    """From now on a datagram goes to the socket that its key has in `places`. Raises OSError."""
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in program(places))
    memory = ctypes.create_string_buffer(packed, len(packed))
    described = struct.pack("@HP", len(packed) // 8, ctypes.addressof(memory))
    group[0].setsockopt(socket.SOL_SOCKET, _ATTACH_REUSEPORT_CBPF, described)
