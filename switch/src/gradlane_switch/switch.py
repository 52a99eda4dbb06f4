# SPDX-License-Identifier: Apache-2.0
"""The switch without ports: one packet in, its copies out. For tests, and for looking at what a program does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from finsy.proto import p4r

from gradlane_switch.dataplane import tracing
from gradlane_switch.dataplane.replay import Replay, TimedFrame, replay
from gradlane_switch.errors import SwitchError
from gradlane_switch.ir.program import DROP_PORT
from gradlane_switch.native.ffi import NULL, LoadedProgram, ffi, runtime
from gradlane_switch.p4info.packet_io import packet_out
from gradlane_switch.p4runtime.entities import dispatch
from gradlane_switch.p4runtime.entities.digests import acknowledge
from gradlane_switch.p4runtime.files import read_p4info, read_program
from gradlane_switch.p4runtime.notifications import notifications
from gradlane_switch.state.counts import CounterValue
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock, Losses

_MAX_COPIES = 512
_MAX_FRAME = 9216


class Switch:
    """A program that packets can be put through, one by one without ports, or many with `replay`.

    `now` is the clock in ns that meters and timestamps see; it stands still until it is set.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.now = 0
        pipeline.state.clock = lambda: self.now
        self._cpu_port: int | None = None
        self._sent = ffi.new("gl_sent[]", _MAX_COPIES)
        self._out = ffi.new("uint8_t[]", (_MAX_FRAME + runtime().GL_HEADROOM) * _MAX_COPIES)

    @classmethod
    def load(cls, program: str | Path, p4info: str | Path) -> Switch:
        """A switch that runs a BMv2 JSON file with its P4Info (text format). Raises ProgramError or BuildError."""
        return cls(Pipeline(read_program(program), read_p4info(p4info), Lock()))

    @property
    def cpu_port(self) -> int | None:
        """The port through which packets go to and from the controller; None: there is none."""
        return self._cpu_port

    @cpu_port.setter
    def cpu_port(self, port: int | None) -> None:
        self._cpu_port = port
        self.pipeline.state.mailbox.set_cpu_port(port)

    def set_port(self, port: int, *, up: bool) -> None:
        """Says whether a port is up, for members of groups that watch it; at first every one is. Raises SwitchError."""
        if not self.pipeline.state.has_port(port):
            raise SwitchError(_no_port(port))
        self.pipeline.state.set_port(port, up)

    def notifications(self) -> list[Any]:
        """What controllers get by now: p4.v1.StreamMessageResponse messages with packets, digests and idle entries."""
        messages: list[Any] = []
        due: int | None = self.now
        while due is not None and due <= self.now:
            found, due = notifications(self.pipeline, self.now)
            messages += found
        return messages

    def packet_out(self, message: Any) -> list[tuple[int, bytes]]:
        """What leaves when a controller sends a p4.v1.PacketOut. Raises EntityError or SwitchError."""
        if self._cpu_port is None:
            raise SwitchError("there is no CPU port: set cpu_port")
        frame = packet_out(self.pipeline.schema.packet_headers.get("packet_out"), message)
        return self.process(self._cpu_port, frame)

    def acknowledge(self, message: Any) -> None:
        """Takes a p4.v1.DigestListAck. Raises EntityError."""
        acknowledge(self.pipeline, message)

    @property
    def losses(self) -> Losses:
        """What the program could not have: indices out of range, packets without end, lost messages."""
        return self.pipeline.state.losses

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """What leaves, as (port, frame) in order, when a frame enters a port. Raises SwitchError."""
        return [(out, data) for out, _, data in self.process_queued(port, frame)]

    def process_queued(self, port: int, frame: bytes) -> list[tuple[int, int, bytes]]:
        """As `process`, as (port, queue, frame)."""
        return self._run(self.pipeline.loaded, port, frame, NULL)

    def replay(self, packets: Iterable[TimedFrame], ports: Mapping[int, str], seed: int = 0) -> Replay:
        """What leaves when frames enter ports at times: through queues, rates and links. Raises PortError.

        packets: (time in ns, port, frame)
        ports: settings by number, as the command line has them: {1: "", 2: "rate=10mbit,buffer=64kB"}
        """
        return replay(self.pipeline, packets, ports, seed)

    def trace(self, port: int, frame: bytes) -> dict[str, Any]:
        """What happens to a frame: its port, time, length and bytes, and its "events"; see `tracing.Traces`.

        State changes as when the frame is processed. Raises SwitchError.
        """
        traces = tracing.Traces(self.pipeline)
        sent = self._run(self.pipeline.traced, port, frame, traces.handle)
        [packet] = traces.all()
        if traces.handle.lost:
            raise SwitchError("the packet's trace does not fit in memory")
        leaving = (event for event in packet["events"] if event["event"] == "sent")
        for event, (_, _, data) in zip(leaving, sent, strict=True):
            event["bytes"] = data.hex()
        return packet

    def _run(self, program: LoadedProgram, port: int, frame: bytes, tracer: Any) -> list[tuple[int, int, bytes]]:
        if not 0 <= port < DROP_PORT:
            raise SwitchError(_no_port(port))
        if len(frame) > _MAX_FRAME:
            raise SwitchError(f"a frame of {len(frame)} bytes is too long (at most {_MAX_FRAME})")
        count = runtime().gl_process_one(
            program.process,
            self.pipeline.state.handle,
            port,
            frame,
            len(frame),
            self.now,
            self._sent,
            _MAX_COPIES,
            self._out,
            len(self._out),
            tracer,
        )
        if count < 0:
            raise SwitchError("the packet's copies do not fit in memory")
        whole = ffi.buffer(self._out)
        return [
            (item.port, item.queue, bytes(whole[item.offset : item.offset + item.length]))
            for item in (self._sent[number] for number in range(count))
        ]

    def write(self, *updates: Any) -> None:
        """Applies p4.v1.Update messages, as the Write RPC does. Raises EntityError at the first that fails."""
        for update in updates:
            dispatch.write(self.pipeline, update)

    def insert(self, entity: Any) -> None:
        """Inserts a p4.v1.Entity. Raises EntityError."""
        self.write(p4r.Update(type=p4r.Update.INSERT, entity=entity))

    def read(self, entity: Any) -> list[Any]:
        """The p4.v1.Entity messages that the Read RPC would give for a request. Raises EntityError."""
        return list(dispatch.read(self.pipeline, entity))

    def read_register(self, name: str, index: int) -> int:
        """A cell of a register, by the register's name or its last part. Raises SwitchError."""
        number = _find("register", [item.name for item in self.pipeline.program.registers], name)
        _check_index(name, index, self.pipeline.program.registers[number].size)
        return self.pipeline.state.read_registers(number, index, 1)[0]

    def write_register(self, name: str, index: int, value: int) -> None:
        """Sets a cell of a register. Raises SwitchError."""
        number = _find("register", [item.name for item in self.pipeline.program.registers], name)
        register = self.pipeline.program.registers[number]
        _check_index(name, index, register.size)
        self.pipeline.state.write_registers(number, index, 1, value & ((1 << register.width) - 1))

    def read_counter(self, name: str, index: int) -> CounterValue:
        """A cell of an indirect counter, by the counter's name or its last part. Raises SwitchError."""
        number = _find("counter", [item.name for item in self.pipeline.program.counters], name)
        _check_index(name, index, self.pipeline.program.counters[number].size)
        return self.pipeline.state.read_counters(number, index, 1)[0]


def _find(kind: str, names: list[str], wanted: str) -> int:
    found = [number for number, name in enumerate(names) if name == wanted or name.endswith(f".{wanted}")]
    if len(found) != 1:
        raise SwitchError(f"{wanted!r} is not one {kind} of the program: it has {', '.join(names) or 'none'}")
    return found[0]


def _check_index(name: str, index: int, size: int) -> None:
    if not 0 <= index < size:
        raise SwitchError(f"{name}: index {index} is not in 0..{size - 1}")


def _no_port(number: int) -> str:
    return f"{number} is not a port number (0..{DROP_PORT - 1}; v1model drops by {DROP_PORT})"
