# SPDX-License-Identifier: Apache-2.0
"""The switches that the packet tests run on: packets in, packets out, and P4Runtime entities.

gradlane-switch runs in this process, BMv2 in one of its own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bmv2_process import Bmv2Process
from finsy import Action, Match, P4MulticastGroupEntry, P4Schema, P4TableEntry
from finsy.proto import p4r
from gradlane_packets import HOSTS
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from gradlane_switch import Switch


@dataclass(frozen=True)
class Sent:
    """A frame that left the switch. `queue` is None where the target does not tell."""

    port: int
    queue: int | None
    frame: bytes

    @property
    def packet(self) -> Ether:
        """Dissected."""
        return Ether(self.frame)


class Target(Protocol):
    """A switch that runs the program."""

    # Frames of its own that the target sends through the program; each counts once as best effort, forwarded.
    own_packets: int
    own_bytes: int

    def reset(self) -> None:
        """The program as after a start: no entities, no counts, no state."""
        ...

    def write(self, updates: Iterable[p4r.Update]) -> None:
        """Applies P4Runtime updates."""
        ...

    def read(self, entity: p4r.Entity) -> list[p4r.Entity]:
        """What a P4Runtime Read of `entity` gives."""
        ...

    def process(self, port: int, frame: bytes) -> list[Sent]:
        """What leaves when a frame enters a port."""
        ...


class InProcess:
    """gradlane-switch without ports. `switch.now` is its clock in ns, which stands still."""

    def __init__(self, schema: P4Schema, program: Path, p4info: Path) -> None:
        del schema
        self.own_packets = self.own_bytes = 0
        self._files = program, p4info
        self.switch = Switch.load(*self._files)

    def reset(self) -> None:
        self.switch = Switch.load(*self._files)

    def write(self, updates: Iterable[p4r.Update]) -> None:
        self.switch.write(*updates)

    def read(self, entity: p4r.Entity) -> list[p4r.Entity]:
        return self.switch.read(entity)

    def process(self, port: int, frame: bytes) -> list[Sent]:
        return [Sent(*copy) for copy in self.switch.process_queued(port, frame)]


class Bmv2:
    """simple_switch_grpc.

    It answers nothing when it drops a packet, so after each packet a marker goes the same way: multicast to every port
    (multicast passes no meter) in the lowest class, so that on each port it comes last.
    """

    MARKER_GROUP = (1 << 15) - 1  # the highest that it takes
    MARKER_ADDRESS = "239.255.255.255"
    MARKER_PORT = 60
    MARKER = bytes(Ether() / IP(src="10.255.0.1", dst=MARKER_ADDRESS, ttl=64, proto=253))

    def __init__(self, schema: P4Schema, command: str, folder: Path) -> None:
        self.own_packets = self.own_bytes = 0
        self._schema = schema
        self._process = Bmv2Process(schema, command, folder)
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the process."""
        self._process.close()

    def reset(self) -> None:
        # A new program makes P4Runtime forget the groups, but not BMv2 itself: it would replicate to old and new.
        held = self.read(P4MulticastGroupEntry().encode(self._schema))
        self.write(p4r.Update(type=p4r.Update.DELETE, entity=entity) for entity in held)
        self._process.load_program()
        self._set_up()

    def _set_up(self) -> None:
        self.own_packets = self.own_bytes = 0
        ports = tuple(host.port for host in HOSTS)
        route = P4TableEntry(
            "routes",
            match=Match(destination=f"{self.MARKER_ADDRESS}/32"),
            action=Action("replicate", group=self.MARKER_GROUP),
        )
        marker = (P4MulticastGroupEntry(self.MARKER_GROUP, replicas=ports), route)
        self.write(p4r.Update(type=p4r.Update.INSERT, entity=entity.encode(self._schema)) for entity in marker)

    def write(self, updates: Iterable[p4r.Update]) -> None:
        self._process.write(updates)

    def read(self, entity: p4r.Entity) -> list[p4r.Entity]:
        return self._process.read(entity)

    def process(self, port: int, frame: bytes) -> list[Sent]:
        self._process.send(port, frame)
        self._process.send(self.MARKER_PORT, self.MARKER)
        self.own_packets += 1
        self.own_bytes += len(self.MARKER)
        return list(self._until_marked())

    def _until_marked(self) -> Iterator[Sent]:
        waiting = {host.port for host in HOSTS}
        while waiting:
            port, frame = self._process.receive(f"frame from BMv2, though a marker is due on ports {waiting}")
            if frame[30:34] == bytes((239, 255, 255, 255)):
                waiting.remove(port)
            else:
                assert port in waiting, "a frame of a higher class must leave before the marker"
                yield Sent(port, None, frame)
