# SPDX-License-Identifier: Apache-2.0
"""Notifies systemd that the switch is ready, or stops: sd_notify(3)."""

from __future__ import annotations

import logging
import os
import socket

_LOG = logging.getLogger("gradlane-switch")


def notify(state: str) -> None:
    """Sends e.g. "READY=1" to the service manager, if there is one."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.connect(address)
            manager.send(state.encode())
    except OSError as error:
        _LOG.warning("can't notify the service manager at %s of %s: %s", address, state, error.strerror)
