# SPDX-License-Identifier: Apache-2.0
"""The fabric file: what it may say of the network, read and checked."""

import re
from collections.abc import Collection, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import TypeVar

from gradlane import toml_file
from gradlane.toml_file import FileError, Table
from gradlane.units import parse_rate, parse_size
from gradlane.wire import CONTROL_CLASS, CONTROL_DSCP
from gradlane_controller.network.distinct import DistinctPorts
from gradlane_controller.network.fabric import (
    CPU_PORT,
    DERIVED_YELLOW,
    DROP_PORT,
    FULL_FRAME,
    MAX_PORT,
    Adaptive,
    Fabric,
    LinkPort,
    Port,
    Rewrite,
    SwitchAddress,
    Thresholds,
)
from gradlane_controller.network.tls import Tls, take_tls

TARGETS = ("gradlane-switch", "bmv2")
MAX_PIPES = 8
INTERVAL = (1.0, 3600.0)  # s: above the first
DEFAULT_INTERVAL = 30.0
MAX_SWITCHES = 65534  # their indices have 16 bits, of which the last value is a broadcast address of PROBES
_RESERVED = {
    CPU_PORT: "which is the switch's port to the controller",
    DROP_PORT: "by which v1model drops what it sends there",
}

_MAC = re.compile(r"[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}\Z")
ENDPOINT = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})"
LINK_END = r"([A-Za-z0-9_.-]+):([0-9]{1,3})"


class FabricError(FileError):
    """A fabric file that can't be used."""


def load(path: str | Path, known: Mapping[str, int] | None = None) -> Fabric:
    """Reads and validates a fabric file; the rest as `parse`. Raises FabricError."""
    return parse(toml_file.read(FabricError, path), str(path), known)


def is_fabric(text: str, file_name: str) -> bool:
    """Whether a file is meant to be one, not a job file. Raises FabricError for what is no TOML."""
    root = toml_file.parse(FabricError, text, file_name)
    return root.has("switch") or not root.has("job")


def parse(text: str, file_name: str, known: Mapping[str, int] | None = None) -> Fabric:
    """Validates the text of a fabric file; errors name `file_name`. Switches keep the indices that are `known`, by
    name, if the file gives them no others. Raises FabricError."""
    root = toml_file.parse(FabricError, text, file_name)
    switches = _switches(root.tables("switch"), take_tls(root), known or {})
    root.done()
    if not switches:
        raise root.error("switch", "is missing: a fabric has at least one [[switch]]")
    names = [switch.name for switch in switches]
    thresholds = _thresholds(root.table("thresholds")) if root.has("thresholds") else None
    ports = _ports(root.tables("port"), switches, thresholds)
    root.done()
    if not ports:
        raise root.error("port", "is missing: a fabric has at least one [[port]]")
    fabric = Fabric(
        file=file_name,
        switches=switches,
        thresholds=thresholds,
        ports=ports,
        link_ports=_link_ports(root.tables("link"), switches, thresholds, ports),
        dscp_classes=_dscp_classes(root.tables("dscp")),
        rewrites=_rewrites(root.tables("rewrite"), frozenset(names)),
        adaptive=_adaptive(root.table("adaptive")) if root.has("adaptive") else None,
    )
    with root.going_on():
        root.finish()
    root.done()
    _check_addresses(root, fabric)
    _check_connected(root, fabric)
    return fabric


def _switches(tables: Sequence[Table], tls: Tls | None, known: Mapping[str, int]) -> tuple[SwitchAddress, ...]:
    switches: list[SwitchAddress] = []
    owners: dict[tuple[str, object], str] = {}
    names = [table.name("name") for table in tables]
    indices = _indices([table.integer_or("auto", "index", 1, MAX_SWITCHES) for table in tables], names, known)
    for name, index, table in zip(names, indices, tables, strict=True):
        with table.going_on():
            switches.append(_switch(table, name, index, tls, owners))
    return tuple(switches)


