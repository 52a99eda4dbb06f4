# SPDX-License-Identifier: Apache-2.0
"""The parser: its states, what they do with a packet, and how they select the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gradlane_switch.ir.expressions import Expr
from gradlane_switch.ir.statements import Statement
from gradlane_switch.ir.tables import KeyPart


@dataclass(frozen=True)
class Extract:
    """Consumes a header; `length` is that of its variable-length field in bits."""

    header: int
    length: Expr | None = None


@dataclass(frozen=True)
class ExtractNext:
    """Consumes the next header of a stack: the `member`-th of the union, in a stack of unions."""

    stack: int
    member: int
    length: Expr | None = None


@dataclass(frozen=True)
class Verify:
    """Parser error unless the condition holds."""

    condition: Expr
    error: Expr


@dataclass(frozen=True)
class Advance:
    """Skips bits of the packet."""

    distance: Expr


ParserOperation: TypeAlias = Extract | ExtractNext | Verify | Advance | Statement


@dataclass(frozen=True)
class Transition:
    """One case of a select: (value, mask) per key, membership in a value set, or neither for the default.

    `state` None is accept.
    """

    cases: tuple[tuple[int, int], ...] | None
    state: int | None
    value_set: int | None = None


@dataclass(frozen=True)
class ParserState:
    """A state of the parser."""

    name: str
    operations: tuple[ParserOperation, ...]
    keys: tuple[Expr, ...]
    widths: tuple[int, ...]
    transitions: tuple[Transition, ...]


@dataclass(frozen=True)
class ValueSet:
    """A parser value set: bits of a member (the select's keys, one after the other), and how many it may have.

    `keys` are those of the selects that use it, if any do; BMv2's JSON has no other kind than exact for them.
    """

    name: str
    width: int
    size: int
    keys: tuple[KeyPart, ...] = ()
