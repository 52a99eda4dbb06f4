# SPDX-License-Identifier: Apache-2.0
"""The members of the corpus: the programs here, and the project's own, set up by the controller's policy code."""

import struct
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from finsy import Action, Match, P4MulticastGroupEntry, P4Schema, P4TableEntry
from finsy.proto import p4r

from gradlane import job
from gradlane_controller.network import fabric_file
from gradlane_controller.policy import desired_entities
from gradlane_controller.session.convergence import difference
from tests.differential.corpus import MAGIC, SOURCES, Program
from tests.differential.packets import PORTS
from tests.support.paths import PIPELINE

NAME = "gradlane"
_MARKER_GROUP = (1 << 15) - 1
_MARKER_ADDRESS = "239.255.255.255"
_MARKER_MAC = "02:dd:00:00:00:01"
_MARKER_PORT = 60
_STATIONS = [int(f"020000000{port}01", 16) for port in (1, 2, 3)]
_HOSTS = [int(f"020000000{port}02", 16) for port in (1, 2, 3)]

# The first of two switches: hosts at ports 1 to 3, the other switch at port 4.
_FABRIC = """
[[switch]]
name = "s1"
address = "127.0.0.1:9559"
[[switch]]
name = "s2"
address = "127.0.0.1:9560"
[[link]]
ends = ["s1:4", "s2:4"]
rate = "8bit"
buffer = "22kB"
[[dscp]]
dscp = 46
queue_class = 5
[[rewrite]]
switch = "s1"
port = 2
dscp = 46
to = 34
""" + "".join(
    f"""
[[port]]
switch = "{"s1" if host < 4 else "s2"}"
number = {host if host < 4 else 1}
host = "h{host}"
mac = "02:00:00:00:0{host}:01"
host_mac = "02:00:00:00:0{host}:02"
address = "10.0.{host}.2"
prefix = "10.0.{host}.0/24"
gateway = "10.0.{host}.1"
address6 = "fd00:{host}::2"
prefix6 = "fd00:{host}::/64"
rate = "8bit"
buffer = "22kB"
"""
    for host in range(1, 5)
)
_JOB = """
[job]
name = "job{number}"
id = {number}
key = "00112233445566ff00112233445566ff"
{workers}
[transport]
rate = "8bit"
[policy]
queue_classes = [ {{ layers = [0, 3], class = 6 }}, {{ layers = [4, 100], class = 5 }} ]
drop_precedences = [
    {{ magnitudes = [0, 63], drop_precedence = 3 }},
    {{ magnitudes = [64, 127], drop_precedence = 2 }},
]
on_congestion = "{on_congestion}"
[slots]
base = {base}
mask = 4095
"""
_WORKERS = "".join(
    f'[[worker]]\nrank = {host - 1}\nhost = "h{host}"\naddress = "10.0.{host}.2"\n' for host in range(1, 5)
)


