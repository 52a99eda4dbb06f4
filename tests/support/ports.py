# SPDX-License-Identifier: Apache-2.0
"""Ports of 127.0.0.1 that nobody uses."""

import contextlib
import itertools
import os
import socket

# Outside of the range from which connections take theirs. Each process begins elsewhere, so that those that run side
# by side do not meet.
_ports = (10000 + (os.getpid() * 97 + i) % 20000 for i in itertools.count())


def free_ports(count: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> list[int]:
    """TCP ports (with SOCK_DGRAM: UDP ports) that are free now."""
    found: list[int] = []
    while len(found) < count:
        port = next(_ports)
        with socket.socket(type=kind) as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            found.append(port)
    return found
