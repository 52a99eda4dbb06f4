# SPDX-License-Identifier: Apache-2.0
"""The plan of a fabric: its hosts, their addresses, and the files that describe it. Pure data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gradlane.units import format_rate
from scenarios import Scenario
from training.arms import EXPEDITED_FORWARDING

Role = Literal["worker", "server", "traffic"]
SWITCH = "s1"
PRIORITY_DSCP = EXPEDITED_FORWARDING  # ordinary TCP that the operator put above best effort
PRIORITY_CLASS = 5


@dataclass(frozen=True)
class HostPlan:
    """One host: its place in the fabric decides every address of it."""

    number: int  # of the switch port, from 1
    role: Role

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
        return f"{SWITCH}-eth{self.number}"

    @property
    def port_mac(self) -> str:
        """Of the switch's end of the link. Not the gateway's: so this machine's own IP stack takes the frames for
        somebody else's, and never forwards them beside the P4 switch."""
        return f"02:00:00:00:{self.number:02x}:ff"


@dataclass(frozen=True)
class Impairment:
    """What goes wrong on one host's link, by seeded chance per frame, in both directions."""

    loss: float = 0.0  # probability

    def port_options(self) -> str:
        """As gradlane-switch takes it in the description of a port."""
        return f",loss={self.loss:g},rx-loss={self.loss:g}" if self.loss else ""


@dataclass(frozen=True)
class FabricPlan:
    """`rate` in bit/s of every link, `buffer` in bytes of every switch port."""

    workers: int
    servers: int
    traffic: int
    rate: int
    buffer: int
    impairments: Mapping[str, Impairment] = field(default_factory=dict[str, Impairment])

    @staticmethod
    def of(scenario: Scenario) -> "FabricPlan":
        """The fabric of a scenario. The link that loses frames is the first worker's."""
        return FabricPlan(
            workers=scenario.workers,
            servers=scenario.servers,
            traffic=1 if scenario.bursts else 0,
            rate=scenario.rate,
            buffer=scenario.buffer,
            impairments={"h1": Impairment(scenario.loss)} if scenario.loss else {},
        )

    @property
    def hosts(self) -> tuple[HostPlan, ...]:
        counts: dict[Role, int] = {"worker": self.workers, "server": self.servers, "traffic": self.traffic}
        roles: list[Role] = [role for role, count in counts.items() for _ in range(count)]
        return tuple(HostPlan(number, role) for number, role in enumerate(roles, 1))

    def of_role(self, role: Role) -> tuple[HostPlan, ...]:
        return tuple(host for host in self.hosts if host.role == role)

    def port_descriptions(self) -> list[str]:
        """The `-i` arguments of gradlane-switch."""
        none = Impairment()
        return [
            f"{host.number}@{host.port_interface},rate={format_rate(self.rate)},buffer={self.buffer}B"
            + self.impairments.get(host.name, none).port_options()
            for host in self.hosts
        ]

    def document(self, target: str, switch_address: str) -> dict[str, Any]:
        """The fabric file, as the controller reads it, before it is TOML."""
        return {
            "switch": {"name": SWITCH, "device_id": 1, "address": switch_address, "target": target},
            "port": [
                {
                    "number": host.number,
                    "host": host.name,
                    "mac": host.gateway_mac,
                    "host_mac": host.mac,
                    "address": host.address,
                    "prefix": host.prefix,
                    "rate": format_rate(self.rate),
                    "buffer": f"{self.buffer}B",
                }
                for host in self.hosts
            ],
            "dscp": [{"dscp": PRIORITY_DSCP, "queue_class": PRIORITY_CLASS}],
        }
