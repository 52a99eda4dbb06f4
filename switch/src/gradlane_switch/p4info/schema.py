# SPDX-License-Identifier: Apache-2.0
"""What controllers may name, by its P4Runtime id, and what that is in the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from gradlane_switch.constraints.restrictions import Restrictions
from gradlane_switch.ir.tables import KeyPart, Table
from gradlane_switch.p4info.p4data import DataType
from gradlane_switch.p4info.packet_io import PacketHeader
from gradlane_switch.p4info.translation import Names, Resized, Translation


@dataclass(frozen=True)
class FieldSchema:
    """A match field: its id, and the program's key field."""

    id: int
    name: str
    key: KeyPart
    table: str
    translation: Translation | None = None

    @cached_property
    def what(self) -> str:
        """How errors call it."""
        return f"{self.table}.{self.name}"

    @cached_property
    def mask(self) -> str:
        """How errors call its mask."""
        return f"{self.what} mask"

    @cached_property
    def kind(self) -> str:
        """Its match kind, as P4Runtime's messages name it."""
        return self.key.kind.value

    @cached_property
    def full(self) -> int:
        """The greatest value that the program has."""
        return (1 << self.key.width) - 1

    @cached_property
    def bits(self) -> int:
        """The width that controllers see. What it has beyond the program's is zeros in front."""
        return self.translation.bits if isinstance(self.translation, Resized) else self.key.width

    @cached_property
    def excess(self) -> int:
        """How much wider that is than in the program."""
        return self.bits - self.key.width

    @cached_property
    def most(self) -> int:
        """The greatest value that controllers see."""
        return (1 << self.bits) - 1


@dataclass(frozen=True)
class ActionSchema:
    """An action of a table: ids and names of its parameters in order, and how they are translated, by id."""

    id: int
    name: str
    index: int
    params: tuple[tuple[int, str], ...]
    widths: tuple[int, ...]
    in_entries: bool
    in_default: bool
    restrictions: Restrictions
    translations: Mapping[int, Translation]

    @cached_property
    def what(self) -> dict[int, str]:
        """How errors call its parameters, by id, in order."""
        return {number: f"{self.name}.{name}" for number, name in self.params}


@dataclass(frozen=True)
class TableSchema:
    """A table that controllers see."""

    id: int
    name: str
    index: int
    table: Table
    fields: tuple[FieldSchema, ...]
    actions: tuple[ActionSchema, ...]
    size: int
    constant: bool
    ordered: bool
    """True if entries need a priority."""
    restrictions: Restrictions
    direct_counter: int | None
    """Id of the table's direct counter."""
    direct_meter: int | None = None
    """Id of the table's direct meter."""
    profile: int | None = None
    """Id of the table's action profile."""

    @cached_property
    def by_field(self) -> dict[int, FieldSchema]:
        """The match fields by their ids."""
        return {item.id: item for item in self.fields}

    @cached_property
    def _by_id(self) -> dict[int, ActionSchema]:
        return {item.id: item for item in self.actions}

    @cached_property
    def _by_index(self) -> dict[int, ActionSchema]:
        return {item.index: item for item in self.actions}

    def action(self, number: int) -> ActionSchema | None:
        """The action with a P4Runtime id."""
        return self._by_id.get(number)

    def action_by_index(self, index: int) -> ActionSchema | None:
        """The action with an index of the program."""
        return self._by_index.get(index)


@dataclass(frozen=True)
class ArraySchema:
    """An indirect counter, meter or register."""

    id: int
    name: str
    index: int
    size: int
    counts_packets: bool = True
    counts_bytes: bool = True


@dataclass(frozen=True, kw_only=True)
class RegisterSchema(ArraySchema):
    """A register, and the type of its cells."""

    data: DataType


@dataclass(frozen=True)
class ProfileSchema:
    """An action profile, and one of its tables, which all have the same actions. A size of 0 is no limit."""

    id: int
    name: str
    index: int
    size: int
    max_group_size: int
    with_selector: bool
    table: TableSchema


@dataclass(frozen=True)
class DigestSchema:
    """A digest: the types of its members, and their `shape`: `struct`, `tuple`, or `scalar` for one alone."""

    id: int
    name: str
    index: int
    shape: str
    types: tuple[DataType, ...]


@dataclass(frozen=True)
class ValueSetSchema:
    """A parser value set, and how many members it may have."""

    id: int
    name: str
    index: int
    size: int
    fields: tuple[FieldSchema, ...]

    @cached_property
    def by_field(self) -> dict[int, FieldSchema]:
        """The match fields by their ids."""
        return {item.id: item for item in self.fields}


_Item = TypeVar("_Item")


class Known(dict[int, _Item]):
    """What controllers may name of one kind, by id. `absent`: names of what P4Info has, but not the program.

    p4c describes what it then takes out of the program, because no packet can reach it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.absent: dict[int, str] = {}


@dataclass(frozen=True)
class Schema:
    """Everything that controllers may name, by id, and the strings of translated types."""

    tables: Known[TableSchema]
    counters: Known[ArraySchema]
    meters: Known[ArraySchema]
    registers: Known[RegisterSchema]
    value_sets: Known[ValueSetSchema]
    profiles: Known[ProfileSchema]
    digests: Known[DigestSchema]
    packet_headers: dict[str, PacketHeader]
    names: tuple[Names, ...]
