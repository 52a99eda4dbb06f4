# SPDX-License-Identifier: Apache-2.0
"""Checks of the machine: kernel features, socket buffers, clock, processors."""

import ctypes
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from gradlane._core import ffi, lib
from gradlane.datapath.sockets import BUFFER_BYTES
from gradlane.doctor.findings import OK, WARN, Finding, judge

# Numbers of Linux that the socket module does not name.
_UDP_SEGMENT, _UDP_GRO = 103, 104
_STA_UNSYNC = 0x40
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies")


def checks() -> Iterator[Finding]:
    """All of them."""
    yield from _kernel()
    yield from _buffers()
    yield from _clock()
    yield from _governor()
    yield Finding(OK, "processors", instructions())


def instructions() -> str:
    """Which instruction sets the C core uses."""
    built, used = (ffi.string(text).decode() for text in (lib.gl_built_for(), lib.gl_computes_with()))
    return f"the core is built for {built}" + (f", its loops over elements also for {used}" if used != built else "")


def _kernel() -> Iterator[Finding]:
    release = os.uname().release
    for name, option, value, since, cost in (
        ("UDP_SEGMENT", _UDP_SEGMENT, 1400, "4.18", "each datagram is sent by itself"),
        ("UDP_GRO", _UDP_GRO, 1, "5.0", "each datagram is received by itself"),
    ):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            try:
                sock.setsockopt(socket.IPPROTO_UDP, option, value)
            except OSError as error:
                text = f"Linux {release} has no {name} ({error.strerror}): {cost}, at more CPU time"
                yield Finding(WARN, "kernel", text, f"use Linux {since} or later")
            else:
                yield Finding(OK, "kernel", f"Linux {release} has {name}")


def _buffers() -> Iterator[Finding]:
    for name in ("rmem_max", "wmem_max"):
        limit = int(Path(f"/proc/sys/net/core/{name}").read_text())
        yield judge(
            limit >= BUFFER_BYTES,
            "socket buffers",
            f"net.core.{name} is {limit}; the agent asks for {BUFFER_BYTES} bytes",
            f"sysctl -w net.core.{name}={BUFFER_BYTES}, for good: deploy/systemd/gradlane.sysctl.conf in /etc/sysctl.d "
            "(an agent with CAP_NET_ADMIN does not need it); then restart the agent",
        )


class _Timex(ctypes.Structure):
    """struct timex of adjtimex(2) as far as `status`, with room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def _clock() -> Iterator[Finding]:
    timex = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    yield judge(
        state >= 0 and not timex.status & _STA_UNSYNC,
        "clock",
        "synchronised"
        if state >= 0 and not timex.status & _STA_UNSYNC
        else "not synchronised, so the logs of several hosts can't be compared (the transport itself does not mind)",
        "run chrony or systemd-timesyncd",
    )
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source.exists():
        name = source.read_text().strip()
        yield judge(
            name not in _SLOW_CLOCKS,
            "clock",
            f"clock source {name}",
            f"{name} is slow to read, and the transport reads it for every batch: look why the kernel left tsc "
            "(dmesg | grep -i tsc)",
        )


def _governor() -> Iterator[Finding]:
    files = sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"))
    found = {file.read_text().strip() for file in files}
    if found:
        yield judge(
            "powersave" not in found,
            "processors",
            f"frequency governor {', '.join(sorted(found))}",
            "cpupower frequency-set -g performance",
        )
