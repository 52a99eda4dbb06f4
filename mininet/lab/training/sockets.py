# SPDX-License-Identifier: Apache-2.0
"""Options of TCP sockets, also of those that belong to a library which offers no way to set them."""

import os
import platform
import socket
import struct
from pathlib import Path

from lab.model.arms import Arm

_TCP_RTO_MIN_US = 45  # linux/tcp.h
_TCP_DELACK_MAX_US = 46
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def check_congestion_control(name: str) -> None:
    """Raises ValueError that names what this kernel has, if it lacks that congestion control."""
    available = AVAILABLE.read_text(encoding="ascii").split()
    if name not in available:
        raise ValueError(f"congestion control {name!r} is not in this kernel; it has {', '.join(available)}")


def minimum_timeout_is_settable() -> bool:
    """Whether this kernel has TCP_RTO_MIN_US, of Linux 6.15."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, _TCP_RTO_MIN_US, 200_000)
        except OSError:
            return False
    return True


def tune(connection: socket.socket, arm: Arm) -> None:
    """Sets what the arm asks of a TCP socket; all of it works on a socket that is connected already.

    Raises ValueError if this kernel can't set the least retransmission timeout.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, arm.congestion_control.encode())
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if arm.dscp:
        connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, arm.dscp << 2)
    if arm.min_rto_ms:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_RTO_MIN_US, arm.min_rto_ms * 1000)
            # A timeout below the peer's delayed acknowledgement would retransmit what has arrived.
            connection.setsockopt(socket.IPPROTO_TCP, _TCP_DELACK_MAX_US, arm.min_rto_ms * 500)
        except OSError as problem:
            raise ValueError(
                f"arm {arm.name} needs the socket option TCP_RTO_MIN_US, of Linux 6.15; this kernel is "
                f"{platform.release()}: {problem.strerror}"
            ) from None


def tune_process(local_address: str, arm: Arm) -> int:
    """Tunes every connected TCP socket of this process that is bound to `local_address`; returns their number.

    Gloo opens its own sockets and has no such options. The options belong to the socket, not
    to the file descriptor, so a duplicate of each descriptor is enough to set them. IPv4-mapped IPv6 sockets carry
    IPv4 packets, so their IP_TOS counts.
    """
    tuned = 0
    for entry in os.listdir("/proc/self/fd"):
        connection = _connected_tcp(int(entry))
        if connection is None:
            continue
        with connection:
            if connection.getsockname()[0].removeprefix("::ffff:") == local_address:
                tune(connection, arm)
                tuned += 1
    return tuned


def _connected_tcp(descriptor: int) -> socket.socket | None:
    """A duplicate of the descriptor if it is a connected TCP socket."""
    try:
        connection = socket.socket(fileno=os.dup(descriptor))
    except OSError:  # no socket, or the descriptor of the listing itself, closed by now
        return None
    internet = connection.family in (socket.AF_INET, socket.AF_INET6)
    if internet and connection.type == socket.SOCK_STREAM:
        try:
            connection.getpeername()
        except OSError:  # it listens
            pass
        else:
            return connection
    connection.close()
    return None


def set_timeouts(connection: socket.socket, receive: float, send: float) -> None:
    """Bounds blocking calls in the kernel: BlockingIOError after so many seconds without a byte; 0 for no bound.

    Python's own timeouts make the socket non-blocking, which costs a poll for each call and disables MSG_WAITALL.
    """
    connection.settimeout(None)
    for option, seconds in ((socket.SO_RCVTIMEO, receive), (socket.SO_SNDTIMEO, send)):
        timeval = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
        connection.setsockopt(socket.SOL_SOCKET, option, timeval)
