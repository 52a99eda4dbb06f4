# SPDX-License-Identifier: Apache-2.0
"""`@refers_to`: which entries must be there before others may name them.

What several fields of one table, or several parameters of one action, say of the same table is one reference: an entry
with all these values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradlane_switch.constraints.annotations import declared_references
from gradlane_switch.constraints.syntax import ConstraintError
from gradlane_switch.errors import ProgramError
from gradlane_switch.ir.tables import MatchKind
from gradlane_switch.p4info.schema import TableSchema

GROUPS = 0
"""What stands for the id of a table where multicast groups are meant."""

_Tables = Mapping[str, TableSchema | None]
"""By name and alias. None: P4Info has it, but the program does not, so that nothing can be there to refer to."""
_BUILTIN_GROUPS = ("builtin::multicast_group_table", "multicast_group_id")


@dataclass(frozen=True)
class Place:
    """Some of the key fields of a table, by which its entries are referred to."""

    table: int
    """P4Runtime id, or GROUPS."""
    name: str
    fields: tuple[int, ...]
    """Positions of the key fields."""
    field_names: tuple[str, ...]


@dataclass(frozen=True)
class Reference:
    """What a table's key or an action's parameters refer to.

    `sources` are their positions, `name` is whose they are; `optional` are those of optional fields, which refer to
    nothing when they are left out.
    """

    name: str
    sources: tuple[int, ...]
    place: Place
    optional: tuple[int, ...] = ()


@dataclass(frozen=True)
class References:
    """Every reference: of keys by the table's id, of parameters by the action's index in the program."""

    keys: Mapping[int, tuple[Reference, ...]]
    parameters: Mapping[int, tuple[Reference, ...]]

    @property
    def places(self) -> set[Place]:
        """Everything that is referred to."""
        return {it.place for found in (*self.keys.values(), *self.parameters.values()) for it in found}


def join_references(info: Any, tables: Mapping[int, TableSchema]) -> References:
    """The references in a P4Info. Raises ProgramError that names one to what there is not."""
    names = {name: tables.get(it.preamble.id) for it in info.tables for name in (it.preamble.alias, it.preamble.name)}
    present = [(item, tables[item.preamble.id]) for item in info.tables if item.preamble.id in tables]
    keys = {schema.id: _of_key(item, schema, names) for item, schema in present}
    by_id = {item.preamble.id: _references(item.preamble.name, item.params, names) for item in info.actions}
    # The program has an action once for each table that uses it.
    parameters = {it.index: by_id[it.id] for schema in tables.values() for it in schema.actions}
    return References(keys, parameters)


def _of_key(item: Any, schema: TableSchema, tables: _Tables) -> tuple[Reference, ...]:
    kinds = [field.key.kind for field in schema.fields]
    found: list[Reference] = []
    for reference in _references(schema.name, item.match_fields, tables):
        for position in reference.sources:
            if kinds[position] not in (MatchKind.EXACT, MatchKind.OPTIONAL):
                raise ProgramError(f"{schema.fields[position].what}: @refers_to is for exact and optional fields")
        optional = tuple(it for it in reference.sources if kinds[it] is MatchKind.OPTIONAL)
        found.append(replace(reference, optional=optional))
    return tuple(found)


def _references(name: str, items: Sequence[Any], tables: _Tables) -> tuple[Reference, ...]:
    """By what they refer to, the positions of the items that do; a field is named once in each reference."""
    found: list[tuple[str, dict[str, int]]] = []
    for position, item in enumerate(items):
        try:
            declared = declared_references(item.annotations)
        except ConstraintError as error:
            raise ProgramError(f"{name}.{item.name}: {error}") from None
        for table, field in declared:
            same = (pairs for other, pairs in found if other == table and field not in pairs)
            pairs = next(same, None)
            if pairs is None:
                found.append((table, pairs := {}))
            pairs[field] = position
    return tuple(
        Reference(name, tuple(pairs.values()), _place(name, table, list(pairs), tables))
        for table, pairs in found
        if table not in tables or tables[table] is not None
    )


def _place(name: str, table: str, fields: list[str], tables: _Tables) -> Place:
    if table == _BUILTIN_GROUPS[0] and fields == [_BUILTIN_GROUPS[1]]:
        return Place(GROUPS, "multicast groups", (0,), ("id",))
    schema = tables.get(table)
    if schema is None:
        raise ProgramError(f"{name} refers to {table}, and there is no such table")
    exact = {it.name: n for n, it in enumerate(schema.fields) if it.key.kind is MatchKind.EXACT}
    for field in fields:
        if field not in exact:
            raise ProgramError(f"{name} refers to {table}.{field}, and there is no such exact field")
    return Place(schema.id, schema.name, tuple(exact[field] for field in fields), tuple(fields))
