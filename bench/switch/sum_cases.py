# SPDX-License-Identifier: Apache-2.0
"""Workers at the ports of one switch, whose slices it sums or forwards: its entries, and their frames."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any

from finsy import P4IndirectAction, P4MulticastGroupEntry, P4Schema, P4TableAction, P4TableEntry, P4TableMatch
from finsy.proto import p4r

from bench.harness.switches import GRADLANE, Pipeline
from gradlane import wire
from gradlane.wire import ElementType, Flag, Header, Kind, Lanes

AGGREGATION = Pipeline(GRADLANE.folder, "gradlane-aggregation")
"""The program that sums."""
WINDOW = 128
"""Slices that each worker has on the way; the switch has twice as many slots for them."""
LANE_BYTES = wire.MAX_SUM_WORDS * wire.SUM_WORD
_PAYLOAD_AT = 14 + 20 + 8
CHECKSUM_AT = _PAYLOAD_AT - 2
"""Where in a frame UDP's checksum is."""
_JOB, _GROUP, _BUCKETS = 1, 100, 16
_OWN_MAC, _OWN_ADDRESS = "02:00:00:00:01:00", "::ffff:10.0.255.1"
_GROUP_ADDRESS, _GROUP_MAC = "239.1.0.9", "01:00:5e:01:00:09"


def _offset(layout: Sequence[tuple[str, int]], name: str) -> int:
    """Bytes in front of a field."""
    names = [field for field, _ in layout]
    return sum(bits for _, bits in layout[: names.index(name)]) // 8


NUMBER_AT = _PAYLOAD_AT + _offset(wire.FIELDS, "message")
SLOT_AT = _PAYLOAD_AT + wire.HEADER_BYTES + _offset(wire.SUM_FIELDS, "slot")
"""Where in a frame the slice's number is, and its slot."""


def updates(pipeline: Pipeline, workers: int) -> list[Any]:
    """The switch's entries, as p4.v1.Update messages: hosts, routes, the job, and its slots if the program has some."""
    schema = P4Schema(pipeline.p4info)
    entities = [*_fabric(workers), *_job(workers)]
    if pipeline == AGGREGATION:
        entities += _sums(workers)
    return [p4r.Update(type=p4r.Update.INSERT, entity=entity.encode(schema)) for entity in entities]


def _fabric(workers: int) -> Iterable[Any]:
    yield _entry("stations", {"destination": _OWN_MAC}, "route")
    yield _entry("stations", {"destination": _GROUP_MAC}, "route")
    for port in range(1, workers + 1):
        yield _entry("ports", {"ingress_port": port}, "edge", switch_id=1)
        yield _entry("sources", {"ingress_port": port, "mac": _mac(port), "source": _source(port)}, "known", member=0)
        forward = P4TableAction("forward", port=port, next_hop=_mac(port), own=_OWN_MAC)
        match = P4TableMatch(group=port)
        yield P4TableEntry("next_hops", match=match, action=P4IndirectAction([((1, port), forward)]))
        yield _entry("ipv4_routes", {"destination": f"10.0.{port}.0/24"}, "set_next_hop", group=port)


def _job(workers: int) -> Iterable[Any]:
    slots = {"slot_base": 0, "slot_mask": 0xFFF, "max_share": 0xFFFF, "trim": 0, "spray": 0}
    yield _entry("jobs", {"job": _JOB}, "set_job", job_index=1, **slots)
    for port in range(1, workers + 1):
        yield _entry("senders", {"ingress_port": port, "source": _source(port), "job": _JOB}, "permit")


def _sums(workers: int) -> Iterable[Any]:
    yield P4MulticastGroupEntry(_GROUP, replicas=tuple(range(1, workers + 1)))
    yield _entry("ipv4_routes", {"destination": f"{_GROUP_ADDRESS}/32"}, "replicate", group=_GROUP)
    everybody = (1 << workers) - 1
    for bucket in range(_BUCKETS):
        who = {"all": everybody, "here": everybody, "up": 0, "group": _GROUP}
        own = {"slot_base": 0, "slot_mask": 2 * WINDOW - 1, "own": _OWN_MAC, "address": _OWN_ADDRESS, "epoch": 1}
        yield _entry("sum_trees", {"job": _JOB, "bucket": bucket}, "sum_at", **who, **own)
    for port in range(1, workers + 1):
        match = {"ingress_port": port, "source": _source(port), "job": _JOB}
        yield _entry("contributors", match, "contribute", member=1 << (port - 1))


def _entry(table: str, match: Mapping[str, object], action: str, **arguments: object) -> P4TableEntry:
    return P4TableEntry(table, match=P4TableMatch(match), action=P4TableAction(action, **arguments))


def _mac(port: int) -> str:
    return f"02:00:00:00:00:{port:02x}"


def _address(port: int) -> str:
    return f"10.0.{port}.2"


def _source(port: int) -> str:
    return f"::ffff:{_address(port)}"


def contribution(port: int, workers: int, lanes: Lanes, generation: int) -> bytes:
    """A worker's frame for the sum of slice 0."""
    width = 2 if lanes is Lanes.INT16_LANES else 4
    lane = ((1 << 8 * width) - 1) // (2 * workers) - port  # a small negative number
    summed = struct.pack("!IIHBB", generation, 0, 0, 0, 0)
    header = _header(port, wire.SUM_BYTES, flags=Flag.SUM, element_type=3 << 4 | lanes)
    payload = header + summed + lane.to_bytes(width, "big") * (LANE_BYTES // width)
    return _frame(port, _GROUP_MAC, _GROUP_ADDRESS, payload)


def plain(port: int, workers: int) -> bytes:
    """A gradient of the same size for the next worker."""
    payload = _header(port, wire.SUM_BYTES, element_type=ElementType.FLOAT32) + bytes(wire.SUM_BYTES + LANE_BYTES)
    return _frame(port, _OWN_MAC, _address(port % workers + 1), payload)


def _header(port: int, more: int, **fields: int) -> bytes:
    length = LANE_BYTES + more
    return Header(
        kind=Kind.DATA, job=_JOB, source=port - 1, message=0, token=1, slices=100, step=2, length=length, **fields
    ).pack()


def _frame(port: int, to: str, destination: str, payload: bytes) -> bytes:
    """A datagram of the transport, with both checksums."""
    addresses = IPv4Address(_address(port)).packed + IPv4Address(destination).packed
    length = 8 + len(payload)
    start = struct.pack("!BBHHHBB", 0x45, 0, 20 + length, 0, 0, 64, 17)
    network = start + struct.pack("!H", _checksum(start + addresses)) + addresses
    ports = struct.pack("!HHH", wire.UDP_PORT, wire.UDP_PORT, length)
    checksum = _checksum(addresses + struct.pack("!HH", 17, length) + ports + payload) or 0xFFFF
    ethernet = bytes.fromhex((to + _mac(port)).replace(":", "")) + b"\x08\0"
    return ethernet + network + ports + struct.pack("!H", checksum) + payload


def _checksum(octets: bytes) -> int:
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF
