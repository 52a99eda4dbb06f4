# SPDX-License-Identifier: Apache-2.0
"""Table entries, default entries, their direct counters and meters, as P4Runtime writes and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r, rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.ir.layout import TableKind
from gradlane_switch.ir.tables import ActionCall
from gradlane_switch.p4info.bytestrings import invalid
from gradlane_switch.p4info.schema import TableSchema
from gradlane_switch.p4runtime.entities.actions import decode_action, find_action
from gradlane_switch.p4runtime.entities.counts import (
    check_clears,
    colour_data,
    counter_data,
    counter_value,
    meter_config,
    meter_rates,
)
from gradlane_switch.p4runtime.entities.match import encode_match
from gradlane_switch.p4runtime.entities.profiles import decode_entry_action, encode_entry_action
from gradlane_switch.p4runtime.entities.table_keys import (
    check_default,
    check_priority,
    entry_key,
    find_table,
    no_such_entry,
    selected_entries,
)
from gradlane_switch.p4runtime.entities.updates import DELETE, INSERT, MODIFY
from gradlane_switch.state.counts import CounterValue, MeterRates
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.profiles import Chosen
from gradlane_switch.state.tables import Entry, EntryKey, TableState


def cost(pipeline: Pipeline, message: Any) -> int:
    """How long packets wait while an entry is written, where an exact one is 1; 1 if there is no such table."""
    schema = pipeline.schema.tables.get(message.table_id)
    if schema is None:
        return 1
    layout = pipeline.state.tables[schema.index].layout
    each = {TableKind.EXACT: 1, TableKind.LPM: 2, TableKind.LIST: 2 + 2 * len(layout.indexed)}[layout.kind]
    return each + len(message.action.action_profile_action_set.action_profile_actions)


# Writing


def write_table_entry(pipeline: Pipeline, kind: int, message: Any) -> None:
    """Applies an update of a table entry or a default entry. Raises EntityError."""
    schema, table = find_table(pipeline, message.table_id)
    if message.is_default_action:
        _write_default(pipeline, schema, table, kind, message)
        return
    if schema.constant and kind != MODIFY:
        text = f"{schema.name} is a constant table: only counters of its entries and its default entry can be modified"
        raise EntityError(rpc_code.PERMISSION_DENIED, text)
    key = entry_key(schema, message)
    old = table.entries.get(key)
    if kind == INSERT:
        if old is not None:
            raise EntityError(rpc_code.ALREADY_EXISTS, f"{schema.name} has that entry already")
        if len(table.entries) >= schema.size:
            raise EntityError(rpc_code.RESOURCE_EXHAUSTED, f"{schema.name} is full: {schema.size} entries")
        counter, rates = _resources(schema, message)
        call = decode_entry_action(pipeline, schema, message.action)
        entry = _entry(schema, key, call, message)
        with pipeline.references.entry(schema.id, None, entry):
            table.insert(entry)
    else:
        if old is None:
            raise no_such_entry(schema)
        if old.constant and (kind == DELETE or message.HasField("action")):
            text = f"{schema.name}: this entry is constant: of it only counters can be modified, with the action unset"
            raise EntityError(rpc_code.PERMISSION_DENIED, text)
        if kind == DELETE:
            with pipeline.references.entry(schema.id, old, None):
                table.delete(key)
            return
        counter, rates = _resources(schema, message)
        if message.HasField("action"):
            call = decode_entry_action(pipeline, schema, message.action)
            entry = _entry(schema, key, call, message)
            with pipeline.references.entry(schema.id, old, entry):
                table.modify(entry)
    if counter is not None:
        table.write_counter(key, counter)
    if rates is not None or key in table.meters:
        table.write_meter(key, rates)
    if message.HasField("meter_counter_data"):
        table.clear_colours(key)
    if schema.table.timeout:
        table.touch(key, pipeline.state.clock())


def _entry(schema: TableSchema, key: EntryKey, call: ActionCall | Chosen, message: Any) -> Entry:
    """What an update makes of an entry. Raises EntityError if the table's restrictions forbid it."""
    broken = schema.restrictions.violation(*key)
    if broken:
        raise invalid(f"{schema.name}: {broken}")
    idle = message.idle_timeout_ns
    return Entry(*key, call, message.metadata, message.controller_metadata, idle_timeout=idle)


def _resources(schema: TableSchema, message: Any) -> tuple[CounterValue | None, MeterRates | None]:
    """What an update sets an entry's direct counter and meter to. Raises EntityError for what the table lacks."""
    if message.HasField("time_since_last_hit"):
        raise invalid(f"{schema.name}: time_since_last_hit can only be read")
    if message.idle_timeout_ns and not schema.table.timeout:
        raise invalid(f"{schema.name} has no idle timeout: leave idle_timeout_ns unset")
    if message.idle_timeout_ns < 0:
        raise invalid(f"{schema.name}: idle_timeout_ns = {message.idle_timeout_ns} is negative")
    if message.HasField("meter_counter_data"):
        if schema.direct_meter is None:
            raise invalid(f"{schema.name} has no direct meter: leave meter_counter_data unset")
        check_clears(message.meter_counter_data, schema.name)
    rates = None
    if message.HasField("meter_config"):
        if schema.direct_meter is None:
            raise invalid(f"{schema.name} has no direct meter: leave meter_config unset")
        rates = meter_rates(message.meter_config, schema.name)
    return _counter_to_set(schema, message), rates


def _counter_to_set(schema: TableSchema, message: Any) -> CounterValue | None:
    """The direct counter's value that an update carries. Raises EntityError for resources that the table lacks."""
    if not message.HasField("counter_data"):
        return None
    if schema.direct_counter is None:
        raise invalid(f"{schema.name} has no direct counter: leave counter_data unset")
    return counter_value(message.counter_data)


