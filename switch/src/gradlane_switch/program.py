# SPDX-License-Identifier: Apache-2.0
"""What a P4 program is, once its BMv2 JSON has been read: typed, resolved to indices, and known to be supported."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from gradlane_switch.expressions import Expr, Field, Valid

DROP_PORT = 511


class MatchKind(Enum):
    """How a key field of a table is compared."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"
    OPTIONAL = "optional"


@dataclass(frozen=True)
class FieldDef:
    """A field of a header: width in bits, and its offset in bits from the start of the header."""

    name: str
    width: int
    offset: int


@dataclass(frozen=True)
class Header:
    """A header or metadata instance."""

    name: str
    metadata: bool
    fields: tuple[FieldDef, ...]

    @property
    def octets(self) -> int:
        """Length on the wire in bytes."""
        return sum(item.width for item in self.fields) // 8


@dataclass(frozen=True)
class Assign:
    """Target = value, truncated to the target's width."""

    target: Field
    value: Expr


@dataclass(frozen=True)
class MarkToDrop:
    """egress_spec = the drop port, no multicast."""


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

    header: int
    valid: bool


@dataclass(frozen=True)
class CopyHeader:
    """All fields and the validity of one header into another of its type."""

    target: int
    source: int


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
class Jump:
    """Continues at another statement of the action; only if the condition, when there is one, is zero."""

    destination: int
    condition: Expr | None = None


@dataclass(frozen=True)
class Exit:
    """Ends the pipeline."""


Statement: TypeAlias = (
    Assign
    | MarkToDrop
    | Count
    | ExecuteMeter
    | RegisterRead
    | RegisterWrite
    | SetValid
    | CopyHeader
    | HashTo
    | RandomTo
    | Jump
    | Exit
)


@dataclass(frozen=True)
class Action:
    """An action: widths of its parameters in bits, and what it does."""

    name: str
    params: tuple[int, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Key:
    """A key field of a table."""

    name: str
    kind: MatchKind
    source: Field | Valid
    width: int
    mask: int


@dataclass(frozen=True)
class ActionCall:
    """An action with its arguments."""

    action: int
    arguments: tuple[int, ...]


@dataclass(frozen=True)
class FieldKey:
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


@dataclass(frozen=True)
class Conditional:
    """A branch of the control flow."""

    condition: Expr
    if_true: int | None
    if_false: int | None


Node: TypeAlias = Table | Conditional


@dataclass(frozen=True)
class Pipeline:
    """Control flow: nodes refer to one another by index; `tables` maps a node to the program-wide table index."""

    name: str
    start: int | None
    nodes: tuple[Node, ...]
    tables: dict[int, int]


@dataclass(frozen=True)
class Extract:
    """Consumes a header."""

    header: int


@dataclass(frozen=True)
class Verify:
    """Parser error unless the condition holds."""

    condition: Expr
    error: Expr


@dataclass(frozen=True)
class Advance:
    """Skips bits of the packet."""

    distance: Expr


ParserOperation: TypeAlias = Extract | Verify | Advance | Assign | SetValid | CopyHeader


@dataclass(frozen=True)
class Transition:
    """One case of a select: (value, mask) per key, or no cases for the default. `state` None is accept."""

    cases: tuple[tuple[int, int], ...] | None
    state: int | None


@dataclass(frozen=True)
class ParserState:
    """A state of the parser."""

    operations: tuple[ParserOperation, ...]
    keys: tuple[Expr, ...]
    transitions: tuple[Transition, ...]


@dataclass(frozen=True)
class Calculation:
    """Named calculation: the algorithm and its input, (value, width in bits) in order."""

    name: str
    algorithm: str
    inputs: tuple[tuple[Expr, int], ...]


@dataclass(frozen=True)
class Checksum:
    """A checksum that is verified after parsing, updated before deparsing, or both, if the condition holds."""

    target: Field
    calculation: int
    verify: bool
    update: bool
    condition: Expr | None


@dataclass(frozen=True)
class CounterArray:
    """Indirect counter."""

    name: str
    size: int


@dataclass(frozen=True)
class MeterArray:
    """Indirect meter, of bytes or of packets."""

    name: str
    size: int
    counts_bytes: bool


@dataclass(frozen=True)
class RegisterArray:
    """Register; width of a cell in bits."""

    name: str
    size: int
    width: int


@dataclass(frozen=True)
class Program:
    """A whole program. `standard` maps the names of BMv2's standard metadata to the fields that the program has."""

    headers: tuple[Header, ...]
    errors: dict[str, int]
    parser_start: int | None
    parser: tuple[ParserState, ...]
    actions: tuple[Action, ...]
    ingress: Pipeline
    egress: Pipeline
    deparser: tuple[int, ...]
    calculations: tuple[Calculation, ...]
    checksums: tuple[Checksum, ...]
    counters: tuple[CounterArray, ...]
    meters: tuple[MeterArray, ...]
    registers: tuple[RegisterArray, ...]
    standard: dict[str, Field]
    tables: tuple[Table, ...] = field(init=False)

    def __post_init__(self) -> None:
        by_index: dict[int, Table] = {}
        for pipeline in (self.ingress, self.egress):
            for node, index in pipeline.tables.items():
                table = pipeline.nodes[node]
                assert isinstance(table, Table)
                by_index[index] = table
        object.__setattr__(self, "tables", tuple(by_index[index] for index in range(len(by_index))))
