# SPDX-License-Identifier: Apache-2.0
"""Packet-in and packet-out: packets through the CPU port, with their metadata in a header in front.

The header's fields are those of P4Info's controller_packet_metadata, in order and without gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from finsy.proto import p4r

from gradlane_switch.errors import ProgramError
from gradlane_switch.p4info.bytestrings import decode, encode, invalid


@dataclass(frozen=True)
class MetadataField:
    """A field of the header: id, name, width in bits. A controller may leave padding out."""

    id: int
    name: str
    width: int
    padding: bool


@dataclass(frozen=True)
class PacketHeader:
    """The header of packets in one direction."""

    name: str
    fields: tuple[MetadataField, ...]

    @property
    def octets(self) -> int:
        """Length in bytes."""
        return sum(field.width for field in self.fields) // 8


def packet_headers(info: Any) -> dict[str, PacketHeader]:
    """The headers in a P4Info by direction, `packet_in` and `packet_out`. Raises ProgramError."""
    result: dict[str, PacketHeader] = {}
    for item in info.controller_packet_metadata:
        name = item.preamble.name
        if name not in ("packet_in", "packet_out"):
            raise ProgramError(f"controller_packet_metadata {name} is not supported: packet_in and packet_out are")
        fields = tuple(
            MetadataField(field.id, field.name, field.bitwidth, "@padding" in field.annotations)
            for field in item.metadata
        )
        for field in fields:
            if not field.width:
                raise ProgramError(f"translated types are not supported: {name}.{field.name}")
        header = PacketHeader(name, fields)
        if sum(field.width for field in fields) % 8:
            raise ProgramError(f"header {name} has no whole number of bytes")
        result[name] = header
    return result


def packet_in(header: PacketHeader | None, frame: bytes) -> Any:
    """The p4.v1.PacketIn of a frame that left through the CPU port. One too short for the header has no metadata."""
    if header is None or len(frame) < header.octets:
        return p4r.PacketIn(payload=frame)
    message = p4r.PacketIn(payload=frame[header.octets :])
    rest = 8 * header.octets
    value = int.from_bytes(frame[: header.octets], "big")
    for field in header.fields:
        rest -= field.width
        content = value >> rest & ((1 << field.width) - 1)
        if not field.padding:
            message.metadata.add(metadata_id=field.id, value=encode(content))
    return message


def packet_out(header: PacketHeader | None, message: Any) -> bytes:
    """The frame that a p4.v1.PacketOut means, as it enters the CPU port. Raises EntityError."""
    fields = header.fields if header is not None else ()
    given: dict[int, bytes] = {}
    for item in message.metadata:
        if item.metadata_id in given or all(field.id != item.metadata_id for field in fields):
            raise invalid(f"packet-out metadata {item.metadata_id} does not exist, or is given twice")
        given[item.metadata_id] = item.value
    value = 0
    for field in fields:
        if field.id not in given and not field.padding:
            raise invalid(f"packet-out metadata {field.name} ({field.id}) is missing")
        content = decode(given[field.id], field.width, field.name) if field.id in given else 0
        value = value << field.width | content
    octets = header.octets if header is not None else 0
    return value.to_bytes(octets, "big") + message.payload
