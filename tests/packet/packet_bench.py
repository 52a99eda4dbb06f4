# SPDX-License-Identifier: Apache-2.0
"""A switch set up by the controller's own policy code from a fabric file and job files, and its counters by name."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from finsy import P4CounterEntry, P4DirectCounterEntry, P4Schema, P4TableEntry
from finsy.proto import p4r
from gradlane_packets import HOSTS, TOKEN, Host
from packet_targets import Sent, Target

from gradlane import job
from gradlane_controller import fabric
from gradlane_controller.convergence import difference
from gradlane_controller.counters import Reason
from gradlane_controller.policy import Entity, desired_entities

# Meters run on the target's clock. At one byte per second no time that a test takes changes a colour.
RATE = "8bit"
# With frames of 1000 bytes: the virtual queue takes 5 as green, then 6 as yellow, and every further one is red.
GREEN, YELLOW = 5, 6
BUFFER = "22kB"

FABRIC = """
[switch]
name = "s1"
address = "127.0.0.1:9559"
[thresholds]
yellow = 0.25
red = 0.5
[[dscp]]
dscp = 46
queue_class = 5
[[dscp]]
dscp = 8
queue_class = 1
""" + "".join(
    f"""
[[port]]
number = {host.port}
host = "h{host.port}"
mac = "{host.gateway}"
host_mac = "{host.mac}"
address = "{host.address}"
prefix = "10.0.{host.port}.0/24"
rate = "{{rate}}"
buffer = "{BUFFER}"
"""
    for host in HOSTS
)

POLICY = """
queue_classes = [ { layers = [0, 3], class = 6 }, { layers = [4, 100], class = 5 } ]
drop_precedences = [
    { magnitudes = [0, 63], drop_precedence = 3 },
    { magnitudes = [64, 127], drop_precedence = 2, layers = [0, 10] },
    { magnitudes = [128, 159], drop_precedence = 1, layers = [0, 10] },
]
"""


def fabric_file(rate: str = RATE) -> fabric.Fabric:
    """Four hosts, h1 to h4, at ports 1 to 4."""
    return fabric.parse(FABRIC.format(rate=rate), "fabric.toml")


def job_file(
    number: int = 1,
    hosts: Iterable[Host] = HOSTS[:3],
    *,
    base: int = 0,
    mask: int = 4095,
    policy: str = POLICY,
    transport: str = "",
) -> job.Job:
    """A job of workers on some of the hosts."""
    workers = "".join(
        f'[[worker]]\nrank = {rank}\nhost = "h{host.port}"\naddress = "{host.address}"\n'
        for rank, host in enumerate(hosts)
    )
    text = f"""
[job]
name = "job{number}"
id = {number}
token = "{TOKEN:016x}"
{workers}
[transport]
rate = "{RATE}"
{transport}
[policy]
{policy}
[slots]
base = {base}
mask = {mask}
"""
    return job.parse(text, f"job{number}.toml")


@dataclass(frozen=True)
class Count:
    """A counter's cell."""

    packets: int
    bytes: int


class Bench:
    """A target in the state that the controller would give it."""

    def __init__(self, target: Target, schema: P4Schema) -> None:
        self.target = target
        self.schema = schema

    def install(
        self,
        *jobs: job.Job,
        where: fabric.Fabric | None = None,
        change: Callable[[Entity], Entity] = lambda entity: entity,
    ) -> None:
        """The program anew, with the entities for these jobs. `change` may replace some of them."""
        self.target.reset()
        desired = [change(entity) for entity in desired_entities(where or fabric_file(), jobs)]
        self.target.write(difference(self.schema, [], desired))

    def process(self, source: Host | int, frame: bytes) -> list[Sent]:
        """What leaves when a host (or whatever is at that port) sends a frame."""
        return self.target.process(source if isinstance(source, int) else source.port, frame)

    def forward(self, source: Host, frame: bytes, destination: Host) -> Sent:
        """As `process`, of a frame that must leave once, towards `destination`."""
        (sent,) = self.process(source, frame)
        assert sent.port == destination.port
        return sent

    def congest(self, source: Host, frame: bytes, count: int) -> None:
        """Fills a virtual queue with `count` copies of a frame that must all be forwarded."""
        for _ in range(count):
            assert len(self.process(source, frame)) == 1

    def cells(self, counter: str) -> dict[int, Count]:
        """The cells of an indirect counter that are not zero, by index."""
        found: dict[int, Count] = {}
        for entity in self.target.read(P4CounterEntry(counter).encode(self.schema)):
            cell = P4CounterEntry.decode(entity, self.schema)
            count = Count(cell.packet_count, cell.byte_count)
            if counter == "decisions" and cell.index == 0:
                count = Count(count.packets - self.target.own_packets, count.bytes - self.target.own_bytes)
            if count != Count(0, 0):
                assert cell.index is not None
                found[cell.index] = count
        return found

    def decisions(self) -> dict[tuple[Reason, int, int], int]:
        """Packets by reason, queue class and drop precedence."""
        return {
            (Reason(index >> 6), index >> 3 & 7, index & 7): count.packets
            for index, count in self.cells("decisions").items()
        }

    def sender(self, entry: P4TableEntry) -> Count:
        """What the guard has counted for an entry of `senders`."""
        request = P4DirectCounterEntry(table_entry=entry).encode(self.schema)
        (entity,) = self.target.read(request)
        data = entity.direct_counter_entry.data
        return Count(data.packet_count, data.byte_count)

    def write(self, kind: "p4r.Update.Type", entity: Entity) -> None:
        """One more P4Runtime update."""
        self.target.write([p4r.Update(type=kind, entity=entity.encode(self.schema))])
