# SPDX-License-Identifier: Apache-2.0
"""What a service reports to systemd: sd_notify(3), sd_watchdog_enabled(3) and sd-daemon(3), without libsystemd."""

import asyncio
import logging
import os
import socket
import time

log = logging.getLogger("gradlane")

_STDERR = 2


def notify(*assignments: str) -> None:
    """Sends e.g. "READY=1" to the service manager; without one (NOTIFY_SOCKET is not set) does nothing."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.connect(address)
            sock.send("\n".join(assignments).encode())
        except OSError as error:
            log.warning("the service manager at %s did not get %s: %s", path, assignments[0], error.strerror)


def reloading() -> None:
    """Says that the configuration is being read again; "READY=1" ends it."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def watchdog_seconds() -> float | None:
    """How long the service manager lets pass between two signs of life, or None if it does not watch this process."""
    limit = os.environ.get("WATCHDOG_USEC", "")
    if not limit.isdecimal() or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(limit) / 1e6


async def feed_watchdog() -> None:
    """Gives a sign of life as long as the event loop turns; ends at once where nobody watches."""
    limit = watchdog_seconds()
    while limit is not None:
        notify("WATCHDOG=1")
        await asyncio.sleep(limit / 3)


def journal_reads_stderr() -> bool:
    """Whether what is written to stderr goes to the journal, which takes a line's level from a prefix as "<3>"."""
    stream = os.environ.get("JOURNAL_STREAM")
    if not stream:
        return False
    status = os.fstat(_STDERR)
    return stream == f"{status.st_dev}:{status.st_ino}"
