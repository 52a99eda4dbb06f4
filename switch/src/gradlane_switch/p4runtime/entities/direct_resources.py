# SPDX-License-Identifier: Apache-2.0
"""Direct counters and direct meters of table entries, as P4Runtime writes and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r

from gradlane_switch.p4info.bytestrings import invalid
from gradlane_switch.p4info.schema import TableSchema
from gradlane_switch.p4runtime.entities.counts import (
    check_clears,
    colour_data,
    counter_data,
    counter_value,
    meter_config,
    meter_rates,
)
from gradlane_switch.p4runtime.entities.match import encode_match
from gradlane_switch.p4runtime.entities.table_keys import (
    check_default,
    check_priority,
    entry_key,
    find_table,
    no_such_entry,
    selected_entries,
)
from gradlane_switch.p4runtime.entities.updates import modify_only
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.tables import Entry, EntryKey, TableState


def _key_message(schema: TableSchema, entry: Entry, *, default: bool) -> Any:
    """The p4.v1.TableEntry that names an entry whose direct resource is meant."""
    match = [] if default else encode_match(schema, entry.match)
    return p4r.TableEntry(table_id=schema.id, match=match, priority=entry.priority, is_default_action=default)


def _direct(
    pipeline: Pipeline, schemas: list[TableSchema], wanted: Any
) -> Iterator[tuple[TableSchema, TableState, list[Entry]]]:
    """The entries of tables whose direct resources a request asks for, a few at a time. Raises EntityError."""
    if wanted.table_id == 0 and (wanted.match or wanted.priority):
        raise invalid("a read of the direct resources of every table (table_id 0) has no match fields and no priority")
    if wanted.table_id:
        check_priority(schemas[0], wanted.priority)
    if wanted.is_default_action and schemas:
        check_default(schemas[0], wanted)
    for schema in schemas:
        table = pipeline.state.tables[schema.index]
        none = True
        for some in selected_entries(schema, table, wanted):
            entries = [entry for entry in some if wanted.priority in (0, entry.priority)]
            none = none and not entries
            yield schema, table, entries
        if wanted.match and none:
            raise no_such_entry(schema)


# Direct counters


def _direct_counter(pipeline: Pipeline, number: int) -> tuple[TableSchema, TableState]:
    schema, table = find_table(pipeline, number)
    if schema.direct_counter is None:
        raise invalid(f"{schema.name} has no direct counter")
    return schema, table


def write_direct_counter(pipeline: Pipeline, kind: int, message: Any) -> None:
    """Sets the direct counter of an entry. Raises EntityError."""
    modify_only(kind, "direct counter")
    schema, table = _direct_counter(pipeline, message.table_entry.table_id)
    key = _counted_key(schema, message.table_entry)
    if key is not None and key not in table.entries:
        raise no_such_entry(schema)
    if message.HasField("data"):
        table.write_counter(key, counter_value(message.data))


def read_direct_counters(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The direct counters that a request asks for; None where there are none among a few. Raises EntityError."""
    wanted = request.table_entry
    if wanted.table_id == 0:
        schemas = [schema for schema in pipeline.schema.tables.values() if schema.direct_counter is not None]
    else:
        schemas = [_direct_counter(pipeline, wanted.table_id)[0]]
    for schema, table, entries in _direct(pipeline, schemas, wanted):
        yield from _counter_messages(schema, table, entries, default=wanted.is_default_action) or [None]


def snapshot_direct_counter(pipeline: Pipeline, message: Any) -> Iterator[Any]:
    """The direct counter that an update means, as it is; none if there is no such entry. Raises EntityError."""
    schema, table = _direct_counter(pipeline, message.table_entry.table_id)
    key = _counted_key(schema, message.table_entry)
    entry = table.default if key is None else table.entries.get(key)
    if entry is not None:
        yield from _counter_messages(schema, table, [entry], default=key is None)


def _counted_key(schema: TableSchema, message: Any) -> EntryKey | None:
    """The key of the entry whose counter is meant; None is the default entry."""
    if not message.is_default_action:
        return entry_key(schema, message)
    check_default(schema, message)
    return None


def _counter_messages(schema: TableSchema, table: TableState, entries: list[Entry], *, default: bool) -> list[Any]:
    values = table.read_counters([None if default else entry.key for entry in entries])
    return [
        p4r.DirectCounterEntry(table_entry=_key_message(schema, entry, default=default), data=counter_data(value))
        for entry, value in zip(entries, values, strict=True)
    ]


# Direct meters


def _direct_meter(pipeline: Pipeline, message: Any) -> tuple[TableSchema, TableState]:
    schema, table = find_table(pipeline, message.table_entry.table_id)
    if schema.direct_meter is None:
        raise invalid(f"{schema.name} has no direct meter")
    if message.table_entry.is_default_action:
        raise invalid(f"the default entry of {schema.name} has no meter: a miss is not metered")
    return schema, table


def write_direct_meter(pipeline: Pipeline, kind: int, message: Any) -> None:
    """Configures the direct meter of an entry. Raises EntityError."""
    modify_only(kind, "direct meter")
    schema, table = _direct_meter(pipeline, message)
    key = entry_key(schema, message.table_entry)
    if key not in table.entries:
        raise no_such_entry(schema)
    check_clears(message.counter_data, schema.name)
    table.write_meter(key, meter_rates(message.config, schema.name) if message.HasField("config") else None)
    if message.HasField("counter_data"):
        table.clear_colours(key)


def read_direct_meters(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The direct meters that a request asks for; None where there are none among a few. Raises EntityError."""
    wanted = request.table_entry
    if wanted.table_id == 0:
        if wanted.is_default_action:
            raise invalid("default entries have no meter: a miss is not metered")
        schemas = [schema for schema in pipeline.schema.tables.values() if schema.direct_meter is not None]
    else:
        schemas = [_direct_meter(pipeline, request)[0]]
    for schema, table, entries in _direct(pipeline, schemas, wanted):
        messages = [_meter_message(schema, table, entry) for entry in entries]
        if request.HasField("counter_data"):
            for message, colours in zip(messages, table.read_colours([entry.key for entry in entries]), strict=True):
                message.counter_data.CopyFrom(colour_data(colours))
        yield from messages or [None]


def snapshot_direct_meter(pipeline: Pipeline, message: Any) -> Iterator[Any]:
    """The direct meter that an update means, as it is; none if there is no such entry. Raises EntityError."""
    schema, table = _direct_meter(pipeline, message)
    entry = table.entries.get(entry_key(schema, message.table_entry))
    if entry is not None:
        yield _meter_message(schema, table, entry)


def _meter_message(schema: TableSchema, table: TableState, entry: Entry) -> Any:
    message = p4r.DirectMeterEntry(table_entry=_key_message(schema, entry, default=False))
    rates = table.meters.get(entry.key)
    if rates is not None:
        message.config.CopyFrom(meter_config(rates))
    return message
