# SPDX-License-Identifier: Apache-2.0
"""UDP sockets as the transport needs them: large buffers, ECN reported, never fragmented, many datagrams per call."""

import errno
import socket
import struct
from ipaddress import IPv6Address

from gradlane.errors import AgentError, cannot_bind
from gradlane.toml_file import Address

BUFFER_BYTES = 4 << 20
# A fabric of a few hops; the default of 1 would end at the first switch.
_MULTICAST_TTL = 16
# Numbers of Linux that the socket module does not name.
_IP_MTU_DISCOVER = 10
_IPV6_MTU_DISCOVER = 23
_PMTUDISC_DO = 2
_SO_RCVBUFFORCE = 33
_SO_SNDBUFFORCE = 32
_SO_MEMINFO = 55
_MEMINFO_DROPS = 8
_UDP_GRO = 104


def pack(address: Address, port: int) -> bytes:
    """A struct sockaddr_in or sockaddr_in6."""
    if address.version == 4:
        return struct.pack("=H", socket.AF_INET) + struct.pack(">H4s", port, address.packed)
    scope = socket.if_nametoindex(address.scope_id) if address.scope_id else 0
    return (
        struct.pack("=H", socket.AF_INET6) + struct.pack(">HI16s", port, 0, address.packed) + struct.pack("=I", scope)
    )


def _set_options(sock: socket.socket, version: int, fallbacks: list[str]) -> None:
    for force, plain, which in (
        (_SO_RCVBUFFORCE, socket.SO_RCVBUF, "net.core.rmem_max"),
        (_SO_SNDBUFFORCE, socket.SO_SNDBUF, "net.core.wmem_max"),
    ):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, BUFFER_BYTES)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, BUFFER_BYTES)
            # The kernel doubles what it is asked for, for its own accounts.
            if (granted := sock.getsockopt(socket.SOL_SOCKET, plain) // 2) < BUFFER_BYTES:
                fallbacks.append(
                    f"a socket buffer of {granted} bytes instead of {BUFFER_BYTES} (CAP_NET_ADMIN, or {which}): "
                    "bursts are lost at this host, and repaired"
                )
    if version == 6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_DO)
    else:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_DO)
    try:
        sock.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
    except OSError as error:
        fallbacks.append(
            f"no UDP_GRO (Linux 5.0; {error.strerror}): each datagram is received by itself, at more CPU time"
        )


def share_port(sock: socket.socket) -> None:
    """Others may be bound to its port, with `shared`. Raises OSError."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def bind(address: Address, port: int, fallbacks: list[str], shared: bool = False) -> socket.socket:
    """A bound socket. What the kernel refuses, but the transport can do without, is added to `fallbacks`. `shared`: the
    port is that of sockets that share it.

    Raises AgentError.
    """
    sock = socket.socket(
        socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
    )
    try:
        _set_options(sock, address.version, fallbacks)
        if shared:
            share_port(sock)
        sock.bind((str(address), port))
    except OSError as error:
        sock.close()
        raise cannot_bind(f"UDP port {port} of {address}", error) from error
    return sock


def _interface_of(address: IPv6Address) -> int:
    """The index of the interface that has an address, by the kernel's list of them. Raises OSError."""
    with open("/proc/net/if_inet6") as lines:
        for line in lines:
            digits, index, *_ = line.split()
            if bytes.fromhex(digits) == address.packed:
                return int(index, 16)
    raise OSError(errno.EADDRNOTAVAIL, f"no interface of this host has the address {address}")


def send_multicast_from(sock: socket.socket, address: Address) -> None:
    """Multicast datagrams of a socket leave by the interface of `address`, and do not come back. Raises AgentError."""
    try:
        if address.version == 4:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, address.packed)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, _MULTICAST_TTL)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        else:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, _interface_of(address))
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, _MULTICAST_TTL)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
    except OSError as error:
        raise AgentError(f"multicast from {address}: {error.strerror}") from error


def join(group: Address, port: int, address: Address, fallbacks: list[str]) -> socket.socket:
    """A socket that receives a multicast group on the interface of `address`, and nothing else. Raises AgentError."""
    sock = bind(group, port, fallbacks)
    try:
        if address.version == 4:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group.packed + address.packed)
        else:
            membership = group.packed + struct.pack("=I", _interface_of(address))
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, membership)
    except OSError as error:
        sock.close()
        raise AgentError(f"multicast group {group} on {address}: {error.strerror}") from error
    return sock


def room(sock: socket.socket) -> int:
    """Bytes of payload that the receive buffer holds for sure: the kernel counts whole pages, not what is in them."""
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 4


def drops(sock: socket.socket) -> int:
    """Datagrams that the kernel has thrown away because the socket's buffer was full, or their checksum wrong."""
    words = sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * (_MEMINFO_DROPS + 1))
    return struct.unpack_from("=I", words, 4 * _MEMINFO_DROPS)[0]
