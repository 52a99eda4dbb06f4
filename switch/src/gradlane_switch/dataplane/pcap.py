# SPDX-License-Identifier: Apache-2.0
"""pcap files of Ethernet frames (the classic format: draft-ietf-opsawg-pcap). The runtime writes the records."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from gradlane_switch.errors import PortError

_MICROSECONDS, _NANOSECONDS, _PCAPNG = 0xA1B2C3D4, 0xA1B23C4D, 0x0A0D0D0A
_ETHERNET = 1
_LONGEST = 262_144

HEADER = struct.pack("=IHHiIII", _NANOSECONDS, 2, 4, 0, 0, _LONGEST, _ETHERNET)
"""A file's header, as the runtime's records go on: native byte order, times in ns."""


def frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """(time in ns since 1970, frame) of every packet. Times that go back are raised to the one before.

    Raises PortError naming the file.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise PortError(f"{path}: {error.strerror}") from None
    with file:
        order, unit = _read_header(path, file.read(len(HEADER)))
        record = struct.Struct(f"{order}IIII")
        latest = 0
        while head := file.read(record.size):
            if len(head) < record.size:
                raise PortError(f"{path}: it ends within a packet")
            seconds, fraction, kept, length = record.unpack(head)
            if kept > _LONGEST or kept > length:
                raise PortError(f"{path}: it is damaged: a packet of {length} bytes has {kept}")
            if kept < length:
                raise PortError(f"{path}: only {kept} bytes were captured of a packet of {length}: capture it whole")
            frame = file.read(kept)
            if len(frame) < kept:
                raise PortError(f"{path}: it ends within a packet")
            latest = max(latest, seconds * 10**9 + fraction * unit)
            yield latest, frame


def _read_header(path: Path, header: bytes) -> tuple[str, int]:
    """Byte order, and ns per unit of a time's fraction."""
    if len(header) < len(HEADER):
        raise PortError(f"{path}: not a pcap file")
    for order in "<>":
        magic, link = struct.unpack(f"{order}I16xI", header)
        if magic in (_MICROSECONDS, _NANOSECONDS):
            if link & 0xFFFF != _ETHERNET:
                raise PortError(f"{path}: its packets are not Ethernet frames (link type {link & 0xFFFF})")
            return order, 1 if magic == _NANOSECONDS else 1000
        if magic == _PCAPNG:
            raise PortError(f"{path}: a pcapng file: convert it with `editcap -F pcap`")
    raise PortError(f"{path}: not a pcap file")
