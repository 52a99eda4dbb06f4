# SPDX-License-Identifier: Apache-2.0
"""Headers, their fields, and stacks of headers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FieldDef:
    """A field of a header: width in bits, and its offset in bits from the start of the header."""

    name: str
    width: int
    offset: int
    signed: bool = False


@dataclass(frozen=True)
class VarbitField:
    """A header's variable-length field. It lies in front of the field `position`, and has at most `octets` bytes."""

    name: str
    position: int
    octets: int


@dataclass(frozen=True)
class Header:
    """A header or metadata instance. `fields` are those of fixed length; offsets do not count the variable one."""

    name: str
    metadata: bool
    fields: tuple[FieldDef, ...]
    variable: VarbitField | None = None

    @property
    def octets(self) -> int:
        """Length on the wire in bytes, without the variable-length field."""
        return sum(item.width for item in self.fields) // 8

    @property
    def most_octets(self) -> int:
        """Length on the wire in bytes, at most."""
        return self.octets + (self.variable.octets if self.variable else 0)


@dataclass(frozen=True)
class Stack:
    """A stack of headers, or of header unions: the headers of each element, and the names of a union's members."""

    name: str
    elements: tuple[tuple[int, ...], ...]
    names: tuple[str, ...] | None
