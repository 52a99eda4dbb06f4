# SPDX-License-Identifier: Apache-2.0
"""C that reads and writes bit fields in bytes, and sums them for the Internet checksum."""

from __future__ import annotations

from collections.abc import Sequence


def number(value: int) -> str:
    """A 64-bit unsigned constant."""
    return f"UINT64_C({value:#x})"


def read_bits(pointer: str, offset: int, width: int) -> str:
    """C that reads `width` bits (at most 64), big-endian, at a bit offset from a byte pointer."""
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


def internet_sum(fields: Sequence[tuple[str, int]]) -> list[str]:
    """C statements that add values, (C expression, width in bits) in order and without gaps, to `sum`, to be folded to
    an Internet checksum.

    Modulo 65535 a word's position does not matter, so each value is added as a whole, shifted to where its lowest bit
    falls in its 16-bit word.
    """
    statements: list[str] = []
    end = 0
    for value, width in fields:
        end += width
        shift = -end % 16
        if width <= 32:
            statements.append(f"sum += ({value}) << {shift};")
        else:
            statements.append(
                f"{{ uint64_t x = {value}; sum += ((x & 0xffffffff) << {shift}) + ((x >> 32) << {shift}); }}"
            )
    return statements