def _write_default(pipeline: Pipeline, schema: TableSchema, table: TableState, kind: int, message: Any) -> None:
    if kind != MODIFY:
        raise invalid(f"the default entry of {schema.name} can only be modified: it is always there")
    check_default(schema, message)
    if table.table.const_default:
        raise EntityError(rpc_code.PERMISSION_DENIED, f"the default entry of {schema.name} is constant")
    counter = _counter_to_set(schema, message)
    if message.HasField("action"):
        call = decode_action(schema, message.action, default=True)
        entry = Entry((), 0, call, message.metadata, message.controller_metadata)
        with pipeline.references.entry(schema.id, table.default, entry):
            table.set_default(entry)
    else:
        with pipeline.references.entry(schema.id, table.default, table.initial_default):
            table.reset_default()
        if schema.direct_counter is not None:
            table.write_counter(None, CounterValue())
    if counter is not None:
        table.write_counter(None, counter)


# Reading


def read_table_entries(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The table entries that a request asks for; None where there are none among a few. Raises EntityError."""
    if request.table_id == 0:
        schemas = list(pipeline.schema.tables.values())
        if request.match or request.priority or request.HasField("action"):
            raise invalid("a read of every table (table_id 0) has no match fields, no priority and no action")
    else:
        schemas = [find_table(pipeline, request.table_id)[0]]
        _check_filters(schemas[0], request)
    for schema in schemas:
        table = pipeline.state.tables[schema.index]
        for some in selected_entries(schema, table, request):
            entries = [entry for entry in some if _wanted(request, schema, entry)]
            yield from _messages(pipeline, schema, table, request, entries) or [None]


def _messages(pipeline: Pipeline, schema: TableSchema, table: TableState, request: Any, entries: list[Entry]) -> Any:
    """A few entries with those of their resources that a request asks for."""
    default = request.is_default_action
    counters = request.HasField("counter_data") and schema.direct_counter is not None
    messages = _table_messages(schema, table, entries, counters=counters, default=default)
    if not default:
        keys = [entry.key for entry in entries]
        if request.HasField("meter_config"):
            for entry, message in zip(entries, messages, strict=True):
                _add_meter(table, entry, message)
        if request.HasField("meter_counter_data") and schema.direct_meter is not None:
            for colours, message in zip(table.read_colours(keys), messages, strict=True):
                message.meter_counter_data.CopyFrom(colour_data(colours))
        if request.HasField("time_since_last_hit") and schema.table.timeout:
            for key, message in zip(keys, messages, strict=True):
                elapsed = pipeline.state.clock() - table.last_hit(key)
                message.time_since_last_hit.elapsed_ns = max(elapsed, 0)
    return messages


def _add_meter(table: TableState, entry: Entry, message: Any) -> None:
    rates = table.meters.get(entry.key)
    if rates is not None:
        message.meter_config.CopyFrom(meter_config(rates))


def snapshot_entry(pipeline: Pipeline, message: Any) -> Iterator[Any]:
    """The entry that an update means, as it is, with its direct resources, if there is one. Raises EntityError."""
    schema, table = find_table(pipeline, message.table_id)
    counters = schema.direct_counter is not None
    entry = table.default if message.is_default_action else table.entries.get(entry_key(schema, message))
    if entry is not None:
        [found] = _table_messages(schema, table, [entry], counters=counters, default=message.is_default_action)
        if entry.constant:
            found.ClearField("action")
        _add_meter(table, entry, found)
        yield found


def _check_filters(schema: TableSchema, request: Any) -> None:
    """Raises EntityError if one of the fields that narrow a read of a table can't be what it is."""
    if request.is_default_action:
        check_default(schema, request)
    check_priority(schema, request.priority)
    if request.HasField("time_since_last_hit") and not schema.table.timeout:
        raise invalid(f"{schema.name} has no idle timeout: leave time_since_last_hit unset")
    if request.HasField("action"):
        if request.action.WhichOneof("type") != "action":
            raise invalid(
                f"{schema.name}: entries can be selected by an action, not by {request.action.WhichOneof('type')}"
            )
        find_action(schema, request.action.action.action_id)


def _wanted(request: Any, schema: TableSchema, entry: Entry) -> bool:
    """Whether an entry passes the other filters of a read."""
    if request.priority and request.priority != entry.priority:
        return False
    if request.metadata and request.metadata != entry.metadata:
        return False
    if request.controller_metadata and request.controller_metadata != entry.controller_metadata:
        return False
    if request.HasField("action"):
        if not isinstance(entry.call, ActionCall):
            return False
        action = schema.action_by_index(entry.call.action)
        return action is not None and action.id == request.action.action.action_id
    return True


def _table_messages(
    schema: TableSchema, table: TableState, entries: list[Entry], *, counters: bool, default: bool
) -> list[Any]:
    messages = [_table_message(schema, entry, default=default) for entry in entries]
    if counters:
        values = table.read_counters([None if default else entry.key for entry in entries])
        for value, message in zip(values, messages, strict=True):
            message.counter_data.CopyFrom(counter_data(value))
    return messages


def _table_message(schema: TableSchema, entry: Entry, *, default: bool) -> Any:
    message = p4r.TableEntry(
        table_id=schema.id,
        action=encode_entry_action(schema, entry.call),
        priority=entry.priority,
        metadata=entry.metadata,
        controller_metadata=entry.controller_metadata,
        idle_timeout_ns=entry.idle_timeout,
        is_default_action=default,
        is_const=entry.constant,
    )
    if not default:
        message.match.extend(encode_match(schema, entry.match))
    return message
