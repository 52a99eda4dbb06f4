# SPDX-License-Identifier: Apache-2.0
"""C for headers: how they are held, copied, made valid, read from a packet and written to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gradlane_switch.codegen.bits import read_bits, write_fields
from gradlane_switch.codegen.expressions import (
    SOME_LONG,
    bytes_name,
    c_type,
    clamped,
    field_name,
    is_long,
    length_name,
    mark_name,
    next_name,
    pieces,
    place,
    set_mark,
    valid_name,
)
from gradlane_switch.ir.expressions import Field, words_of
from gradlane_switch.ir.headers import FieldDef
from gradlane_switch.ir.program import Program
from gradlane_switch.ir.statements import CopyStack, CopyUnion, MoveStack, Picked


def members(program: Program) -> Iterator[str]:
    """The members of the struct that a packet's headers are held in. Long fields come last."""
    for index, header in enumerate(program.headers):
        for position, field in enumerate(header.fields):
            if not is_long(field.width):
                yield f"{c_type(field.width)} f{index}_{position};"
    for index, header in enumerate(program.headers):
        if header.variable:
            yield f"uint32_t y{index}; uint8_t x{index}[{header.variable.octets}];"
        yield f"uint8_t v{index};" if not header.metadata else ""
    for index in range(len(program.stacks)):
        yield f"uint8_t n{index};"
    longs = list(_longs(program))
    if longs:
        yield f"uint8_t l, {', '.join(f'w{index}_{position}' for index, position, _ in longs)};"
    yield "gl_marks m;"
    for index, position, width in longs:
        yield f"{c_type(width)} f{index}_{position};"


def has_long(program: Program, header: int) -> bool:
    """Whether a header has a long field."""
    return any(is_long(field.width) for field in program.headers[header].fields)


def _longs(program: Program) -> Iterator[tuple[int, int, int]]:
    """The long fields: header, field and width."""
    for index, header in enumerate(program.headers):
        for position, field in enumerate(header.fields):
            if is_long(field.width):
                yield index, position, field.width


def handling(program: Program) -> Iterator[str]:
    """Functions that clear and copy the struct `headers`, as far as it holds anything."""
    yield "enum { SHORT = offsetof(headers, m) + sizeof(gl_marks) };"
    yield "static void clear(headers *h) { memset(h, 0, SHORT); }"
    yield "static size_t held(const headers *h) {"
    longs = list(_longs(program))
    yield f"if (__builtin_expect(!{SOME_LONG}, 1)) return SHORT;" if longs else "(void)h;"
    for index, position, _ in reversed(longs):
        member = f"f{index}_{position}"
        yield f"if ({mark_name(index, position)}) return offsetof(headers, {member}) + sizeof h->{member};"
    yield "return SHORT;"
    yield "}"
    yield "static void copy_held(headers *to, const headers *of) { memcpy(to, of, held(of)); }"


def octets_now(program: Program, header: int) -> str:
    """The bytes that a header has on the wire, as it is."""
    fixed = program.headers[header].octets
    return f"({fixed} + {length_name(header)})" if program.headers[header].variable else str(fixed)


def make_valid(program: Program, header: int) -> str:
    """Statements: a header becomes valid, and the others of its union invalid."""
    rivals = "".join(f" {valid_name(other)} = 0;" for other in program.rivals(header))
    return f"{valid_name(header)} = 1;{f' {SOME_LONG} = 1;' if has_long(program, header) else ''}{rivals}"


def zero(program: Program, header: int) -> str:
    """Statements that zero all fields."""
    statements: list[str] = []
    for position, field in enumerate(program.headers[header].fields):
        statements.append(zero_field(header, position, field.width))
    if program.headers[header].variable:
        statements.append(f"{length_name(header)} = 0;")
    return " ".join(statements)


def zero_field(header: int, field: int, width: int) -> str:
    """Statement: zeroes a field."""
    if is_long(width):
        return f"{mark_name(header, field)} = 0;"
    return f"{field_name(header, field)} = {'0' if width <= 64 else f'({c_type(width)}){{{{0}}}}'};"


def copy_variable(target: int, source: int) -> str:
    """Statement: the bytes and the length of a variable-length field."""
    to, of, length = bytes_name(target), bytes_name(source), length_name(source)
    return f"memmove({to}, {of}, sizeof {to}); {length_name(target)} = {length};"


def for_each(header: int | Picked, statement: Callable[[int], str]) -> str:
    """A statement on a header, or on the one of several that an index selects."""
    if not isinstance(header, Picked):
        return statement(header)
    choices = " ".join(
        f"case {position}: {{ {statement(item)} }} break;" for position, item in enumerate(header.headers)
    )
    return f"switch ({clamped(header.index)}) {{ {choices} default:; }}"


def set_valid(program: Program, header: int, valid: bool) -> str:
    """Statements: setValid, which zeroes the fields of a header that was not, and setInvalid."""
    octets = octets_now(program, header)
    if not valid:
        return f"if ({valid_name(header)}) {{ {valid_name(header)} = 0; h->m.size -= {octets}; }}"
    made = f"{zero(program, header)} {make_valid(program, header)}"
    return f"if (!{valid_name(header)}) {{ {made} h->m.size += {octets}; }}"


