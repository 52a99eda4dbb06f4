# SPDX-License-Identifier: Apache-2.0
"""The plan of a fabric: its hosts, their addresses, and the files that describe it. Pure data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from gradlane.units import format_rate
from gradlane.wire import CONTROL_CLASS, CONTROL_DSCP
from lab.model.arms import ARMS, EXPEDITED_FORWARDING
from lab.model.scenarios import Scenario
from lab.model.topology import Target, Topology

# `traffic` sends what else is on the fabric, `sink` takes it where no worker or server shall.
Role = Literal["worker", "server", "traffic", "sink"]
PRIORITY_DSCP = EXPEDITED_FORWARDING  # ordinary TCP that the operator put above best effort
PRIORITY_CLASS = 5
DSCP_CLASSES: Mapping[int, int] = {PRIORITY_DSCP: PRIORITY_CLASS, CONTROL_DSCP: CONTROL_CLASS}
HTTP_PORT = 9560
_FIRST_P4RUNTIME_PORT = 9559
_BEFORE_THRIFT_PORT = 9089  # as switch_nodes.Bmv2Switch counts them, by device id


@dataclass(frozen=True)
class HostPlan:
    """One host: its number decides its addresses, `port` is where it hangs on `switch`."""

    number: int  # from 1, over the whole fabric
    role: Role
    switch: str
    port: int

    @property
    def name(self) -> str:
        return f"h{self.number}"

    @property
    def interface(self) -> str:
        return f"{self.name}-eth0"

    @property
    def address(self) -> str:
        return f"10.0.{self.number}.2"

    @property
    def gateway(self) -> str:
        return f"10.0.{self.number}.1"

    @property
    def prefix(self) -> str:
        return f"10.0.{self.number}.0/24"

    @property
    def mac(self) -> str:
        return f"02:00:00:00:{self.number:02x}:02"

    @property
    def gateway_mac(self) -> str:
        return f"02:00:00:00:{self.number:02x}:01"

    @property
    def port_interface(self) -> str:
        return port_interface(self.switch, self.port)

    @property
    def port_mac(self) -> str:
        """Of the switch's end of the link. Not the gateway's: so this machine's own IP stack takes the frames for
        somebody else's, and never forwards them beside the P4 switch."""
        return f"02:00:00:00:{self.number:02x}:ff"


@dataclass(frozen=True)
class LinkEnd:
    """One end of a link between two switches."""

    switch: str
    index: int  # of the switch, from 1
    port: int

    def __str__(self) -> str:
        return f"{self.switch}:{self.port}"

    @property
    def interface(self) -> str:
        return port_interface(self.switch, self.port)

    @property
    def mac(self) -> str:
        """Of the interface, and not the one that the controller gives the port, for the same reason as a host's."""
        return f"02:02:00:{self.index:02x}:{self.port >> 8:02x}:{self.port & 255:02x}"


@dataclass(frozen=True)
class SwitchPlan:
    """One switch: `index` from 1, `target` what runs as it."""

    index: int
    name: str
    target: Target

    @property
    def p4runtime_port(self) -> int:
        """On the loopback; the port after the first is the controller's."""
        return _FIRST_P4RUNTIME_PORT + (self.index if self.index > 1 else 0)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.p4runtime_port}"

    @property
    def tcp_ports(self) -> tuple[int, ...]:
        """All that it opens on the loopback: BMv2 has a second one, for its own command line."""
        return (self.p4runtime_port, *((_BEFORE_THRIFT_PORT + self.index,) if self.target == "bmv2" else ()))


@dataclass(frozen=True)
class Impairment:
    """What goes wrong on one host's link, by chance per frame, in both directions."""

    loss: float = 0.0  # probability

    def port_options(self) -> str:
        """As gradlane-switch takes it in the description of a port."""
        return f",loss={self.loss:g},rx-loss={self.loss:g}" if self.loss else ""


