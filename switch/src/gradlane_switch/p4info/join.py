# SPDX-License-Identifier: Apache-2.0
"""P4Info joined with the program: ids of P4Runtime to indices of the program, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from finsy.proto import p4i

from gradlane_switch.constraints.annotations import declared_restrictions
from gradlane_switch.constraints.restrictions import Field, Restrictions
from gradlane_switch.constraints.syntax import ConstraintError
from gradlane_switch.errors import ProgramError
from gradlane_switch.ir.layout import too_long
from gradlane_switch.ir.parser import ValueSet
from gradlane_switch.ir.program import Program
from gradlane_switch.ir.tables import KeyPart, MatchKind, Table
from gradlane_switch.p4info.p4data import data_type
from gradlane_switch.p4info.packet_io import packet_headers
from gradlane_switch.p4info.schema import (
    ActionSchema,
    ArraySchema,
    DigestSchema,
    FieldSchema,
    Known,
    ProfileSchema,
    RegisterSchema,
    Schema,
    TableSchema,
    ValueSetSchema,
)
from gradlane_switch.p4info.translation import Names, Translations

# What has ids and names of its own.
_KINDS = (
    "tables",
    "actions",
    "action_profiles",
    "counters",
    "meters",
    "registers",
    "digests",
    "value_sets",
)


_Item = TypeVar("_Item")


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def join(info: Any, program: Program) -> Schema:
    """The schema of a P4Info (p4.config.v1.P4Info) and the program it was made with.

    Raises ProgramError naming what the two disagree on, or what this switch does not support.
    """
    for item in info.externs:
        raise ProgramError(f"externs are not supported: {item.extern_type_name}")
    for kind in _KINDS:
        _check_distinct(kind.replace("_", " "), [item.preamble for item in getattr(info, kind)])
    joiner = _Joiner(info, program)
    tables = _of_both(info.tables, program.tables, joiner.table)
    if tables.absent and not tables and any(table.keys and not table.immutable for table in program.tables):
        names = ", ".join(tables.absent.values())
        raise ProgramError(f"P4Info is of another program: that has none of the tables {names}")
    profiles = {item.preamble.id for item in info.action_profiles}
    for table in tables.values():
        if table.profile is not None and table.profile not in profiles:
            raise ProgramError(f"P4Info gives {table.name} an action profile that it does not have: {table.profile}")
    return Schema(
        tables,
        _of_both(info.counters, program.counters, joiner.counter),
        _of_both(info.meters, program.meters, joiner.meter),
        _of_both(info.registers, program.registers, joiner.register),
        _of_both(info.value_sets, program.value_sets, joiner.value_set),
        _of_both(info.action_profiles, program.profiles, joiner.profile),
        _of_both(info.digests, program.digests, joiner.digest),
        packet_headers(info, program, joiner.translations),
        tuple(joiner.translations.names.values()),
    )


def _check_distinct(kind: str, items: Any) -> None:
    """Raises ProgramError if two things have the same id or name."""
    for what in ("id", "name"):
        seen: set[Any] = set()
        for value in (getattr(item, what) for item in items):
            if value in seen:
                raise ProgramError(f"P4Info has two {kind} of the {what} {value}")
            seen.add(value)


def _of_both(items: Any, known: Sequence[_Named], joined: Callable[[Any, int], _Item]) -> Known[_Item]:
    """What P4Info and the program both have, by name. `joined` gets P4Info's, and the place of the program's."""
    found = Known[_Item]()
    places: dict[str, int] = {}
    for place, item in enumerate(known):
        places.setdefault(item.name, place)
    for item in items:
        number, name = item.preamble.id, item.preamble.name
        if name in places:
            found[number] = joined(item, places[name])
        else:
            found.absent[number] = name
    return found


def _match_kind(field: Any) -> str:
    kinds = p4i.MatchField.MatchType
    return kinds.Name(field.match_type) if field.match_type in kinds.values() else f"match type {field.match_type}"


class _Joiner:
    """Joins one item of P4Info with its place in the program. Methods raise ProgramError."""

    def __init__(self, info: Any, program: Program) -> None:
        self._types = info.type_info
        self._program = program
        self._actions = {item.preamble.id: item for item in info.actions}
        self.translations = Translations(info.type_info)
        self.tables: list[TableSchema] = []

    def table(self, item: Any, index: int) -> TableSchema:
        name = item.preamble.name
        table = self._program.tables[index]
        if bool(item.implementation_id) != (table.profile is not None):
            raise ProgramError(f"P4Info and the program disagree on the action profile of {name}")
        if len(item.match_fields) != len(table.keys):
            raise ProgramError(f"P4Info and the program disagree on the match fields of {name}")
        _check_distinct(f"match fields of {name}", item.match_fields)
        fields = tuple(self._field(field, key, name) for field, key in zip(item.match_fields, table.keys, strict=True))
        counters, meters = (
            [number for number in item.direct_resource_ids if number >> 24 == kind]
            for kind in (p4i.P4Ids.DIRECT_COUNTER, p4i.P4Ids.DIRECT_METER)
        )
        found = TableSchema(
            id=item.preamble.id,
            name=name,
            index=index,
            table=table,
            fields=fields,
            actions=tuple(self._action(reference, table) for reference in item.action_refs),
            size=item.size or table.size,
            constant=item.is_const_table or (table.immutable and not item.has_initial_entries),
            ordered=any(key.kind in (MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL) for key in table.keys),
            restrictions=_restrictions("entry_restriction", item, [(it.name, it.key) for it in fields]),
            direct_counter=counters[0] if counters and table.direct_counter else None,
            direct_meter=meters[0] if meters and table.direct_meter is not None else None,
            profile=item.implementation_id or None,
        )
        self.tables.append(found)
        return found

    def _field(self, field: Any, key: KeyPart, table: str) -> FieldSchema:
        kind, what = _match_kind(field), f"{table}.{field.name}"
        if (kind, key.kind) == ("OPTIONAL", MatchKind.TERNARY):
            key = replace(key, kind=MatchKind.OPTIONAL)  # p4c has no word for it in BMv2's JSON.
        translated = self.translations.translated(field)
        # A key of type error has no width in P4Info.
        if (translated is None and field.bitwidth not in (key.width, 0)) or kind != key.kind.name:
            raise ProgramError(
                f"P4Info and the program disagree on {what}: "
                f"{kind} of {field.bitwidth} bits, {key.kind.name} of {key.width} bits"
            )
        translation = self.translations.of(field, key.width, what)
        if isinstance(translation, Names) and key.kind not in (MatchKind.EXACT, MatchKind.OPTIONAL):
            raise ProgramError(f"{what}: a string (type {translated}) is matched as exact or optional, not as {kind}")
        return FieldSchema(field.id, field.name, key, table, translation)

    def _action(self, reference: Any, table: Table) -> ActionSchema:
        if reference.id not in self._actions:
            raise ProgramError(f"P4Info gives {table.name} an action that it does not have: {reference.id}")
        action = self._actions[reference.id]
        name = action.preamble.name
        _check_distinct(f"parameters of {name}", action.params)
        known = self._program.actions
        index = next((number for number in table.actions if known[number].name == name), None)
        if index is None:
            raise ProgramError(f"P4Info gives {table.name} an action that the program does not: {name}")
        params = list(zip(action.params, known[index].params, strict=False))
        if len(action.params) != len(known[index].params) or any(
            param.bitwidth != width and self.translations.translated(param) is None for param, width in params
        ):
            raise ProgramError(f"P4Info and the program disagree on the parameters of {name}")
        translations = {param.id: self.translations.of(param, width, f"{name}.{param.name}") for param, width in params}
        parameters = [(param.name, KeyPart(MatchKind.EXACT, width)) for param, width in params]
        return ActionSchema(
            id=reference.id,
            name=name,
            index=index,
            params=tuple((param.id, param.name) for param in action.params),
            widths=known[index].params,
            in_entries=reference.scope != p4i.ActionRef.DEFAULT_ONLY,
            in_default=reference.scope != p4i.ActionRef.TABLE_ONLY,
            restrictions=_restrictions("action_restriction", action, parameters),
            translations={number: found for number, found in translations.items() if found is not None},
        )

    def counter(self, item: Any, index: int) -> ArraySchema:
        unit = item.spec.unit
        return ArraySchema(
            item.preamble.id,
            item.preamble.name,
            index,
            self._program.counters[index].size,
            counts_packets=unit in (p4i.CounterSpec.PACKETS, p4i.CounterSpec.BOTH),
            counts_bytes=unit in (p4i.CounterSpec.BYTES, p4i.CounterSpec.BOTH),
        )

    def meter(self, item: Any, index: int) -> ArraySchema:
        return ArraySchema(item.preamble.id, item.preamble.name, index, self._program.meters[index].size)

    def register(self, item: Any, index: int) -> RegisterSchema:
        name, known = item.preamble.name, self._program.registers[index]
        kind = data_type(item.type_spec, self._types, name, known.width)
        if kind.width != known.width:
            raise ProgramError(f"P4Info and the program disagree on {name}: {kind}, and cells of {known.width} bits")
        return RegisterSchema(item.preamble.id, name, index, known.size, data=kind)

    def profile(self, item: Any, index: int) -> ProfileSchema:
        number, name = item.preamble.id, item.preamble.name
        if item.with_selector != (self._program.profiles[index].selector is not None):
            raise ProgramError(f"P4Info and the program disagree on the selector of {name}")
        users = [table for table in self.tables if table.profile == number]
        if not users or any(table.table.profile != index for table in users):
            raise ProgramError(f"P4Info and the program disagree on the tables of {name}")
        return ProfileSchema(number, name, index, item.size, item.max_group_size, item.with_selector, users[0])

    def digest(self, item: Any, index: int) -> DigestSchema:
        number, name = item.preamble.id, item.preamble.name
        shape, specs = _members(item.type_spec, self._types, name)
        found = {tuple(it.width for it in digest.fields) for digest in self._program.digests if digest.name == name}
        widths = next(iter(found))
        types = tuple(data_type(spec, self._types, name, width) for spec, width in zip(specs, widths, strict=False))
        if len(specs) != len(widths) or {tuple(kind.width for kind in types)} != found:
            raise ProgramError(f"P4Info and the program disagree on the members of {name}")
        return DigestSchema(number, name, index, shape, types)

    def value_set(self, item: Any, index: int) -> ValueSetSchema:
        name, keys = item.preamble.name, self._program.value_sets[index].keys
        _check_distinct(f"fields of {name}", item.match)
        if len(item.match) != len(keys):
            raise ProgramError(f"P4Info and the program disagree on the fields of {name}")
        fields = tuple(self._field(field, key, name) for field, key in zip(item.match, keys, strict=True))
        for field in fields:
            if isinstance(field.translation, Names):
                raise ProgramError(f"{field.what}: strings of translated types in value sets are not supported")
        return ValueSetSchema(item.preamble.id, name, index, item.size, fields)


def _restrictions(annotation: str, item: Any, keys: list[tuple[str, KeyPart]]) -> Restrictions:
    """What the annotation of a table or an action says of its fields or parameters. Raises ProgramError."""
    fields = [Field(name, key.kind, key.width) for name, key in keys]
    try:
        return declared_restrictions(annotation, item.preamble.annotations, fields)
    except ConstraintError as error:
        raise ProgramError(f"@{annotation} of {item.preamble.name}: {error}") from None


def _members(spec: Any, types: Any, what: str) -> tuple[str, list[Any]]:
    kind = spec.WhichOneof("type_spec")
    if kind == "struct":
        if spec.struct.name not in types.structs:
            raise ProgramError(f"P4Info has no type {spec.struct.name}, the type of {what}")
        return "struct", [member.type_spec for member in types.structs[spec.struct.name].members]
    if kind == "tuple":
        return "tuple", list(spec.tuple.members)
    return "scalar", [spec]


def with_match_kinds(program: Program, info: Any) -> Program:
    """The program, whose value sets match as P4Info says: BMv2's JSON does not say. Raises ProgramError."""
    described = {item.preamble.name: item.match for item in info.value_sets}
    value_sets: list[ValueSet] = []
    for item in program.value_sets:
        fields = described.get(item.name, ())
        known = (*(_kind_of(field, item.name) for field in fields),)
        if not item.keys:  # No select uses it, or a select's keys would be there.
            keys = tuple(KeyPart(kind, field.bitwidth) for kind, field in zip(known, fields, strict=True))
        elif len(known) == len(item.keys):
            keys = tuple(replace(key, kind=kind) for key, kind in zip(item.keys, known, strict=True))
        else:
            keys = item.keys
        if what := too_long(keys):
            raise ProgramError(f"a {what} is not supported: {item.name}")
        value_sets.append(replace(item, keys=keys))
    return replace(program, value_sets=tuple(value_sets))


def _kind_of(field: Any, value_set: str) -> MatchKind:
    name = _match_kind(field)
    try:
        return MatchKind[name]
    except KeyError:
        raise ProgramError(f"match kind {name} is not supported: {value_set}.{field.name}") from None
