# SPDX-License-Identifier: Apache-2.0
"""Frames that the controller reads and writes: ARP (RFC 826), ICMP (RFC 792), ICMPv6 (RFC 4443, 4861), LLDP.

Bytes in, bytes out; what is cut short, or is something else, is None.
"""

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

ETHERNET_BYTES = 14
_ARP, _IPV4, _IPV6, _LLDP = 0x0806, 0x0800, 0x86DD, 0x88CC
_NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
_LOCALLY_ASSIGNED = b"\x07"
_ORGANIZATIONALLY_SPECIFIC = 127
_ORGANIZATION = bytes.fromhex("02474c01")  # none's: a locally administered number; and a subtype
_ICMP, _ICMPV6 = 1, 58
_TTL = 64
_NETWORK_CONTROL = 56 << 2  # CS7 (RFC 2474), which fabric files have in the top class
_IPV4_HEADER = struct.Struct("!BBHHHBBH4s4s")
_IPV6_HEADER = struct.Struct("!IHBB16s16s")
_ARP_PACKET = struct.Struct("!HHBBH6s4s6s4s")
_ARP_OF_IPV4 = (1, _IPV4, 6, 4)
_LONGEST_ICMP = 576  # RFC 1812, section 4.3.2.3
_LONGEST_ICMPV6 = 1280  # RFC 4443, section 2.4 (c)

Address = IPv4Address | IPv6Address


@dataclass(frozen=True)
class Packet:
    """An IP packet in its frame. `protocol` is that of the payload; of an IPv6 packet the first header's."""

    destination_mac: bytes
    source_mac: bytes
    source: Address
    destination: Address
    protocol: int
    hop_limit: int
    fragment: bool
    whole: bytes
    payload: bytes

    @property
    def is_icmp(self) -> bool:
        """Whether the payload is of the ICMP that belongs to this version of IP."""
        return self.protocol == (_ICMP if self.source.version == 4 else _ICMPV6)


@dataclass(frozen=True)
class Question:
    """Somebody asks for the Ethernet address of `target`. `asker` is 0.0.0.0 or :: while it checks its own address."""

    asker_mac: bytes
    asker: Address
    target: Address


def parse_arp_request(frame: bytes) -> Question | None:
    """The question of an ARP request."""
    if len(frame) < ETHERNET_BYTES + _ARP_PACKET.size:
        return None
    *kind, operation, mac, asker, _, target = _ARP_PACKET.unpack_from(frame, ETHERNET_BYTES)
    if tuple(kind) != _ARP_OF_IPV4 or operation != 1:
        return None
    return Question(mac, IPv4Address(asker), IPv4Address(target))


def make_arp_reply(question: Question, mac: bytes) -> bytes:
    """`mac` has the address that was asked for."""
    packet = _ARP_PACKET.pack(*_ARP_OF_IPV4, 2, mac, question.target.packed, question.asker_mac, question.asker.packed)
    return _frame(question.asker_mac, mac, _ARP, packet)


def parse_packet(frame: bytes) -> Packet | None:
    """The IPv4 or IPv6 packet of a frame, without what pads the frame."""
    return (_parse_ipv4 if frame[12:14] == _IPV4.to_bytes(2, "big") else _parse_ipv6)(frame)


def parse_solicitation(packet: Packet) -> Question | None:
    """The question of a neighbour solicitation (RFC 4861, 4.3 and 7.1.1)."""
    message = packet.payload
    if packet.hop_limit != 255 or len(message) < 24 or message[:2] != b"\x87\x00" or not _is_intact(packet):
        return None
    return Question(packet.source_mac, packet.source, IPv6Address(message[8:24]))


def make_advertisement(question: Question, mac: bytes, router: bool) -> bytes:
    """`mac` has the address that was asked for. What is said for another host overrides nothing (RFC 4861, 7.2.8)."""
    unspecified = int(question.asker) == 0
    flags = (0xA0 if router else 0) | (0 if unspecified else 0x40)
    message = bytes((136, 0, 0, 0, flags, 0, 0, 0)) + question.target.packed + b"\x02\x01" + mac
    asker = IPv6Address("ff02::1") if unspecified else question.asker
    asker_mac = bytes.fromhex("333300000001") if unspecified else question.asker_mac
    return _ip_frame(asker_mac, mac, question.target, asker, message, hop_limit=255)


