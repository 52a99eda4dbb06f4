# SPDX-License-Identifier: Apache-2.0
"""Frames for the packet tests: scapy's layer for the Gradlane header, the fabric's hosts, and gradient datagrams.

The layer has no definition of its own: its fields are those of gradlane.wire.FIELDS.
"""

from dataclasses import MISSING, dataclass, fields
from typing import Any

from scapy.fields import BitField
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw, bind_layers

from gradlane import wire

_DEFAULTS = {field.name: 0 if field.default is MISSING else field.default for field in fields(wire.Header)}
GRADIENT_HEADERS = 14 + 20 + 8 + wire.HEADER_BYTES
TOKEN = 0x00112233445566FF


class Gradlane(Packet):
    """The Gradlane header."""

    name = "Gradlane"
    fields_desc = [BitField(name, int(_DEFAULTS[name]), bits) for name, bits in wire.FIELDS]  # noqa: RUF012


bind_layers(UDP, Gradlane, dport=wire.UDP_PORT)


@dataclass(frozen=True)
class Host:
    """The host at one switch port: its addresses, and the switch's own MAC address there."""

    port: int

    @property
    def address(self) -> str:
        return f"10.0.{self.port}.2"

    @property
    def mac(self) -> str:
        return f"02:00:00:00:{self.port:02x}:02"

    @property
    def gateway(self) -> str:
        return f"02:00:00:00:{self.port:02x}:01"


H1, H2, H3, H4 = HOSTS = tuple(Host(port) for port in range(1, 5))


def ip(source: Host, destination: Host | str, **options: Any) -> Packet:
    """Ethernet and IPv4 headers from a host to its gateway. `options`: fields of the IPv4 header."""
    address = destination.address if isinstance(destination, Host) else destination
    return Ether(src=source.mac, dst=source.gateway) / IP(src=source.address, dst=address, **options)


def gradient(
    source: Host = H1,
    destination: Host | str = H2,
    *,
    frame_bytes: int = 1000,
    ip_fields: dict[str, Any] | None = None,
    **header: int,
) -> bytes:
    """A gradient datagram in a frame of `frame_bytes` bytes. `header`: fields of the Gradlane header."""
    payload = bytes(n & 0xFF for n in range(frame_bytes - GRADIENT_HEADERS))
    chosen = {"job": 1, "token": TOKEN, "slices": 100, "length": len(payload)} | header
    datagram = UDP(sport=wire.UDP_PORT, dport=wire.UDP_PORT) / Gradlane(**chosen) / Raw(payload)
    return bytes(ip(source, destination, **(ip_fields or {})) / datagram)
