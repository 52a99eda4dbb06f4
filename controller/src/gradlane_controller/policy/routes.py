# SPDX-License-Identifier: Apache-2.0
"""Where packets go: the switch's own addresses, the hosts that it bridges to, and routes over every shortest path.

A route leads to a group of next hops. A host's port is a group of one; so is a single link. What goes to another switch
over several links is spread over them in proportion to their rates. A next hop whose port is down is skipped; not the
only one of a group of BMv2, which ends when it finds none.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from zlib import crc32

from finsy import Action, Match, P4IndirectAction, P4TableAction, P4TableEntry

from gradlane.toml_file import Address
from gradlane_controller.network.fabric import MAX_PORT, Fabric, LinkPort, Port, SwitchAddress
from gradlane_controller.network.links import PROBES, probe_address
from gradlane_controller.network.topology import Topology, whole
from gradlane_controller.policy.entities import Entity, kept, route
from gradlane_controller.policy.spreading import weights

_NextHop = tuple[tuple[int, int], P4TableAction]
"""(weight, watched port) and what to do: as finsy takes a member of a group."""

_Ports = Sequence[LinkPort]
_GROUPS = 1 << 16


def addresses(fabric: Fabric, switch: str) -> list[Entity]:
    """What the switch routes, as it is addressed to it, and what it bridges to its hosts."""
    own = {port.mac for port in (*fabric.ports_at(switch), *fabric.link_ports_at(switch))}
    stations = [P4TableEntry("stations", match=Match(destination=mac), action=Action("route")) for mac in sorted(own)]
    bridged = [
        P4TableEntry("bridged", match=Match(destination=port.host_mac), action=Action("bridge_to", port=port.number))
        for port in fabric.ports_at(switch)
    ]
    return [*stations, *bridged]


def routes(fabric: Fabric, topology: Topology, where: SwitchAddress) -> list[Entity]:
    """Routes to every host, to the switch's own addresses, and the groups that they use."""
    switch = where.name
    intact = whole(fabric)
    paths = {name: topology.next_ports(switch, name) for name in topology.with_hosts if name != switch}
    groups = _numbered((intact.next_ports(switch, name), ports) for name, ports in paths.items() if ports)
    entities: list[Entity] = [
        _group(where, port.number, [_next_hop(port.number, port.host_mac, port.mac, 1)])
        for port in fabric.ports_at(switch)
    ]
    entities += [_group(where, groups[ports], _weighted(ports)) for ports in sorted(groups, key=groups.__getitem__)]
    for other in topology.with_hosts:
        if other == switch:
            for port in fabric.ports_at(switch):
                entities += [_to_group(*destination, port.number) for destination in _destinations(fabric)[port.host]]
        elif paths[other]:
            entities += _to_hosts(fabric, other, groups[paths[other]])
    for key in ("gateway", "gateway6"):
        for gateway in sorted({getattr(port, key) for port in fabric.ports_at(switch)} - {None}):
            entities.append(route(gateway, Action("local")))
    return [*entities, *_ways_of_probes(fabric, where, {name: groups[ports] for name, ports in paths.items() if ports})]


def _ways_of_probes(fabric: Fabric, where: SwitchAddress, groups: Mapping[str, int]) -> Iterator[Entity]:
    """Only a switch without hosts routes them back, to its neighbours: what a host sends there finds no way."""
    if fabric.has_hosts(where.name):
        yield P4TableEntry("ipv4_routes", match=Match(destination=str(PROBES)), action=Action("probe"))
        return
    neighbours = {port.peer for port in fabric.link_ports_at(where.name)}
    for other in fabric.switches:
        if other.name in neighbours & groups.keys():
            action = Action("set_next_hop", group=groups[other.name])
            yield route(probe_address(other), action)


@lru_cache(maxsize=1 << 13)
def _to_hosts(fabric: Fabric, switch: str, group: int) -> Sequence[Entity]:
    """To all at that switch. Many others have the same routes."""
    hosts = (port.host for port in fabric.ports_at(switch))
    return [_to_group(*destination, group) for host in hosts for destination in _destinations(fabric)[host]]


@kept
def _to_group(table: str, destination: str, group: int) -> Entity:
    return P4TableEntry(table, match=Match(destination=destination), action=Action("set_next_hop", group=group))


@lru_cache(maxsize=4)
def _destinations(fabric: Fabric) -> Mapping[str, Sequence[tuple[str, str]]]:
    """By host: tables, and what they match. Hosts of one subnet at several ports are routed one by one."""
    prefixes = Counter(prefix for port in fabric.ports for prefix in (port.prefix, port.prefix6))
    return {
        port.host: [
            (table, str(prefix) if prefix and prefixes[prefix] == 1 else f"{address}/{address.max_prefixlen}")
            for table, address, prefix in _addresses(port)
        ]
        for port in fabric.ports
    }


def _addresses(port: Port) -> Iterator[tuple[str, Address, IPv4Network | IPv6Network | None]]:
    yield "ipv4_routes", port.address, port.prefix
    if port.address6 is not None:
        yield "ipv6_routes", port.address6, port.prefix6
    for address in port.also:
        yield f"ipv{address.version}_routes", address, None


def _numbered(ways: Iterable[tuple[_Ports, _Ports]]) -> dict[_Ports, int]:
    """A group number for each set of ports. `ways`: of each destination, the set if all links worked, and that of now.

    It depends on the set alone as far as can be; a single port has its own. But where nothing goes by a set of several
    any more, what replaces it for most has its number: so when a link fails, or a switch, the group of most routes
    changes in place, and not each of them.
    """
    now: dict[_Ports, Counter[_Ports]] = {}
    for intact, ports in ways:
        now.setdefault(intact, Counter())[ports] += 1
    names = {ports: ports for sets in now.values() for ports in sets}
    for intact in sorted(now, key=_port_numbers):
        most = min(now[intact], key=lambda it: (-now[intact][it], _port_numbers(it)))
        if len(intact) > 1 and intact not in names and names[most] == most and most not in now:
            names[most] = intact
    numbers: dict[_Ports, int] = {}
    for ports in sorted(names, key=_port_numbers):
        name = _port_numbers(names[ports])
        number = name[0] if len(name) == 1 else crc32(" ".join(map(str, name)).encode()) % _GROUPS
        while number in numbers.values() or (len(name) > 1 and number <= MAX_PORT):
            number = (number + 1) % _GROUPS
        numbers[ports] = number
    return numbers


def _port_numbers(ports: _Ports) -> list[int]:
    return [port.number for port in ports]


def _weighted(ports: Sequence[LinkPort]) -> list[_NextHop]:
    return [
        _next_hop(port.number, port.peer_mac, port.mac, weight)
        for port, weight in zip(ports, weights(ports), strict=True)
    ]


def _next_hop(port: int, next_hop: str, own: str, weight: int) -> _NextHop:
    return (weight, port), Action("forward", port=port, next_hop=next_hop, own=own)


def _group(where: SwitchAddress, number: int, next_hops: Sequence[_NextHop]) -> Entity:
    members: Sequence[tuple[int | tuple[int, int], P4TableAction]] = next_hops
    if where.target == "bmv2" and len(next_hops) == 1:
        members = [(weight, action) for (weight, _), action in next_hops]
    return P4TableEntry("next_hops", match=Match(group=number), action=P4IndirectAction(members))
