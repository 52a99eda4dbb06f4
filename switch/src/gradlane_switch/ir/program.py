# SPDX-License-Identifier: Apache-2.0
"""A whole P4 program, once its BMv2 JSON has been read: typed, resolved to indices, and known to be supported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gradlane_switch.ir.expressions import Field, join_words
from gradlane_switch.ir.externs import (
    ActionProfile,
    Calculation,
    Checksum,
    CounterArray,
    DirectMeter,
    MeterArray,
    RegisterArray,
)
from gradlane_switch.ir.headers import Header, Stack
from gradlane_switch.ir.parser import ParserState, ValueSet
from gradlane_switch.ir.statements import Statement
from gradlane_switch.ir.tables import Action, ControlFlow, Table

DROP_PORT = 511
"""v1model's: a packet that is sent there is dropped."""


@dataclass(frozen=True)
class Message:
    """A message for the log: its text, in which each {} stands for a value, and where in the program it comes from."""

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
class Digest:
    """A digest: the fields that the controller gets."""

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
    ingress: ControlFlow
    egress: ControlFlow
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
    digests: tuple[Digest, ...]
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
