# SPDX-License-Identifier: Apache-2.0
"""Packets that cross the switches all the time, numbered, so that each one that is lost is known with when it was."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from scapy.layers.inet import UDP
from scapy.packet import Packet

from tests.chaos.ports import FramesOfBmv2, Port
from tests.gradlane_controller.leafspine_lab import ip
from tests.support.gradlane_packets import Gradlane

PERIOD = 0.02  # seconds from a packet of a flow to its next
SETTLE_SECONDS = 2.0  # that a packet may take to arrive, on a busy machine
_MARK = b"chaos"
_TAIL = struct.Struct(f">{len(_MARK)}sBQ")
_SLICES = 100  # of a message


@dataclass(frozen=True)
class Flow:
    """From a host to another one, through these switches; `gradients`: slices of job 1, which are sprayed."""

    source: int
    to: int
    through: frozenset[str]
    gradients: bool = False

    def __str__(self) -> str:
        return f"{'gradients' if self.gradients else 'UDP'} from h{self.source} to h{self.to}"

    def frames(self) -> list[bytes]:
        """What it sends, in turn, without the tail that numbers it."""
        frame = ip(self.source, f"10.0.{self.to}.2")
        if not self.gradients:
            return [_bytes(frame / UDP(sport=7000 + self.to, dport=7000, chksum=0))]
        header = Gradlane(version=1, job=1, slices=_SLICES, message=1, length=100 + _TAIL.size)
        found: list[bytes] = []
        for number in range(_SLICES):
            header.slice = number
            found.append(_bytes(frame / UDP(sport=47400, dport=47400, chksum=0) / header.copy() / (b"x" * 100)))
        return found


def _bytes(frame: Packet) -> bytes:
    return bytes(frame / bytes(_TAIL.size))[: -_TAIL.size]


@dataclass
class _Sent:
    """By number, when; and which have arrived."""

    at: list[float] = field(default_factory=list[float])
    arrived: set[int] = field(default_factory=set[int])


@dataclass(frozen=True)
class Lost:
    """A packet that has not arrived."""

    flow: Flow
    number: int
    sent: float


class Traffic:
    """The flows, from `start` to `stop`."""

    def __init__(self, flows: Sequence[Flow], ports: Mapping[int, Port], of_bmv2: FramesOfBmv2 | None = None) -> None:
        """`ports` by host; some of them may be BMv2's."""
        self._flows, self._ports, self._of_bmv2 = flows, ports, of_bmv2
        if of_bmv2 is not None:
            of_bmv2.take = self.take
        self._sent = [_Sent() for _ in flows]
        self._stop = threading.Event()
        self._done = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._receive)]

    def start(self) -> None:
        """Sends from now on."""
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """Sends no more, and waits for what is on its way."""
        self._stop.set()
        self._threads[0].join()
        time.sleep(SETTLE_SECONDS)
        self._done.set()
        for each in self._threads[1:]:
            each.join()

    @property
    def sent(self) -> int:
        """Packets, of all flows."""
        return sum(len(each.at) for each in self._sent)

    def flowing(self) -> list[Flow]:
        """The flows of which all packets of a second have arrived half a second later."""
        now = time.monotonic()
        found: list[Flow] = []
        for flow, sent in zip(self._flows, self._sent, strict=True):
            due = _between(sent.at, now - 1.5, now - 0.5)
            if due and all(number in sent.arrived for number in due):
                found.append(flow)
        return found

    def lost(self, until: float) -> list[Lost]:
        """What was sent before that and has not arrived."""
        return [
            Lost(flow, number, sent.at[number])
            for flow, sent in zip(self._flows, self._sent, strict=True)
            for number in _between(sent.at, 0, until)
            if number not in sent.arrived
        ]

    def take(self, frame: bytes) -> None:
        """A frame that has come to a host."""
        if len(frame) >= _TAIL.size:
            mark, flow, number = _TAIL.unpack(frame[-_TAIL.size :])
            if mark == _MARK and flow < len(self._sent):
                self._sent[flow].arrived.add(number)

    def _send(self) -> None:
        frames = [flow.frames() for flow in self._flows]
        while not self._stop.wait(PERIOD):
            for place, flow in enumerate(self._flows):
                number = len(self._sent[place].at)
                frame = frames[place][number % len(frames[place])] + _TAIL.pack(_MARK, place, number)
                self._sent[place].at.append(time.monotonic())
                if self._of_bmv2 is not None and flow.source in self._of_bmv2.ports:
                    self._of_bmv2.send(flow.source, frame)
                else:
                    self._ports[flow.source].send(frame)

    def _receive(self) -> None:
        with selectors.DefaultSelector() as selector:
            for port in self._ports.values():
                selector.register(port.socket, selectors.EVENT_READ)
            while not self._done.is_set():
                for key, _ in selector.select(0.2):
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    with suppress(BlockingIOError):
                        while True:
                            self.take(sock.recv(65536))


def _between(times: Sequence[float], begin: float, end: float) -> range:
    return range(bisect_left(times, begin), bisect_left(times, end))


@dataclass
class Excused:
    """When packets through which switches may be lost: whose process was killed or paused, or whose entries somebody
    has taken away, from then until all was found in order."""

    spans: list[tuple[str, float, float]] = field(default_factory=list[tuple[str, float, float]])
    open: dict[str, float] = field(default_factory=dict[str, float])

    def begin(self, switch: str) -> None:
        """From now on."""
        self.open.setdefault(switch, time.monotonic())

    def end(self) -> None:
        """No more, of any switch."""
        now = time.monotonic()
        self.spans += [(switch, begun, now) for switch, begun in self.open.items()]
        self.open.clear()

    def unexplained(self, lost: Iterable[Lost]) -> list[Lost]:
        """Those that must have arrived. What was on its way at the beginning is lost as well."""
        return [
            it
            for it in lost
            if not any(
                switch in it.flow.through and begin - SETTLE_SECONDS <= it.sent < end
                for switch, begin, end in self.spans
            )
        ]
