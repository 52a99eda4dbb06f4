# SPDX-License-Identifier: Apache-2.0
"""Frames for the packet tests: scapy's layers for the Gradlane headers, the fabric's hosts, and gradient datagrams.

The layers have no definition of their own: their fields are those of gradlane.wire.
"""

from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from scapy.fields import BitField
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw, bind_layers

from gradlane import wire

_DEFAULTS = {field.name: 0 if field.default is MISSING else field.default for field in fields(wire.Header)}
GRADIENT_HEADERS = {4: 14 + 20 + 8 + wire.HEADER_BYTES, 6: 14 + 40 + 8 + wire.HEADER_BYTES}
TOKEN = 0x00112233445566FF


class Gradlane(Packet):
    """The Gradlane header."""

    name = "Gradlane"
    fields_desc = [BitField(name, int(_DEFAULTS[name]), bits) for name, bits in wire.FIELDS]  # noqa: RUF012


class Hop(Packet):
    """What a switch adds to a trace."""

    name = "Hop"
    fields_desc = [BitField(name, 0, bits) for name, bits in wire.HOP_FIELDS]  # noqa: RUF012

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        return b"", s


bind_layers(UDP, Gradlane, dport=wire.UDP_PORT)


@dataclass(frozen=True)
class Host:
    """The host at one switch port: its addresses, and the switch's own there."""

    port: int

    @property
    def address(self) -> str:
        return f"10.0.{self.port}.2"

    @property
    def address6(self) -> str:
        return f"fd00:0:0:{self.port}::2"

    @property
    def mac(self) -> str:
        return f"02:00:00:00:{self.port:02x}:02"

    @property
    def gateway(self) -> str:
        return f"02:00:00:00:{self.port:02x}:01"

    @property
    def gateway_address(self) -> str:
        return f"10.0.{self.port}.1"

    @property
    def gateway_address6(self) -> str:
        return f"fd00:0:0:{self.port}::1"


@dataclass(frozen=True)
class Uplink:
    """A port towards another switch of the fabric: the MAC addresses of both ends."""

    port: int

    @property
    def gateway(self) -> str:
        return f"02:01:00:01:00:{self.port:02x}"

    @property
    def mac(self) -> str:
        return f"02:01:00:02:00:{self.port:02x}"


H1, H2, H3, H4 = HOSTS = tuple(Host(port) for port in range(1, 5))
U5, U6, U7, U8 = UPLINKS = tuple(Uplink(port) for port in range(5, 9))
FAR = Host(9)  # behind the uplinks


def source_key(address: str) -> int:
    """An address as the program's guard sees it: an IPv4 address is mapped into IPv6."""
    return int(IPv6Address(address)) if ":" in address else 0xFFFF << 32 | int(IPv4Address(address))


def ip(source: Host, destination: Host | str, through: Host | Uplink | None = None, **options: Any) -> Packet:
    """Ethernet and IPv4 headers from a host to the switch, which it enters at its own port or `through` another.

    `options`: fields of the IPv4 header.
    """
    address = destination.address if isinstance(destination, Host) else destination
    return _ethernet(source, through) / IP(**{"src": source.address, "dst": address, **options})


def ip6(source: Host, destination: Host | str, through: Host | Uplink | None = None, **options: Any) -> Packet:
    """As `ip`, IPv6."""
    address = destination.address6 if isinstance(destination, Host) else destination
    return _ethernet(source, through) / IPv6(**{"src": source.address6, "dst": address, **options})


def _ethernet(source: Host, through: Host | Uplink | None) -> Packet:
    entry = through or source
    return Ether(src=entry.mac, dst=entry.gateway)


def gradient(
    source: Host = H1,
    destination: Host | str = H2,
    *,
    version: int = 4,
    through: Host | Uplink | None = None,
    frame_bytes: int = 1000,
    ip_fields: dict[str, Any] | None = None,
    **header: int,
) -> bytes:
    """A gradient datagram in a frame of `frame_bytes` bytes. `version`: of IP; `header`: the Gradlane fields."""
    payload = frame_bytes - GRADIENT_HEADERS[version]
    chosen = {"job": 1, "token": TOKEN, "slices": max(100, header.get("budget", 0)), "length": payload} | header
    packed = wire.Header(**_DEFAULTS | chosen).pack()
    blank = _blank(source, destination, version, through, payload, *(ip_fields or {}).items())
    start = len(blank) - payload - len(packed)
    # The one's complement sum with the header's words in the place of zeros; a UDP checksum is never 0.
    checksum = 0xFFFF - (int.from_bytes(packed, "big") - int.from_bytes(blank[start - 2 : start], "big")) % 0xFFFF
    return blank[: start - 2] + checksum.to_bytes(2, "big") + packed + blank[len(blank) - payload :]


@lru_cache(4096)
def _blank(
    source: Host,
    destination: Host | str,
    version: int,
    through: Host | Uplink | None,
    payload: int,
    *ip_fields: tuple[str, Any],
) -> bytes:
    """A frame with a Gradlane header of zeros: scapy takes milliseconds, and tests send thousands of like frames."""
    datagram = UDP(sport=wire.UDP_PORT, dport=wire.UDP_PORT) / Raw(bytes(wire.HEADER_BYTES))
    outer = (ip if version == 4 else ip6)(source, destination, through, **dict(ip_fields))
    return bytes(outer / datagram / Raw(bytes(n & 0xFF for n in range(payload))))


def tags(frame: bytes) -> tuple[int, int, int]:
    """Queue class, drop precedence and ECN as the DSCP and ECN fields of a frame's IP header say."""
    packet = Ether(frame)
    octet = packet[IP].tos if IP in packet else packet[IPv6].tc
    return octet >> 5, octet >> 2 & 7, octet & 3


def gradlane_of(frame: bytes) -> Gradlane:
    """The Gradlane header of a frame."""
    return Ether(frame)[Gradlane]


def rebuilt(frame: bytes) -> bytes:
    """The frame with every length and checksum that scapy computes anew, but for UDP checksums of 0."""
    packet = Ether(frame)
    if IP in packet:
        del packet[IP].chksum, packet[IP].len
    elif IPv6 in packet:
        del packet[IPv6].plen
    if UDP in packet:
        del packet[UDP].len
        if packet[UDP].chksum:
            del packet[UDP].chksum
    return bytes(packet)
