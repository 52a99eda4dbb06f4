# SPDX-License-Identifier: Apache-2.0
"""What a random program may use at each of its places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.differential.random_expressions import Kind, Place


@dataclass
class Scope:
    """What may be read and written at a place of the program: `valid` are the headers that surely are valid there."""

    names: list[Place]
    valid: set[str] = field(default_factory=set[str])
    extra: list[Place] = field(default_factory=list[Place])
    in_action: bool = False
    in_egress: bool = False

    def readable(self) -> list[Place]:
        """Values that may be read."""
        headers = [place for header in sorted(self.valid) for place in parts_of(header, self.extra)]
        return [*self.names, *headers]


def parts_of(header: str, extra: Sequence[Place]) -> list[Place]:
    """The fields of a header; `extra`: those of h.extra."""
    kinds = extra if header == "h.extra" else [Place("a", Kind(8)), Place("b", Kind(12)), Place("c", Kind(4, True))]
    return [Place(f"{header}.{place.name}", place.kind) for place in kinds]
