# SPDX-License-Identifier: Apache-2.0
"""Where a job's hosts are in the fabric, and how thin the links between them are."""

from collections import defaultdict
from collections.abc import Sequence

from gradlane.job.racks import Racks
from gradlane_controller.network.fabric import Fabric, Port
from gradlane_controller.network.topology import Topology, whole


def racks(fabric: Fabric, ports: Sequence[Port]) -> Racks | None:
    """Of workers at these ports, by rank. Hosts of one switch are in one rack; racks that follow one another are near
    one another.

    If each host of these racks, whichever job's, sent evenly to those of the other ones, as fast as its link is, and
    switches took all shortest paths alike, the most loaded link between switches would have to carry so many times what
    it can: the oversubscription. In a leaf-spine it is the rate of the hosts at a leaf by that of its links to spines.
    None: all are in one; or it is no more than 1 and a rack has less than sqrt(n) of n workers: longer rows are better.
    """
    topology = whole(fabric)
    hosts = {port.switch: list(fabric.ports_at(port.switch)) for port in ports}
    numbers = {switch: number for number, switch in enumerate(_in_line(topology, list(hosts)))}
    load = _load(topology, hosts)
    rates = {(it.switch, it.number): it.rate for it in fabric.link_ports}
    times = float(f"{max((sent / rates[port] for port, sent in load.items()), default=0.0):.3g}")
    matters = len(hosts) > 1 and (times > 1 or (len(ports) / len(hosts)) ** 2 >= len(ports))
    return Racks(tuple(numbers[port.switch] for port in ports), times) if matters else None


def _in_line(topology: Topology, switches: list[str]) -> list[str]:
    """Each followed by the one that is nearest of those left, the first one of the fabric file's if several are."""
    order = {switch: number for number, switch in enumerate(topology.with_hosts)}
    left = sorted(switches, key=order.__getitem__)
    found = left[:1]
    while left := [it for it in left if it != found[-1]]:
        here = found[-1]
        found.append(min(left, key=lambda it: (topology.distance(here, it) is None, topology.distance(here, it) or 0)))
    return found


def _load(topology: Topology, hosts: dict[str, list[Port]]) -> dict[tuple[str, int], float]:
    """Bit/s by the switch and number of a link's port."""
    count = sum(map(len, hosts.values()))
    load: dict[tuple[str, int], float] = defaultdict(float)
    for to, there in hosts.items():
        through: dict[str, float] = defaultdict(float)
        for switch, here in hosts.items():
            if switch != to:
                through[switch] = sum(port.rate for port in here) * len(there) / (count - len(here))
        for switch in topology.towards(to):
            ports = topology.next_ports(switch, to) if through[switch] else ()
            for port in ports:
                load[switch, port.number] += through[switch] / len(ports)
                through[port.peer] += through[switch] / len(ports)
    return load
