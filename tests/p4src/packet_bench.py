# SPDX-License-Identifier: Apache-2.0
"""A switch with entries by name, and its counters by name."""

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from finsy import P4DirectCounterEntry, P4MeterEntry, P4Schema, P4TableEntry
from finsy.proto import p4r

from tests.p4src.packet_targets import CPU_PORT, PORTS, Sent, Target
from tests.support.entries import Entity
from tests.support.gradlane_packets import Host, Uplink
from tests.support.paths import P4_SOURCE

TYPES = (P4_SOURCE / "shared" / "types.p4").read_text()
SUMS = (P4_SOURCE / "shared" / "sums.p4").read_text()
ARCH = (P4_SOURCE / "v1model" / "arch.p4").read_text()


def _reasons() -> dict[str, int]:
    body = re.search(r"enum bit<5> Reason \{(.*?)\n\}", TYPES, re.DOTALL)
    assert body
    return {name: int(value) for name, value in re.findall(r"^\s*(\w+)\s*=\s*(\d+)", body[1], re.MULTILINE)}


def _sum_reasons() -> dict[str, int]:
    found = re.findall(r"^const Reason (\w+) = \(Reason\)5w(\d+);", SUMS, re.MULTILINE)
    assert len(found) == 2
    return {name: int(value) for name, value in found}


def _ways() -> dict[str, int]:
    body = re.search(r"enum bit<2> Way \{(.*?)\}", ARCH)
    assert body
    return {name: int(value) for name, value in re.findall(r"(\w+) = (\d)", body[1])}


Reason = IntEnum("Reason", _reasons() | _sum_reasons())
Way = IntEnum("Way", _ways())
# What a trimmed slice has: Ethernet, IP, UDP and Gradlane header.
TRIMMED_BYTES = {Way["TRIMMED_IPV4"]: 14 + 20 + 8 + 36, Way["TRIMMED_IPV6"]: 14 + 40 + 8 + 36}
# Those of every profile.
ORDINARY_REASONS = tuple(Reason[name] for name in _reasons())
# By the id of a group of entities, which is kept: the updates that insert it.
_ENCODED: dict[int, tuple[tuple[Entity, ...], list[p4r.Update]]] = {}
_CELLS_OF_A_JOB = len(Reason) << 6


@dataclass(frozen=True)
class Count:
    """A counter's cell."""

    packets: int
    bytes: int


