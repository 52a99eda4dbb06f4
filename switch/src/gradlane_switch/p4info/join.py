# SPDX-License-Identifier: Apache-2.0
"""P4Info joined with the program: ids of P4Runtime to indices of the program, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from finsy.proto import p4i

from gradlane_switch.constraints.annotations import declared_restrictions
from gradlane_switch.constraints.restrictions import Field, Restrictions
from gradlane_switch.constraints.syntax import ConstraintError
from gradlane_switch.errors import ProgramError
from gradlane_switch.ir.externs import CounterArray, MeterArray
from gradlane_switch.ir.layout import fits
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
    ProfileSchema,
    RegisterSchema,
    Schema,
    TableSchema,
    ValueSetSchema,
)

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
    actions = {item.preamble.id: item for item in info.actions}
    tables = [_join_table(item, program, actions) for item in info.tables]
    profiles = {item.preamble.id for item in info.action_profiles}
    for table in tables:
        if table.profile is not None and table.profile not in profiles:
            raise ProgramError(f"P4Info gives {table.name} an action profile that it does not have: {table.profile}")
    return Schema(
        {item.id: item for item in tables},
        _join_arrays("counter", info.counters, program.counters),
        _join_arrays("meter", info.meters, program.meters),
        _join_registers(info, program),
        _join_value_sets(info, program),
        _join_profiles(info, program, tables),
        _join_digests(info, program),
        packet_headers(info),
    )


def _check_distinct(kind: str, items: Any) -> None:
    """Raises ProgramError if two things have the same id or name."""
    for what in ("id", "name"):
        seen: set[Any] = set()
        for value in (getattr(item, what) for item in items):
            if value in seen:
                raise ProgramError(f"P4Info has two {kind} of the {what} {value}")
            seen.add(value)


def _index(what: str, name: str, known: Sequence[_Named]) -> int:
    """The place of what has a name. Raises ProgramError if nothing has it."""
    for index, item in enumerate(known):
        if item.name == name:
            return index
    raise ProgramError(f"P4Info names {what} that the program lacks: {name}")


def _join_table(item: Any, program: Program, actions: dict[int, Any]) -> TableSchema:
    name = item.preamble.name
    index = _index("a table", name, program.tables)
    table = program.tables[index]
    if bool(item.implementation_id) != (table.profile is not None):
        raise ProgramError(f"P4Info and the program disagree on the action profile of {name}")
    if len(item.match_fields) != len(table.keys):
        raise ProgramError(f"P4Info and the program disagree on the match fields of {name}")
    _check_distinct(f"match fields of {name}", item.match_fields)
    fields = tuple(_join_field(field, key, name) for field, key in zip(item.match_fields, table.keys, strict=True))
    counters, meters = (
        [number for number in item.direct_resource_ids if number >> 24 == kind]
        for kind in (p4i.P4Ids.DIRECT_COUNTER, p4i.P4Ids.DIRECT_METER)
    )
    return TableSchema(
        id=item.preamble.id,
        name=name,
        index=index,
        table=table,
        fields=fields,
        actions=tuple(_join_action(reference, actions, table, program) for reference in item.action_refs),
        size=item.size or table.size,
        constant=item.is_const_table or (table.immutable and not item.has_initial_entries),
        ordered=any(key.kind in (MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL) for key in table.keys),
        restrictions=_restrictions("entry_restriction", item, [(it.name, it.key) for it in fields]),
        direct_counter=counters[0] if counters and table.direct_counter else None,
        direct_meter=meters[0] if meters and table.direct_meter is not None else None,
        profile=item.implementation_id or None,
    )


def _match_kind(field: Any) -> str:
    kinds = p4i.MatchField.MatchType
    return kinds.Name(field.match_type) if field.match_type in kinds.values() else f"match type {field.match_type}"


def _join_field(field: Any, key: KeyPart, table: str) -> FieldSchema:
    kind = _match_kind(field)
    if field.HasField("type_name") and field.bitwidth == 0:
        raise ProgramError(f"translated types are not supported: {table}.{field.name}")
    if (kind, key.kind) == ("OPTIONAL", MatchKind.TERNARY):
        key = replace(key, kind=MatchKind.OPTIONAL)  # p4c has no word for it in BMv2's JSON.
    # A key of type error has no width in P4Info.
    if field.bitwidth not in (key.width, 0) or kind != key.kind.name:
        raise ProgramError(
            f"P4Info and the program disagree on {table}.{field.name}: "
            f"{kind} of {field.bitwidth} bits, {key.kind.name} of {key.width} bits"
        )
    return FieldSchema(field.id, field.name, key, table)


def _join_action(reference: Any, actions: dict[int, Any], table: Table, program: Program) -> ActionSchema:
    if reference.id not in actions:
        raise ProgramError(f"P4Info gives {table.name} an action that it does not have: {reference.id}")
    action = actions[reference.id]
    name = action.preamble.name
    _check_distinct(f"parameters of {name}", action.params)
    index = next((number for number in table.actions if program.actions[number].name == name), None)
    if index is None:
        raise ProgramError(f"P4Info gives {table.name} an action that the program does not: {name}")
    widths = program.actions[index].params
    if tuple(param.bitwidth for param in action.params) != widths:
        raise ProgramError(f"P4Info and the program disagree on the parameters of {name}")
    return ActionSchema(
        id=reference.id,
        name=name,
        index=index,
        params=tuple((param.id, param.name) for param in action.params),
        widths=widths,
        in_entries=reference.scope != p4i.ActionRef.DEFAULT_ONLY,
        in_default=reference.scope != p4i.ActionRef.TABLE_ONLY,
        restrictions=_restrictions(
            "action_restriction", action, [(it.name, KeyPart(MatchKind.EXACT, it.bitwidth)) for it in action.params]
        ),
    )


def _restrictions(annotation: str, item: Any, keys: list[tuple[str, KeyPart]]) -> Restrictions:
    """What the annotation of a table or an action says of its fields or parameters. Raises ProgramError."""
    fields = [Field(name, key.kind, key.width) for name, key in keys]
    try:
        return declared_restrictions(annotation, item.preamble.annotations, fields)
    except ConstraintError as error:
        raise ProgramError(f"@{annotation} of {item.preamble.name}: {error}") from None


def _join_arrays(kind: str, items: Any, known: Sequence[CounterArray | MeterArray]) -> dict[int, ArraySchema]:
    result: dict[int, ArraySchema] = {}
    for item in items:
        name = item.preamble.name
        index = _index(f"a {kind}", name, known)
        unit = item.spec.unit if kind == "counter" else p4i.CounterSpec.BOTH
        result[item.preamble.id] = ArraySchema(
            item.preamble.id,
            name,
            index,
            known[index].size,
            counts_packets=unit in (p4i.CounterSpec.PACKETS, p4i.CounterSpec.BOTH),
            counts_bytes=unit in (p4i.CounterSpec.BYTES, p4i.CounterSpec.BOTH),
        )
    return result


def _join_registers(info: Any, program: Program) -> dict[int, RegisterSchema]:
    result: dict[int, RegisterSchema] = {}
    for item in info.registers:
        name = item.preamble.name
        index = _index("a register", name, program.registers)
        known = program.registers[index]
        kind = data_type(item.type_spec, info.type_info, name)
        if kind.width != known.width:
            raise ProgramError(f"P4Info and the program disagree on {name}: {kind}, and cells of {known.width} bits")
        result[item.preamble.id] = RegisterSchema(item.preamble.id, name, index, known.size, data=kind)
    return result


def _join_profiles(info: Any, program: Program, tables: list[TableSchema]) -> dict[int, ProfileSchema]:
    result: dict[int, ProfileSchema] = {}
    for item in info.action_profiles:
        number, name = item.preamble.id, item.preamble.name
        index = _index("an action profile", name, program.profiles)
        if item.with_selector != (program.profiles[index].selector is not None):
            raise ProgramError(f"P4Info and the program disagree on the selector of {name}")
        users = [table for table in tables if table.profile == number]
        if not users or any(table.table.profile != index for table in users):
            raise ProgramError(f"P4Info and the program disagree on the tables of {name}")
        result[number] = ProfileSchema(
            number, name, index, item.size, item.max_group_size, item.with_selector, users[0]
        )
    return result


def _join_digests(info: Any, program: Program) -> dict[int, DigestSchema]:
    result: dict[int, DigestSchema] = {}
    for item in info.digests:
        number, name = item.preamble.id, item.preamble.name
        index = _index("a digest", name, program.digests)
        shape, specs = _members(item.type_spec, info.type_info, name)
        types = tuple(data_type(spec, info.type_info, name) for spec in specs)
        widths = {tuple(field.width for field in found.fields) for found in program.digests if found.name == name}
        if {tuple(kind.width for kind in types)} != widths:
            raise ProgramError(f"P4Info and the program disagree on the members of {name}")
        result[number] = DigestSchema(number, name, index, shape, types)
    return result


def _members(spec: Any, types: Any, what: str) -> tuple[str, list[Any]]:
    kind = spec.WhichOneof("type_spec")
    if kind == "struct":
        if spec.struct.name not in types.structs:
            raise ProgramError(f"P4Info has no type {spec.struct.name}, the type of {what}")
        return "struct", [member.type_spec for member in types.structs[spec.struct.name].members]
    if kind == "tuple":
        return "tuple", list(spec.tuple.members)
    return "scalar", [spec]


def _join_value_sets(info: Any, program: Program) -> dict[int, ValueSetSchema]:
    result: dict[int, ValueSetSchema] = {}
    for item in info.value_sets:
        name = item.preamble.name
        index = _index("a value set", name, program.value_sets)
        _check_distinct(f"fields of {name}", item.match)
        keys = program.value_sets[index].keys
        if [field.bitwidth for field in item.match] != [key.width for key in keys]:
            raise ProgramError(f"P4Info and the program disagree on the fields of {name}")
        fields = tuple(_join_field(field, key, name) for field, key in zip(item.match, keys, strict=True))
        result[item.preamble.id] = ValueSetSchema(item.preamble.id, name, index, item.size, fields)
    return result


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
        if not fits(keys):
            raise ProgramError(f"a key of so many bits is not supported: {item.name}")
        value_sets.append(replace(item, keys=keys))
    return replace(program, value_sets=tuple(value_sets))


def _kind_of(field: Any, value_set: str) -> MatchKind:
    name = _match_kind(field)
    try:
        return MatchKind[name]
    except KeyError:
        raise ProgramError(f"match kind {name} is not supported: {value_set}.{field.name}") from None