class ProjectProgram(Program):
    """p4src/v1model/gradlane.p4."""

    def __init__(self) -> None:
        super().__init__(NAME)

    @property
    def json_path(self) -> Path:
        return PIPELINE / f"{NAME}.json"

    @property
    def p4info_path(self) -> Path:
        return PIPELINE / f"{NAME}.p4info.txtpb"

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        # Frames of several classes may overtake one another, so there is one at a time. The values make many frames
        # gradients, of few messages, so that budgets are spent.
        return {
            "lockstep": True,
            "packets": 3000,
            "ports": [*PORTS, 255],  # the controller's is the last
            "values": {
                "packet_out.egress_port": [1, 2, 3],
                "ethernet.ethertype": [0x0800, 0x0800, 0x86DD],
                "ethernet.dst": _STATIONS,
                "ethernet.src": _HOSTS,
                "ipv4.version": [4],
                "ipv4.src": [0x0A000102, 0x0A000202, 0x0A000302],
                "ipv6.version": [6],
                "ipv6.src": [0xFD000001 << 96 | 2],
                "ipv6.dst": [0xFD000002 << 96 | 2, 0xFD000004 << 96 | 2],
                "ipv4.dst": [0x0A000102, 0x0A000202, 0x0A000302, 0x0A000402],
                "ipv4.ttl": [0, 1, 2, 64],
                "ipv4.dscp": [8, 46],
                "gradlane.token": [0x00112233445566FF],
                "gradlane.message": [1, 2, 3],
                "gradlane.step": [1],
                "gradlane.tensor": [1],
                "gradlane.source": [0, 1, 2],
                "gradlane.budget": [0, 5, 50],
                "gradlane.slices": [100],
                "gradlane.slice": [0, 99, 100],
                "gradlane.job": [1, 2],
                "gradlane.length": [0],
                "udp.length": [44],
            },
        }

    @property
    def cells(self) -> Mapping[str, int]:
        # The others are of jobs that are not there.
        return {"decisions": 3 << 11}

    @cached_property
    def updates(self) -> list[p4r.Update]:
        jobs = [
            job.parse(_JOB.format(number=n, workers=_WORKERS, base=8192 * n, on_congestion=what), f"job{n}.toml")
            for n, what in ((1, "drop"), (2, "trim"))
        ]
        schema: P4Schema = self.schema
        entities = desired_entities(fabric_file.parse(_FABRIC, "fabric.toml"), jobs)["s1"]
        updates = list(difference(schema, [], entities))
        for update in updates:
            if update.entity.HasField("meter_entry"):
                # Without a rate, colours depend on what came before, not on time.
                update.entity.meter_entry.config.cir = update.entity.meter_entry.config.pir = 0
        station = P4TableEntry("stations", match=Match(destination=_MARKER_MAC), action=Action("route"))
        route = P4TableEntry(
            "ipv4_routes",
            match=Match(destination=f"{_MARKER_ADDRESS}/32"),
            action=Action("replicate", group=_MARKER_GROUP),
        )
        fabric_port = P4TableEntry(
            "ports", match=Match(ingress_port=_MARKER_PORT), action=Action("fabric", switch_id=1, chosen_bits=0)
        )
        # Two hosts may send from everybody else's MAC addresses, too, the third one from its own alone.
        sources = [
            P4TableEntry(
                "sources", match=Match(ingress_port=port, mac=mac, source=source), action=Action("known", member=member)
            )
            for port in (1, 2)
            for mac in _HOSTS
            if mac != _HOSTS[port - 1]
            for member, source in ((0, "::ffff:10.0.1.2"), (1, "::ffff:10.0.2.2"), (1, "fd00:1::2"))
        ]
        for entity in (
            P4MulticastGroupEntry(_MARKER_GROUP, replicas=PORTS),
            *(station, route, fabric_port),
            *sources,
        ):
            updates.append(p4r.Update(type=p4r.Update.INSERT, entity=entity.encode(schema)))
        return updates

    @cached_property
    def frames(self) -> list[tuple[int, bytes]]:
        return [(port, _with_checksum(frame) if n % 16 else frame) for n, (port, frame) in enumerate(self._generated())]

    def _generated(self) -> Iterator[tuple[int, bytes]]:
        return self.generator.frames(self.settings["packets"])

    def markers(self, number: int) -> list[bytes]:
        # One frame, multicast to every port: multicast passes no meter.
        ip = struct.pack("!BBHIBBH", 0x45, 0, 40, 0, 64, 253, 0) + bytes([10, 255, 0, 1, 239, 255, 255, 255])
        frame = bytes.fromhex(_MARKER_MAC.replace(":", "")) + bytes(6) + b"\x08\x00" + ip + MAGIC
        return [_with_checksum(frame + number.to_bytes(4, "big"))]


def _with_checksum(frame: bytes) -> bytes:
    """The frame with the right checksum in its IPv4 header, if it has one without options."""
    if frame[12:15] != b"\x08\x00\x45" or len(frame) < 34:
        return frame
    total = sum(struct.unpack("!10H", frame[14:24] + bytes(2) + frame[26:34]))
    total = (total & 0xFFFF) + (total >> 16)
    return frame[:24] + struct.pack("!H", (total & 0xFFFF) + (total >> 16) ^ 0xFFFF) + frame[26:]


def names() -> list[str]:
    """The names of all members."""
    return [NAME, *sorted(path.stem for path in SOURCES.glob("*.p4"))]


@cache  # to make its frames takes as long as to run it
def member(name: str) -> Program:
    """A member by name; who changes anything about it makes one of its own."""
    return ProjectProgram() if name == NAME else Program(name)
