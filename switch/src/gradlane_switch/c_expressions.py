# SPDX-License-Identifier: Apache-2.0
"""C for expressions, and for bit fields in bytes. Nothing but indices and numbers of the program gets into it."""

from __future__ import annotations

from collections.abc import Sequence

from gradlane_switch.expressions import (
    Binary,
    Choice,
    Const,
    Expr,
    Field,
    Lookahead,
    Param,
    Unary,
    Valid,
    bits,
)

_OPERATORS = {"and": "&&", "or": "||"}


def number(value: int) -> str:
    """A 64-bit unsigned constant."""
    return f"UINT64_C({value:#x})"


def field_name(header: int, field: int) -> str:
    """The member of the headers' struct that holds a field."""
    return f"h->f{header}_{field}"


def valid_name(header: int) -> str:
    """The member of the headers' struct that says whether a header is valid."""
    return f"h->v{header}"


def expression(expr: Expr) -> str:
    """A C expression of type uint64_t. The parser's position is `q`, an action's arguments are `a`."""
    match expr:
        case Const(value):
            return number(value)
        case Field(header, field):
            return field_name(header, field)
        case Valid(header):
            return f"(uint64_t){valid_name(header)}"
        case Param(index):
            return f"a[{index}]"
        case Lookahead(offset, width):
            return read_bits("q", offset, width)
        case Unary("not", operand):
            return f"(uint64_t)!{_paren(operand)}"
        case Unary(_, operand):
            return f"~{_paren(operand)}"
        case Choice(condition, left, right):
            return f"({_paren(condition)} ? {expression(left)} : {expression(right)})"
        case Binary("<<", left, right):
            return f"gl_shift_left({expression(left)}, {expression(right)})"
        case Binary(">>", left, right):
            return f"gl_shift_right({expression(left)}, {expression(right)})"
        case Binary(op, left, right):
            return f"(uint64_t)({_paren(left)} {_OPERATORS.get(op, op)} {_paren(right)})"


def _paren(expr: Expr) -> str:
    return f"({expression(expr)})"


def truncated(expr: Expr, width: int) -> str:
    """An expression cut to a width in bits."""
    known = bits(expr)
    if width == 64 or (known is not None and known <= width):
        return expression(expr)
    return f"{_paren(expr)} & {number((1 << width) - 1)}"


def read_bits(pointer: str, offset: int, width: int) -> str:
    """C that reads `width` bits, big-endian, at a bit offset from a byte pointer."""
    first, last = offset // 8, (offset + width - 1) // 8
    shift = (last + 1) * 8 - (offset + width)
    wide = min(last - first + 1, 8)
    parts = [f"(uint64_t){pointer}[{first + n}] << {8 * (wide - 1 - n)}" for n in range(wide)]
    value = "(" + " | ".join(parts) + ")"
    if last - first + 1 > wide:
        value = f"({value} << {8 - shift} | (uint64_t){pointer}[{last}] >> {shift})"
    elif shift:
        value = f"({value} >> {shift})"
    return value if width == 64 else f"({value} & {number((1 << width) - 1)})"


def write_fields(pointer: str, fields: Sequence[tuple[str, int]]) -> list[str]:
    """C statements that write values, (C expression, width in bits) in order, big-endian and without gaps."""
    pieces: list[list[str]] = [[] for _ in range((sum(width for _, width in fields) + 7) // 8)]
    offset = 0
    for value, width in fields:
        for octet in range(offset // 8, (offset + width + 7) // 8):
            start, end = max(offset, 8 * octet), min(offset + width, 8 * octet + 8)
            piece = f"{value} >> {offset + width - end}"
            if end - start < 8:
                piece = f"({piece} & {(1 << (end - start)) - 1:#x}) << {8 * octet + 8 - end}"
            pieces[octet].append(piece)
        offset += width
    return [f"{pointer}[{octet}] = (uint8_t)({' | '.join(parts)});" for octet, parts in enumerate(pieces)]


def internet_sum(inputs: Sequence[tuple[Expr, int]]) -> list[str]:
    """C statements that add values, in order and without gaps, to `sum`, to be folded to an Internet checksum.

    Modulo 65535 a word's position does not matter, so each field is added as a whole, shifted to where its lowest bit
    falls in its 16-bit word.
    """
    statements: list[str] = []
    end = 0
    for expr, width in inputs:
        end += width
        shift = -end % 16
        value = truncated(expr, width)
        if width <= 32:
            statements.append(f"sum += ({value}) << {shift};")
        else:
            statements.append(
                f"{{ uint64_t x = {value}; sum += ((x & 0xffffffff) << {shift}) + ((x >> 32) << {shift}); }}"
            )
    return statements
