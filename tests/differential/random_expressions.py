# SPDX-License-Identifier: Apache-2.0
"""Random expressions of P4, of a wanted type, over values that may be read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_OPERATORS = ("+", "-", "*", "&", "|", "^", "|+|", "|-|")


@dataclass(frozen=True)
class Kind:
    """bit<width>, or int<width>."""

    width: int
    signed: bool = False

    def __str__(self) -> str:
        return f"{'int' if self.signed else 'bit'}<{self.width}>"


@dataclass(frozen=True)
class Place:
    """A value that has a name."""

    name: str
    kind: Kind


class Expressions:
    """Draws expressions. `readable`: what they may read; `depth`: how deeply they may nest."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance

    def literal(self, kind: Kind) -> str:
        """A constant."""
        whole = (1 << kind.width) - 1
        value = self._random.choice((0, 1, whole, whole >> 1, self._random.randrange(1 << kind.width))) & whole
        if not kind.signed:
            return f"{kind.width}w{value}"
        value -= (1 << kind.width) if value >> (kind.width - 1) else 0
        return f"{kind.width}s{value}" if value >= 0 else f"(-{kind.width}s{-value})" if -value <= whole >> 1 else "0"

    def value(self, kind: Kind, readable: Sequence[Place], depth: int) -> str:
        """An expression of a type."""
        if depth == 0 or self._random.random() < 0.15:
            return self._leaf(kind, readable)
        depth -= 1
        choice = self._random.randrange(10)
        if choice < 4:
            operator = self._random.choice(_OPERATORS)
            return f"({self.value(kind, readable, depth)} {operator} {self.value(kind, readable, depth)})"
        if choice == 4:
            distance = self.value(Kind(self._random.choice((2, 4, 7))), readable, depth)
            return f"({self.value(kind, readable, depth)} {self._random.choice(('<<', '>>'))} {distance})"
        if choice == 5:
            yes, no = (self.value(kind, readable, depth) for _ in range(2))
            return f"({self.condition(readable, depth)} ? {yes} : {no})"
        if choice == 6:
            return f"({self._random.choice('~-')}{self.value(kind, readable, depth)})"
        if choice == 7 and not kind.signed and kind.width > 1:
            high = self._random.randrange(1, kind.width)
            upper, lower = (self.value(Kind(width), readable, depth) for width in (kind.width - high, high))
            return f"({upper} ++ {lower})"
        if choice == 8 and not kind.signed:
            low = self._random.randrange(4)
            wide = Kind(kind.width + low + self._random.randrange(4))
            return f"({self.value(wide, readable, depth)})[{low + kind.width - 1}:{low}]"
        return self._cast(kind, readable, depth)

    def condition(self, readable: Sequence[Place], depth: int) -> str:
        """An expression of type bool."""
        if depth and self._random.random() < 0.35:
            operator = self._random.choice(("&&", "||"))
            left, right = (self.condition(readable, depth - 1) for _ in range(2))
            return f"({left} {operator} {right})"
        if depth and self._random.random() < 0.15:
            return f"(!{self.condition(readable, depth - 1)})"
        if self._random.random() < 0.1:
            return f"{self._random.choice(('h.extra', 'h.items[0]', 'h.items[2]'))}.isValid()"
        kind = self._random.choice(readable).kind
        left, right = (self.value(kind, readable, max(depth - 1, 0)) for _ in range(2))
        return f"({left} {self._random.choice(_COMPARISONS)} {right})"

    def _leaf(self, kind: Kind, readable: Sequence[Place]) -> str:
        fitting = [place for place in readable if place.kind == kind]
        if fitting and self._random.random() < 0.7:
            return self._random.choice(fitting).name
        return self._cast(kind, readable, 0) if self._random.random() < 0.7 else self.literal(kind)

    def _cast(self, kind: Kind, readable: Sequence[Place], depth: int) -> str:
        """A value of another type, cast: first to the sign, then to the width, or the other way round."""
        place = self._random.choice(readable)
        text = self.value(place.kind, readable, depth) if depth else place.name
        if place.kind == kind:
            return text
        if place.kind.signed == kind.signed:
            return f"({kind})({text})"
        steps = [Kind(place.kind.width, kind.signed), Kind(kind.width, place.kind.signed)]
        # int<1> is no type of p4c's.
        step = self._random.choice([item for item in steps if not item.signed or item.width > 1] or [kind])
        return f"({kind})({step})({text})"
