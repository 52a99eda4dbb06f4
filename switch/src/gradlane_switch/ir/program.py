# SPDX-License-Identifier: Apache-2.0
"""What a P4 program is, once its BMv2 JSON has been read: typed, resolved to indices, and known to be supported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from gradlane_switch.ir.expressions import Expr, Field, Valid, join_words
from gradlane_switch.ir.statements import Statement

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
    signed: bool = False


@dataclass(frozen=True)
class Variable:
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
    variable: Variable | None = None

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
class CalculationInput:
    """A value and its width in bits; None: the variable-length field of the header.

    It is left out while `header` is invalid, if there is one.
    """

    value: Expr | None
    width: int
    header: int | None


@dataclass(frozen=True)
class Calculation:
    """The algorithm and its input, in order; `payload`: what follows the headers comes after it."""

    name: str
    algorithm: str
    inputs: tuple[CalculationInput, ...]
    payload: bool = False


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
class DirectMeter:
    """A meter in each entry of a table, of bytes or of packets. A hit puts its colour in the target."""

    name: str
    table: str
    counts_bytes: bool
    target: Field


@dataclass(frozen=True)
class ActionProfile:
    """Actions that entries of tables share. `selector`: the calculation that picks from a group, if it has groups."""

    name: str
    size: int
    selector: int | None


@dataclass(frozen=True)
class RegisterArray:
    """Register; width of a cell in bits."""

    name: str
    size: int
    width: int


@dataclass(frozen=True)
class ValueSet:
    """A parser value set: bits of a member (the select's keys, one after the other), and how many it may have.

    `keys` are those of the selects that use it, if any do; BMv2's JSON has no other kind than exact for them.
    """

    name: str
    width: int
    size: int
    keys: tuple[KeyPart, ...] = ()


@dataclass(frozen=True)
class Message:
    """Something for the log: its text, in which each {} stands for a value, and where in the program it comes from."""

    text: str
    source: str
    values: tuple[tuple[int, bool], ...] = ()
    """Of each value: how many 64-bit words it has, and whether it is signed."""

    def filled(self, words: Sequence[int]) -> str:
        """The text with values in its places; words of a value go from the lowest to the highest."""
        parts = self.text.split("{}")
        numbers: list[int] = []
        first = 0
        for count, signed in self.values:
            value, bits = join_words(words[first : first + count]), 64 * count
            numbers.append(value - (1 << bits) if signed and value >> (bits - 1) else value)
            first += count
        return parts[0] + "".join(f"{value}{part}" for value, part in zip(numbers, parts[1:], strict=True))


@dataclass(frozen=True)
class FieldList:
    """Metadata that a clone, a resubmitted or a recirculated packet keeps."""

    fields: tuple[Field, ...]


@dataclass(frozen=True)
class DigestList:
    """What a digest tells the controller."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Program:
    """A whole program. `standard` maps the names of BMv2's standard metadata to the fields that the program has.

    `deparser` are the headers in the order in which they leave; `deparser_body` is done before that.
    """

    headers: tuple[Header, ...]
    stacks: tuple[Stack, ...]
    unions: tuple[tuple[int, ...], ...]
    value_sets: tuple[ValueSet, ...]
    messages: tuple[Message, ...]
    errors: dict[str, int]
    parser_start: int | None
    parser: tuple[ParserState, ...]
    actions: tuple[Action, ...]
    ingress: Pipeline
    egress: Pipeline
    deparser: tuple[int, ...]
    deparser_body: tuple[Statement, ...]
    calculations: tuple[Calculation, ...]
    checksums: tuple[Checksum, ...]
    counters: tuple[CounterArray, ...]
    meters: tuple[MeterArray, ...]
    direct_meters: tuple[DirectMeter, ...]
    profiles: tuple[ActionProfile, ...]
    registers: tuple[RegisterArray, ...]
    field_lists: tuple[FieldList, ...]
    digests: tuple[DigestList, ...]
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

    def rivals(self, header: int) -> tuple[int, ...]:
        """The headers that become invalid when a header becomes valid: the others of its union."""
        union = next((members for members in self.unions if header in members), ())
        return tuple(other for other in union if other != header)
