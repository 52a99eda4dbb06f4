# SPDX-License-Identifier: Apache-2.0
"""Gradlane's datagrams, read as docs/wire-format.md says and not by gradlane.wire: what a dissector is to say.

Fields have the names of display filters, without "gradlane.".
"""

import struct
from typing import Any

import pytest

DATA, REPAIR, TRIMMED, PROBE, BITMAP, STOP, REPORT, TRACE = range(8)
PULL, END, MULTICAST, RETURNED, CRITICAL, SUM = (1 << bit for bit in range(6))
HEADER = struct.Struct(">BBHHHIHBBIHHHHQ")

Value = int | float | str
Fields = dict[str, Any]  # lists of Value


def header(
    kind: int, *, job: int = 3, way: int = 0, source: int = 2, layer: int = 4, step: int = 5, tensor: int = 33,
    flags: int = 0, element_type: int = 0x11, message: int = 77, index: int = 0, slices: int = 10, budget: int = 2,
    length: int = 0, magnitude: int = 200, version: int = 1, token: int = 0xFEDCBA9876543210,
) -> bytes:  # fmt: skip
    """A header, of which the defaults are right for a slice."""
    return HEADER.pack(
        version << 4 | kind, magnitude, job, way << 10 | source, layer, step, tensor, flags, element_type, message,
        index, slices, budget, length, token,
    )  # fmt: skip


def split(payload: bytes) -> list[bytes]:
    """The datagrams that a host gave to its kernel in one piece: all but the last have the length of the first."""
    size = 36 + (0 if payload[0] & 15 == TRIMMED else int.from_bytes(payload[26:28], "big"))
    return [payload[at : at + size] for at in range(0, len(payload), size)]


