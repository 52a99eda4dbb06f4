# SPDX-License-Identifier: Apache-2.0
"""Who has written what to switches, as a relay reads it from the connection: HTTP/2 (RFC 9113), HPACK (RFC 7541), gRPC.

Of HPACK there is what gRPC's core sends: no Huffman code but in values that nobody asks for here.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from finsy.proto import U128, p4r

from gradlane_controller.session.arbitration import LEADERS
from tests.chaos.relay import Way

APART_SECONDS = 0.5  # in which answers of two connections are in no order
UNKNOWN = 2  # some updates were refused, and others done
_OK = 0
_PREFACE = 24  # bytes before a client's first frame
_DATA, _HEADERS, _CONTINUATION = 0, 1, 9
_END_STREAM, _END_HEADERS, _PADDED, _PRIORITY = 1, 4, 8, 32
_STATIC = 61  # entries of the table that everybody has; those of :path begin at 4
_PATH = (4, 5)
_WRITE, _LOAD = "/p4.v1.P4Runtime/Write", "/p4.v1.P4Runtime/SetForwardingPipelineConfig"


@dataclass
class Write:
    """A request to change something at a switch, by a controller that bids `election_id`.

    `issued`: when its last byte left the controller; `answered`: when the switch's answer came, with this `code` of
    gRPC; None: none came, so nobody knows whether it was taken.
    """

    controller: str
    switch: str
    election_id: int
    issued: float
    loads: bool
    updates: int
    answered: float | None = None
    code: int | None = None

    def __str__(self) -> str:
        what = "the program" if self.loads else f"{self.updates} updates"
        return f"{what} by {self.controller} to {self.switch} as {self.election_id - LEADERS} at {self.issued:.3f}"

    @property
    def taken(self) -> bool:
        """The switch has said so, of some of its updates at least."""
        return self.code in (_OK, UNKNOWN)


class Record:
    """All writes of a run."""

    def __init__(self) -> None:
        self._writes: list[Write] = []
        self._lock = threading.Lock()

    def add(self, it: Write) -> None:
        with self._lock:
            self._writes.append(it)

    @property
    def writes(self) -> list[Write]:
        """Until now."""
        with self._lock:
            return list(self._writes)


def broken(writes: Sequence[Write]) -> list[str]:
    """How they break the promise that at most one controller writes at a time: that each leader has its own number,
    and once one has written by a number nobody begins to write by a smaller one that a switch takes."""
    found: list[str] = []
    owners: dict[int, str] = {}
    highest: Write | None = None
    for it in sorted(writes, key=lambda it: it.issued):
        if it.election_id <= LEADERS:
            found.append(f"{it} is of who stands by")
        owner = owners.setdefault(it.election_id, it.controller)
        if owner != it.controller:
            found.append(f"{it} has the number of {owner}")
        if not it.taken:
            continue
        if highest is not None and it.election_id < highest.election_id:
            found.append(f"{it} comes after {highest}")
        if highest is None or it.election_id > highest.election_id:
            highest = it
    for switch in {it.switch for it in writes}:
        latest: Write | None = None
        for it in sorted((it for it in writes if it.taken and it.switch == switch), key=lambda it: it.answered or 0):
            if latest is not None and it.election_id < latest.election_id:
                assert it.answered is not None
                assert latest.answered is not None
                if it.answered > latest.answered + APART_SECONDS:
                    found.append(f"{switch} takes {it} after {latest}")
            else:
                latest = it
    return found


@dataclass
class _Stream:
    path: str = ""
    data: bytes = b""
    write: Write | None = None


@dataclass
class _Side:
    """One way of a connection: bytes of a frame that is not whole yet, HPACK's dynamic table, a header block."""

    rest: bytes = b""
    table: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    block: bytes = b""
    preface: int = 0


