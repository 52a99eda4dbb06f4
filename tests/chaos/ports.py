# SPDX-License-Identifier: Apache-2.0
"""The ends of switches' ports that are here, those of hosts."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Full, Queue
from typing import Any

import grpc

from tests.support.bmv2_process import Frame
from tests.support.ports import free_ports

_UDP = ("/proc/net/udp", "/proc/net/udp6")
_METHOD = "/p4.bm.DataplaneInterface/PacketStream"
_RETRY_SECONDS = 0.2
_SO_RCVBUFFORCE = 33  # of Linux, socket(7)
_BUFFER = 4 << 20  # bytes: this process may not run for a while
_MOST_WAITING = 1000  # frames; while there is no stream they are lost


def dropped() -> int:
    """How many datagrams sockets of this machine have had no room for, as their process did not run; of those that are
    open now."""
    rows = [line.split() for file in _UDP for line in Path(file).read_text().splitlines()[1:]]
    return sum(int(row[-1]) for row in rows)


class Port:
    """The host's end of a port of gradlane-switch: a UDP tunnel. `interface` is the switch's end, for its -i."""

    def __init__(self) -> None:
        (self._there,) = free_ports(1, socket.SOCK_DGRAM)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
        except PermissionError:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self.interface = f"udp:127.0.0.1:{self._there}-127.0.0.1:{self.socket.getsockname()[1]}"

    def send(self, frame: bytes) -> None:
        """To the switch, if it is there."""
        with suppress(OSError):
            self.socket.sendto(frame, ("127.0.0.1", self._there))


class FramesOfBmv2:
    """Those of BMv2, as a stream of its gRPC server, which is opened again when it ends: BMv2 takes frames while it has
    a program. `ports` by host; who gets what comes there sets `take`. At port `at` there is `wire`, the end of a port
    of another switch."""

    def __init__(self, address: str, device_id: int, ports: Mapping[int, int], wire: Port, at: int) -> None:
        self._device_id, self.ports, self._wire, self._at = device_id, ports, wire, at
        self.take: Callable[[bytes], None] = _nobody
        self._channel = grpc.insecure_channel(address, [("grpc.max_reconnect_backoff_ms", 500)])
        self._out: Queue[Any] | None = None
        self._end = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._run, self._bridge)]
        for each in self._threads:
            each.start()

    def send(self, host: int, frame: bytes) -> None:
        """What a host sends."""
        self._put(self.ports[host], frame)

    def _put(self, port: int, frame: bytes) -> None:
        if (out := self._out) is not None:
            with suppress(Full):
                out.put_nowait(Frame(device_id=self._device_id, port=port, packet=frame))

    def close(self) -> None:
        """Nothing is sent or received any more."""
        self._end.set()
        if (out := self._out) is not None:
            out.put(None)
        self._channel.close()
        for each in self._threads:
            each.join(10)

    def _run(self) -> None:
        method = self._channel.stream_stream(_METHOD, Frame.SerializeToString, Frame.FromString)
        while not self._end.wait(_RETRY_SECONDS):
            out: Queue[Any] = Queue(_MOST_WAITING)
            with suppress(grpc.RpcError, ValueError):  # ValueError: the channel is closed
                call = method(iter(out.get, None))
                self._out = out
                for frame in call:
                    if frame.port == self._at:
                        self._wire.send(frame.packet)
                    else:
                        self.take(frame.packet)
            self._out = None
            with suppress(Full):
                out.put_nowait(None)

    def _bridge(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wire.socket, selectors.EVENT_READ)
            while not self._end.is_set():
                if selector.select(_RETRY_SECONDS):
                    with suppress(BlockingIOError):
                        while True:
                            self._put(self._at, self._wire.socket.recv(65536))


def _nobody(_frame: bytes) -> None:
    """There is no traffic yet."""
