#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`make wireshark`: gradlane.lua, of dissector.lua and the tables that gradlane.wire defines.

The output is committed, so that it can be copied to where Wireshark is; a test fails when it is stale.
"""

from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

from gradlane import wire

HERE = Path(__file__).resolve().parent
SOURCE, OUTPUT = HERE / "dissector.lua", HERE / "gradlane.lua"
PLACE = "-- TABLES\n"  # what they replace in the source

# Of the tables that are no part of gradlane.wire: GL_MEAN_OF_ARRIVED and so on, GL_FIRST_GROUP of the C core.
REDUCTIONS = ("none", "mean of what arrived", "mean", "sum", "minimum", "maximum", "product")
FIRST_GROUP = 0xF000
COLORS = {0: "green", 1: "yellow", 2: "red", 3: "red"}

# What a person reads beside a value; each field has its text here.
LABELS = {
    "version": "Version",
    "kind": "Kind",
    "magnitude": "Magnitude (quantile, 0 to 255)",
    "job": "Job",
    "way": "Way",
    "source": "Source (rank)",
    "layer": "Layer",
    "step": "Step",
    "tensor": "Tensor",
    "flags": "Flags",
    "element_type": "Element type",
    "message": "Message",
    "slice": "Slice",
    "slices": "Slices of the message",
    "budget": "Budget (slices)",
    "length": "Length (bytes)",
    "token": "Token",
    "received": "Received (datagrams)",
    "share": "Share (kbit/s)",
    "room": "Room (bytes)",
    "clock": "Clock (us)",
    "repair": "Caused by a REPAIR",
    "marked": "Marked by ECN (datagrams)",
    "passed": "Passed, by way",
    "switch_id": "Switch",
    "ingress_port": "Ingress port",
    "egress_port": "Egress port",
    "queue_class": "Queue class",
    "color": "Color",
    "depth_unit": "Unit of the depth (bytes; 0: packets)",
    "depth": "Depth of the queue",
    "wait": "Wait in the queue (ns)",
    "generation": "Generation",
    "members": "Members",
    "slot": "Slot",
    "exponent": "Exponent",
    "epoch": "Epoch",
}
VALUES = {"kind": "KINDS", "color": "COLORS"}
HEX = {"flags", "element_type", "token", "members", "passed"}
SIGNED = {"exponent"}


def layout(name: str, fields: tuple[tuple[str, int], ...]) -> list[str]:
    """A Lua table of fields: the whole bytes in which each lies, from `at`, and its bits there, as a mask too."""
    lines = [f"local {name} = {{"]
    bits_before = 0
    start = 0
    for position, (field, bits) in enumerate(fields):
        # Fields that share bytes: Wireshark takes the bytes and a mask.
        end = bits_before + bits
        for _, more in fields[position + 1 :]:
            if end % 8 == 0:
                break
            end += more
        if bits_before % 8 == 0:
            start = bits_before
        size, bit = (end - start) // 8, bits_before - start
        entry = [f'name = "{field}"', f"at = {start // 8}", f"size = {size}", f"bit = {bit}", f"bits = {bits}"]
        entry.append(f'label = "{LABELS[field]}"')
        entry.append(f'type = "{"" if field in SIGNED else "u"}int{64 if size > 4 else 8 * size}"')
        entry.append(f"base = base.{'HEX' if field in HEX else 'DEC'}")
        if field in VALUES:
            entry.append(f"values = {VALUES[field]}")
        if bits < 8 * size:
            entry.append(f"mask = 0x{((1 << bits) - 1) << (8 * size - bit - bits):0{2 * size}x}")
        lines.append(f"    {{ {', '.join(entry)} }},")
        bits_before += bits
    return [*lines, "}"]


def names(name: str, values: Iterable[tuple[int, str]]) -> list[str]:
    """A Lua table of what numbers mean."""
    return [f"local {name} = {{", *(f'    [{value}] = "{text}",' for value, text in values), "}"]


def numbers(name: str, values: type[IntEnum]) -> list[str]:
    """A Lua table of an enum's numbers."""
    return [f"local {name} = {{ {', '.join(f'{it.name} = {it.value}' for it in values)} }}"]


def tables() -> str:
    """The tables, as Lua."""
    constants = {
        "VERSION": wire.VERSION,
        "UDP_PORT": wire.UDP_PORT,
        "HEADER_BYTES": wire.HEADER_BYTES,
        "MAX_SLICES": wire.MAX_SLICES,
        "WAYS": wire.WAYS,
        "PASSED_BITS": wire.PASSED_BITS,
        "REPORT_BYTES": wire.REPORT_BYTES,
        "HOP_BYTES": wire.HOP_BYTES,
        "MAX_HOPS": wire.MAX_HOPS,
        "SUM_BYTES": wire.SUM_BYTES,
        "SUM_WORD": wire.SUM_WORD,
        "MAX_SUM_WORDS": wire.MAX_SUM_WORDS,
        "FIRST_GROUP": FIRST_GROUP,
    }
    lines = [f"local {name} = {value}" for name, value in constants.items()]
    lines += numbers("KIND", wire.Kind)
    lines += names("KINDS", ((kind.value, kind.name) for kind in wire.Kind))
    lines += names("TYPES", ((it.value, it.name.lower()) for it in wire.ElementType))
    lanes = ((it.value, int(it.name.removeprefix("INT").removesuffix("_LANES"))) for it in wire.Lanes)
    lines += ["local LANE_BITS = { " + ", ".join(f"[{value}] = {bits}" for value, bits in lanes) + " }"]
    lines += names("REDUCTIONS", enumerate(REDUCTIONS))
    lines += names("COLORS", COLORS.items())
    lines += ["-- In the order of the bits, from the lowest."]
    lines += ["local FLAGS = { " + ", ".join(f'"{flag.name}"' for flag in wire.Flag) + " }"]
    for name, fields in (
        ("HEADER", wire.FIELDS),
        ("REPORT", wire.REPORT_FIELDS),
        ("HOP", wire.HOP_FIELDS),
        ("SUM", wire.SUM_FIELDS),
    ):
        lines += layout(name, fields)
    return "\n".join(lines) + "\n"


def dissector() -> str:
    """The text of gradlane.lua."""
    head = "-- Generated by deploy/wireshark/build.py from dissector.lua and gradlane.wire: change those instead.\n"
    before, after = SOURCE.read_text().split(PLACE)
    return head + before + tables() + after


if __name__ == "__main__":
    OUTPUT.write_text(dissector())
    print(OUTPUT)
