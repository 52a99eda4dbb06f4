# SPDX-License-Identifier: Apache-2.0
"""The fabric file: the switch, what hangs at its ports, and the classes of ordinary traffic."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from gradlane import toml_file
from gradlane.toml_file import FileError, Table
from gradlane.units import parse_rate, parse_size

CONTROL_DSCP = 56  # CS7: the agents' control connections
CONTROL_CLASS = 7
MAX_PORT = 63  # MAX_PORTS of p4src/shared/types.p4, less port 0, which v1model takes for "not set"
FULL_FRAME = 1514  # Ethernet header and an IP packet of 1500 bytes

_MAC = re.compile(r"[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}\Z")
_ENDPOINT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})\Z")


class FabricError(FileError):
    """A fabric file that can't be used."""


@dataclass(frozen=True)
class SwitchAddress:
    """Where the switch's P4Runtime server is: `address` is "host:port"."""

    name: str
    device_id: int
    address: str
    target: str


@dataclass(frozen=True)
class Thresholds:
    """When the virtual queue of a port turns yellow and red, as fractions of the port's buffer."""

    yellow: float
    red: float


@dataclass(frozen=True)
class Port:
    """One switch port and its host. `rate` in bit/s, `buffer` in bytes; `mac` is the switch's own address there."""

    number: int
    host: str
    mac: str
    host_mac: str
    address: IPv4Address
    prefix: IPv4Network
    rate: int
    buffer: int


@dataclass(frozen=True)
class Fabric:
    """What the controller knows of the network."""

    file: str
    switch: SwitchAddress
    thresholds: Thresholds
    ports: tuple[Port, ...]
    dscp_classes: tuple[tuple[int, int], ...]

    def port_of(self, host: str) -> Port | None:
        """The port of that host, None if no port has it."""
        return next((port for port in self.ports if port.host == host), None)


def load(path: str | Path) -> Fabric:
    """Reads and validates a fabric file. Raises FabricError."""
    return parse(toml_file.read(FabricError, path), str(path))


def parse(text: str, file_name: str) -> Fabric:
    """Validates the text of a fabric file; errors name `file_name`. Raises FabricError."""
    root = toml_file.parse(FabricError, text, file_name)
    switch = _switch(root.table("switch"))
    thresholds = _thresholds(root.table("thresholds"))
    ports = _ports(root.tables("port"), thresholds)
    if not ports:
        raise root.error("port", "is missing: a fabric has at least one [[port]]")
    fabric = Fabric(file_name, switch, thresholds, ports, _dscp_classes(root.tables("dscp")))
    root.finish()
    return fabric


def _switch(table: Table) -> SwitchAddress:
    switch = SwitchAddress(
        name=table.name("name"),
        device_id=table.integer("device_id", 1, 2**64 - 1, 1),
        address=table.text("address"),
        target=table.choice("target", ("gradlane-switch", "bmv2"), "gradlane-switch"),
    )
    endpoint = _ENDPOINT.match(switch.address)
    if endpoint is None or not 0 < int(endpoint[2]) < 65536:
        raise table.error("address", f"is {switch.address!r}; it must be host:port, e.g. '127.0.0.1:9559'")
    table.finish()
    return switch


def _thresholds(table: Table) -> Thresholds:
    thresholds = Thresholds(table.fraction("yellow", 0.25), table.fraction("red", 0.5))
    if not 0 < thresholds.yellow <= thresholds.red:
        raise table.error(
            "yellow", f"is {thresholds.yellow} and red is {thresholds.red}; it must hold that 0 < yellow <= red < 1"
        )
    table.finish()
    return thresholds


def _ports(tables: Sequence[Table], thresholds: Thresholds) -> tuple[Port, ...]:
    ports: list[Port] = []
    for table in tables:
        address = table.address("address")
        port = Port(
            number=table.integer("number", 1, MAX_PORT),
            host=table.name("host"),
            mac=_mac(table, "mac"),
            host_mac=_mac(table, "host_mac"),
            address=address,
            prefix=_prefix(table, address),
            rate=table.quantity("rate", parse_rate),
            buffer=table.quantity("buffer", parse_size),
        )
        table.finish()
        if port.buffer * thresholds.yellow < FULL_FRAME:
            raise table.error(
                "buffer",
                f"is {port.buffer} bytes, so its yellow threshold ({thresholds.yellow:g} of it) is below a full frame "
                f"of {FULL_FRAME} bytes; at least {int(-(-FULL_FRAME // thresholds.yellow))} bytes are needed",
            )
        for other in ports:
            _check_distinct(table, port, other)
        ports.append(port)
    return tuple(ports)


def _check_distinct(table: Table, port: Port, other: Port) -> None:
    for key in ("number", "host", "host_mac"):
        if getattr(port, key) == getattr(other, key):
            raise table.error(key, f"is {getattr(port, key)!r}, like that of port {other.number}; one port each")
    if port.prefix.overlaps(other.prefix):
        raise table.error("prefix", f"{port.prefix} overlaps {other.prefix} of port {other.number}; one port each")


def _mac(table: Table, key: str) -> str:
    text = table.text(key)
    if not _MAC.match(text) or int(text[:2], 16) & 1 or int(text.replace(":", ""), 16) == 0:
        raise table.error(key, f"is {text!r}; it must be a unicast MAC address, e.g. '02:00:00:00:01:01'")
    return text.lower()


def _prefix(table: Table, address: IPv4Address) -> IPv4Network:
    text = table.text("prefix", f"{address}/32")
    try:
        prefix = IPv4Network(text)
    except ValueError as problem:
        raise table.error("prefix", f"is {text!r}; it must be an IPv4 prefix, e.g. '10.0.1.0/24' ({problem})") from None
    if address not in prefix:
        raise table.error("prefix", f"is {text!r}; it must contain the host's address {address}")
    return prefix


def _dscp_classes(tables: Sequence[Table]) -> tuple[tuple[int, int], ...]:
    """The listed classes, and always class 7 for the agents' control connections."""
    classes: dict[int, int] = {CONTROL_DSCP: CONTROL_CLASS}
    for table in tables:
        dscp = table.integer("dscp", 0, 63)
        if dscp == CONTROL_DSCP:
            raise table.error(
                "dscp", f"is {dscp}, which always has class {CONTROL_CLASS} (agents' control); leave it out"
            )
        if dscp in classes:
            raise table.error("dscp", f"{dscp} is listed twice; once is right")
        classes[dscp] = table.integer("queue_class", 0, 7)
        table.finish()
    return tuple(sorted(classes.items()))
