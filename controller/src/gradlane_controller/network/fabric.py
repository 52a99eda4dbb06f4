# SPDX-License-Identifier: Apache-2.0
"""What the controller knows of the network: switches, the hosts at their ports, the links between them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from gradlane_controller.network.tls import Tls

CPU_PORT = 255  # of p4src/v1model/arch.p4
MAX_PORT = 510  # v1model takes port 0 for "not set"
DROP_PORT = 511  # and drops by this one, the last of 9 bits
FULL_FRAME = 1514  # Ethernet header and an IP packet of 1500 bytes
DERIVED_YELLOW = 0.25  # of the buffer, where the file states no thresholds and the buffer is not deep


@dataclass(frozen=True)
class SwitchAddress:
    """Where a switch's P4Runtime server is: `address` is "host:port". `index` is its number on the wire, from 1.

    `tls` None: in clear.
    `pipes`: how many times it has each register and meter, one of them for the packets that enter by some of its ports.
    `aggregation`: whether it has the program that sums gradients, too.
    """

    name: str
    device_id: int
    address: str
    target: str
    index: int
    tls: Tls | None
    pipes: int = 1
    aggregation: bool = False


@dataclass(frozen=True)
class Thresholds:
    """When the virtual queue of a port turns yellow and red, as fractions of the port's buffer."""

    yellow: float
    red: float


@dataclass(frozen=True)
class Adaptive:
    """Within which bounds jobs are tuned by what is seen of them; None: that is left as the files say.

    `interval`: s from one change of a job to the next, at least. `threshold`: of a port's buffer, what yellow stays
    between. `droppable`: the part of a message, by magnitude, that stays droppable at least, of what a job's file
    lists. `tolerance`: what a job keeps at least of the tolerance of its file; it never gets more.
    """

    interval: float
    threshold: tuple[float, float] | None
    droppable: float | None
    tolerance: float | None


@dataclass(frozen=True)
class Port:
    """One switch port and its host. `rate` in bit/s, `buffer` in bytes; `mac` is the switch's own address there.

    The gateways are the switch's own addresses there; ports of one subnet have the same `prefix`.
    """

    switch: str
    number: int
    host: str
    mac: str
    host_mac: str
    address: IPv4Address
    prefix: IPv4Network
    gateway: IPv4Address | None
    address6: IPv6Address | None
    prefix6: IPv6Network | None
    gateway6: IPv6Address | None
    also: tuple[IPv4Address | IPv6Address, ...]  # further addresses of the host
    rate: int
    buffer: int

    @property
    def addresses(self) -> tuple[IPv4Address | IPv6Address, ...]:
        """All that the host may send from."""
        return (self.address, *((self.address6,) if self.address6 else ()), *self.also)


@dataclass(frozen=True)
class LinkPort:
    """One end of a link between two switches; `mac` is the switch's own address there, `peer` the other end's."""

    switch: str
    number: int
    mac: str
    peer: str
    peer_number: int
    peer_mac: str
    rate: int
    buffer: int


@dataclass(frozen=True)
class Rewrite:
    """What leaves by this port with `dscp` has `to` instead, for switches without P4 behind it."""

    switch: str
    port: int
    dscp: int
    to: int


@dataclass(frozen=True, eq=False)
class Fabric:
    """The content of a fabric file. Every link is there as its two ends, one after the other.

    Each is equal to itself alone, so that what follows from a large one can be kept by it."""

    file: str
    switches: tuple[SwitchAddress, ...]
    thresholds: Thresholds | None  # None: derived from each port's rate and buffer
    ports: tuple[Port, ...]
    link_ports: tuple[LinkPort, ...]
    dscp_classes: tuple[tuple[int, int], ...]
    rewrites: tuple[Rewrite, ...]
    adaptive: Adaptive | None = None  # None: nothing is tuned

    def says_as(self, other: "Fabric") -> bool:
        """Whether both files say the same."""
        return all(getattr(self, it.name) == getattr(other, it.name) for it in fields(self))

    def port_of(self, host: str) -> Port | None:
        """The port of that host, None if no port has it."""
        return self._by_host.get(host)

    def host_ports(self, hosts: Iterable[str]) -> list[Port]:
        """The ports of hosts that are there, in their order."""
        return [self._by_host[host] for host in hosts]

    def ports_at(self, switch: str) -> Iterator[Port]:
        """The ports of that switch with a host."""
        return iter(self._ports_at.get(switch, ()))

    def has_hosts(self, switch: str) -> bool:
        """Whether there are any at that switch."""
        return switch in self._ports_at

    def link_ports_at(self, switch: str) -> Iterator[LinkPort]:
        """The ports of that switch to other switches."""
        return iter(self._link_ports_at.get(switch, ()))

    def pipes_of(self, switch: str) -> int:
        """The pipes of that switch."""
        return self._by_name[switch].pipes

    def aggregates(self, switch: str) -> bool:
        """Whether that switch can sum gradients."""
        return self._by_name[switch].aggregation

    @cached_property
    def _ports_at(self) -> dict[str, list[Port]]:
        found: dict[str, list[Port]] = {}
        for port in self.ports:
            found.setdefault(port.switch, []).append(port)
        return found

    @cached_property
    def _link_ports_at(self) -> dict[str, list[LinkPort]]:
        found: dict[str, list[LinkPort]] = {}
        for port in self.link_ports:
            found.setdefault(port.switch, []).append(port)
        return found

    @cached_property
    def _by_name(self) -> dict[str, SwitchAddress]:
        return {switch.name: switch for switch in self.switches}

    @cached_property
    def _by_host(self) -> dict[str, Port]:
        return {port.host: port for port in self.ports}