def fields(datagram: bytes, workers: int = 0) -> Fields:
    """All fields of a datagram with nothing wrong. `workers`: of a job that a switch sums, if numbers are wanted."""
    (
        first,
        magnitude,
        job,
        third,
        layer,
        step,
        tensor,
        flags,
        element,
        message,
        index,
        slices,
        budget,
        length,
        token,
    ) = HEADER.unpack_from(datagram)
    kind, payload = first & 15, datagram[36:]
    found: Fields = {
        "version": [first >> 4], "kind": [kind], "magnitude": [magnitude], "job": [job], "way": [third >> 10],
        "source": [third & 1023], "layer": [layer], "step": [step], "tensor": [tensor], "flags": [flags],
        "element_type": [element], "element_type.type": [element & 15], "element_type.reduction": [element >> 4],
        "message": [message], "slice": [index], "slices": [slices], "budget": [budget], "length": [length],
        "token": [token],
    }  # fmt: skip
    for bit, name in enumerate(("pull", "end", "multicast", "returned", "critical", "sum")):
        found[f"flags.{name}"] = [flags >> bit & 1]
    if tensor < 61440:
        found |= {"tensor.number": [tensor // 16], "tensor.partition": [tensor % 16]}
    if flags & SUM:
        found |= _sum(payload, element & 15, bool(flags & PULL), workers)
    elif payload and kind in (DATA, REPAIR):
        found["elements"] = [payload.hex()]
    elif kind in (BITMAP, STOP):
        found |= _bitmap(payload, slices)
    elif kind == REPORT:
        found |= _report(payload)
    elif kind == TRACE and payload:
        found |= _trace(payload)
    return found


def _bitmap(payload: bytes, slices: int) -> Fields:
    missing = [index for index in range(slices) if not payload[index // 8] >> index % 8 & 1]
    found: Fields = {"bitmap": [payload.hex()], "bitmap.arrived": [slices - len(missing)]}
    found["bitmap.missing"] = [len(missing)]
    if missing:
        starts = [index for index in missing if index - 1 not in missing]
        ends = [index for index in missing if index + 1 not in missing]
        texts = [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]
        found["bitmap.missing_slices"] = [", ".join(texts[:32] + ["..."] * (len(texts) > 32))]
    return found


def _report(payload: bytes) -> Fields:
    received, share, room, clock, marks = struct.unpack_from(">IIIIH", payload)
    passed = int.from_bytes(payload[18:24], "big")
    found: Fields = {"report.received": [received], "report.share": [share], "report.room": [room]}
    found |= {"report.clock": [clock], "report.repair": [marks >> 15], "report.marked": [marks & 0x7FFF]}
    found["report.passed"] = [passed]
    for way in range(1, 17):
        found[f"report.passed.{way}"] = [passed >> 3 * (way - 1) & 7]
    return found


def _trace(payload: bytes) -> Fields:
    hops = list(struct.iter_unpack(">HHHBBII", payload))
    names = ("switch_id", "ingress_port", "egress_port", "", "depth_unit", "depth", "wait")
    found: Fields = {f"hop.{name}": [hop[k] for hop in hops] for k, name in enumerate(names) if name}
    found |= {"hop.queue_class": [hop[3] >> 4 for hop in hops], "hop.color": [hop[3] & 15 for hop in hops]}
    found["path"] = [" ".join(f"{hop[0]}:{hop[1]}-{hop[2]}" for hop in reversed(hops))]
    return found


def _sum(payload: bytes, lane_type: int, result: bool, workers: int) -> Fields:
    generation, members, slot, exponent, epoch = struct.unpack_from(">IIHbB", payload)
    ranks = [rank for rank in range(32) if members >> rank & 1]
    bits = {9: 16, 10: 32}[lane_type]
    lanes = [lane for (lane,) in struct.iter_unpack(">H" if bits == 16 else ">I", payload[12:])]
    found: Fields = {"sum.generation": [generation], "sum.members": [members], "sum.slot": [slot]}
    found |= {"sum.exponent": [exponent], "sum.epoch": [epoch], "sum.lanes": [len(lanes)], "sum.lane": [*lanes]}
    if ranks:
        found["sum.member"] = [*ranks]
    if workers and (result or not ranks):
        zero = (len(ranks) if result else 1) * ((2**bits - 1) // (2 * workers))
        found["sum.number"] = pytest.approx([(lane - zero) * 2.0**exponent for lane in lanes], rel=1e-12, abs=0)
    return found


def refused(datagram: bytes) -> set[str]:
    """The counts of a receiver, of which the datagram would get the first, as far as it tells by itself."""
    if len(datagram) < 36 or datagram[0] >> 4 != 1:
        return {"header"}
    values = HEADER.unpack_from(datagram)
    kind, job, way, flags, element = values[0] & 15, values[2], values[3] >> 10, values[7], values[8]
    index, slices, budget, length = values[10:14]
    payload = datagram[36:]
    own = payload[:length]
    hops = [(own[k + 6] >> 4, own[k + 6] & 15) for k in range(0, min(len(own), 128) - 15, 16)]
    summed = bool(flags & SUM)
    types = (9, 10) if summed else range(1, 9)
    returned = flags & RETURNED and kind != TRACE
    wrong = {
        "header": kind > 7 or flags > 63 or returned or (summed and kind > REPAIR) or way > 16
        or element & 15 not in types or element >> 4 > 6,
        "job": job == 0,
        "range": not 1 <= slices <= 8192 or index >= slices,
        "budget": budget > slices,
        "length": len(payload) != (0 if kind == TRIMMED else length) or (kind == PROBE and length > 0)
        or (kind in (BITMAP, STOP) and length != (slices + 7) // 8) or (kind == REPORT and length != 24),
        "trace": kind == TRACE and (length % 16 > 0 or length > 128 or any(it[0] > 7 or it[1] > 3 for it in hops)),
        "sum": summed and kind <= REPAIR and len(own) not in range(140, 12 + 11 * 128 + 1, 128),
    }  # fmt: skip
    return {name for name, it in wrong.items() if it}
