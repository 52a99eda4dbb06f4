# SPDX-License-Identifier: Apache-2.0
"""The fabric file of a simulated fabric, as the controller's user would write it, and what the controller makes of
it."""

import functools
from collections import Counter
from collections.abc import Iterator, Sequence

from gradlane.job.racks import Racks
from gradlane.units import format_rate
from gradlane_controller.network import fabric_file
from gradlane_controller.network import racks as network
from gradlane_controller.network.fabric import Fabric as Described
from gradlane_controller.network.topology import whole
from gradlane_controller.policy import spreading
from gradlane_sim.job_files import address
from gradlane_sim.specification import Fabric, Json, Link

_Numbered = tuple[Link, tuple[int, int]]
# A host's number and this one make its gateway's.
_GATEWAYS = 1 << 16


def numbered(fabric: Fabric) -> Iterator[_Numbered]:
    """Each link, with the numbers of its ports at `a` and `b`: a node's ports are numbered in the order of the
    links."""
    ports: Counter[int] = Counter()
    for it in fabric.links:
        ports.update((it.a, it.b))
        yield it, (ports[it.a], ports[it.b])


def name(fabric: Fabric, node: int) -> str:
    """Of a host or a switch."""
    return f"h{node}" if node < fabric.hosts else f"s{node - fabric.hosts}"


def text(fabric: Fabric, sums: bool = False) -> str:
    """The fabric file. Hosts stand in the order of their numbers. `sums`: switches sum, from addresses of their own."""
    lines: list[str] = []
    for number, node in enumerate(range(fabric.hosts, fabric.nodes), 1):
        lines += ["[[switch]]", f'name = "{name(fabric, node)}"', f"device_id = {number}"]
        lines += [f'address = "127.0.0.1:{number}"', 'target = "gradlane-switch"']
        lines += ["aggregation = true"] if sums else []
    ports: dict[int, list[str]] = {}
    for link, (at_a, at_b) in numbered(fabric):
        common = [f'rate = "{format_rate(link.file_rate)}"', f'buffer = "{link.buffer}B"']
        a, b = (name(fabric, node) for node in (link.a, link.b))
        if min(link.a, link.b) >= fabric.hosts:
            lines += ["[[link]]", f'ends = ["{a}:{at_a}", "{b}:{at_b}"]', *common]
            continue
        host, switch, number = (link.a, b, at_b) if link.a < fabric.hosts else (link.b, a, at_a)
        macs = [f"02:{kind:02x}:00:00:{host >> 8:02x}:{host & 255:02x}" for kind in (2, 3)]
        ports[host] = [
            "[[port]]",
            f'switch = "{switch}"',
            f"number = {number}",
            f'host = "h{host}"',
            f'mac = "{macs[0]}"',
        ]
        ports[host] += [f'host_mac = "{macs[1]}"', f'address = "{address(host)}"', *common]
        ports[host] += [f'gateway = "{address(host + _GATEWAYS)}"'] if sums else []
    for host in range(fabric.hosts):
        lines += ports[host]
    return "\n".join(lines) + "\n"


@functools.lru_cache(maxsize=4)
def parse(fabric: Fabric, sums: bool = False) -> Described:
    """Raises FabricError."""
    return fabric_file.parse(text(fabric, sums), fabric.name)


def racks(fabric: Fabric, hosts: Sequence[int]) -> Racks | None:
    """Of workers at these hosts, as the controller finds them."""
    described = parse(fabric)
    return network.racks(described, described.host_ports(name(fabric, host) for host in hosts))


def to_json(fabric: Fabric) -> Json:
    """As the program reads it: links have the bits of a flow's number by which traffic has been spread before it
    enters."""
    chosen = spreading.chosen_bits(whole(parse(fabric)))
    found = fabric.to_json()
    for row, (link, at) in zip(found["links"], numbered(fabric), strict=True):
        ends = zip((link.a, link.b), at, strict=True)
        row["chosen_bits"] = [chosen.get((name(fabric, node), number), 0) for node, number in ends]
    return found