class Bench:
    """A target and what tests ask of it."""

    def __init__(self, target: Target, schema: P4Schema) -> None:
        self.target = target
        self.schema = schema

    def install(self, *groups: Iterable[Entity]) -> None:
        """The program anew, with these entities."""
        self.target.reset()
        self.target.write([update for group in groups for update in self._inserts(group)])

    def _inserts(self, group: Iterable[Entity]) -> list[p4r.Update]:
        if not isinstance(group, tuple):
            return self._updates(p4r.Update.INSERT, group)
        # One of those that many tests share is encoded once.
        if id(group) not in _ENCODED:
            _ENCODED[id(group)] = group, self._updates(p4r.Update.INSERT, group)
        return _ENCODED[id(group)][1]

    def add(self, *entities: Entity) -> None:
        """Inserts entities; a meter's cell, which is always there, is set."""
        self.target.write(self._updates(p4r.Update.INSERT, entities))

    def change(self, *entities: Entity) -> None:
        """Replaces entities."""
        self.target.write(self._updates(p4r.Update.MODIFY, entities))

    def _updates(self, kind: "p4r.Update.Type", entities: Iterable[Entity]) -> list[p4r.Update]:
        return [
            p4r.Update(
                type=p4r.Update.MODIFY if isinstance(entity, P4MeterEntry) else kind, entity=entity.encode(self.schema)
            )
            for entity in entities
        ]

    def process(self, source: Host | Uplink | int, *frames: bytes) -> list[Sent]:
        """What leaves when a host (or whatever is at that port) sends frames."""
        return self.target.process(source if isinstance(source, int) else source.port, *frames)

    def forward(self, source: Host | Uplink | int, frame: bytes, destination: Host | Uplink | None = None) -> Sent:
        """As `process`, of a frame that must leave once, towards `destination` if that is given."""
        (sent,) = self.process(source, frame)
        assert sent.port != CPU_PORT
        assert destination is None or sent.port == destination.port
        return sent

    def drops(self, source: Host | Uplink | int, frame: bytes) -> bool:
        """Whether nothing leaves."""
        return self.process(source, frame) == []

    def punt(self, source: Host | Uplink | int, frame: bytes) -> Sent:
        """As `process`, of a frame that must go to the controller as it is, and nowhere else."""
        (sent,) = self.process(source, frame)
        assert sent.port == CPU_PORT
        assert sent.frame == frame, "the controller must see it as it came"
        assert sent.ingress_port == (source if isinstance(source, int) else source.port)
        return sent

    def congest(self, source: Host | Uplink, frame: bytes, count: int) -> None:
        """Fills a virtual queue with `count` copies of a frame that must all be forwarded."""
        assert len(self.process(source, *[frame] * count)) == count

    def set_port(self, port: int, up: bool, witnesses: Sequence[bytes]) -> None:
        """Says that a port is up or down, and waits until it shows where the witnesses, which enter at h1, leave."""
        self.target.set_port(port, up)
        deadline = time.monotonic() + 60
        while (port in {sent.port for sent in self.process(1, *witnesses)}) != up:
            assert time.monotonic() < deadline, f"port {port} does not go {'up' if up else 'down'}"

    def cells(self, counter: str, cells: range) -> dict[int, Count]:
        """The cells of an indirect counter that are not zero, by index."""
        found: dict[int, Count] = {}
        for index, count in zip(cells, self.target.cells(counter, cells), strict=True):
            own = (self.target.own_packets, self.target.own_bytes) if counter == "decisions" and index == 0 else (0, 0)
            if count != own:
                found[index] = Count(count[0] - own[0], count[1] - own[1])
        return found

    def drop_map(self) -> dict[tuple[int, int], Count]:
        """The cells of `drop_map` by layer and the magnitude's upper half."""
        return {(index >> 4, index & 15): count for index, count in self.cells("drop_map", range(8192)).items()}

    def decision_cells(self, *jobs: int) -> dict[tuple[int, Reason, int, int], Count]:
        """The cells of `decisions` by job index, reason, queue class and drop precedence."""
        found: dict[int, Count] = {}
        for job in jobs:
            found |= self.cells("decisions", range(job << 11, (job << 11) + _CELLS_OF_A_JOB))
        return {
            (index >> 11, Reason(index >> 6 & 31), index >> 3 & 7, index & 7): count for index, count in found.items()
        }

    def decisions(self, *jobs: int) -> dict[tuple[Reason, int, int], int]:
        """Packets by reason, queue class and drop precedence, of some jobs by index; else of jobs 0 (none) to 2."""
        found: dict[tuple[Reason, int, int], int] = {}
        for (_, *tags), count in self.decision_cells(*(jobs or (0, 1, 2))).items():
            key = Reason(tags[0]), tags[1], tags[2]
            found[key] = found.get(key, 0) + count.packets
        return found

    def reasons(self) -> dict[Reason, int]:
        """Packets by reason."""
        found: dict[Reason, int] = {}
        for (reason, _, _), count in self.decisions().items():
            found[reason] = found.get(reason, 0) + count
        return found

    def departures(self) -> dict[tuple[int, Way, int], Count]:
        """The cells of `sent` of the ports by port, way and queue class; of trimmed slices the bytes that left."""
        found: dict[tuple[int, Way, int], Count] = {}
        cells = range(PORTS.start << 5, PORTS.stop << 5)
        for index, counted in zip(cells, self.target.cells("sent", cells), strict=True):
            way, queue_class = Way(index >> 3 & 3), index & 7
            is_own = (way, queue_class) == (Way["TREE"], 0)
            own = (self.target.own_packets, self.target.own_bytes) if is_own else (0, 0)
            if counted != own:
                packets, octets = counted[0] - own[0], counted[1] - own[1]
                count = Count(packets, packets * TRIMMED_BYTES[way] if way in TRIMMED_BYTES else octets)
                found[index >> 5, way, queue_class] = count
        return found

    def sender(self, entry: P4TableEntry) -> Count:
        """What the guard has counted for an entry of `senders`."""
        request = P4DirectCounterEntry(table_entry=entry).encode(self.schema)
        (entity,) = self.target.read(request)
        data = entity.direct_counter_entry.data
        return Count(data.packet_count, data.byte_count)