@dataclass(frozen=True)
class FabricPlan:
    """`roles` are the hosts' and where they are, in order; workers come first, then servers. `rate` in bit/s of every
    link, `buffer` in bytes of every switch port; `targets` by switch, `impairments` by host; `thresholds` as a Scenario
    has them."""

    topology: Topology
    roles: Sequence[tuple[Role, str]]
    rate: int
    buffer: int
    targets: Mapping[str, Target]
    impairments: Mapping[str, Impairment] = field(default_factory=dict[str, Impairment])
    thresholds: tuple[float, float] | None = None
    aggregation: bool = False  # whether the switches have the program that sums gradients, too

    @staticmethod
    def of(scenario: Scenario, switch: str = "gradlane") -> "FabricPlan":
        """The fabric of a scenario; `switch` as Topology.targets takes it. The link that loses frames is the first
        worker's. Raises TopologyError."""
        edges = scenario.topology.edges
        roles = _spread("worker", scenario.workers, edges, 0)
        roles += _spread("server", scenario.servers, edges, len(roles))
        if scenario.bursts:
            roles.append(("traffic", scenario.bursts.source or edges[len(roles) % len(edges)]))
            if scenario.bursts.receivers == "sink":
                roles += _spread("sink", len(edges), edges, 0)
        return FabricPlan(
            topology=scenario.topology,
            roles=tuple(roles),
            rate=scenario.rate,
            buffer=scenario.buffer,
            targets=scenario.topology.targets(switch),
            impairments={"h1": Impairment(scenario.loss)} if scenario.loss else {},
            thresholds=scenario.thresholds,
            aggregation=any(ARMS[arm].by_switch for arm in scenario.arms),
        )

    @staticmethod
    def of_hosts(topology: Topology, hosts: int, rate: int, buffer: int, switch: str) -> "FabricPlan":
        """A fabric of that many equal hosts, spread over the edge switches. Raises TopologyError."""
        roles = _spread("worker", hosts, topology.edges, 0)
        return FabricPlan(topology, tuple(roles), rate, buffer, topology.targets(switch))

    @property
    def workers(self) -> int:
        return len(self.of_role("worker"))

    @cached_property
    def hosts(self) -> tuple[HostPlan, ...]:
        used = dict.fromkeys(self.topology.switches, 0)
        hosts: list[HostPlan] = []
        for number, (role, switch) in enumerate(self.roles, 1):
            used[switch] += 1
            hosts.append(HostPlan(number, role, switch, used[switch]))
        return tuple(hosts)

    @cached_property
    def links(self) -> tuple[tuple[LinkEnd, LinkEnd], ...]:
        """The links between switches; their ports follow those of the hosts."""
        used = {name: len([host for host in self.hosts if host.switch == name]) for name in self.topology.switches}

        def end(switch: str) -> LinkEnd:
            used[switch] += 1
            return LinkEnd(switch, self.topology.switches.index(switch) + 1, used[switch])

        return tuple((end(one), end(other)) for one, other in self.topology.links)

    @property
    def switches(self) -> tuple[SwitchPlan, ...]:
        return tuple(SwitchPlan(n, name, self.targets[name]) for n, name in enumerate(self.topology.switches, 1))

    def of_role(self, role: Role) -> tuple[HostPlan, ...]:
        return tuple(host for host in self.hosts if host.role == role)

    def link_ends(self, switch: str) -> tuple[LinkEnd, ...]:
        """The switch's own ends of its links to other switches."""
        return tuple(end for link in self.links for end in link if end.switch == switch)

    def port_settings(self, switch: str) -> dict[int, str]:
        """What follows the interface in a port's description, by number."""
        none = Impairment()
        common = f"rate={format_rate(self.rate)},buffer={self.buffer}B"
        settings = {end.port: common for link in self.links for end in link if end.switch == switch}
        for host in self.hosts:
            if host.switch == switch:
                impairment = self.impairments.get(host.name, none)
                settings[host.port] = common + (impairment.port_options() if self.loses_by_switch(host) else "")
        return settings

    def loses_by_switch(self, host: HostPlan) -> bool:
        """Whether the switch itself can lose frames of that host's link: BMv2 can't."""
        return self.targets[host.switch] == "gradlane"

    @property
    def port_interfaces(self) -> tuple[str, ...]:
        """The switches' ends of all links, in this machine's own namespace."""
        return (
            *(host.port_interface for host in self.hosts),
            *(end.interface for link in self.links for end in link),
        )

    def document(self) -> dict[str, Any]:
        """The fabric file, as the controller reads it, before it is TOML."""
        size = {"rate": format_rate(self.rate), "buffer": f"{self.buffer}B"}
        targets = {"gradlane": "gradlane-switch", "bmv2": "bmv2"}
        stated = dict(zip(("yellow", "red"), self.thresholds, strict=True)) if self.thresholds else None
        return {
            **({"thresholds": stated} if stated else {}),
            "switch": [
                {
                    "name": it.name,
                    "device_id": it.index,
                    "address": it.address,
                    "target": targets[it.target],
                    "aggregation": self.aggregation,
                }
                for it in self.switches
            ],
            "port": [
                {
                    "switch": host.switch,
                    "number": host.port,
                    "host": host.name,
                    "mac": host.gateway_mac,
                    "host_mac": host.mac,
                    "address": host.address,
                    "prefix": host.prefix,
                    "gateway": host.gateway,
                    **size,
                }
                for host in self.hosts
            ],
            "link": [{"ends": [str(one), str(other)], **size} for one, other in self.links],
            "dscp": [{"dscp": PRIORITY_DSCP, "queue_class": PRIORITY_CLASS}],
        }


def _spread(role: Role, count: int, edges: Sequence[str], first: int) -> list[tuple[Role, str]]:
    """So many hosts, in turn over the edge switches from the `first` on."""
    return [(role, edges[(first + n) % len(edges)]) for n in range(count)]


def port_interface(switch: str, port: int) -> str:
    """The name of a switch's end of a link, Mininet's."""
    return f"{switch}-eth{port}"
