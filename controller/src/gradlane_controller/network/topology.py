# SPDX-License-Identifier: Apache-2.0
"""Paths between switches: all the shortest ones, by hops."""

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, lru_cache

from gradlane_controller.network.fabric import Fabric, LinkPort


class Topology:
    """The switches of a fabric and their links, by name. `down`: ports, as switch and number, that lead nowhere now;
    `avoided`: switches through which no path leads, though paths begin and end there.

    What was found is kept: of a large fabric the same is asked for each job and for each switch.
    """

    def __init__(self, fabric: Fabric, down: Collection[tuple[str, int]] = (), avoided: Collection[str] = ()) -> None:
        self._avoided = frozenset(avoided)
        self._ports = {
            switch.name: tuple(it for it in fabric.link_ports_at(switch.name) if (it.switch, it.number) not in down)
            for switch in fabric.switches
        }
        self.with_hosts = tuple(it.name for it in fabric.switches if any(True for _ in fabric.ports_at(it.name)))
        self._distances = {name: self._distances_to(name) for name in self._ports}
        self._next_ports: dict[tuple[str, str], tuple[LinkPort, ...]] = {}
        self._between: dict[tuple[str, str], tuple[LinkPort, ...]] = {}

    def distance(self, source: str, destination: str) -> int | None:
        """Links from one switch to another; None if there is no path now."""
        return self._distances[destination].get(source)

    def next_ports(self, source: str, destination: str) -> tuple[LinkPort, ...]:
        """The ports of `source` at which a shortest path to `destination` begins; none if they are the same."""
        pair = source, destination
        if pair not in self._next_ports:
            nearer = (self.distance(*pair) or 0) - 1  # nothing is nearer than the destination itself
            ports = (
                port
                for port in self._ports[source]
                if self.distance(port.peer, destination) == nearer and self._leads_on(port.peer, destination)
            )
            self._next_ports[pair] = tuple(ports)
        return self._next_ports[pair]

    def links_between(self, source: str, destination: str) -> tuple[LinkPort, ...]:
        """The sending ends of every link that is on a shortest path from one switch to another."""
        pair = source, destination
        if pair not in self._between:
            found, front = list[LinkPort](), {source}
            while front:
                ports = [port for switch in sorted(front) for port in self.next_ports(switch, destination)]
                found += ports
                front = {port.peer for port in ports}
            self._between[pair] = tuple(found)
        return self._between[pair]

    def towards(self, destination: str) -> list[str]:
        """The other switches from which there is a path to one, those farthest away first."""
        distances = self._distances[destination]
        return sorted(distances.keys() - {destination}, key=lambda it: (-distances[it], it))

    def longest_from(self, switch: str) -> int:
        """Links of the longest path from a switch to one with hosts."""
        return max((self.distance(switch, other) or 0 for other in self.with_hosts), default=0)

    def middle_switches(self, source: str, destination: str) -> set[str]:
        """The switches between the two on their shortest paths."""
        return {port.peer for port in self.links_between(source, destination)} - {destination}

    @cached_property
    def parallel(self) -> Mapping[str, int | None]:
        """Of the switches in the middle of paths: how many are at most beside one another, None: some are of paths of
        more than three."""
        found: dict[str, int | None] = {}
        for a, b in self.host_pairs():
            short = self.distance(a, b) == 2  # by far the most in a large leaf-spine: the next switch is the middle
            middle = {port.peer for port in self.next_ports(a, b)} if short else self.middle_switches(a, b)
            for switch in middle:
                before = found.get(switch, 0)
                found[switch] = None if before is None or not short else max(before, len(middle))
        return found

    def cut_off(self, before: "Topology") -> tuple[str, str] | None:
        """Two switches with hosts between which there was a path before and is none now; None if there are no such."""
        pairs = (it for it in before.host_pairs() if self._distances.keys() >= set(it))
        return next((it for it in pairs if self.distance(*it) is None and before.distance(*it) is not None), None)

    def host_pairs(self) -> Iterator[tuple[str, str]]:
        """Every two different switches that have hosts, in both orders."""
        return ((a, b) for a in self.with_hosts for b in self.with_hosts if a != b)

    def _leads_on(self, switch: str, destination: str) -> bool:
        return switch == destination or switch not in self._avoided

    def _distances_to(self, destination: str) -> dict[str, int]:
        distances, front = {destination: 0}, [destination]
        while front:
            leading = [switch for switch in front if self._leads_on(switch, destination)]
            found = sorted({port.peer for switch in leading for port in self._ports[switch]} - distances.keys())
            distances |= dict.fromkeys(found, distances[front[0]] + 1)
            front = found
        return distances


@lru_cache(maxsize=4)
def whole(fabric: Fabric) -> Topology:
    """With all of its links."""
    return Topology(fabric)