def _switch(
    table: Table, name: str, index: int, tls: Tls | None, owners: dict[tuple[str, object], str]
) -> SwitchAddress:
    """`owners`: by key and value, the names of the switches so far that have what each needs for itself."""
    switch = SwitchAddress(
        name=name,
        device_id=table.integer("device_id", 1, 2**64 - 1, index),
        address=table.text("address"),
        target=table.choice("target", TARGETS, "gradlane-switch"),
        index=index,
        tls=take_tls(table, tls),
        pipes=table.integer("pipes", 1, MAX_PIPES, 1),
        aggregation=table.boolean("aggregation", False),
    )
    if switch.aggregation and switch.pipes > 1:
        raise table.error(
            "aggregation",
            f"is true, but the switch has {switch.pipes} pipes, and a sum is in the registers of one; it must be false",
        )
    endpoint = re.fullmatch(ENDPOINT, switch.address)
    if endpoint is None or not 0 < int(endpoint[2]) < 65536:
        raise table.error("address", f"is {switch.address!r}; it must be host:port, e.g. '127.0.0.1:9559'")
    own = {key: getattr(switch, key) for key in ("name", "index", "device_id", "address")}
    for key, value in own.items():
        if (other := owners.get((key, value))) is not None:
            raise table.error(key, f"is {value!r}, like that of switch {other!r}; each needs its own")
    table.finish()
    owners |= dict.fromkeys(own.items(), switch.name)
    return switch


def _indices(given: Sequence[int | None], names: Sequence[str], known: Mapping[str, int]) -> list[int]:
    """Those that the file gives, else those that are known, else the place in the file, else the next that is free."""
    found: list[int | None] = list(given)
    taken = {index for index in given if index is not None}
    for candidates in ([known.get(name) for name in names], range(1, len(names) + 1)):
        for place, candidate in enumerate(candidates):
            if found[place] is None and candidate is not None and candidate not in taken:
                found[place] = candidate
                taken.add(candidate)
    free = (index for index in range(1, MAX_SWITCHES + 1) if index not in taken)
    return [next(free) if index is None else index for index in found]


def _thresholds(table: Table) -> Thresholds:
    thresholds = Thresholds(table.fraction("yellow"), table.fraction("red"))
    if not 0 < thresholds.yellow <= thresholds.red:
        raise table.error(
            "yellow", f"is {thresholds.yellow} and red is {thresholds.red}; it must hold that 0 < yellow <= red < 1"
        )
    table.finish()
    return thresholds


def _adaptive(table: Table) -> Adaptive:
    stated = table.has("least_threshold") or table.has("most_threshold")
    adaptive = Adaptive(
        interval=table.number("interval", *INTERVAL, DEFAULT_INTERVAL),
        threshold=(table.fraction("least_threshold"), table.fraction("most_threshold")) if stated else None,
        droppable=table.fraction("droppable") if table.has("droppable") else None,
        tolerance=table.fraction("tolerance") if table.has("tolerance") else None,
    )
    if adaptive.threshold is not None and not 0 < adaptive.threshold[0] < adaptive.threshold[1]:
        least, most = adaptive.threshold
        raise table.error(
            "least_threshold",
            f"is {least} and most_threshold is {most}; it must hold that 0 < least_threshold < most_threshold < 1",
        )
    if adaptive.tolerance == 0:
        raise table.error("tolerance", "is 0; it must be above 0: what a job may lose is in its own file")
    table.finish()
    if adaptive.threshold is None and adaptive.droppable is None and adaptive.tolerance is None:
        raise table.error(
            "", "names nothing to tune; add least_threshold and most_threshold, droppable or tolerance, or leave it out"
        )
    return adaptive


def _ports(
    tables: Sequence[Table], switches: Sequence[SwitchAddress], thresholds: Thresholds | None
) -> tuple[Port, ...]:
    pipes = {switch.name: switch.pipes for switch in switches}
    ports: list[Port] = []
    distinct = DistinctPorts()
    for table in tables:
        with table.going_on():
            port = _port(table, pipes, thresholds)
            distinct.add(table, port)
            ports.append(port)
    return tuple(ports)


