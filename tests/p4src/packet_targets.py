# SPDX-License-Identifier: Apache-2.0
"""The switches that the packet tests run on: packets in, packets out, and P4Runtime entities.

gradlane-switch runs in this process, BMv2 in one of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from finsy import P4CounterEntry, P4MulticastGroupEntry, P4PacketIn, P4PacketOut, P4Schema
from finsy.proto import p4r
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from gradlane_switch import Switch
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock
from tests.support.bmv2_process import Bmv2Process
from tests.support.entries import fabric_port, multicast

PORTS = range(1, 9)
CPU_PORT = 255


@dataclass(frozen=True)
class Sent:
    """A frame that left the switch. `queue` is None where the target does not tell.

    One for the controller is without the header that tells why: `reason` and `ingress_port` are what it said.
    """

    port: int
    queue: int | None
    frame: bytes
    reason: int | None = None
    ingress_port: int | None = None

    @property
    def packet(self) -> Ether:
        """Dissected."""
        return Ether(self.frame)


@dataclass(frozen=True)
class Violation:
    """A digest of the guard: `source` is an address as `source_key` has it."""

    ingress_port: int
    job: int
    source: int


class Target(Protocol):
    """A switch that runs the program."""

    name: str
    # Frames of its own that the target sends through the program; each counts once as best effort, forwarded, and once
    # at every port, as a multicast.
    own_packets: int
    own_bytes: int

    def reset(self) -> None:
        """The program as after a start: no entities, no counts, no state, every port up."""
        ...

    def write(self, updates: Iterable[p4r.Update]) -> None:
        """Applies P4Runtime updates."""
        ...

    def read(self, *entities: p4r.Entity) -> list[p4r.Entity]:
        """What a P4Runtime Read of the entities gives."""
        ...

    def cells(self, counter: str, cells: range) -> list[tuple[int, int]]:
        """Packets and bytes of an indirect counter's cells."""
        ...

    def process(self, port: int, *frames: bytes) -> list[Sent]:
        """What leaves when frames enter a port, one after the other; in order for each port and queue."""
        ...

    def packet_out(self, port: int, frame: bytes) -> Sent:
        """What leaves when the controller sends a frame to a port."""
        ...

    def violations(self, count: int) -> list[Violation]:
        """The next `count` digests of the guard."""
        ...

    def set_port(self, port: int, up: bool) -> None:
        """Says that a port is up or down."""
        ...


class InProcess:
    """gradlane-switch without ports. `switch.now` is its clock in ns, which stands still.

    `pipeline`: a program that was read; the state is this target's own. `observe` is told the events of every frame,
    which then take longer.
    """

    name = "gradlane-switch"

    def __init__(
        self, schema: P4Schema, pipeline: Pipeline, observe: Callable[[list[Any]], None] | None = None
    ) -> None:
        self._schema = schema
        self.own_packets = self.own_bytes = 0
        self._pipeline = pipeline
        self._observe = observe
        if observe is not None:
            assert self._pipeline.traced  # compiled once
        self._violations: list[Violation] = []
        self.reset()

    def reset(self) -> None:
        pipeline = copy(self._pipeline)
        pipeline.begin(Lock())
        self.switch = Switch(pipeline)
        self.switch.cpu_port = CPU_PORT
        self._violations.clear()

    def write(self, updates: Iterable[p4r.Update]) -> None:
        self.switch.write(*updates)

    def read(self, *entities: p4r.Entity) -> list[p4r.Entity]:
        return [found for entity in entities for found in self.switch.read(entity)]

    def cells(self, counter: str, cells: range) -> list[tuple[int, int]]:
        names = [item.name.rpartition(".")[2] for item in self.switch.pipeline.program.counters]
        found = self.switch.pipeline.state.read_counters(names.index(counter), cells.start, len(cells))
        return [(it.packets, it.bytes) for it in found]

    def process(self, port: int, *frames: bytes) -> list[Sent]:
        return [sent for frame in frames for sent in self._process(port, frame)]

    def _process(self, port: int, frame: bytes) -> Iterator[Sent]:
        if self._observe is None:
            yield from (Sent(*copy) for copy in self.switch.process_queued(port, frame))
        else:
            events = self.switch.trace(port, frame)["events"]
            self._observe(events)
            for event in events:
                if event["event"] == "sent":
                    yield Sent(event["port"], event["queue"], bytes.fromhex(event["bytes"]))
        yield from self._told()

    def _told(self) -> Iterator[Sent]:
        for message in self.switch.notifications():
            if message.HasField("packet"):
                yield _packet_in(self._schema, message)
            else:
                self._violations += _violations(message.digest)

    def packet_out(self, port: int, frame: bytes) -> Sent:
        if self._observe is None:
            request = P4PacketOut(frame, reserved=0, egress_port=port).encode_update(self._schema)
            ((out, data),) = self.switch.packet_out(request.packet)
            return Sent(out, None, data)
        # As the switch itself does, with its events.
        (sent,) = self._process(CPU_PORT, port.to_bytes(2, "big") + frame)
        return Sent(sent.port, None, sent.frame)

    def violations(self, count: int) -> list[Violation]:
        found, self._violations = self._violations[:count], self._violations[count:]
        return found

    def set_port(self, port: int, up: bool) -> None:
        self.switch.set_port(port, up=up)


