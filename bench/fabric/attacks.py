# SPDX-License-Identifier: Apache-2.0
"""What a hostile tenant sends from its port, as frames; and how it troubles the agents of others."""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Mapping
from ipaddress import IPv4Address

from gradlane.wire import CONTROL_PORT, UDP_PORT, Header, Kind
from gradlane_controller.network.frames import make_lldp, make_probe
from lab.model.plan import HostPlan

MULTICAST = "239.1.0.1"
_IPV4, _IPV6, _ARP, _LLDP = 0x0800, 0x86DD, 0x0806, 0x88CC
_PAYLOAD = 512  # bytes


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return (total & 0xFFFF) + (total >> 16) ^ 0xFFFF


def _udp(port: int, payload: bytes) -> bytes:
    return struct.pack("!HHHH", port, port, 8 + len(payload), 0) + payload


def _ipv4(source: str, to: str, payload: bytes, *, dscp: int = 0, fragment: int = 0, protocol: int = 17) -> bytes:
    words = (0x45, dscp << 2, 20 + len(payload), 1, fragment, 64, protocol, 0, socket.inet_aton(source))
    header = struct.pack("!BBHHHBBH4s4s", *words, socket.inet_aton(to))
    return header[:10] + struct.pack("!H", _checksum(header)) + header[12:] + payload


def attacks(tenant: HostPlan, victim: HostPlan, job: int) -> Mapping[str, bytes]:
    """Frames by what they attack. `job`: the id of one that `victim` is a rank of."""
    out = _mac(tenant.gateway_mac) + _mac(tenant.mac)
    ether = {kind: out + struct.pack("!H", kind) for kind in (_IPV4, _IPV6, _ARP, _LLDP)}
    gradient = Header(Kind.DATA, job, 1, 1, 0, slices=8, length=_PAYLOAD).pack() + bytes(_PAYLOAD)
    unassigned = bytes([0x1F]) + gradient[1:]
    mine, theirs = tenant.address, victim.address

    def ipv4(payload: bytes, source: str = mine, to: str = theirs, **more: int) -> bytes:
        return ether[_IPV4] + _ipv4(source, to, payload, **more)

    plain = ipv4(_udp(9, bytes(_PAYLOAD)))
    probe = make_probe(out[:6], out[6:], IPv4Address(theirs), 1, os.urandom(8))
    lldp = b"\x02\x07\x04" + _mac(victim.gateway_mac) + b"\x04\x03\x02\x00\x01\x06\x02\x00\x78\x00\x00"
    arp = struct.pack("!HHBBH", 1, _IPV4, 6, 4, 1) + _mac(tenant.mac) + socket.inet_aton(mine) + bytes(6)
    spoofed6 = socket.inet_pton(socket.AF_INET6, "fd00::1") + socket.inet_pton(socket.AF_INET6, "fd00::2")
    hop_by_hop = bytes([17, 0, 1, 4, 0, 0, 0, 0]) + _udp(UDP_PORT, gradient)
    return {
        "refused gradients": ipv4(_udp(UDP_PORT, gradient)),
        "gradients with a rank's address": ipv4(_udp(UDP_PORT, gradient), source=theirs),
        "unassigned kinds": ipv4(_udp(UDP_PORT, unassigned)),
        "LLDP": bytes.fromhex("0180c200000e") + ether[_LLDP][6:] + lldp + bytes(30),
        "forged probes": probe,
        "forged LLDP of a link": make_lldp(out[6:], "spine1", 1, 120, os.urandom(8)),
        "ARP": b"\xff" * 6 + ether[_ARP][6:] + arp + socket.inet_aton(tenant.gateway) + bytes(18),
        "DSCP 56": ipv4(_udp(9, bytes(_PAYLOAD)), dscp=56),
        "multicast of a job": b"\x01\x00\x5e\x01\x00\x01" + ipv4(_udp(9, bytes(64)), to=MULTICAST)[6:],
        "fragments": ipv4(bytes(_PAYLOAD), fragment=0x2001),
        "VLAN tags": plain[:12] + b"\x81\x00\xe0\x05" + plain[12:],
        "priority tags": plain[:12] + b"\x81\x00\xe0\x00" + plain[12:],
        "IPv6 extension headers": ether[_IPV6]
        + struct.pack("!IHBB", 6 << 28, len(hop_by_hop), 0, 64)
        + spoofed6
        + hop_by_hop,
        "another's MAC address": plain[:6] + _mac(victim.mac) + plain[12:],
    }


def strangers(address: str) -> None:
    """Connections to an agent's control port with what is no TLS, and stray requests, until the process is ended."""
    words = (b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\xff\xff" + os.urandom(64), b"\n" * 4096, b"")
    while True:
        for word in words:
            try:
                with socket.create_connection((address, CONTROL_PORT), 1) as connection:
                    connection.sendall(word)
            except OSError:
                time.sleep(0.05)


if __name__ == "__main__":
    strangers(sys.argv[1])
