# SPDX-License-Identifier: Apache-2.0
"""Packet-in and packet-out: packets through the CPU port, with their metadata in a header in front.

The header's fields are those of P4Info's controller_packet_metadata, in order and without gaps. Bits that then lack to
a whole byte are behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from finsy.proto import p4r

from gradlane_switch.ir.program import Program
from gradlane_switch.p4info.bytestrings import invalid
from gradlane_switch.p4info.translation import Names, Translation, Translations, decode_value, encode_value


@dataclass(frozen=True)
class MetadataField:
    """A field of the header: id, name, width in bits, translation. A controller may leave padding out."""

    id: int
    name: str
    width: int
    padding: bool
    translation: Translation | None = None


@dataclass(frozen=True)
class PacketHeader:
    """The header of packets in one direction."""

    name: str
    fields: tuple[MetadataField, ...]

    @property
    def octets(self) -> int:
        """Length in bytes."""
        return -(-sum(field.width for field in self.fields) // 8)


def packet_headers(info: Any, program: Program, translations: Translations) -> dict[str, PacketHeader]:
    """The headers in a P4Info by direction, `packet_in` and `packet_out`. Raises ProgramError.

    One of which nothing tells how long it is, because the program uses neither it nor a type in it, is left out. Others
    have no meaning in P4Runtime.
    """
    result: dict[str, PacketHeader] = {}
    headers = [header for header in program.headers if not header.metadata]
    for item in info.controller_packet_metadata:
        name = item.preamble.name
        names = [field.name for field in item.metadata]
        known = next((it.fields for it in headers if [field.name for field in it.fields] == names), None)
        widths = [None] * len(names) if known is None else [field.width for field in known]
        fields = [_field(*pair, name, translations) for pair in zip(item.metadata, widths, strict=True)]
        if None not in fields:
            result[name] = PacketHeader(name, tuple(field for field in fields if field is not None))
    return result


def _field(item: Any, width: int | None, header: str, translations: Translations) -> MetadataField | None:
    """A field of a header, in which the program has it with a width (None: the program does not use the header)."""
    what, kind = f"{header}.{item.name}", translations.translated(item)
    held = item.bitwidth if kind is None else width or translations.width(kind)
    if not held:
        return None
    return MetadataField(item.id, item.name, held, "@padding" in item.annotations, translations.of(item, held, what))


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
            message.metadata.add(metadata_id=field.id, value=encode_value(content, field.translation))
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
        value = value << field.width | (_content(field, given[field.id]) if field.id in given else 0)
    octets = header.octets if header is not None else 0
    value <<= 8 * octets - sum(field.width for field in fields)
    return value.to_bytes(octets, "big") + message.payload


def _content(field: MetadataField, text: bytes) -> int:
    if not isinstance(field.translation, Names):
        return decode_value(text, field.width, field.name, field.translation)
    number = field.translation.known(text)
    if number is None:
        raise invalid(f"packet-out metadata {field.name} ({field.id}): there is nothing of the name {text!r}")
    return number
