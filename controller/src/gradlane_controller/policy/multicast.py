# SPDX-License-Identifier: Apache-2.0
"""What goes to all workers: of an aggregator along a tree of shortest paths, and the sums of the workers' switch."""

from collections import Counter
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address

from finsy import Action, Match, P4MulticastGroupEntry, P4TableEntry

from gradlane.job import Job
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.topology import Topology
from gradlane_controller.policy.entities import Entity
from gradlane_controller.policy.sums import Sums


def replication(
    fabric: Fabric, topology: Topology, switch: str, jobs: Iterable[Job], sums: Mapping[int, Sums]
) -> list[Entity]:
    """The groups of the trees that this switch is in, what leads to them, and who may send to them.

    `sums`: where jobs are summed, by their ids.
    """
    entities: list[Entity] = []
    addresses: list[IPv4Address] = []
    for job in jobs:
        workers = fabric.host_ports(member.host for member in job.workers)
        aggregators = fabric.host_ports(member.host for member in job.aggregators)
        before = Counter[str]()  # aggregators at the same switch
        for index, aggregator in enumerate(aggregators):
            address = job.multicast_address(index)
            if address is None:
                break
            tree = _tree(topology, aggregator.switch, {port.switch for port in workers}, before[aggregator.switch])
            before[aggregator.switch] += 1
            replicas = {port.number for port in workers if port.switch == switch}
            replicas |= {number for parent, number in tree if parent == switch}
            if replicas:
                entities += _group(group_number(job, index), address, replicas)
                addresses.append(address)
                if aggregator.switch == switch:
                    match = Match(ingress_port=aggregator.number, group=group_number(job, index), job=job.id)
                    entities.append(P4TableEntry("aggregators", match=match, action=Action("admit")))
        if job.sum_address is not None and job.id in sums and sums[job.id].switch == switch:
            number = group_number(job, len(aggregators))
            entities += _group(number, job.sum_address, {port.number for port in workers})
            addresses.append(job.sum_address)
    # Several addresses may have the same.
    for mac in sorted({_mac(address) for address in addresses}):
        entities.append(P4TableEntry("stations", match=Match(destination=mac), action=Action("route")))
    return entities


def group_number(job: Job, aggregator: int) -> int:
    """Slot ranges are disjoint, so half of the range numbers groups of the job's alone.

    Half, because BMv2 refuses groups from 32768 on.
    """
    return (job.slots.base + 1) // 2 + aggregator + 1


def _tree(topology: Topology, root: str, leaves: Iterable[str], choice: int) -> set[tuple[str, int]]:
    """The sending ends, as switch and port, of a tree from the root to the leaves.

    Where several switches could be the parent, `choice` takes one, so that trees of one root spread over its links.
    """
    ends: set[tuple[str, int]] = set()
    front = {leaf for leaf in leaves if topology.distance(leaf, root)}
    while front:
        ups = [topology.next_ports(switch, root) for switch in front]
        chosen = [up[choice % len(up)] for up in ups]
        ends |= {(up.peer, up.peer_number) for up in chosen}
        front = {up.peer for up in chosen} - {root}
    return ends


def _group(number: int, address: IPv4Address, replicas: Iterable[int]) -> list[Entity]:
    return [
        P4MulticastGroupEntry(number, replicas=tuple(sorted(replicas))),
        P4TableEntry("ipv4_routes", match=Match(destination=f"{address}/32"), action=Action("replicate", group=number)),
    ]


def _mac(address: IPv4Address) -> str:
    """RFC 1112, section 6.4: where hosts send what is for that group."""
    digits = f"01005e{int(address) & 0x7FFFFF:06x}"
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))