class Watcher:
    """The observer of one connection of a controller to a switch."""

    def __init__(self, record: Record, controller: str, switch: str) -> None:
        self._record, self._controller, self._switch = record, controller, switch
        self._sides = {Way.UP: _Side(preface=_PREFACE), Way.DOWN: _Side()}
        self._streams: dict[int, _Stream] = {}

    def saw(self, way: Way, data: bytes, now: float) -> None:
        """More bytes."""
        side = self._sides[way]
        side.rest += data
        if side.preface:
            if len(side.rest) < side.preface:
                return
            side.rest, side.preface = side.rest[side.preface :], 0
        at = 0
        while len(side.rest) - at >= 9:
            length = int.from_bytes(side.rest[at : at + 3], "big")
            if len(side.rest) - at < 9 + length:
                break
            kind, flags, number = struct.unpack_from(">BBI", side.rest, at + 3)
            self._frame(way, kind, flags, number & 0x7FFFFFFF, side.rest[at + 9 : at + 9 + length], now)
            at += 9 + length
        side.rest = side.rest[at:]

    def _frame(self, way: Way, kind: int, flags: int, number: int, payload: bytes, now: float) -> None:
        side = self._sides[way]
        if kind in (_DATA, _HEADERS) and flags & _PADDED:
            payload = payload[1 : len(payload) - payload[0]]
        if kind == _HEADERS and flags & _PRIORITY:
            payload = payload[5:]
        if kind in (_HEADERS, _CONTINUATION):
            side.block += payload
            if flags & _END_HEADERS:
                block, side.block = side.block, b""
                self._headers(way, number, _decode(block, side.table), now)
        stream = self._streams.get(number)
        if kind == _DATA and way is Way.UP and stream is not None:
            stream.data += payload
            if flags & _END_STREAM:
                self._written(stream, now)

    def _headers(self, way: Way, number: int, headers: list[tuple[str, bytes]], now: float) -> None:
        found = dict(headers)
        if way is Way.UP:
            path = found.get(":path", b"").decode()
            if path in (_WRITE, _LOAD):
                self._streams[number] = _Stream(path)
        elif "grpc-status" in found and (stream := self._streams.pop(number, None)) and stream.write is not None:
            stream.write.answered, stream.write.code = now, int(found["grpc-status"])

    def _written(self, stream: _Stream, now: float) -> None:
        loads = stream.path == _LOAD
        request = p4r.SetForwardingPipelineConfigRequest() if loads else p4r.WriteRequest()
        request.ParseFromString(stream.data[5:])  # after gRPC's flag and length
        updates = 0 if isinstance(request, p4r.SetForwardingPipelineConfigRequest) else len(request.updates)
        bid = U128.decode(request.election_id)
        stream.write = Write(self._controller, self._switch, bid, now, loads, updates)
        stream.data = b""
        self._record.add(stream.write)


def _decode(block: bytes, table: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The header fields of a block. `table`: the latest entry first; entries are never looked for beyond those that
    the sender still has, so that the table may be longer than the sender's."""
    found: list[tuple[str, bytes]] = []
    at = 0
    while at < len(block):
        first = block[at]
        if first & 0x80:
            index, at = _integer(block, at, 7)
            found.append(table[index - _STATIC - 1] if index > _STATIC else (_name(index, table), b""))
        elif first & 0xE0 == 0x20:
            _, at = _integer(block, at, 5)  # the size of the table
        else:
            indexed = bool(first & 0x40)
            index, at = _integer(block, at, 6 if indexed else 4)
            if index:
                name = _name(index, table)
            else:
                raw, at = _string(block, at)
                name = raw.decode("latin-1")
            value, at = _string(block, at)
            found.append((name, value))
            if indexed:
                table.insert(0, (name, value))
    return found


def _name(index: int, table: list[tuple[str, bytes]]) -> str:
    if index > _STATIC:
        return table[index - _STATIC - 1][0]
    return ":path" if index in _PATH else f"static {index}"


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """RFC 7541, section 5.1; the place behind it."""
    value = block[at] & ((1 << bits) - 1)
    at += 1
    if value < (1 << bits) - 1:
        return value, at
    shift = 0
    while True:
        octet = block[at]
        at += 1
        value += (octet & 0x7F) << shift
        shift += 7
        if not octet & 0x80:
            return value, at


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    """Section 5.2; one in Huffman code as it is."""
    length, at = _integer(block, at, 7)
    return block[at : at + length], at + length
