# SPDX-License-Identifier: Apache-2.0
"""What ports are connected to: packet sockets, TAP interfaces, UDP tunnels and pcap files."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import logging
import os
import re
import socket
import struct
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from gradlane_switch.dataplane import pcap
from gradlane_switch.dataplane.port_config import ETHERNET, PortSpec
from gradlane_switch.errors import PortError

_LOG = logging.getLogger("gradlane-switch")

VLAN_TAG = 4
DEFAULT_MTU = 1500

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCGIFMTU = 0x8913, 0x8914, 0x8921
_IFF_UP = 1
_IFF_RUNNING = 0x40
_RTMGRP_LINK = 1
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP, _PACKET_MR_PROMISC = 1, 1
_PACKET_AUXDATA, _PACKET_VNET_HDR, _PACKET_QDISC_BYPASS, _PACKET_IGNORE_OUTGOING = 8, 15, 20, 23
_SO_TIMESTAMPNS = 35
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_DONT = 10, 23, 0
_SOCKET_BUFFER = 8 << 20
_LONGEST_NAME = 15

PACKET, UDP, TAP, FILE = 0, 1, 2, 3
"""Kinds of ports; the numbers are those of runtime/ports/api.h."""


@dataclass(frozen=True)
class Connection:
    """An open port. `mtu` and `frame_limit` are in bytes; the latter counts what the runtime gets in one piece."""

    kind: int
    resource: socket.socket | FileIO | None
    mtu: int
    frame_limit: int
    source: Path | None = None

    @property
    def descriptor(self) -> int:
        """The file descriptor; -1 if there is none."""
        return -1 if self.resource is None else self.resource.fileno()

    def close(self) -> None:
        """Closes it."""
        if self.resource is not None:
            self.resource.close()


def is_file(spec: PortSpec) -> bool:
    """Whether the port reads and writes files instead of being connected to anything."""
    return spec.interface.startswith("pcap:")


def reads_file(spec: PortSpec) -> bool:
    """Whether packets enter the port from a file, so that there is no other clock than theirs."""
    return is_file(spec) and not spec.interface.startswith("pcap:,")


def connect(spec: PortSpec) -> Connection:
    """Opens what a port is connected to. Raises PortError naming it."""
    kind, colon, rest = spec.interface.partition(":")
    if not colon:
        return _open_interface(spec.interface)
    match kind:
        case "tap":
            return _open_tap(rest)
        case "udp":
            return _open_tunnel(rest, spec.mtu or DEFAULT_MTU)
        case "pcap":
            return _open_files(rest, spec.mtu or DEFAULT_MTU)
        case _:
            raise PortError(f"{spec.interface!r}: {kind!r} is not a kind of port: there are tap, udp and pcap")


def _name(interface: str) -> bytes:
    if not 0 < len(interface.encode()) <= _LONGEST_NAME:
        raise PortError(f"{interface!r}: an interface's name has 1 to {_LONGEST_NAME} characters")
    return interface.encode()


def _mtu(probe: socket.socket, name: bytes) -> int:
    return struct.unpack("16sI12x", fcntl.ioctl(probe, _SIOCGIFMTU, struct.pack("16sI12x", name, 0)))[1]


# Interfaces


def _index(interface: str) -> int:
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        raise PortError(f"{interface}: no such interface") from None


def _open_interface(interface: str) -> Connection:
    """A packet socket, promiscuous."""
    try:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    except PermissionError:
        raise PortError(
            f"{interface}: packet sockets need root or CAP_NET_RAW; udp: and pcap: ports need neither"
        ) from None
    try:
        index = _index(interface)
        mtu = _mtu(opened, _name(interface))
        opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        opened.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        opened.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
        opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _SOCKET_BUFFER)
        opened.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SOCKET_BUFFER)
        membership = struct.pack("iHH8s", index, _PACKET_MR_PROMISC, 0, b"")
        opened.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
        opened.bind((interface, _ETH_P_ALL))
    except OSError as error:
        opened.close()
        raise PortError(f"{interface}: {error.strerror or error}") from None
    except PortError:
        opened.close()
        raise
    # The kernel takes a VLAN tag out of a frame, and the runtime puts it back.
    return Connection(PACKET, opened, mtu, mtu + ETHERNET)


def _open_tap(interface: str) -> Connection:
    """A TAP interface, made if there is none of that name, and set up."""
    name = _name(interface)
    try:
        opened = FileIO(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), "r+")
    except OSError as error:
        raise PortError(f"tap:{interface}: /dev/net/tun: {error.strerror}") from None
    try:
        fcntl.ioctl(opened, _TUNSETIFF, struct.pack("16sH22x", name, _IFF_TAP | _IFF_NO_PI))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            mtu = _mtu(probe, name)
            _set_up(probe, name)
    except OSError as error:
        opened.close()
        need = (
            ""
            if error.errno != errno.EPERM
            else (" (it needs root or CAP_NET_ADMIN, or that `ip tuntap add mode tap user ...` made the interface)")
        )
        raise PortError(f"tap:{interface}: {error.strerror}{need}") from None
    return Connection(TAP, opened, mtu, mtu + ETHERNET + VLAN_TAG)


def _set_up(probe: socket.socket, name: bytes) -> None:
    flags = struct.unpack("16sH22x", fcntl.ioctl(probe, _SIOCGIFFLAGS, struct.pack("16sH22x", name, 0)))[1]
    if flags & _IFF_UP:
        return
    try:
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sH22x", name, flags | _IFF_UP))
    except PermissionError:
        _LOG.warning("tap:%s is down, and only root can set it up", name.decode())


# Carriers


def link_events() -> socket.socket:
    """A socket that is readable when an interface has come, gone or changed. Raises PortError."""
    try:
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
        opened.bind((0, _RTMGRP_LINK))
    except OSError as error:
        raise PortError(f"can't watch network interfaces: {error.strerror}") from None
    return opened


def has_carrier(interface: str) -> bool:
    """Whether the interface behind a port is up, and so is its other end; True for a port without one."""
    kind, colon, rest = interface.partition(":")
    if colon and kind != "tap":
        return True
    request = struct.pack("16sH22x", _name(rest if colon else interface), 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            flags = struct.unpack("16sH22x", fcntl.ioctl(probe, _SIOCGIFFLAGS, request))[1]
        except OSError:
            return False  # It is gone.
    return flags & _IFF_UP != 0 and flags & _IFF_RUNNING != 0


# UDP tunnels

_ENDPOINT = r"(\[[0-9A-Fa-f:.]+\]|[0-9.]+):([0-9]+)"


def _open_tunnel(text: str, mtu: int) -> Connection:
    """A UDP socket between two addresses; a datagram's payload is a frame."""
    found = re.fullmatch(f"{_ENDPOINT}-{_ENDPOINT}", text)
    try:
        if found is None:
            raise ValueError
        local, peer = (_address(found[1], found[2]), _address(found[3], found[4]))
    except ValueError:
        raise PortError(
            f"'udp:{text}' is not a tunnel: write udp:LOCAL:PORT-PEER:PORT with numeric addresses, "
            "e.g. udp:127.0.0.1:5001-127.0.0.1:5002"
        ) from None
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        # A frame that is longer than the path's MTU goes in fragments.
        option = (socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER) if family == socket.AF_INET6 else (0, _IP_MTU_DISCOVER)
        opened.setsockopt(*option, _PMTUDISC_DONT)
        opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        _deepen(opened)
        opened.bind(local)
        opened.connect(peer)
    except OSError as error:
        opened.close()
        raise PortError(f"udp:{text}: {error.strerror or error}") from None
    return Connection(UDP, opened, mtu, mtu + ETHERNET + VLAN_TAG)


def _address(host: str, port: str) -> tuple[str, int]:
    address = str(ipaddress.ip_address(host.strip("[]")))
    if not 0 < int(port) < 65536:
        raise ValueError
    return address, int(port)


def _deepen(opened: socket.socket) -> None:
    """Asks for the deepest buffers; without privileges the kernel grants fewer."""
    for forced, option in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        try:
            opened.setsockopt(socket.SOL_SOCKET, forced, _SOCKET_BUFFER)
        except PermissionError:
            opened.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER)


# Files


def _open_files(text: str, mtu: int) -> Connection:
    """A pcap file to read, one to write, or both."""
    source, _, target = text.partition(",")
    if not source and not target:
        raise PortError("'pcap:' is not a port: write pcap:IN,OUT, or pcap:IN, or pcap:,OUT")
    if source and not Path(source).is_file():
        raise PortError(f"{source}: no such file")
    opened = None
    if target:
        try:
            opened = FileIO(target, "w")
            opened.write(pcap.HEADER)
        except OSError as error:
            raise PortError(f"{target}: {error.strerror}") from None
    limit = mtu + ETHERNET + VLAN_TAG
    return Connection(FILE, opened, mtu, limit, Path(source) if source else None)
