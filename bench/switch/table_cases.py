# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks fill tables of bench/switch/tables.p4 with, and packets that meet them."""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from finsy.proto import p4r

from bench.harness.switches import Pipeline

TABLES = Pipeline(Path(__file__).resolve().parent / "build", "tables")
"""The program, compiled."""

# Shares of prefix lengths in BGP tables, about.
_IPV4_LENGTHS = {8: 1, 12: 1, 14: 2, 15: 2, 16: 15, 17: 8, 18: 14, 19: 25, 20: 43, 21: 50, 22: 110, 23: 100, 24: 600}
_IPV6_LENGTHS = {20: 1, 28: 3, 29: 30, 32: 130, 36: 45, 40: 75, 42: 25, 44: 85, 46: 45, 47: 35, 48: 480, 56: 5, 64: 10}
_WIDTHS = {"source": 32, "destination": 32, "protocol": 8, "sport": 16, "dport": 16, "destination6": 128, "port": 9}

Wanted = dict[str, tuple[int, int]]
"""By field: a value, and a mask, a prefix length or an upper end."""


@dataclass(frozen=True)
class Case:
    """A table of the program and what fills it. `fields`: name and match kind, in the table's order."""

    table: str
    port: int
    fields: tuple[tuple[str, str], ...]
    count: int
    entry: Callable[[Random], Wanted]


def _exact(*names: str) -> Callable[[Random], Wanted]:
    return lambda random: {name: (value, 0) for name, value in random_key(random).items() if name in names}


def _prefix(random: Random, width: int, length: int) -> tuple[int, int]:
    return random.getrandbits(length) << (width - length), length


def _ipv4_route(random: Random) -> Wanted:
    [length] = random.choices(list(_IPV4_LENGTHS), list(_IPV4_LENGTHS.values()))
    return {"destination": _prefix(random, 32, length)}


def _ipv6_route(random: Random) -> Wanted:
    [length] = random.choices(list(_IPV6_LENGTHS), list(_IPV6_LENGTHS.values()))
    block = random.choice((0x2001, 0x2400, 0x2600, 0x2800, 0x2A00, 0x2A02, 0x2A10, 0x2C0F))
    below = random.getrandbits(length - 16) << (128 - length)
    return {"destination6": (block << 112 | below, length)}


def _mask(width: int, length: int) -> int:
    return ((1 << length) - 1) << (width - length)


_TUPLES = [
    (source, destination, protocol, service)
    for source, destination in ((0, 24), (0, 32), (16, 16), (16, 24), (24, 0), (24, 24), (32, 0), (32, 32))
    for protocol, service in ((0, 0), (8, 0), (8, 16))
]


def _acl(random: Random) -> Wanted:
    """Rules of a firewall: prefixes, protocols and services, of 24 different masks."""
    source, destination, protocol, service = random.choice(_TUPLES)
    masks = {
        "source": _mask(32, source),
        "destination": _mask(32, destination),
        "protocol": _mask(8, protocol),
        "dport": _mask(16, service),
    }
    key = random_key(random)
    return {name: (key[name] & mask, mask) for name, mask in masks.items() if mask}


def _any_masks(random: Random) -> Wanted:
    """A mask of its own for every entry: half of the bits at random."""
    masks = {
        name: random.getrandbits(_WIDTHS[name]) for name in ("source", "destination", "protocol", "sport", "dport")
    }
    key = random_key(random)
    return {name: (key[name] & mask, mask) for name, mask in masks.items() if mask}


def _narrow_range(random: Random) -> Wanted:
    low = random.randrange(65_472)
    return {"dport": (low, low + random.randrange(64))}


def _wide_range(random: Random) -> Wanted:
    low, high = sorted((random.randrange(65_536), random.randrange(1, 65_535)))
    return {"dport": (low, high)}


def _mixed(random: Random) -> Wanted:
    wanted = _ipv4_route(random) | _narrow_range(random) | {"port": (7, 0)}
    return wanted | ({"protocol": (random.choice((6, 17)), 255)} if random.random() < 0.5 else {})


