# SPDX-License-Identifier: Apache-2.0
"""The forwarding thread and its ports."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from gradlane_switch.dataplane import pcap
from gradlane_switch.dataplane.interfaces import (
    DEFAULT_MTU,
    VLAN_TAG,
    Connection,
    connect,
    has_carrier,
    is_file,
    link_events,
    reads_file,
)
from gradlane_switch.dataplane.port_config import DEFAULT_COALESCE, ETHERNET, QUEUES, PortConfig, PortSpec, check_buffer
from gradlane_switch.dataplane.statistics import counts_of, port_statistics, sum_of
from gradlane_switch.dataplane.tracing import Traces
from gradlane_switch.errors import PortError, SwitchError
from gradlane_switch.native.ffi import NULL, ffi, runtime
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock

_LOG = logging.getLogger("gradlane-switch")
_PACKET_MEMORY = 512 << 20


class DataPlane:
    """Ports, and the thread that forwards between them with the GIL released. Raises PortError.

    Ports have MTUs of at most `mtu` bytes, or of those of the first ports if one is larger: the packets' buffers are
    made for that. Methods may be called from any thread.
    """

    def __init__(
        self,
        lock: Lock,
        specs: list[PortSpec],
        seed: int,
        coalesce: int = DEFAULT_COALESCE,
        mtu: int = DEFAULT_MTU,
    ) -> None:
        if any(map(reads_file, specs)) and not all(map(is_file, specs)):
            raise PortError("a pcap file that is read has a clock of its own: beside other ports, use pcap:,OUT")
        self.lock = lock
        self._changing = threading.RLock()
        self._specs: dict[int, PortSpec] = {}
        self._configs: dict[int, PortConfig] = {}
        self._connections: dict[int, Connection] = {}
        self._pipeline: Pipeline | None = None
        self._tracing: Traces | None = None
        # So that the counts of all ports still add up when one is removed.
        self._removed = counts_of(ffi.new("gl_port_stats *"))
        self._thread: threading.Thread | None = None
        self.event_fd, self._event_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.link_events = link_events()
        """Readable when `look_at_links` has something to find."""
        opened: dict[int, Connection] = {}
        try:
            _check_distinct(specs)
            for spec in specs:
                opened[spec.number] = connect(spec)
                check_buffer(spec, spec.config, opened[spec.number].mtu)
            longest = max([mtu, *(item.mtu for item in opened.values())])
            self._frame_size = longest + ETHERNET + VLAN_TAG
            self._handle = self._create(seed, coalesce)
            for spec in specs:
                self._attach(spec, opened[spec.number])
        except PortError:
            for connection in opened.values():
                connection.close()
            self._close()
            raise

    def _create(self, seed: int, coalesce: int) -> Any:
        library = runtime()
        seed %= 1 << 32
        handle = library.gl_dataplane_new(
            self.lock.handle, self._frame_size, _PACKET_MEMORY, coalesce, seed, self._event_writer
        )
        if handle == NULL:
            raise PortError("the switch is out of memory or of file descriptors")
        return ffi.gc(handle, library.gl_dataplane_free)

    def _attach(self, spec: PortSpec, connection: Connection) -> None:
        limit, native = connection.frame_limit, _native(spec.config)
        if runtime().gl_port_add(self._handle, spec.number, connection.kind, connection.descriptor, limit, native):
            raise PortError(f"port {spec.number}: out of memory")
        self._specs[spec.number] = spec
        self._configs[spec.number] = spec.config
        self._connections[spec.number] = connection
        runtime().gl_port_link(self._handle, spec.number, has_carrier(spec.interface))

    def look_at_links(self) -> None:
        """Finds out which ports have a carrier."""
        with contextlib.suppress(BlockingIOError):
            while self.link_events.recv(65536):
                pass
        with self._changing:
            for number, spec in self._specs.items():
                runtime().gl_port_link(self._handle, number, has_carrier(spec.interface))

    def add(self, spec: PortSpec) -> None:
        """Adds a port while packets are forwarded. Raises PortError."""
        with self._changing:
            if reads_file(spec):
                raise PortError(f"port {spec.number}: a pcap file that is read has a clock of its own: use pcap:,OUT")
            _check_distinct([*self._specs.values(), spec])
            connection = connect(spec)
            try:
                check_buffer(spec, spec.config, connection.mtu)
                if connection.mtu + ETHERNET + VLAN_TAG > self._frame_size:
                    raise PortError(
                        f"port {spec.number}: its MTU of {connection.mtu} is above "
                        f"{self._frame_size - ETHERNET - VLAN_TAG}, the largest that this switch was started for: "
                        f"start it with --mtu {connection.mtu}"
                    )
                self._attach(spec, connection)
            except PortError:
                connection.close()
                raise
            _LOG.info("port %d (%s) added", spec.number, spec.interface)

    def remove(self, number: int) -> None:
        """Removes a port with what waits there. Raises PortError."""
        with self._changing:
            self.config(number)
            last = ffi.new("gl_port_stats *")
            runtime().gl_port_remove(self._handle, number, last)
            self._removed = sum_of(self._removed, counts_of(last))
            self._connections.pop(number).close()
            _LOG.info("port %d (%s) removed", number, self._specs[number].interface)
            del self._specs[number], self._configs[number]

    def start(self, failed: Callable[[str], None]) -> None:
        """Starts forwarding. `failed` is called, in the thread, with the reason if it ends on its own."""

        def run() -> None:
            try:
                # So that busy hosts on this machine do not make the switch late.
                os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            except OSError as error:
                _LOG.warning("forwarding without real-time priority (CAP_SYS_NICE): %s", error.strerror)
            result = runtime().gl_run(self._handle)
            if result:
                failed(f"forwarding stopped: {os.strerror(result)}")

        self._thread = threading.Thread(target=run, name="forwarding")
        self._thread.start()

    def stop(self, patience: float = 0.0) -> int:
        """Takes no more packets in, sends those that wait for up to `patience` seconds, and closes the ports.

        Returns the number of packets that still waited.
        """
        waiting = 0
        if self._thread is not None:
            runtime().gl_stop(self._handle, round(patience * 1e9))
            self._thread.join()
            waiting = runtime().gl_waiting(self._handle)
        self._close()
        return waiting

    def _close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self.link_events.close()
        os.close(self.event_fd)
        os.close(self._event_writer)

    def losses(self) -> dict[str, int]:
        """What the program could not have, by kind; empty without a program."""
        return {} if self._pipeline is None else asdict(self._pipeline.state.losses)

    def inject(self, port: int, frame: bytes) -> None:
        """Gives the program a frame as if it had entered a port, which need not exist. Raises PortError."""
        if runtime().gl_inject(self._handle, port, frame, len(frame)):
            raise PortError(f"a frame of {len(frame)} bytes is too long, or the switch is out of memory")

    def install(self, pipeline: Pipeline) -> None:
        """Forwards by another pipeline from the next batch of packets on."""
        with self._changing:
            pipeline.state.has_port = self._specs.__contains__
            runtime().gl_dataplane_program(self._handle, pipeline.loaded.process, pipeline.state.handle)
            self._pipeline = pipeline  # The old one may go only now.
            self._tracing = None

    def trace(self, port: int | None) -> Traces:
        """Traces packets that come in at a port, or at all, until `end_trace` or another pipeline is installed.

        Raises SwitchError if no pipeline forwards, or another trace runs.
        """
        pipeline = self._pipeline
        if pipeline is None:
            raise SwitchError("there is no program to trace")
        traced = pipeline.traced
        with self._changing:
            if pipeline is not self._pipeline:
                raise SwitchError("another program was loaded")
            if self._tracing is not None:
                raise SwitchError("another trace runs")
            self._tracing = traces = Traces(pipeline)
            number = runtime().GL_PORTS if port is None else port
            runtime().gl_dataplane_trace(self._handle, traced.process, traces.handle, number)
        return traces

    def traced(self, traces: Traces, unfinished: bool) -> tuple[list[dict[str, Any]], int]:
        """The packets that have ended since the last call, and the number of events that were lost.

        `unfinished`: those that still wait in queues as well. Raises SwitchError once another pipeline is installed.
        """
        if traces.pipeline is not self._pipeline:
            raise SwitchError("the trace ended: another program was loaded")
        return traces.take(self._handle, unfinished)

    def end_trace(self, traces: Traces) -> None:
        """Ends a trace."""
        with self._changing:
            if self._tracing is traces:
                runtime().gl_dataplane_trace(self._handle, NULL, NULL, 0)
                self._tracing = None

    @property
    def specs(self) -> list[PortSpec]:
        """The ports as they were made."""
        with self._changing:
            return list(self._specs.values())

    def config(self, number: int) -> PortConfig:
        """A port's settings now. Raises PortError."""
        with self._changing:
            if number not in self._configs:
                raise PortError(f"there is no port {number}: there are {', '.join(map(str, self._configs)) or 'none'}")
            return self._configs[number]

    def configure(self, number: int, config: PortConfig) -> None:
        """Changes a port's settings while it runs. Raises PortError."""
        with self._changing:
            self.config(number)
            check_buffer(self._specs[number], config, self._connections[number].mtu)
            runtime().gl_port_configure(self._handle, number, time.monotonic_ns(), _native(config))
            if config.up != self._configs[number].up:
                _LOG.info("port %d (%s) set %s", number, self._specs[number].interface, "up" if config.up else "down")
            self._configs[number] = config

    @property
    def longest_wait(self) -> int:
        """The longest time in ns for which packets waited while tables or ports were changed, since `clear`."""
        return runtime().gl_longest_wait(self._handle, 0)

    def clear(self) -> None:
        """Zeroes the ports' statistics."""
        with self._changing:
            runtime().gl_longest_wait(self._handle, 1)
            for number in (*self._specs, runtime().GL_PORTS):
                runtime().gl_port_clear(self._handle, number)
            self._removed = counts_of(ffi.new("gl_port_stats *"))

    def replay(self) -> None:
        """Forwards what is in the files of pcap ports, in order of time, until all of it has left. Raises PortError."""
        sources = [
            _numbered(number, pcap.frames(connection.source))
            for number, connection in self._connections.items()
            if connection.source is not None
        ]
        packets = heapq.merge(*sources, key=lambda item: item[:2])
        first = next(packets, None)
        if first is not None:
            self.feed(itertools.chain([first], packets), epoch=first[0])

    def feed(self, packets: Iterable[tuple[int, int, bytes]], epoch: int = 0) -> None:
        """Forwards (time in ns, port, frame), in order of time, until all has left; for pcap ports. Raises PortError.

        The switch's clock counts from the epoch.
        """
        runtime().gl_epoch(self._handle, epoch)
        for at, number, frame in packets:
            self.config(number)
            runtime().gl_feed(self._handle, number, at - epoch, frame, len(frame))
        error = runtime().gl_finish(self._handle)
        if error:
            raise PortError(f"a pcap file can't be written: {os.strerror(error)}")

    def statistics(self) -> list[dict[str, Any]]:
        """Settings and counts of every port at one moment: packets, bytes, and what happened to them."""
        return self.accounts()["ports"]

    def accounts(self) -> dict[str, Any]:
        """The statistics of all `ports`, and the counts of those that were `removed`, in sum, and of packets that came
        from the `controller`; all at one moment, so that no packet is missing."""
        with self._changing:
            numbers = [*self._specs, runtime().GL_PORTS]
            out = ffi.new("gl_port_stats[]", len(numbers))
            runtime().gl_port_statistics(self._handle, len(numbers), numbers, out)
            ports = [
                port_statistics(spec, self._configs[spec.number], out[place])
                for place, spec in enumerate(self._specs.values())
            ]
            return {"ports": ports, "removed": self._removed, "controller": counts_of(out[len(ports)])}

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
        library = runtime()
        with self._changing:
            spec, connection = self._specs.get(event.port), self._connections.get(event.port)
        if spec is None or connection is None:
            return f"port {event.port} had an event before it was removed"
        offloads = f"turn off offloads on {spec.interface} and its peer (ethtool -K ... tx off tso off gso off gro off)"
        match event.kind:
            case library.GL_EVENT_OVERSIZE if event.error:
                what = f"a frame whose segmentation offload this kernel can't describe: {offloads}"
            case library.GL_EVENT_OVERSIZE:
                what = (
                    f"oversize frame of {event.length} bytes, MTU {connection.mtu}: the sender's MTU must not be larger"
                )
            case library.GL_EVENT_DOWN:
                what = f"down: {os.strerror(event.error)}"
            case library.GL_EVENT_UP:
                what = "up"
            case _:
                what = f"a frame of {event.length} bytes was refused: {os.strerror(event.error)}"
        return f"port {spec.number} ({spec.interface}): {what}"


def _check_distinct(specs: list[PortSpec]) -> None:
    if len({spec.number for spec in specs}) != len(specs):
        raise PortError("two ports have the same number")
    if len({spec.interface for spec in specs}) != len(specs):
        raise PortError("two ports have the same interface")


def _numbered(number: int, frames: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, int, bytes]]:
    return ((time, number, frame) for time, frame in frames)


def _native(config: PortConfig) -> dict[str, Any]:
    # cffi leaves what is not given as it was in memory, so the weights are all there.
    return asdict(config) | {"weights": config.weights or [0] * QUEUES}
