# SPDX-License-Identifier: Apache-2.0
"""Leaf-spine fabrics and jobs of any size, as the controller reads them. Pure data."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any

_SIZE = {"rate": "10gbit", "buffer": "1MB"}
_HOSTS = IPv4Network("10.0.0.0/8")
_POLICY = {
    "queue_classes": [{"layers": [0, 65535], "class": 5}],
    "drop_precedences": [{"magnitudes": [0, 255], "drop_precedence": 2}],
}


@dataclass(frozen=True)
class Host:
    """One host, at a port of a leaf; both count from 1."""

    number: int
    leaf: int
    port: int

    @property
    def name(self) -> str:
        return f"h{self.number}"

    @property
    def network(self) -> IPv4Network:
        """Its own: /30, with the gateway's address and its own."""
        return IPv4Network((int(_HOSTS.network_address) + 4 * self.number, 30))

    @property
    def address(self) -> IPv4Address:
        return self.network[2]


@dataclass(frozen=True)
class LargeFabric:
    """Every leaf is linked to every spine. Hosts are spread evenly; workers of a job are neighbours in number, so each
    is at another leaf."""

    leaves: int
    spines: int
    hosts_count: int

    @property
    def hosts(self) -> list[Host]:
        return [Host(n + 1, n % self.leaves + 1, n // self.leaves + 1) for n in range(self.hosts_count)]

    @property
    def switches(self) -> list[str]:
        """All of them; the place is the device id, from 1."""
        return [*(f"leaf{n}" for n in range(1, self.leaves + 1)), *(f"spine{n}" for n in range(1, self.spines + 1))]

    @property
    def links(self) -> list[tuple[tuple[str, int], tuple[str, int]]]:
        """Pairs of ends: switch and port. A leaf's ports to spines follow those of its hosts."""
        first = -(-self.hosts_count // self.leaves)
        return [
            ((f"leaf{leaf}", first + spine), (f"spine{spine}", leaf))
            for leaf in range(1, self.leaves + 1)
            for spine in range(1, self.spines + 1)
        ]

    def document(self, addresses: Sequence[str]) -> dict[str, Any]:
        """The fabric file, before it is TOML. `addresses`: of the switches' P4Runtime servers."""
        return {
            "switch": [
                {"name": name, "device_id": number, "address": address, "target": "gradlane-switch"}
                for number, (name, address) in enumerate(zip(self.switches, addresses, strict=True), 1)
            ],
            "port": [
                {
                    "switch": f"leaf{host.leaf}",
                    "number": host.port,
                    "host": host.name,
                    "mac": _mac(host.number, 1),
                    "host_mac": _mac(host.number, 2),
                    "address": str(host.address),
                    "prefix": str(host.network),
                    "gateway": str(host.network[1]),
                    **_SIZE,
                }
                for host in self.hosts
            ],
            "link": [{"ends": [f"{name}:{port}" for name, port in ends], **_SIZE} for ends in self.links],
        }

    def job(self, number: int, workers: int) -> dict[str, Any]:
        """The file of a job, from number 1 on, of hosts that no other has."""
        members = self.hosts[(number - 1) * workers : number * workers]
        return {
            "job": {"name": f"j{number}", "id": number, "key": f"{number:032x}"},
            "worker": [
                {"rank": rank, "host": host.name, "address": str(host.address)} for rank, host in enumerate(members)
            ],
            "transport": {"rate": _SIZE["rate"], "buffer": _SIZE["buffer"], "collective": "direct"},
            "policy": _POLICY,
            "slots": {"base": 256 * (number - 1), "mask": 255},
        }


def _mac(number: int, last: int) -> str:
    return f"02:00:00:{number >> 8:02x}:{number & 255:02x}:{last:02x}"
