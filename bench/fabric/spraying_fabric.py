# SPDX-License-Identifier: Apache-2.0
"""The fabrics of bench.fabric.spraying: hosts with other addresses in turn, two or three tiers, perhaps a slow link."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradlane.units import format_rate
from lab.model.plan import FabricPlan, HostPlan, Role
from lab.model.topology import Topology


class ThreeTiers(Topology):
    """Two pods of two leaves and two switches above them; over these, two spines. Every switch has two ways up."""

    def __str__(self) -> str:
        return "two pods under two spines"

    @property
    def edges(self) -> tuple[str, ...]:
        """The switches over which hosts are spread."""
        return tuple(f"leaf{n}" for n in range(1, 5))

    @property
    def switches(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.edges, *(f"pod{pod}-{n}" for pod in (1, 2) for n in (1, 2)), "spine1", "spine2")

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """The pairs of switches between which there is a link."""
        within = [(f"leaf{2 * pod - 2 + leaf}", f"pod{pod}-{n}") for pod in (1, 2) for leaf in (1, 2) for n in (1, 2)]
        above = [(f"pod{pod}-{n}", f"spine{spine}") for pod in (1, 2) for n in (1, 2) for spine in (1, 2)]
        return (*within, *above)


@dataclass(frozen=True)
class Plan(FabricPlan):
    """`addresses`: how many each host has beside its own. `slow`: the end of a link that has half the rate, of which
    the controller knows nothing; empty: none."""

    addresses: int = 0
    slow: str = ""

    def addresses_of(self, host: HostPlan) -> list[str]:
        """Those beside its own: chosen by chance, the same in every run."""
        numbers = random.Random(host.number).sample(range(3, 255), self.addresses)
        return [f"10.0.{host.number}.{number}" for number in numbers]

    def port_settings(self, switch: str) -> dict[int, str]:
        """What follows the interface in a port's description, by number."""
        settings = super().port_settings(switch)
        for link in self.links:
            if self.slow in map(str, link):
                half = f"rate={format_rate(self.rate // 2)},buffer={self.buffer}B"
                settings |= {end.port: half for end in link if end.switch == switch}
        return settings

    def assigned(self, assignment: int) -> dict[str, Any]:
        """The fabric file, before it is TOML, that has the hosts' addresses of that number as those of jobs."""
        found = self.document()
        for host, port in zip(self.hosts, found["port"], strict=True):
            port["address"], *port["also"] = [self.addresses_of(host)[assignment], host.address]
        return found


def plan(
    topology: Topology, hosts: int, rate: int, buffer: int, addresses: int, *, busy: bool = False, slow: bool = False
) -> Plan:
    """`hosts`: workers at each leaf. `busy`: with a source of other traffic at the first spine, and a sink at each
    leaf. `slow`: the first leaf's first way up has half the rate."""
    roles = _at("worker", [leaf for leaf in topology.edges for _ in range(hosts)])
    at_first_leaf = hosts
    if busy:
        roles += _at("traffic", ["spine1"]) + _at("sink", topology.edges)
        at_first_leaf += 1
    end = f"{topology.edges[0]}:{at_first_leaf + 1}" if slow else ""
    return Plan(topology, tuple(roles), rate, buffer, topology.targets("gradlane"), addresses=addresses, slow=end)


def _at(role: Role, switches: Sequence[str]) -> list[tuple[Role, str]]:
    return [(role, switch) for switch in switches]


def members(plan: Plan, assignment: int) -> Sequence[tuple[str, str]]:
    """The workers' hosts and their addresses in the assignment of that number."""
    return [(host.name, plan.addresses_of(host)[assignment]) for host in plan.of_role("worker")]
