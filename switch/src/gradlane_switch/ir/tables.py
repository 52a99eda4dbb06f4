# SPDX-License-Identifier: Apache-2.0
"""Match-action tables, the actions of their entries, and the control flow that leads from table to table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from gradlane_switch.ir.expressions import Expr, Field, Valid
from gradlane_switch.ir.statements import Statement


class MatchKind(Enum):
    """How a key field of a table is compared."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"
    OPTIONAL = "optional"


@dataclass(frozen=True)
class Action:
    """An action: widths of its parameters in bits, what it does, and the parameters' names."""

    name: str
    params: tuple[int, ...]
    body: tuple[Statement, ...]
    param_names: tuple[str, ...]


@dataclass(frozen=True)
class KeyPart:
    """How a field of a key is compared, and its width in bits."""

    kind: MatchKind
    width: int


@dataclass(frozen=True)
class Key(KeyPart):
    """A key field of a table."""

    name: str
    source: Field | Valid
    mask: int


class ActionCall(NamedTuple):
    """An action with its arguments."""

    action: int
    arguments: tuple[int, ...]


class FieldKey(NamedTuple):
    """What an entry wants of one key field. `operand`: prefix length, mask, or upper end, by the field's kind."""

    value: int
    operand: int = 0


@dataclass(frozen=True)
class ConstEntry:
    """An entry that the program itself declares. Priority: higher wins, as in P4Runtime."""

    match: tuple[FieldKey, ...]
    call: ActionCall
    priority: int


@dataclass(frozen=True)
class Table:
    """A match-action table and the node that follows each of its outcomes (None: the end of the pipeline)."""

    name: str
    keys: tuple[Key, ...]
    actions: tuple[int, ...]
    default: ActionCall | None
    const_default: bool
    entries: tuple[ConstEntry, ...]
    size: int
    direct_counter: bool
    next_by_action: dict[int, int | None]
    next_hit: int | None = None
    next_miss: int | None = None
    by_hit: bool = False
    immutable: bool = False
    profile: int | None = None
    """The action profile that entries choose from, if it is not their own action."""
    direct_meter: int | None = None
    timeout: bool = False


@dataclass(frozen=True)
class Conditional:
    """A branch of the control flow; `source` is its place in the P4 source."""

    condition: Expr
    if_true: int | None
    if_false: int | None
    source: str


ControlNode: TypeAlias = Table | Conditional


@dataclass(frozen=True)
class ControlFlow:
    """Control flow: nodes refer to one another by index; `tables` maps a node to the program-wide table index."""

    name: str
    start: int | None
    nodes: tuple[ControlNode, ...]
    tables: dict[int, int]