_FLOW = ("source", "destination", "protocol", "sport", "dport")
_ACL_FIELDS = tuple((name, "ternary") for name in _FLOW)
_MIXED_FIELDS = (("port", "exact"), ("destination", "lpm"), ("protocol", "ternary"), ("dport", "range"))
CASES = {
    "exact": Case("exact_entries", 1, (("destination", "exact"),), 100_000, _exact("destination")),
    "flows": Case("exact_flows", 2, tuple((name, "exact") for name in _FLOW), 100_000, _exact(*_FLOW)),
    "lpm_ipv4": Case("lpm_ipv4", 3, (("destination", "lpm"),), 100_000, _ipv4_route),
    "lpm_ipv6": Case("lpm_ipv6", 4, (("destination6", "lpm"),), 100_000, _ipv6_route),
    "acl": Case("ternary_acl", 5, _ACL_FIELDS, 10_000, _acl),
    "any_masks": Case("ternary_acl", 5, _ACL_FIELDS, 10_000, _any_masks),
    "narrow_ranges": Case("range_ports", 6, (("dport", "range"),), 10_000, _narrow_range),
    "wide_ranges": Case("range_ports", 6, (("dport", "range"),), 10_000, _wide_range),
    "mixed": Case("mixed", 7, _MIXED_FIELDS, 10_000, _mixed),
}


def distinct(case: Case, count: int, random: Random) -> list[Wanted]:
    """So many different entries of a case."""
    entries: dict[tuple[tuple[str, tuple[int, int]], ...], Wanted] = {}
    while len(entries) < count:
        wanted = case.entry(random)
        entries[tuple(sorted(wanted.items()))] = wanted
    return list(entries.values())


def _encode(value: int) -> bytes:
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def entity(ids: dict[str, int], case: Case, wanted: Wanted, priority: int) -> Any:
    """A p4.v1.Entity; `ids`: of tables and actions, by alias. A table without priorities ignores that."""
    message = p4r.TableEntry(table_id=ids[case.table])
    for number, (name, kind) in enumerate(case.fields, 1):
        if name not in wanted:
            continue
        value, operand = wanted[name]
        item = message.match.add(field_id=number)
        match kind:
            case "exact":
                item.exact.value = _encode(value)
            case "lpm":
                item.lpm.value, item.lpm.prefix_len = _encode(value), operand
            case "ternary":
                item.ternary.value, item.ternary.mask = _encode(value), _encode(operand)
            case _:
                item.range.low, item.range.high = _encode(value), _encode(operand)
    if any(kind in ("ternary", "range") for _, kind in case.fields):
        message.priority = priority
    message.action.action.action_id = ids["forward"]
    for number, value in enumerate((b"\x02", b"\x02\0\0\0\0\x02"), 1):
        message.action.action.params.add(param_id=number, value=value)
    return p4r.Entity(table_entry=message)


def hit_key(random: Random, case: Case, wanted: Wanted) -> dict[str, int]:
    """A key that an entry accepts."""
    key = random_key(random)
    for name, kind in case.fields:
        if name not in wanted:
            continue
        value, operand = wanted[name]
        width = _WIDTHS[name]
        free = random.getrandbits(width)
        match kind:
            case "lpm":
                key[name] = value | free & ~_mask(width, operand) & (1 << width) - 1
            case "ternary":
                key[name] = value | key[name] & ~operand
            case "range":
                key[name] = random.randint(value, operand)
            case _:
                key[name] = value
    return key


def random_key(random: Random) -> dict[str, int]:
    """The fields of a packet, uniform, of a protocol that has ports."""
    return {name: random.getrandbits(width) for name, width in _WIDTHS.items()} | {"protocol": random.choice((6, 17))}


def frame(case: Case, key: dict[str, int]) -> bytes:
    """A packet with these fields, as the case's table wants it."""
    ports = struct.pack("!HHHH", key["sport"], key["dport"], 8, 0)
    if case.fields[0][0] == "destination6":
        head = bytes.fromhex("02000000000102000000000286dd") + struct.pack("!IHBB", 6 << 28, 8, 17, 64)
        return head + bytes(16) + key["destination6"].to_bytes(16, "big") + ports
    head = bytes.fromhex("0200000000010200000000020800") + struct.pack(
        "!BBHHHBBH", 0x45, 0, 28, 0, 0, 64, key["protocol"], 0
    )
    return head + struct.pack("!II", key["source"], key["destination"]) + ports + bytes(20)
