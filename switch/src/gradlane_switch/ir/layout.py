# SPDX-License-Identifier: Apache-2.0
"""How a table's key fields are laid out in 64-bit words: the same for the generated lookup and for the entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from gradlane_switch.ir.expressions import split_words, words_of
from gradlane_switch.ir.program import Program
from gradlane_switch.ir.tables import FieldKey, KeyPart, MatchKind, Table

_MOST_WORDS = 512  # GL_KEY_WORDS
_MOST_RANGE_WORDS = 64  # bits of gl_table_shape.continued
_PIECE = 8  # GL_PIECE
_MOST_INDEXED = 64  # GL_INDEXED


class TableKind(IntEnum):
    """Data structure behind a table; the numbers are those of runtime/tables/api.h."""

    EXACT = 0
    LPM = 1
    LIST = 2


@dataclass(frozen=True)
class Place:
    """Where a key field is: its lowest word, and distance of its lowest bit from the word's lowest."""

    word: int
    shift: int


@dataclass(frozen=True)
class Layout:
    """Key layout of one table. `words` does not count the prefix length that an LPM table appends.

    Range fields come last, from the word `first_range` on; `continued` has a bit for each of their words that is not
    the lowest of its field. `indexed` are the pieces of the key, counted from the lowest bits of the first word, that a
    list's index knows.
    """

    kind: TableKind
    words: int
    places: tuple[Place, ...]
    first_range: int
    continued: int
    prefix_field: int | None
    prefix_width: int
    indexed: tuple[int, ...]

    @property
    def stored_words(self) -> int:
        """Words of a key as the table stores it."""
        return self.words + (1 if self.kind is TableKind.LPM else 0)

    def shape(self, argument_words: int, metered: bool = False) -> dict[str, Any]:
        """A gl_table_shape for a table whose entries have at most so many words of arguments, and meters if wanted."""
        return {
            "kind": int(self.kind),
            "words": self.stored_words,
            "argument_words": argument_words,
            "prefix_width": self.prefix_width,
            "metered": metered,
            "indexed": len(self.indexed),
            "first_range": self.first_range,
            "continued": self.continued,
            "pieces": list(self.indexed),
        }


def too_long(keys: Sequence[KeyPart]) -> str:
    """What is too long for a table, of a key; empty if nothing is."""
    whole = 64 * sum(words_of(key.width) for key in keys)
    ranges = 64 * sum(words_of(key.width) for key in keys if key.kind is MatchKind.RANGE)
    for what, bits, most in (("key", whole, _MOST_WORDS), ("key's range fields", ranges, _MOST_RANGE_WORDS)):
        if bits > 64 * most:
            return f"{what} of {bits} bits (at most {64 * most}; each field counts in multiples of 64)"
    return ""


def layout_of(keys: Sequence[KeyPart]) -> Layout:
    """The layout of a table: narrow fields share words; a wide one, a range, and the prefix of an LPM table do not."""
    kinds = {key.kind for key in keys}
    if kinds <= {MatchKind.EXACT}:
        kind = TableKind.EXACT
    elif kinds <= {MatchKind.EXACT, MatchKind.LPM} and sum(key.kind is MatchKind.LPM for key in keys) == 1:
        kind = TableKind.LPM
    else:
        kind = TableKind.LIST
    places: dict[int, Place] = {}
    free: list[int] = []
    alone: list[int] = []
    for number, key in enumerate(keys):
        if key.width > 64 or key.kind is MatchKind.RANGE or (kind is TableKind.LPM and key.kind is MatchKind.LPM):
            alone.append(number)
            continue
        word = next((index for index, used in enumerate(free) if used + key.width <= 64), len(free))
        if word == len(free):
            free.append(0)
        places[number] = Place(word, free[word])
        free[word] += key.width
    words, first_range, continued = len(free), None, 0
    # Ranges come last, and so does the prefix of an LPM table, which has none: see gl_accepts and gl_trie_find.
    last = (MatchKind.LPM, MatchKind.RANGE)
    for number in sorted(alone, key=lambda number: [keys[number].kind is kind for kind in reversed(last)]):
        count = words_of(keys[number].width)
        places[number] = Place(words, 0)
        if keys[number].kind is MatchKind.RANGE:
            first_range = words if first_range is None else first_range
            continued |= ((1 << count) - 2) << (words - first_range)
        words += count
    prefix = next((number for number, key in enumerate(keys) if key.kind is MatchKind.LPM), None)
    ordered = tuple(places[number] for number in range(len(keys)))
    return Layout(
        kind,
        words,
        ordered,
        words if first_range is None else first_range,
        continued,
        prefix if kind is TableKind.LPM else None,
        0 if prefix is None or kind is not TableKind.LPM else keys[prefix].width,
        _indexed(keys, ordered) if kind is TableKind.LIST else (),
    )


def _indexed(keys: Sequence[KeyPart], places: tuple[Place, ...]) -> tuple[int, ...]:
    """The pieces of the key that hold a field; of more than an index can know, those spread over the key."""
    used: set[int] = set()
    for key, place in zip(keys, places, strict=True):
        first = 64 * place.word + place.shift
        used |= set(range(first // _PIECE, (first + key.width - 1) // _PIECE + 1))
    ordered = sorted(used)
    count = min(len(ordered), _MOST_INDEXED)
    return tuple(ordered[index * len(ordered) // count] for index in range(count))


def pack(layout: Layout, keys: Sequence[KeyPart], match: tuple[FieldKey, ...]) -> tuple[list[int], list[int]]:
    """Words of an entry's key, as the table stores it, and for a list of its operands (masks and upper ends)."""
    values, operands = [0] * layout.words, [0] * layout.words
    for key, place, wanted in zip(keys, layout.places, match, strict=True):
        value, operand = wanted
        width, kind, first = key.width, key.kind, place.word
        if kind is MatchKind.EXACT:
            operand = (1 << width) - 1
        elif kind is MatchKind.LPM:
            operand = prefix_mask(operand, width)
        if kind is not MatchKind.RANGE:
            value &= operand
        if width <= 64:
            values[first] |= value << place.shift
            operands[first] |= operand << place.shift
        else:
            count = words_of(width)
            values[first : first + count] = split_words(value, count)
            operands[first : first + count] = split_words(operand, count)
    if layout.prefix_field is not None:
        values.append(match[layout.prefix_field].operand)
    return values, operands


def prefix_mask(length: int, width: int) -> int:
    """The mask of a prefix of `length` bits in a field of `width`."""
    return ((1 << length) - 1) << (width - length)


def argument_words(widths: tuple[int, ...], arguments: tuple[int, ...]) -> list[int]:
    """An action's arguments in words, one after the other."""
    if max(widths, default=0) <= 64:
        return list(arguments)
    pairs = zip(arguments, widths, strict=True)
    return [word for value, width in pairs for word in split_words(value, words_of(width))]


def most_argument_words(program: Program, table: Table) -> int:
    """Words of arguments that an entry of a table has room for."""
    return max((sum(map(words_of, program.actions[number].params)) for number in table.actions), default=0)