def make_echo_reply(packet: Packet) -> bytes | None:
    """The answer to an echo request; None if the packet is something else."""
    four = packet.source.version == 4
    message = packet.payload
    request = b"\x08\x00" if four else b"\x80\x00"
    if packet.fragment or not packet.is_icmp or len(message) < 8 or message[:2] != request or not _is_intact(packet):
        return None
    reply = bytes((0 if four else 129, 0, 0, 0)) + message[4:]
    return _ip_frame(packet.source_mac, packet.destination_mac, packet.destination, packet.source, reply)


def make_time_exceeded(packet: Packet, source: Address) -> bytes | None:
    """The answer to the sender of an expired packet; None if there must be none (RFC 1812, 4.3.2.7; RFC 4443, 2.4)."""
    if packet.destination_mac[0] & 1 or packet.destination.is_multicast or packet.source.is_multicast:
        return None
    if packet.source.is_unspecified or packet.source.is_loopback or packet.fragment or _is_icmp_error(packet):
        return None
    four = packet.source.version == 4
    room = _LONGEST_ICMP - 28 if four else _LONGEST_ICMPV6 - 48
    message = bytes((11 if four else 3, 0, 0, 0, 0, 0, 0, 0)) + packet.whole[:room]
    return _ip_frame(packet.source_mac, packet.destination_mac, source, packet.source, message)


def make_probe(to: bytes, own: bytes, address: Address, number: int, seal: bytes) -> bytes:
    """An echo request from an address to itself: whom it is sent to routes it back, ahead of what is queued there."""
    message = b"\x08\x00\x00\x00" + number.to_bytes(2, "big") + b"\0\0" + seal
    return _ip_frame(to, own, address, address, message, traffic_class=_NETWORK_CONTROL)


def parse_probe(frame: bytes) -> tuple[int, bytes] | None:
    """The number of a probe, and its seal."""
    packet = parse_packet(frame)
    if packet is None or packet.source != packet.destination or not packet.is_icmp or packet.payload[:2] != b"\x08\0":
        return None
    return int.from_bytes(packet.payload[4:6], "big"), packet.payload[8:]


def make_lldp(mac: bytes, switch: str, port: int, seconds: int, seal: bytes) -> bytes:
    """What a port says of itself; it holds for some seconds."""
    return _frame(
        _NEAREST_BRIDGE,
        mac,
        _LLDP,
        _tlv(1, _LOCALLY_ASSIGNED + switch.encode())
        + _tlv(2, _LOCALLY_ASSIGNED + str(port).encode())
        + _tlv(3, seconds.to_bytes(2, "big"))
        + _tlv(_ORGANIZATIONALLY_SPECIFIC, _ORGANIZATION + seal)
        + _tlv(0, b""),
    )


def parse_lldp(frame: bytes) -> tuple[str, int, bytes] | None:
    """The switch, the port and the seal of a frame that `make_lldp` has made."""
    found: list[bytes] = []
    place = ETHERNET_BYTES
    for kind, prefix in (
        (1, _LOCALLY_ASSIGNED),
        (2, _LOCALLY_ASSIGNED),
        (3, b""),
        (_ORGANIZATIONALLY_SPECIFIC, _ORGANIZATION),
    ):
        head = int.from_bytes(frame[place : place + 2], "big")
        value = frame[place + 2 : place + 2 + (head & 0x1FF)]
        if head >> 9 != kind or len(value) != head & 0x1FF or not value.startswith(prefix):
            return None
        found.append(value[len(prefix) :])
        place += 2 + len(value)
    switch, port, _, seal = found
    return (switch.decode(), int(port), seal) if switch.isascii() and port.isdigit() else None


