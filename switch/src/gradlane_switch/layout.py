# SPDX-License-Identifier: Apache-2.0
"""How a table's key fields are laid out in 64-bit words: the same for the generated lookup and for the entries."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from gradlane_switch.program import FieldKey, Key, MatchKind, Table


class TableKind(IntEnum):
    """Data structure behind a table; the numbers are those of runtime/api.h."""

    EXACT = 0
    LPM = 1
    LIST = 2


@dataclass(frozen=True)
class Place:
    """Where a key field is: word, and distance of its lowest bit from the word's lowest."""

    word: int
    shift: int


@dataclass(frozen=True)
class Layout:
    """Key layout of one table. `words` does not count the prefix length that an LPM table appends."""

    kind: TableKind
    words: int
    places: tuple[Place, ...]
    ranges: int
    prefix_field: int | None

    @property
    def stored_words(self) -> int:
        """Words of a key as the table stores it."""
        return self.words + (1 if self.kind is TableKind.LPM else 0)


def layout_of(table: Table) -> Layout:
    """The layout of a table: fields share words, except that a range, and the prefix of an LPM table, has its own."""
    kinds = {key.kind for key in table.keys}
    if kinds <= {MatchKind.EXACT}:
        kind = TableKind.EXACT
    elif kinds <= {MatchKind.EXACT, MatchKind.LPM}:
        kind = TableKind.LPM
    else:
        kind = TableKind.LIST
    places: dict[int, Place] = {}
    free: list[int] = []
    alone: list[int] = []
    for number, key in enumerate(table.keys):
        if key.kind is MatchKind.RANGE or (kind is TableKind.LPM and key.kind is MatchKind.LPM):
            alone.append(number)
            continue
        word = next((index for index, used in enumerate(free) if used + key.width <= 64), len(free))
        if word == len(free):
            free.append(0)
        places[number] = Place(word, free[word])
        free[word] += key.width
    ranges = 0
    for offset, number in enumerate(alone):
        places[number] = Place(len(free) + offset, 0)
        if table.keys[number].kind is MatchKind.RANGE:
            ranges |= 1 << places[number].word
    prefix = next((number for number, key in enumerate(table.keys) if key.kind is MatchKind.LPM), None)
    return Layout(
        kind,
        len(free) + len(alone),
        tuple(places[number] for number in range(len(table.keys))),
        ranges,
        prefix if kind is TableKind.LPM else None,
    )


def pack(layout: Layout, keys: tuple[Key, ...], match: tuple[FieldKey, ...]) -> tuple[list[int], list[int]]:
    """Words of an entry's key and, for a list, of its operands (masks and upper ends)."""
    values, operands = [0] * layout.words, [0] * layout.words
    for key, place, wanted in zip(keys, layout.places, match, strict=True):
        values[place.word] |= wanted.value << place.shift
        operands[place.word] |= _operand(key, wanted) << place.shift
    return values, operands


def _operand(key: Key, wanted: FieldKey) -> int:
    full = (1 << key.width) - 1
    if key.kind is MatchKind.EXACT:
        return full
    if key.kind is MatchKind.LPM:
        return prefix_mask(wanted.operand, key.width)
    return wanted.operand


def prefix_mask(length: int, width: int) -> int:
    """The mask of a prefix of `length` bits in a field of `width`."""
    return ((1 << length) - 1) << (width - length)
