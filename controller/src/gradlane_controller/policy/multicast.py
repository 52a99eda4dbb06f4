# SPDX-License-Identifier: Apache-2.0
"""What goes to all workers: of an aggregator along a tree of shortest paths, and sums of switches."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from finsy import Action, Match, P4MulticastGroupEntry, P4TableEntry

from gradlane.job import Job
from gradlane.toml_file import Address
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.links import End
from gradlane_controller.network.topology import Topology
from gradlane_controller.policy.entities import Entity, group_number, route
from gradlane_controller.policy.sharing import spread
from gradlane_controller.policy.sums import SummedJob

Tree = frozenset[End]
"""The sending ends of its links."""


def trees(fabric: Fabric, topology: Topology, jobs: Iterable[Job], room: Callable[[End], float]) -> dict[Address, Tree]:
    """By the address to which an aggregator sends its results, the tree along which they go to all workers."""
    roots: dict[Address, str] = {}
    options: list[Sequence[Tree]] = []
    known: dict[tuple[str, frozenset[str]], Sequence[Tree]] = {}
    for job in jobs:
        leaves = frozenset(port.switch for port in fabric.host_ports(member.host for member in job.workers))
        for index, aggregator in enumerate(fabric.host_ports(member.host for member in job.aggregators)):
            address = job.multicast_address(index)
            if address is None:
                break
            roots[address] = aggregator.switch
            if (aggregator.switch, leaves) not in known:
                known[aggregator.switch, leaves] = _trees(topology, aggregator.switch, leaves)
            options.append(known[aggregator.switch, leaves])
    turns = spread(options, room)
    return {address: some[turn] for address, some, turn in zip(roots, options, turns, strict=True)}


def replication(
    fabric: Fabric, trees: Mapping[Address, Tree], switch: str, jobs: Iterable[Job], summed: Iterable[SummedJob]
) -> list[Entity]:
    """The groups of the trees that this switch is in, what leads to them, and who may send to them."""
    entities: list[Entity] = []
    addresses: list[Address] = []
    for job in jobs:
        workers = fabric.host_ports(member.host for member in job.workers)
        aggregators = fabric.host_ports(member.host for member in job.aggregators)
        for index, aggregator in enumerate(aggregators):
            address = job.multicast_address(index)
            if address is None:
                break
            replicas = {port.number for port in workers if port.switch == switch}
            replicas |= {number for parent, number in trees[address] if parent == switch}
            if replicas:
                number = group_number(job, index)
                entities.append(P4MulticastGroupEntry(number, replicas=tuple(sorted(replicas))))
                entities.append(route(address, Action("replicate", group=number)))
                addresses.append(address)
                if aggregator.switch == switch:
                    match = Match(ingress_port=aggregator.number, group=number, job=job.id)
                    entities.append(P4TableEntry("aggregators", match=match, action=Action("admit")))
    for it in summed:
        groups = it.groups(switch)
        if groups and it.job.sum_address is not None:
            # The route makes it a multicast; which of the groups it is says the tree of its bucket.
            entities += [P4MulticastGroupEntry(number, replicas=replicas) for replicas, number in groups.items()]
            entities.append(route(it.job.sum_address, Action("replicate", group=min(groups.values()))))
            addresses.append(it.job.sum_address)
    # Several addresses may have the same.
    for mac in sorted({_mac(address) for address in addresses}):
        entities.append(P4TableEntry("stations", match=Match(destination=mac), action=Action("route")))
    return entities


def _trees(topology: Topology, root: str, leaves: Iterable[str]) -> Sequence[Tree]:
    """As many as a switch has ways to the root; where one has fewer, it takes these in turn."""
    ways = max((len(topology.next_ports(switch, root)) for switch in topology.towards(root)), default=1)
    return list(dict.fromkeys(_tree(topology, root, leaves, turn) for turn in range(ways)))


def _tree(topology: Topology, root: str, leaves: Iterable[str], turn: int) -> Tree:
    ends: set[End] = set()
    front = {leaf for leaf in leaves if topology.distance(leaf, root)}
    while front:
        ups = [topology.next_ports(switch, root) for switch in front]
        chosen = [up[turn % len(up)] for up in ups]
        ends |= {(up.peer, up.peer_number) for up in chosen}
        front = {up.peer for up in chosen} - {root}
    return frozenset(ends)


def _mac(address: Address) -> str:
    """Where hosts send what is for that group: RFC 1112, section 6.4; RFC 2464, section 7."""
    prefix, bits = (0x01005E000000, 23) if address.version == 4 else (0x333300000000, 32)
    return (prefix | int(address) & (1 << bits) - 1).to_bytes(6, "big").hex(":")
