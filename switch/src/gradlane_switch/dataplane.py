# SPDX-License-Identifier: Apache-2.0
"""The forwarding thread and its ports."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from gradlane_switch.errors import PortError
from gradlane_switch.native import NULL, ffi, runtime
from gradlane_switch.pipeline import Pipeline
from gradlane_switch.ports import PortConfig, PortSpec, check_buffer, open_socket
from gradlane_switch.state import Lock

_LOG = logging.getLogger("gradlane-switch")
_PACKET_MEMORY = 512 << 20
_HEADERS = 18  # Ethernet and a VLAN tag


class DataPlane:
    """Ports, and the thread that forwards between them with the GIL released. Raises PortError."""

    def __init__(self, lock: Lock, specs: list[PortSpec], seed: int) -> None:
        self.lock = lock
        self._specs = {spec.number: spec for spec in specs}
        if len(self._specs) != len(specs):
            raise PortError("two ports have the same number")
        if len({spec.interface for spec in specs}) != len(specs):
            raise PortError("two ports have the same interface")
        self._configs = {spec.number: spec.config for spec in specs}
        self._sockets: dict[int, socket.socket] = {}
        self._mtus: dict[int, int] = {}
        self._pipeline: Pipeline | None = None
        self._thread: threading.Thread | None = None
        self.event_fd, self._event_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            for spec in specs:
                self._sockets[spec.number], self._mtus[spec.number] = open_socket(spec.interface)
                check_buffer(spec, spec.config, self._mtus[spec.number])
            self._handle = self._create(seed)
        except PortError:
            self._close()
            raise

    def _create(self, seed: int) -> Any:
        library = runtime()
        frame = max(self._mtus.values(), default=1500) + _HEADERS
        seed %= 1 << 32
        handle = library.gl_dataplane_new(self.lock.handle, frame, _PACKET_MEMORY, seed, self._event_writer)
        if handle == NULL:
            raise PortError("the switch is out of memory or of file descriptors")
        handle = ffi.gc(handle, library.gl_dataplane_free)
        for spec in self._specs.values():
            descriptor = self._sockets[spec.number].fileno()
            if library.gl_port_add(handle, spec.number, descriptor, self._mtus[spec.number], _native(spec.config)):
                raise PortError(f"port {spec.number}: out of memory")
        return handle

    def start(self, failed: Callable[[str], None]) -> None:
        """Starts forwarding. `failed` is called, in the thread, with the reason if it ends on its own."""

        def run() -> None:
            try:
                # A switch is not late because its hosts are busy.
                os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            except OSError as error:
                _LOG.warning("forwarding without real-time priority (CAP_SYS_NICE): %s", error.strerror)
            result = runtime().gl_run(self._handle)
            if result:
                failed(f"forwarding stopped: {os.strerror(result)}")

        self._thread = threading.Thread(target=run, name="forwarding")
        self._thread.start()

    def stop(self) -> None:
        """Stops forwarding and closes the ports."""
        if self._thread is not None:
            runtime().gl_stop(self._handle)
            self._thread.join()
        self._close()

    def _close(self) -> None:
        for opened in self._sockets.values():
            opened.close()
        os.close(self.event_fd)
        os.close(self._event_writer)

    def install(self, pipeline: Pipeline) -> None:
        """Forwards by another pipeline from the next batch of packets on."""
        runtime().gl_dataplane_program(self._handle, pipeline.loaded.process, pipeline.state.handle)
        self._pipeline = pipeline  # The old one may go only now.

    @property
    def specs(self) -> list[PortSpec]:
        """The ports as they were made."""
        return list(self._specs.values())

    def config(self, number: int) -> PortConfig:
        """A port's settings now. Raises PortError."""
        if number not in self._configs:
            raise PortError(f"there is no port {number}: there are {', '.join(map(str, self._configs))}")
        return self._configs[number]

    def configure(self, number: int, config: PortConfig) -> None:
        """Changes a port's settings while it runs. Raises PortError."""
        self.config(number)
        check_buffer(self._specs[number], config, self._mtus[number])
        runtime().gl_port_configure(self._handle, number, _native(config))
        self._configs[number] = config

    def clear(self) -> None:
        """Zeroes the ports' statistics."""
        for number in self._specs:
            runtime().gl_port_clear(self._handle, number)

    def statistics(self) -> list[dict[str, Any]]:
        """Settings and counts of every port: packets, bytes, and what happened to them."""
        return [self._port_statistics(spec) for spec in self._specs.values()]

    def _port_statistics(self, spec: PortSpec) -> dict[str, Any]:
        out = ffi.new("gl_port_stats *")
        runtime().gl_port_statistics(self._handle, spec.number, out)
        config = self._configs[spec.number]
        return {
            "port": spec.number,
            "interface": spec.interface,
            "up": bool(out.up),
            "rate": config.rate,
            "buffer": config.buffer,
            "rx": _traffic(out.rx),
            "tx": _traffic(out.tx),
            "queues": [
                {
                    "queue": number,
                    "enqueued": _traffic(out.enqueued[number]),
                    "tail_dropped": _traffic(out.tail_dropped[number]),
                    "depth_bytes": out.depth[number],
                }
                for number in range(8)
            ],
            "depth_bytes": out.depth_total,
            "max_depth_bytes": out.depth_max,
            "tx_link": asdict(config.tx) | _impaired(out.tx_impaired),
            "rx_link": asdict(config.rx) | _impaired(out.rx_impaired),
            "oversize": out.oversize,
            "no_checksum": out.no_checksum,
            "program_drops": out.program_drops,
            "no_port": out.no_port,
            "no_memory": out.no_memory,
            "tx_errors": out.tx_errors,
        }

    def events(self) -> Iterator[str]:
        """Messages for the log, of what the forwarding thread has noticed since the last call."""
        size = ffi.sizeof("gl_event")
        while True:
            try:
                raw = os.read(self.event_fd, size)
            except BlockingIOError:
                return
            yield self._describe(ffi.from_buffer("gl_event *", raw))

    def _describe(self, event: Any) -> str:
        spec = self._specs[event.port]
        library = runtime()
        offloads = f"turn off offloads on {spec.interface} and its peer (ethtool -K ... tx off tso off gso off gro off)"
        match event.kind:
            case library.GL_EVENT_OVERSIZE:
                what = f"oversize frame of {event.length} bytes, MTU {self._mtus[spec.number]}: {offloads}"
            case library.GL_EVENT_NO_CHECKSUM:
                what = f"frame without checksum: {offloads}"
            case library.GL_EVENT_DOWN:
                what = f"down: {os.strerror(event.error)}"
            case library.GL_EVENT_UP:
                what = "up"
            case _:
                what = f"a frame of {event.length} bytes was refused: {os.strerror(event.error)}"
        return f"port {spec.number} ({spec.interface}): {what}"


def _native(config: PortConfig) -> dict[str, Any]:
    return asdict(config)


def _traffic(value: Any) -> dict[str, int]:
    return {"packets": value.packets, "bytes": value.bytes}


def _impaired(value: Any) -> dict[str, int]:
    return {"lost": value.lost, "delayed": value.delayed, "reordered": value.reordered}
