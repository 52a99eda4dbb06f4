# SPDX-License-Identifier: Apache-2.0
"""What the network does to a datagram that is sent to a host, as ICMP reports it.

A datagram to a port where nobody listens is answered with "port unreachable": it has arrived, whole. If it was too long
for a link, the answer is "fragmentation needed" with the MTU. Both quote the datagram's IP header as it was when it
arrived, so its DSCP can be seen (which takes a raw socket). Linux answers six at once, then one per second.
"""

import contextlib
import errno
import os
import select
import socket
import struct
import time
from dataclasses import dataclass

from gradlane.toml_file import Address

# Where traceroute sends to: nobody listens there.
PORT = 33434
WAIT_SECONDS = 3.0
_IP_MTU_DISCOVER, _IP_MTU, _IP_RECVERR = 10, 14, 11
_IPV6_MTU_DISCOVER, _IPV6_MTU, _IPV6_RECVERR = 23, 24, 25
_PMTUDISC_DO = 2
SMALL = 576


@dataclass(frozen=True)
class Answer:
    """`arrived`: None if nothing answered. `mtu`: the path's as known now. `error`: why nothing could be sent."""

    arrived: bool | None
    mtu: int
    error: str = ""


def _open(own: Address, peer: Address, traffic_class: int) -> socket.socket:
    six = own.version == 6
    sock = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    level = socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP
    sock.setsockopt(level, _IPV6_MTU_DISCOVER if six else _IP_MTU_DISCOVER, _PMTUDISC_DO)
    sock.setsockopt(level, _IPV6_RECVERR if six else _IP_RECVERR, 1)
    sock.setsockopt(level, socket.IPV6_TCLASS if six else socket.IP_TOS, traffic_class)
    sock.bind((str(own), 0))
    sock.connect((str(peer), PORT))
    return sock


def _mtu(sock: socket.socket) -> int:
    six = sock.family == socket.AF_INET6
    return sock.getsockopt(socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP, _IPV6_MTU if six else _IP_MTU)


def send(own: Address, peer: Address, size: int) -> Answer:
    """Sends an IP packet of `size` bytes that must not be fragmented, and waits for what becomes of it."""
    headers = 48 if own.version == 6 else 28
    try:
        with _open(own, peer, 0) as sock:
            try:
                sock.send(bytes(size - headers))
            except OSError as error:
                if error.errno != errno.EMSGSIZE:
                    raise
                return Answer(False, _mtu(sock))
            poll = select.poll()
            poll.register(sock, 0)  # errors are always reported
            if not poll.poll(WAIT_SECONDS * 1000):
                return Answer(None, _mtu(sock))
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code == errno.ECONNREFUSED:
                return Answer(True, _mtu(sock))
            return Answer(False, _mtu(sock), "" if code == errno.EMSGSIZE else os.strerror(code))
    except OSError as error:
        return Answer(False, 0, error.strerror or str(error))


def path_mtu(own: Address, peer: Address, size: int) -> Answer:
    """The largest packet, of at most `size` bytes, that arrives whole; `arrived` None: nothing is answered at all."""
    while True:
        answer = send(own, peer, size)
        if answer.arrived is None:
            answer = send(own, peer, size)  # the first one may be lost while a neighbour is looked for
        if answer.arrived is not False or answer.error or not SMALL <= answer.mtu < size:
            return answer
        size = answer.mtu


def arriving_class(own: Address, peer: Address, traffic_class: int) -> int | None:
    """The traffic class (DSCP and ECN) with which a packet arrives that is sent with this one; None: can't be seen.

    Raises PermissionError without CAP_NET_RAW.
    """
    six = own.version == 6
    protocol = socket.getprotobyname("ipv6-icmp") if six else socket.IPPROTO_ICMP
    with (
        socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_RAW, protocol) as icmp,
        _open(own, peer, traffic_class) as sock,
    ):
        port = sock.getsockname()[1]
        with contextlib.suppress(OSError):
            sock.send(b"gradlane doctor")
        deadline = time.monotonic() + WAIT_SECONDS
        while (left := deadline - time.monotonic()) > 0 and select.select([icmp], [], [], left)[0]:
            packet, _ = icmp.recvfrom(2048)
            quoted = packet[8:] if six else packet[(packet[0] & 15) * 4 + 8 :]  # behind the ICMP header
            start = 40 if six else (quoted[0] & 15) * 4
            if len(quoted) >= start + 4 and struct.unpack_from(">HH", quoted, start) == (port, PORT):
                return (quoted[0] << 4 | quoted[1] >> 4) & 255 if six else quoted[1]
    return None