def _port(table: Table, pipes: Mapping[str, int], thresholds: Thresholds | None) -> Port:
    address = table.address("address")
    address6 = table.address6("address6") if table.has("address6") else None
    port = Port(
        switch=_switch_name(table, pipes),
        number=_port_number(table, "number"),
        host=table.name("host"),
        mac=_mac(table, "mac"),
        host_mac=_mac(table, "host_mac"),
        address=address,
        prefix=_prefix(table, "prefix", IPv4Network, address, "10.0.1.0/24"),
        gateway=table.address("gateway") if table.has("gateway") else None,
        address6=address6,
        prefix6=_prefix(table, "prefix6", IPv6Network, address6, "fd00:1::/64") if address6 else None,
        gateway6=table.address6("gateway6") if address6 and table.has("gateway6") else None,
        also=table.ip_addresses("also"),
        rate=table.quantity("rate", parse_rate),
        buffer=table.quantity("buffer", parse_size),
    )
    table.finish()
    if len({*port.addresses}) < len(port.addresses):
        raise table.error("also", "has an address that the host has already; list each once")
    _check_buffer(table, port.buffer, thresholds, pipes[port.switch])
    return port


def _port_number(table: Table, key: str) -> int:
    number = table.integer(key, 1, DROP_PORT)
    if reason := _RESERVED.get(number):
        raise table.error(key, f"is {number}, {reason}; take another from 1 to {MAX_PORT}")
    return number


def _switch_name(table: Table, switches: Collection[str]) -> str:
    """May be left out if there is one switch."""
    name = next(iter(switches)) if len(switches) == 1 and not table.has("switch") else table.name("switch")
    if name not in switches:
        raise table.error("switch", f"is {name!r}, which is no [[switch]]; there are {', '.join(switches)}")
    return name


def _check_buffer(table: Table, buffer: int, thresholds: Thresholds | None, pipes: int) -> None:
    yellow = (thresholds.yellow if thresholds else DERIVED_YELLOW) / pipes
    if buffer * yellow < FULL_FRAME:
        each = f" in each of {pipes} pipes" if pipes > 1 else ""
        raise table.error(
            "buffer",
            f"is {buffer} bytes, so its yellow threshold ({yellow:g} of it{each}) is below a full frame "
            f"of {FULL_FRAME} bytes; at least {int(-(-FULL_FRAME // yellow))} bytes are needed",
        )


def _mac(table: Table, key: str) -> str:
    text = table.text(key)
    if not _MAC.match(text) or int(text[:2], 16) & 1 or int(text.replace(":", ""), 16) == 0:
        raise table.error(key, f"is {text!r}; it must be a unicast MAC address, e.g. '02:00:00:00:01:01'")
    return text.lower()


_Network = TypeVar("_Network", IPv4Network, IPv6Network)


def _prefix(table: Table, key: str, kind: type[_Network], address: IPv4Address | IPv6Address, example: str) -> _Network:
    text = table.text(key, f"{address}/{address.max_prefixlen}")
    try:
        prefix = kind(text)
    except ValueError as problem:
        raise table.error(key, f"is {text!r}; it must be a prefix such as {example!r} ({problem})") from None
    if address not in prefix:
        raise table.error(key, f"is {text!r}; it must contain the host's address {address}")
    return prefix


def _link_ports(
    tables: Sequence[Table], switches: Sequence[SwitchAddress], thresholds: Thresholds | None, ports: Sequence[Port]
) -> tuple[LinkPort, ...]:
    taken = {(port.switch, port.number): f"host {port.host!r}" for port in ports}
    by_name = {switch.name: switch for switch in switches}
    found: list[LinkPort] = []
    for table in tables:
        with table.going_on():
            ends = [_link_end(table, text, by_name) for text in table.texts("ends", 2)]
            rate, buffer = table.quantity("rate", parse_rate), table.quantity("buffer", parse_size)
            table.finish()
            _check_buffer(table, buffer, thresholds, max(switch.pipes for switch, _ in ends))
            if ends[0][0] == ends[1][0]:
                raise table.error("ends", f"are both at switch {ends[0][0].name!r}; a link is between two switches")
            for switch, number in ends:
                user = taken.setdefault((switch.name, number), "")
                if user:
                    raise table.error("ends", f"name port {number} of {switch.name!r}, which {user} has; take another")
                taken[switch.name, number] = "another link"
            for (switch, number), (peer, peer_number) in (ends, ends[::-1]):
                mac, peer_mac = _link_mac(switch, number), _link_mac(peer, peer_number)
                found.append(LinkPort(switch.name, number, mac, peer.name, peer_number, peer_mac, rate, buffer))
    return tuple(found)


