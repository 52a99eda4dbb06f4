# SPDX-License-Identifier: Apache-2.0
"""Takes the state of one pipeline over into another, for RECONCILE_AND_COMMIT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r

from gradlane_switch.errors import EntityError
from gradlane_switch.p4info.bytestrings import invalid
from gradlane_switch.p4info.schema import ArraySchema
from gradlane_switch.p4runtime.entities import dispatch
from gradlane_switch.p4runtime.entities.cells import pieces
from gradlane_switch.p4runtime.entities.updates import INSERT, MODIFY
from gradlane_switch.state.pipeline import Pipeline

_GROUPS = p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry())
_SESSIONS = p4r.PacketReplicationEngineEntry(clone_session_entry=p4r.CloneSessionEntry())
_ENTRIES = p4r.TableEntry(counter_data=p4r.CounterData(), meter_config=p4r.MeterConfig())
# What controllers write, with what it needs before it.
_KEPT = (
    (INSERT, p4r.Entity(action_profile_member=p4r.ActionProfileMember())),
    (INSERT, p4r.Entity(action_profile_group=p4r.ActionProfileGroup())),
    (INSERT, p4r.Entity(table_entry=_ENTRIES)),
    (INSERT, p4r.Entity(packet_replication_engine_entry=_GROUPS)),
    (INSERT, p4r.Entity(packet_replication_engine_entry=_SESSIONS)),
    (INSERT, p4r.Entity(digest_entry=p4r.DigestEntry())),
    (MODIFY, p4r.Entity(value_set_entry=p4r.ValueSetEntry())),
    (MODIFY, p4r.Entity(meter_entry=p4r.MeterEntry())),
)


# What has an id in a P4Info.
_NAMED = (
    "tables",
    "actions",
    "action_profiles",
    "counters",
    "direct_counters",
    "meters",
    "direct_meters",
    "controller_packet_metadata",
    "value_sets",
    "registers",
    "digests",
)


def reconcile(old: Pipeline, new: Pipeline) -> None:
    """Gives a fresh pipeline the state of another one.

    What controllers wrote is kept whole, or EntityError (INVALID_ARGUMENT) names what the new program has no place for.
    Counters and registers, which packets change, are kept where the new program has them under the same name.
    """
    _require_same_names(old, new)
    try:
        with new.references.deferred():
            _reconcile_written(old, new)
    except EntityError as error:
        raise invalid(f"the new program can't keep the state: {error}") from None
    for before, after in _pairs(old.schema.counters, new.schema.counters):
        for first, count in pieces(min(before.size, after.size)):
            for cell, value in enumerate(old.state.read_counters(before.index, first, count), first):
                if value.packets or value.bytes:
                    new.state.write_counters(after.index, cell, 1, value)
    for before, after in _pairs(old.schema.registers, new.schema.registers):
        if before.data == after.data:
            for first, count in pieces(min(before.size, after.size)):
                for cell, value in enumerate(old.state.read_registers(before.index, first, count), first):
                    if value:
                        new.state.write_registers(after.index, cell, 1, value)


def _reconcile_written(old: Pipeline, new: Pipeline) -> None:
    """Gives it what controllers wrote. Raises EntityError."""
    for number in old.schema.tables.keys() & new.schema.tables.keys():
        table = new.state.tables[new.schema.tables[number].index]
        for entry in [entry for entry in table.entries.values() if not entry.constant]:
            with new.references.entry(number, entry, None):
                table.delete(entry.key)  # The table's initial entries; the old pipeline has what became of them.
    for kind, wanted in _KEPT:
        for entity in dispatch.read(old, wanted):
            if _is_written(entity):
                dispatch.apply(new, kind, entity)
    for entity in _changed_defaults(old):
        dispatch.apply(new, MODIFY, entity)


def _is_written(entity: Any) -> bool:
    """Whether a controller wrote what a read gave."""
    kind = entity.WhichOneof("entity")
    if kind == "table_entry":
        return not entity.table_entry.is_const
    if kind == "meter_entry":
        return entity.meter_entry.HasField("config")
    return kind != "value_set_entry" or bool(entity.value_set_entry.members)


def _changed_defaults(old: Pipeline) -> Iterator[Any]:
    for schema in old.schema.tables.values():
        table = old.state.tables[schema.index]
        if table.default is not None and not table.default_is_initial:
            request = p4r.TableEntry(table_id=schema.id, is_default_action=True)
            yield from dispatch.read(old, p4r.Entity(table_entry=request))


def _require_same_names(old: Pipeline, new: Pipeline) -> None:
    """An id stands for the same thing in both P4Infos, or for nothing in one of them. Raises EntityError."""
    names = dict(_names(new.info))
    for number, name in _names(old.info):
        if names.get(number, name) != name:
            shown = f"{number[0]:#x}" if len(number) == 1 else f"{number[1]} of {number[0]:#x}"
            raise invalid(
                f"the new program can't keep the state: id {shown} meant {name} and now means {names[number]}"
            )


def _names(info: Any) -> Iterator[tuple[tuple[int, ...], str]]:
    for kind in _NAMED:
        for item in getattr(info, kind):
            yield (item.preamble.id,), item.preamble.name
    for table in info.tables:
        for item in table.match_fields:
            yield (table.preamble.id, item.id), item.name
    for action in info.actions:
        for item in action.params:
            yield (action.preamble.id, item.id), item.name


def _pairs(old: dict[int, Any], new: dict[int, Any]) -> Iterator[tuple[Any, Any]]:
    by_name: dict[str, ArraySchema] = {item.name: item for item in new.values()}
    for item in old.values():
        if item.name in by_name:
            yield item, by_name[item.name]
