# SPDX-License-Identifier: Apache-2.0
"""What the primitives of an action or of a parser state do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gradlane_switch.ir.expressions import Element, Expr, Field, shape, words_of


@dataclass(frozen=True)
class Picked:
    """The header of a stack that an index selects; beyond the stack's end there is none, and nothing is done to it."""

    headers: tuple[int, ...]
    index: Expr


@dataclass(frozen=True)
class Assign:
    """Target = value, truncated to the target's width."""

    target: Field | Element
    value: Expr


@dataclass(frozen=True)
class CopyVariable:
    """The variable-length field of one header into that of another."""

    target: int
    source: int


@dataclass(frozen=True)
class MoveStack:
    """Moves the elements of a stack up by `distance` (down, if it is negative); what comes free is invalid."""

    stack: int
    distance: int


@dataclass(frozen=True)
class CopyStack:
    """All elements of one stack into another of its type."""

    target: int
    source: int


@dataclass(frozen=True)
class CopyUnion:
    """All headers of one union into those of another of its type."""

    target: tuple[int, ...]
    source: tuple[int, ...]


@dataclass(frozen=True)
class Assert:
    """The packet is dropped at once, counted and logged, unless the condition holds."""

    condition: Expr
    message: int


@dataclass(frozen=True)
class Log:
    """A message of the program, with values, to the switch's log."""

    message: int
    values: tuple[Expr, ...]


def logged_words(value: Expr) -> int:
    """64-bit words that a value has in a message."""
    known = shape(value)
    assert known is not None, "the loader lets no unbounded value get here"
    return words_of(known.width)


@dataclass(frozen=True)
class MarkToDrop:
    """The fields of the standard metadata, or of a copy of it: the first = the drop port, the second = no multicast."""

    egress_spec: Field
    mcast_grp: Field | None


@dataclass(frozen=True)
class Count:
    """One packet on a cell of an indirect counter."""

    counter: int
    index: Expr


@dataclass(frozen=True)
class ExecuteMeter:
    """Target = colour that a cell of an indirect meter gives the packet."""

    meter: int
    index: Expr
    target: Field


@dataclass(frozen=True)
class RegisterRead:
    """Target = a cell of a register."""

    target: Field
    register: int
    index: Expr


@dataclass(frozen=True)
class RegisterWrite:
    """A cell of a register = value."""

    register: int
    index: Expr
    value: Expr


@dataclass(frozen=True)
class SetValid:
    """Makes a header valid (its fields zero if it was not) or invalid."""

    header: int | Picked
    valid: bool


@dataclass(frozen=True)
class CopyHeader:
    """All fields and the validity of one header into another of its type."""

    target: int | Picked
    source: int | Picked


@dataclass(frozen=True)
class HashTo:
    """Target = base + digest % modulus (base itself if the modulus is 0)."""

    target: Field
    base: Expr
    calculation: int
    modulus: Expr


@dataclass(frozen=True)
class RandomTo:
    """Target = a number between low and high, both included."""

    target: Field
    low: Expr
    high: Expr


@dataclass(frozen=True)
class Clone:
    """At the end of the pipeline, copies of the packet by a clone session. `fields`: a field list, or None for none."""

    session: Expr
    fields: int | None


@dataclass(frozen=True)
class Resubmit:
    """At the end of ingress, the packet as it arrived enters ingress again."""

    fields: int


@dataclass(frozen=True)
class Recirculate:
    """At the end of egress, the packet as it would have left enters ingress again."""

    fields: int


@dataclass(frozen=True)
class Truncate:
    """The packet leaves with at most this many bytes."""

    length: Expr


@dataclass(frozen=True)
class Learn:
    """At the end of ingress, a digest."""

    digest: int


@dataclass(frozen=True)
class Jump:
    """Continues at another statement of the action; only if the condition, when there is one, is zero."""

    destination: int
    condition: Expr | None = None


@dataclass(frozen=True)
class Exit:
    """Ends the pipeline."""


Statement: TypeAlias = (
    Assign
    | CopyVariable
    | MoveStack
    | CopyStack
    | CopyUnion
    | Assert
    | Log
    | MarkToDrop
    | Count
    | ExecuteMeter
    | RegisterRead
    | RegisterWrite
    | SetValid
    | CopyHeader
    | HashTo
    | RandomTo
    | Clone
    | Resubmit
    | Recirculate
    | Truncate
    | Learn
    | Jump
    | Exit
)