def copy_field(target: tuple[int, int], source: tuple[int, int], width: int, old: str = "h") -> str:
    """Statement: what one field (header, position) holds, of the headers that `old` points to."""
    copied = f"{field_name(*target)} = {field_name(*source).replace('h->', f'{old}->')};"
    if is_long(width):
        marked = f"{mark_name(*target)} = {mark_name(*source).replace('h->', f'{old}->')}"
        return f"if (({marked})) {{ {copied} {SOME_LONG} = 1; }}"
    return copied


def _copy_fields(program: Program, target: int, source: int) -> str:
    copies = " ".join(
        copy_field((target, position), (source, position), field.width)
        for position, field in enumerate(program.headers[target].fields)
    )
    return f"{copies} {copy_variable(target, source)}" if program.headers[target].variable else copies


def copy_header(program: Program, target: int, source: int) -> str:
    """Statements: a header's fields, if it is valid, and its validity."""
    if program.headers[target].metadata:
        return _copy_fields(program, target, source)
    taken = f"{_copy_fields(program, target, source)} {make_valid(program, target)}"
    return f"if ({valid_name(source)}) {{ {taken} }} else {valid_name(target)} = 0;"


def copy_union(program: Program, statement: CopyUnion) -> str:
    """Statements: every header of a union."""
    pairs = zip(statement.target, statement.source, strict=True)
    return " ".join(copy_header(program, to, of) for to, of in pairs)


def copy_stack(program: Program, statement: CopyStack) -> str:
    """Statements: every element of a stack, and how many there are."""
    target, source = program.stacks[statement.target].elements, program.stacks[statement.source].elements
    copies = " ".join(copy_union(program, CopyUnion(to, of)) for to, of in zip(target, source, strict=True))
    return f"{copies} {next_name(statement.target)} = {next_name(statement.source)};"


def move_stack(program: Program, statement: MoveStack) -> str:
    """Statements: push_front and pop_front, which move all elements, and how many there are."""
    elements, distance = program.stacks[statement.stack].elements, statement.distance
    size = len(elements)
    order = range(size - 1, -1, -1) if distance > 0 else range(size)
    statements: list[str] = []
    for position in order:
        origin = position - distance
        for column, header in enumerate(elements[position]):
            if 0 <= origin < size:
                other = elements[origin][column]
                statements.append(_copy_fields(program, header, other))
                statements.append(f"{valid_name(header)} = {valid_name(other)};")
            else:
                statements.append(f"{valid_name(header)} = 0;")
    count = next_name(statement.stack)
    moved = (
        f"{count} = (uint8_t)({count} + {distance} < {size} ? {count} + {distance} : {size});"
        if distance > 0
        else f"{count} = (uint8_t)({count} > {-distance} ? {count} - {-distance} : 0);"
    )
    return " ".join([*statements, moved])


def read_header(program: Program, header: int) -> Iterator[str]:
    """Statements that fill a header's fields from `q`, if need be with `n` bytes of a variable-length field."""
    found = program.headers[header]
    variable = found.variable
    for position, field in enumerate(found.fields):
        after = variable is not None and position >= variable.position
        yield from _read_field(field_name(header, position), "e" if after else "q", field)
        if is_long(field.width):
            yield set_mark(header, position)
    if variable:
        front, shift = divmod(sum(field.width for field in found.fields[: variable.position]), 8)
        yield f"gl_take_bytes({bytes_name(header)}, q + {front}, n, {shift}); {length_name(header)} = n;"


def _read_field(name: str, pointer: str, field: FieldDef) -> Iterator[str]:
    if field.width <= 64:
        yield f"{name} = {read_bits(pointer, field.offset, field.width)};"
        return
    if is_long(field.width) and field.offset % 8 == field.width % 8 == 0:
        yield f"{c_type(field.width)}_take(&{name}, {pointer} + {field.offset // 8}, {field.width // 8});"
        return
    end = field.offset + field.width
    for word in range(words_of(field.width)):
        kept = min(64, field.width - 64 * word)
        yield f"{name}.w[{word}] = {read_bits(pointer, end - 64 * word - kept, kept)};"


def write_header(program: Program, header: int) -> Iterator[str]:
    """Statements that write a header to `q`, and move `q` behind it."""
    found = program.headers[header]
    fields = list(enumerate(found.fields))
    if found.variable is None:
        yield from _write_fields(header, fields)
        yield f"q += {found.octets};"
        return
    middle = found.variable.position
    front, shift = divmod(sum(field.width for field in found.fields[:middle]), 8)
    yield from _write_fields(header, fields[:middle])
    yield f"q += {front}; gl_put_bytes(q, {bytes_name(header)}, {length_name(header)}, {shift});"
    yield f"q += {length_name(header)};"
    # The bits in front of what follows are there already.
    begun = [(f"(uint64_t)(q[0] >> {8 - shift})", shift)] if shift else []
    yield from _write_fields(header, fields[middle:], begun)
    yield f"q += {found.octets - front};"


def _write_fields(
    header: int, fields: Sequence[tuple[int, FieldDef]], begun: Sequence[tuple[str, int]] = ()
) -> Iterator[str]:
    """Statements that write fields to `q`, behind the bits that are `begun`."""
    run = list(begun)
    start, at = 0, sum(width for _, width in run)
    for position, field in fields:
        width = field.width
        if is_long(width) and at % 8 == width % 8 == 0:
            yield from write_fields(f"(q + {start})", run)
            yield f"{c_type(width)}_put(q + {at // 8}, {place(header, position, width)}, {width // 8});"
            run, start = [], (at + width) // 8
        else:
            run += pieces(Field(header, position, width), width)
        at += width
    yield from write_fields(f"(q + {start})" if start else "q", run)
