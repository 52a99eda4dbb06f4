# SPDX-License-Identifier: Apache-2.0
"""A router that gives every packet the same DSCP, as some networks do: a program for a namespace that forwards nothing.

    rewriting_router.py DSCP INTERFACE HOST-MAC HOST-ADDRESS INTERFACE HOST-MAC HOST-ADDRESS

It carries IP packets between two hosts, one behind each interface. It prints "ready".
"""

import select
import socket
import struct
import sys
from dataclasses import dataclass
from ipaddress import ip_address

IPV4, IPV6 = 0x0800, 0x86DD


@dataclass
class End:
    """An interface, and the host behind it."""

    sock: socket.socket
    ethernet: bytes  # source and destination of what goes to the host
    address: bytes


def opened(interface: str, mac: str, address: str) -> End:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
    sock.bind((interface, 0))
    return End(sock, bytes.fromhex(mac.replace(":", "")) + sock.getsockname()[4], ip_address(address).packed)


def checksum(header: bytes) -> int:
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def rewritten(packet: bytearray, kind: int, dscp: int) -> bytearray:
    """The packet with that DSCP, and its ECN as it was."""
    if kind == IPV4:
        packet[1] = dscp << 2 | packet[1] & 3
        length = (packet[0] & 15) * 4
        packet[10:12] = b"\0\0"
        packet[10:12] = struct.pack(">H", checksum(packet[:length]))
    else:
        first = struct.unpack_from(">I", packet)[0] & ~(63 << 22) | dscp << 22
        struct.pack_into(">I", packet, 0, first)
    return packet


def main(dscp: int, ends: list[End]) -> None:
    print("ready", flush=True)
    while True:
        for sock in select.select([end.sock for end in ends], [], [])[0]:
            frame = bytearray(sock.recv(65536))
            kind = struct.unpack_from(">H", frame, 12)[0]
            packet = frame[14:]
            to = bytes(packet[16:20] if kind == IPV4 else packet[24:40] if kind == IPV6 else b"")
            for end in ends:
                if end.sock is not sock and end.address == to:
                    end.sock.send(end.ethernet + frame[12:14] + rewritten(packet, kind, dscp))


if __name__ == "__main__":
    main(int(sys.argv[1]), [opened(*sys.argv[2:5]), opened(*sys.argv[5:8])])