def _tlv(kind: int, value: bytes) -> bytes:
    return (kind << 9 | len(value)).to_bytes(2, "big") + value


def _parse_ipv4(frame: bytes) -> Packet | None:
    if len(frame) < ETHERNET_BYTES + _IPV4_HEADER.size:
        return None
    first, _, length, _, fragment, ttl, protocol, _, source, destination = _IPV4_HEADER.unpack_from(
        frame, ETHERNET_BYTES
    )
    whole = frame[ETHERNET_BYTES : ETHERNET_BYTES + length]
    if first != 0x45 or length < _IPV4_HEADER.size or len(whole) < length:
        return None
    return Packet(
        destination_mac=frame[:6],
        source_mac=frame[6:12],
        source=IPv4Address(source),
        destination=IPv4Address(destination),
        protocol=protocol,
        hop_limit=ttl,
        fragment=fragment & 0x3FFF != 0,
        whole=whole,
        payload=whole[_IPV4_HEADER.size :],
    )


def _parse_ipv6(frame: bytes) -> Packet | None:
    if len(frame) < ETHERNET_BYTES + _IPV6_HEADER.size:
        return None
    _, length, protocol, hop_limit, source, destination = _IPV6_HEADER.unpack_from(frame, ETHERNET_BYTES)
    whole = frame[ETHERNET_BYTES : ETHERNET_BYTES + _IPV6_HEADER.size + length]
    if frame[12:14] != _IPV6.to_bytes(2, "big") or len(whole) < _IPV6_HEADER.size + length:
        return None
    return Packet(
        destination_mac=frame[:6],
        source_mac=frame[6:12],
        source=IPv6Address(source),
        destination=IPv6Address(destination),
        protocol=protocol,
        hop_limit=hop_limit,
        fragment=False,
        whole=whole,
        payload=whole[_IPV6_HEADER.size :],
    )


def _is_icmp_error(packet: Packet) -> bool:
    """Whether it is one, or too short to tell."""
    if not packet.is_icmp:
        return False
    if not packet.payload:
        return True
    kind = packet.payload[0]
    return kind in (3, 4, 5, 11, 12) if packet.source.version == 4 else kind < 128 or kind == 137


def _is_intact(packet: Packet) -> bool:
    pseudo = _pseudo_header(packet.source, packet.destination, len(packet.payload))
    return _checksum(pseudo + packet.payload) == 0


def _pseudo_header(source: Address, destination: Address, length: int) -> bytes:
    """What the checksum of ICMPv6 covers besides the message (RFC 8200, 8.1); that of ICMP covers nothing else."""
    if source.version == 4:
        return b""
    return source.packed + destination.packed + struct.pack("!II", length, _ICMPV6)


def _ip_frame(
    to: bytes,
    own: bytes,
    source: Address,
    destination: Address,
    message: bytes,
    hop_limit: int = _TTL,
    traffic_class: int = 0,
) -> bytes:
    """A frame with an ICMP message, whose checksum field (bytes 2 and 3) is zero."""
    checksum = _checksum(_pseudo_header(source, destination, len(message)) + message)
    message = message[:2] + checksum.to_bytes(2, "big") + message[4:]
    if source.version == 6:
        header = _IPV6_HEADER.pack(
            6 << 28 | traffic_class << 20, len(message), _ICMPV6, hop_limit, source.packed, destination.packed
        )
        return _frame(to, own, _IPV6, header + message)
    fields = (0x45, traffic_class, _IPV4_HEADER.size + len(message), 0, 0, hop_limit, _ICMP)
    draft = _IPV4_HEADER.pack(*fields, 0, source.packed, destination.packed)
    header = _IPV4_HEADER.pack(*fields, _checksum(draft), source.packed, destination.packed)
    return _frame(to, own, _IPV4, header + message)


def _frame(to: bytes, own: bytes, ethertype: int, content: bytes) -> bytes:
    return (to + own + ethertype.to_bytes(2, "big") + content).ljust(60, b"\0")


def _checksum(data: bytes) -> int:
    """RFC 1071: zero for data that holds its own checksum."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