def _link_end(table: Table, text: str, switches: Mapping[str, SwitchAddress]) -> tuple[SwitchAddress, int]:
    end = re.fullmatch(LINK_END, text)
    switch = switches.get(end[1]) if end else None
    if end is None or switch is None or not 0 < int(end[2]) <= DROP_PORT:
        raise table.error(
            "ends",
            f"has {text!r}; an end is SWITCH:PORT, with a port from 1 to {MAX_PORT} other than {CPU_PORT}; the "
            f"switches are {', '.join(switches)}",
        )
    if reason := _RESERVED.get(int(end[2])):
        raise table.error("ends", f"has {text!r}, {reason}; take another port from 1 to {MAX_PORT}")
    return switch, int(end[2])


def _link_mac(switch: SwitchAddress, number: int) -> str:
    digits = f"0201{switch.index:04x}{number:04x}"
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))


def _dscp_classes(tables: Sequence[Table]) -> tuple[tuple[int, int], ...]:
    """The listed classes, and always class 7 for the agents' control connections."""
    classes: dict[int, int] = {CONTROL_DSCP: CONTROL_CLASS}
    for table in tables:
        with table.going_on():
            dscp = table.integer("dscp", 0, 63)
            if dscp == CONTROL_DSCP:
                raise table.error(
                    "dscp", f"is {dscp}, which always has class {CONTROL_CLASS} (agents' control); leave it out"
                )
            if dscp in classes:
                raise table.error("dscp", f"{dscp} is listed twice; list it once")
            classes[dscp] = table.integer("queue_class", 0, CONTROL_CLASS - 1)
            table.finish()
    return tuple(sorted(classes.items()))


def _rewrites(tables: Sequence[Table], switches: Collection[str]) -> tuple[Rewrite, ...]:
    rewrites: dict[tuple[str, int, int], Rewrite] = {}
    for table in tables:
        with table.going_on():
            switch = _switch_name(table, switches)
            port, dscp = _port_number(table, "port"), table.integer("dscp", 0, 63)
            if (switch, port, dscp) in rewrites:
                raise table.error("dscp", f"{dscp} is rewritten twice at port {port} of {switch!r}; rewrite it once")
            rewrites[switch, port, dscp] = Rewrite(switch, port, dscp, table.integer("to", 0, 63))
            table.finish()
    return tuple(rewrites.values())


def _check_addresses(root: Table, fabric: Fabric) -> None:
    """The switches' own addresses are no host's, and every rewrite is at a port that is there."""
    hosts = {port.host_mac: port.host for port in fabric.ports}
    hosts |= {str(address): port.host for port in fabric.ports for address in port.addresses}
    for position, port in enumerate(fabric.ports):
        for key, value in (("mac", port.mac), ("gateway", port.gateway), ("gateway6", port.gateway6)):
            if value is not None and str(value) in hosts:
                raise root.error(
                    f"port[{position}].{key}", f"is {str(value)!r}, which host {hosts[str(value)]!r} has; take another"
                )
    numbers = {(port.switch, port.number) for port in (*fabric.ports, *fabric.link_ports)}
    for position, rewrite in enumerate(fabric.rewrites):
        if (rewrite.switch, rewrite.port) not in numbers:
            raise root.error(
                f"rewrite[{position}].port",
                f"is {rewrite.port}, but {rewrite.switch!r} has no [[port]] or [[link]] there",
            )


def _check_connected(root: Table, fabric: Fabric) -> None:
    reached, front = {fabric.switches[0].name}, [fabric.switches[0].name]
    while front:
        peers = {port.peer for switch in front for port in fabric.link_ports_at(switch)}
        front = sorted(peers - reached)
        reached |= peers
    for position, switch in enumerate(fabric.switches):
        if switch.name not in reached:
            raise root.error(
                f"switch[{position}]",
                f"{switch.name!r} has no path to {fabric.switches[0].name!r}; there must be one, of [[link]]s",
            )