class TnaInProcess(InProcess):
    """p4src/tna with v1model's externs; its tables are those that the schema knows.

    A Tofino's control plane gives a port's two meters, for what is multicast and what is not, one configuration.
    """

    name = "tna on gradlane-switch"
    _OF_MULTICAST = 0x14000004

    def write(self, updates: Iterable[p4r.Update]) -> None:
        updates = list(updates)
        for update in updates.copy():
            if update.entity.meter_entry.meter_id == self._schema.meters["virtual_queue"].id:
                alike = p4r.Update.FromString(update.SerializeToString())
                alike.entity.meter_entry.meter_id = self._OF_MULTICAST
                updates.append(alike)
        super().write(updates)


class Bmv2:
    """simple_switch_grpc.

    It answers nothing when it drops a packet, so after each packet a marker goes the same way: multicast to every port
    (no gradient, so it passes no meter) in the lowest class, so that on each port it comes last.
    """

    name = "BMv2"
    AT_ONCE = 50  # its queues hold 64 packets
    MARKER_GROUP = (1 << 15) - 1  # the highest that it takes
    MARKER_ADDRESS = "239.255.255.255"
    MARKER_PORT = 60
    MARKER = bytes(Ether(dst="01:00:5e:7f:ff:ff") / IP(src="10.255.0.1", dst=MARKER_ADDRESS, ttl=64, proto=253))

    def __init__(self, schema: P4Schema, command: str, folder: Path) -> None:
        self.own_packets = self.own_bytes = 0
        self._schema = schema
        self._down: set[int] = set()
        self._violations: list[Violation] = []
        self._process = Bmv2Process(schema, command, folder, CPU_PORT)
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the process."""
        self._process.close()

    def reset(self) -> None:
        for port in self._down:
            self._process.set_port(port, True)
        self._down.clear()
        # A new program makes P4Runtime forget the groups, but not BMv2 itself: it would replicate to old and new.
        held = self.read(P4MulticastGroupEntry().encode(self._schema))
        self.write(p4r.Update(type=p4r.Update.DELETE, entity=entity) for entity in held)
        self._process.load_program()
        self._set_up()

    def _set_up(self) -> None:
        self.own_packets = self.own_bytes = 0
        self._violations.clear()
        marker = [fabric_port(self.MARKER_PORT), *multicast(self.MARKER_ADDRESS, self.MARKER_GROUP, *PORTS, CPU_PORT)]
        self.write(p4r.Update(type=p4r.Update.INSERT, entity=entity.encode(self._schema)) for entity in marker)

    def write(self, updates: Iterable[p4r.Update]) -> None:
        self._process.write(updates)

    def read(self, *entities: p4r.Entity) -> list[p4r.Entity]:
        return self._process.read(*entities)

    def cells(self, counter: str, cells: range) -> list[tuple[int, int]]:
        found = self.read(*(P4CounterEntry(counter, index=index).encode(self._schema) for index in cells))
        assert [entity.counter_entry.index.index for entity in found] == list(cells)
        return [(it.packet_count, it.byte_count) for it in (entity.counter_entry.data for entity in found)]

    def process(self, port: int, *frames: bytes) -> list[Sent]:
        sent: list[Sent] = []
        for start in range(0, len(frames), self.AT_ONCE):
            for frame in frames[start : start + self.AT_ONCE]:
                self._process.send(port, frame)
            self._process.send(self.MARKER_PORT, self.MARKER)
            self.own_packets += 1
            self.own_bytes += len(self.MARKER)
            sent += self._until_marked()
            sent += self._told_until_marked()
        return sent

    def _until_marked(self) -> Iterator[Sent]:
        waiting = set(PORTS)
        while waiting:
            port, frame = self._process.receive(f"frame from BMv2, though a marker is due on ports {waiting}")
            if frame[26:34] == self.MARKER[26:34]:
                waiting.remove(port)
            else:
                assert port in waiting, "a frame of a higher class must leave before the marker"
                yield Sent(port, None, frame)

    def _told_until_marked(self) -> Iterator[Sent]:
        while True:
            message = self._process.session.receive("packet-in from BMv2, though a marker is due")
            if message.HasField("digest"):
                self._take_digest(message.digest)
                continue
            if message.packet.payload[24:32] == self.MARKER[26:34]:
                return  # its first two bytes were taken for the header that tells why
            yield _packet_in(self._schema, message)

    def _take_digest(self, digest: Any) -> None:
        self._violations += _violations(digest)
        answer = p4r.StreamMessageRequest()
        answer.digest_ack.digest_id, answer.digest_ack.list_id = digest.digest_id, digest.list_id
        self._process.session.send(answer)

    def packet_out(self, port: int, frame: bytes) -> Sent:
        self._process.session.send(P4PacketOut(frame, reserved=0, egress_port=port).encode_update(self._schema))
        out, data = self._process.receive(f"packet-out at port {port}")
        return Sent(out, None, data)

    def violations(self, count: int) -> list[Violation]:
        while len(self._violations) < count:
            self._take_digest(self._process.session.receive("digest of the guard").digest)
        found, self._violations = self._violations[:count], self._violations[count:]
        return found

    def set_port(self, port: int, up: bool) -> None:
        self._process.set_port(port, up)
        (self._down.discard if up else self._down.add)(port)


def _packet_in(schema: P4Schema, message: p4r.StreamMessageResponse) -> Sent:
    told = P4PacketIn.decode(message, schema)
    return Sent(CPU_PORT, None, told.payload, told["reason"], told["ingress_port"])


def _violations(digest: Any) -> list[Violation]:
    return [
        Violation(*(int.from_bytes(member.bitstring, "big") for member in data.struct.members)) for data in digest.data
    ]
