# SPDX-License-Identifier: Apache-2.0
"""Programs as the fuzzer knows them: what their tables, arrays and actions look like, as C."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradlane_switch.ir.expressions import split_words, words_of
from gradlane_switch.ir.layout import Layout, TableKind, argument_words, layout_of, pack
from gradlane_switch.ir.parser import ValueSet
from gradlane_switch.ir.program import Program
from gradlane_switch.ir.tables import ActionCall, KeyPart, Table


def describe(programs: Sequence[Program], traced: Sequence[bool]) -> str:
    """The C file that defines fuzz_programs; `traced`: which of them are compiled for tracing as well."""
    lines = ['#include "fuzz.h"', "typedef const uint64_t w;"]
    rows: list[str] = []
    for number, program in enumerate(programs):
        lines.append(f"gl_process gl_program_{number}, gl_traced_{number};")
        lines += _arrays(number, program)
        process = f"gl_traced_{number}" if traced[number] else "NULL"
        counts = (
            len(program.tables) + len(program.value_sets),
            len(program.counters),
            len(program.meters),
            len(program.registers),
            len(program.digests),
            len(program.profiles),
        )
        names = ", ".join(f"{kind}_{number}" for kind in ("tables", "counters", "meters", "registers", "digests"))
        rows.append(f"{{ gl_program_{number}, {process}, {', '.join(map(str, counts))}, {names} }},")
    lines += ["const fuzz_program fuzz_programs[] = {", *rows, "};"]
    lines.append(f"const uint32_t fuzz_program_count = {len(programs)};")
    return "\n".join(lines) + "\n"


def _arrays(number: int, program: Program) -> Iterator[str]:
    tables = [_table(program, table) for table in program.tables]
    tables += [_value_set(item) for item in program.value_sets]
    yield f"static const fuzz_table tables_{number}[] = {{ {', '.join(tables) or '{0}'} }};"
    sizes = ", ".join(str(item.size) for item in program.counters)
    yield f"static const uint32_t counters_{number}[] = {{ {sizes or '0'} }};"
    meters = ", ".join(f"{{ {item.size}, {int(item.counts_bytes)} }}" for item in program.meters)
    yield f"static const fuzz_meter meters_{number}[] = {{ {meters or '{0}'} }};"
    registers = ", ".join(f"{{ {item.size}, {_bits([item.width])} }}" for item in program.registers)
    yield f"static const fuzz_register registers_{number}[] = {{ {registers or '{0}'} }};"
    octets = ", ".join(str(sum((field.width + 7) // 8 for field in item.fields)) for item in program.digests)
    yield f"static const uint32_t digests_{number}[] = {{ {octets or '0'} }};"


def _words(values: Sequence[int]) -> str:
    return f"(w[]){{ {', '.join(f'UINT64_C({value:#x})' for value in values)} }}" if values else "NULL"


def _bits(widths: Sequence[int]) -> str:
    """A fuzz_words of values of such widths, one after the other."""
    words = [word for width in widths for word in split_words((1 << width) - 1, words_of(width))]
    return f"{{ {len(words)}, {_words(words)} }}"


def _shape(layout: Layout, arguments: int, metered: bool = False) -> str:
    shape = layout.shape(arguments, metered)
    pieces = ", ".join(map(str, shape.pop("pieces"))) or "0"
    return f"{{ {', '.join(f'UINT64_C({int(value)})' for value in shape.values())}, {{ {pieces} }} }}"


def _table(program: Program, table: Table) -> str:
    layout = layout_of(table.keys)
    actions = [program.actions[index].params for index in table.actions]
    longest = max((sum(map(words_of, widths)) for widths in actions), default=0)
    bits = _key_bits(layout, table.keys)
    entries = [_entry(program, table, layout, number) for number in range(len(table.entries))]
    known = ", ".join(_bits(widths) for widths in actions)
    parts = (
        _shape(layout, longest, table.direct_meter is not None),
        f"{{ {len(bits)}, {_words(bits)} }}",
        str(-1 if table.profile is None else table.profile),
        str(len(actions)),
        f"(const fuzz_words[]){{ {known} }}" if known else "NULL",
        f"{{ NULL, NULL, 0, {_call(program, table, table.default)} }}",
        str(len(entries)),
        f"(const fuzz_entry[]){{ {', '.join(entries)} }}" if entries else "NULL",
    )
    return f"{{ {', '.join(parts)} }}"


def _entry(program: Program, table: Table, layout: Layout, number: int) -> str:
    entry = table.entries[number]
    values, operands = pack(layout, table.keys, entry.match)
    priority = entry.priority if layout.kind is TableKind.LIST else 0
    return f"{{ {_words(values)}, {_words(operands)}, {priority}, {_call(program, table, entry.call)} }}"


def _call(program: Program, table: Table, call: ActionCall | None) -> str:
    """Position of an action in the table's list, and its data."""
    if call is None:
        return f"{len(table.actions)}, 0, NULL"
    words = argument_words(program.actions[call.action].params, call.arguments)
    return f"{table.actions.index(call.action)}, {len(words)}, {_words(words)}"


def _key_bits(layout: Layout, keys: Sequence[KeyPart]) -> list[int]:
    """The bits of a stored key that its fields may set, in words."""
    bits = [0] * layout.stored_words
    for key, place in zip(keys, layout.places, strict=True):
        for word, value in enumerate(split_words((1 << key.width) - 1, words_of(key.width))):
            bits[place.word + word] |= value << place.shift
    return bits


def _value_set(item: ValueSet) -> str:
    layout = layout_of(item.keys)
    bits = _key_bits(layout, item.keys)
    key = f"{{ {len(bits)}, {_words(bits)} }}"
    return f"{{ {_shape(layout, 0)}, {key}, -1, 0, NULL, {{ NULL, NULL, 0, 0, 0, NULL }}, 0, NULL }}"
