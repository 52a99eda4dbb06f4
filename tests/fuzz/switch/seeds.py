# SPDX-License-Identifier: Apache-2.0
"""Inputs that the fuzzer begins with: what the differential corpus writes into a program's tables, and its frames."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from gradlane_switch import Switch
from gradlane_switch.ir.layout import Layout, TableKind, argument_words, layout_of, pack
from gradlane_switch.ir.tables import ActionCall, FieldKey, KeyPart, Table
from gradlane_switch.state.tables import Entry
from tests.differential.corpus import Program
from tests.differential.members import member

_OFFLOADED = 7
# Frames that a card would cut into packets with 200 bytes of payload: virtio_net_hdr, and the frame's first bytes.
_UDP, _TCP = bytes([1, 5]) + struct.pack("<HHHH", 42, 200, 34, 6), bytes([1, 1]) + struct.pack("<HHHH", 54, 200, 34, 16)
_TRAIN = bytes.fromhex("0200000000ff0200000000010800450000000000000040110000" + "0a0001020a000202" + "0001000200000000")
_TRAIN += bytes.fromhex("000000005010ffff00000000") + bytes(50)
_FRAME, _INSERT, _DEFAULT, _REPLICAS = 0, 8, 12, 15  # operations; see run.c
_MODES = 3
_ALONE = 2
_MOST_ENTRIES = 20
_FRAMES = 8  # in an input
# Settings of the three ports that there are from the beginning: rate, buffer, ECN and weights, two impairments.
_PORTS = bytes([0, 200, 0, 0, 0]) + bytes([1, 15, 0, 0, 0]) + bytes([3, 40, 3, 20, 0, 0])
_IDS = 8  # multicast groups and clone sessions that the fuzzer knows


def inputs(number: int, name: str, count: int) -> Iterator[bytes]:
    """`count` inputs for each way to run the program of a name, which is the fuzzer's `number`-th."""
    program = member(name)
    written = _control(program)
    frames = program.frames
    for place in range(count * _MODES):
        mode = place % _MODES
        content = bytes([number, mode, 0]) + (b"" if mode == _ALONE else bytes([0]) + _PORTS) + written
        for port, frame in frames[place * _FRAMES : (place + 1) * _FRAMES]:
            again = 255 if len(content) % 4 == 0 else 0
            content += bytes([_FRAME, port - 1]) + len(frame).to_bytes(2, "little") + frame + bytes([again])
            content += b"" if mode else b"\0"  # wakes the forwarding thread
        for kind, protocol in ((_UDP, 17), (_TCP, 6)):
            train = _TRAIN[:23] + bytes([protocol]) + _TRAIN[24:]
            content += bytes([_OFFLOADED, 0]) + kind + bytes([20]) + len(train).to_bytes(2, "little") + train
            content += bytes(1 if mode else 2)
        yield content


def _control(program: Program) -> bytes:
    """The corpus's entries, default actions, groups and sessions as operations."""
    switch = Switch.load(program.json_path, program.p4info_path)
    switch.write(*program.initial.all_updates(program.schema))
    state = switch.pipeline.state
    known = switch.pipeline.program
    keyed = [index for index, table in enumerate(known.tables) if table.keys]
    content = b""
    for place, index in enumerate(keyed):
        table, held = known.tables[index], state.tables[index]
        if held.default is not None and isinstance(held.default.call, ActionCall):
            content += bytes([_DEFAULT, place]) + _call(switch, table, held.default.call)
        for entry in [entry for entry in held.entries.values() if not entry.constant][:_MOST_ENTRIES]:
            content += bytes([_INSERT, place]) + _entry(switch, table, entry)
    for number, (value_set, held) in enumerate(zip(known.value_sets, state.value_sets, strict=True), len(keyed)):
        for found in held.members:
            content += bytes([_INSERT, number]) + _key(layout_of(value_set.keys), value_set.keys, found, 0)
    kinds = ((1, {key: item.replicas for key, item in state.groups.items()}),)
    for kind, items in (*kinds, (0, {key: item.replicas for key, item in state.sessions.items()})):
        for key, replicas in items.items():
            if key <= _IDS and len(replicas) < 8 and all(0 < item.port < 8 for item in replicas):
                content += bytes([_REPLICAS, 2 * len(replicas) + kind])
                content += b"".join(bytes([item.port - 1]) + _numbers([item.instance]) for item in replicas)
                content += bytes([key - 1]) + (b"" if kind else b"\1")
    return content


def _numbers(values: Sequence[int]) -> bytes:
    return b"".join(bytes([value]) if value < 240 else b"\xff" + value.to_bytes(8, "little") for value in values)


def _call(switch: Switch, table: Table, call: ActionCall) -> bytes:
    widths = switch.pipeline.program.actions[call.action].params
    return bytes([table.actions.index(call.action)]) + _numbers(argument_words(widths, call.arguments))


def _entry(switch: Switch, table: Table, entry: Entry) -> bytes:
    content = _key(layout_of(table.keys), table.keys, entry.match, entry.priority)
    return content + (_call(switch, table, entry.call) if isinstance(entry.call, ActionCall) else b"\2")


def _key(layout: Layout, keys: Sequence[KeyPart], match: tuple[FieldKey, ...], priority: int) -> bytes:
    values, operands = pack(layout, keys, match)
    content = _numbers(values)
    if layout.kind is TableKind.LPM:
        content += _numbers([values[-1]])
    elif layout.kind is TableKind.LIST:
        content += _numbers([priority, *operands])
    return content
