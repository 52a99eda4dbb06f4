# SPDX-License-Identifier: Apache-2.0
"""Background bursts: what else is on a shared fabric, at the same moments in every run.

UDP datagrams in on-off bursts towards each of the given hosts. The schedule is in absolute time from a start time, so a
late wake-up is caught up and the offered load is the same whatever the machine does.
"""

import contextlib
import ctypes
import errno
import math
import signal
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

DISCARD_PORT = 9  # RFC 863
_UDP_SEGMENT = 103  # linux/udp.h: the kernel cuts one large send into datagrams
_SO_ATTACH_FILTER = 26  # asm-generic/socket.h
_SEGMENT_BYTES = 1400
_FRAME_OVERHEAD = 42  # Ethernet, IPv4 and UDP headers: rates count whole frames
_MAX_SEGMENTS = 44  # 61.6 kB: what fits into one send
_TICK = 1e-3  # seconds between two sends within a burst


@dataclass(frozen=True)
class Plan:
    """The schedule.

    receivers: IPv4 addresses. rate: bit/s of Ethernet frames towards each receiver while a burst is on.
    period: seconds from burst to burst. duty: fraction of the period that is on, in (0, 1].
    stagger: receivers take turns, receiver i's bursts start i/n of a period later; else all at once.
    start: CLOCK_MONOTONIC seconds of the first burst. seconds: length of the whole. dscp: of the datagrams, 0-63.
    """

    receivers: Sequence[str]
    rate: int
    period: float
    duty: float
    start: float
    seconds: float
    stagger: bool = False
    port: int = DISCARD_PORT
    dscp: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError that names the value."""
        if not self.receivers:
            raise ValueError("receivers: at least one address is needed")
        if not 0 < self.duty <= 1:
            raise ValueError(f"duty is {self.duty:g}; it must be above 0 and at most 1")
        if self.period * self.duty < _TICK:
            raise ValueError(f"a burst of {self.period * self.duty:g} s is too short; at least {_TICK:g} s")
        if self.rate * _TICK > _MAX_SEGMENTS * (_SEGMENT_BYTES + _FRAME_OVERHEAD) * 8:
            raise ValueError(f"rate is {self.rate} bit/s; at most 500 Mbit/s towards one receiver")
        if not 0 <= self.dscp < 64:
            raise ValueError(f"dscp is {self.dscp}; it must be from 0 to 63")

    @property
    def datagrams_per_send(self) -> int:
        """How many datagrams go out in one send."""
        return max(1, round(self.rate * _TICK / 8 / (_SEGMENT_BYTES + _FRAME_OVERHEAD)))

    @property
    def send_interval(self) -> float:
        """Seconds between two sends within a burst, so that the rate is exact."""
        return self.datagrams_per_send * (_SEGMENT_BYTES + _FRAME_OVERHEAD) * 8 / self.rate

    @property
    def sends_per_burst(self) -> int:
        """How many sends one burst has."""
        return max(1, math.floor(self.period * self.duty / self.send_interval))


@dataclass
class Report:
    """What was sent. `refused`: sends that the local stack had no room for. `late_max`: seconds behind the schedule."""

    bursts: int = 0
    datagrams: int = 0
    bytes: int = 0
    refused: int = 0
    late_max: float = 0.0
    cpu_seconds: float = 0.0

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


class _Stop(Exception):
    """The process was told to end."""


def send(plan: Plan) -> Report:
    """Sends the bursts of the plan; ends at its end, or at SIGTERM or SIGINT, and reports what was sent until then.

    Bursts that were over before this was called are left out. Raises OSError if the network refuses a receiver.
    """
    payload = bytes(_SEGMENT_BYTES * plan.datagrams_per_send)
    targets = [(address, plan.port) for address in plan.receivers]
    offset = plan.period / len(targets) if plan.stagger else 0.0
    report = Report()
    cpu = time.process_time()
    previous = {number: signal.signal(number, _stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, contextlib.suppress(_Stop):
            sock.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, _SEGMENT_BYTES)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, plan.dscp << 2)
            burst = max(0, math.floor((time.monotonic() - plan.start) / plan.period))
            while burst * plan.period < plan.seconds:
                _burst(plan, sock, payload, targets, plan.start + burst * plan.period, offset, report)
                burst += 1
                report.bursts += 1
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    report.cpu_seconds = time.process_time() - cpu
    return report


def _burst(
    plan: Plan,
    sock: socket.socket,
    payload: bytes,
    targets: Sequence[tuple[str, int]],
    start: float,
    offset: float,
    report: Report,
) -> None:
    """One burst to each receiver, their sends merged in time order."""
    schedule = sorted(
        (start + i * offset + n * plan.send_interval, i)
        for i in range(len(targets))
        for n in range(plan.sends_per_burst)
    )
    for moment, receiver in schedule:
        late = time.monotonic() - moment
        if late < 0:
            time.sleep(-late)
        elif late > report.late_max:
            report.late_max = late
        try:
            report.bytes += sock.sendto(payload, targets[receiver])
            report.datagrams += plan.datagrams_per_send
        except OSError as problem:
            if problem.errno != errno.ENOBUFS:  # the interface's queue is full, as it may be in a burst
                raise
            report.refused += 1


def _stop(_number: int, _frame: object) -> None:
    raise _Stop


class _Filter(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32))


def discard(address: str, port: int = DISCARD_PORT) -> socket.socket:
    """A UDP socket that takes the bursts and drops them in the kernel, by a packet filter that accepts nothing.

    Without it, each burst would cost the receiving host ICMP errors. Several processes may hold one for the same
    address. Raises OSError if the port can't be had (ports below 1024 need CAP_NET_BIND_SERVICE).
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        accept_nothing = _Filter(0x06, 0, 0, 0)  # BPF_RET | BPF_K, 0 bytes
        program = struct.pack("@HP", 1, ctypes.addressof(accept_nothing))
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
    except OSError:
        sock.close()
        raise
    return sock
