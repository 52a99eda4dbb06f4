# SPDX-License-Identifier: Apache-2.0
"""Table entries, default entries and their direct counters, as P4Runtime writes and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r, rpc_code

from gradlane_switch.bytestrings import invalid
from gradlane_switch.errors import EntityError
from gradlane_switch.match import decode_action, decode_match, encode_action, encode_match
from gradlane_switch.pipeline import Pipeline
from gradlane_switch.schema import TableSchema
from gradlane_switch.state import CounterValue, Entry, EntryKey, TableState
from gradlane_switch.updates import DELETE, INSERT, MODIFY, counter_value, modify_only


def _table(pipeline: Pipeline, number: int) -> tuple[TableSchema, TableState]:
    schema = pipeline.schema.tables.get(number)
    if schema is None:
        raise EntityError(rpc_code.NOT_FOUND, f"there is no table with the id {number}")
    return schema, pipeline.state.tables[schema.index]


def _key(schema: TableSchema, message: Any) -> EntryKey:
    match = decode_match(schema, message.match)
    if schema.ordered and message.priority <= 0:
        raise invalid(f"{schema.name}: an entry with ternary, range or optional fields needs a priority above 0")
    if not schema.ordered and message.priority != 0:
        raise invalid(f"{schema.name}: priority {message.priority} in a table whose fields are all exact or lpm")
    return match, message.priority


def write_table_entry(pipeline: Pipeline, kind: int, message: Any) -> None:
    """Applies an update of a table entry or a default entry. Raises EntityError."""
    schema, table = _table(pipeline, message.table_id)
    if message.idle_timeout_ns or message.HasField("time_since_last_hit"):
        raise invalid(f"{schema.name} has no idle timeout")
    if message.HasField("meter_config") or message.HasField("meter_counter_data"):
        raise invalid(f"{schema.name} has no direct meter")
    if message.HasField("counter_data") and schema.direct_counter is None:
        raise invalid(f"{schema.name} has no direct counter")
    if message.is_default_action:
        _write_default(schema, table, kind, message)
        return
    if schema.constant:
        raise EntityError(rpc_code.PERMISSION_DENIED, f"{schema.name} is a constant table")
    key = _key(schema, message)
    exists = key in table.entries
    if kind == INSERT and exists:
        raise EntityError(rpc_code.ALREADY_EXISTS, f"{schema.name} has that entry already")
    if kind != INSERT and not exists:
        raise EntityError(rpc_code.NOT_FOUND, f"{schema.name} has no such entry")
    if kind == DELETE:
        table.delete(key)
        return
    call = decode_action(schema, message.action, default=False)
    entry = Entry(*key, call, message.metadata, message.controller_metadata)
    if kind == INSERT:
        if len(table.entries) >= schema.size:
            raise EntityError(rpc_code.RESOURCE_EXHAUSTED, f"{schema.name} is full: {schema.size} entries")
        table.insert(entry)
    else:
        table.modify(entry)
    if message.HasField("counter_data"):
        table.write_counter(key, counter_value(message.counter_data))


def _write_default(schema: TableSchema, table: TableState, kind: int, message: Any) -> None:
    if kind != MODIFY:
        raise invalid(f"the default entry of {schema.name} can only be modified")
    if message.match or message.priority:
        raise invalid(f"the default entry of {schema.name} has neither match fields nor a priority")
    if table.table.const_default:
        raise EntityError(rpc_code.PERMISSION_DENIED, f"the default entry of {schema.name} is constant")
    if message.HasField("action"):
        call = decode_action(schema, message.action, default=True)
        table.set_default(Entry((), 0, call, message.metadata, message.controller_metadata))
    else:
        table.reset_default()
        if schema.direct_counter is not None:
            table.write_counter(None, CounterValue())
    if message.HasField("counter_data"):
        table.write_counter(None, counter_value(message.counter_data))


def read_table_entries(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The table entries that a request asks for. Raises EntityError."""
    if request.table_id == 0:
        schemas = list(pipeline.schema.tables.values())
        if request.match or request.priority:
            raise invalid("a read of every table has no match fields and no priority")
    else:
        schemas = [_table(pipeline, request.table_id)[0]]
    for schema in schemas:
        table = pipeline.state.tables[schema.index]
        counters = request.HasField("counter_data") and schema.direct_counter is not None
        if request.is_default_action:
            if table.default is not None:
                yield _table_message(schema, table, table.default, counters=counters, default=True)
        elif request.match:
            found = table.entries.get(_key(schema, request))
            if found is not None and _wanted(request, schema, found):
                yield _table_message(schema, table, found, counters=counters)
        else:
            for entry in list(table.entries.values()):
                if _wanted(request, schema, entry):
                    yield _table_message(schema, table, entry, counters=counters)


def _wanted(request: Any, schema: TableSchema, entry: Entry) -> bool:
    """Whether an entry passes the filters of a wildcard read."""
    if request.priority and request.priority != entry.priority:
        return False
    if request.metadata and request.metadata != entry.metadata:
        return False
    if request.controller_metadata and request.controller_metadata != entry.controller_metadata:
        return False
    if request.action.WhichOneof("type") == "action":
        action = schema.action_by_index(entry.call.action)
        return action is not None and action.id == request.action.action.action_id
    return True


def _table_message(
    schema: TableSchema, table: TableState, entry: Entry, *, counters: bool, default: bool = False
) -> Any:
    message = p4r.TableEntry(
        table_id=schema.id,
        action=encode_action(schema, entry.call),
        priority=entry.priority,
        metadata=entry.metadata,
        controller_metadata=entry.controller_metadata,
        is_default_action=default,
        is_const=entry.constant,
    )
    if not default:
        message.match.extend(encode_match(schema, entry.match))
    if counters:
        value = table.read_counter(None if default else (entry.match, entry.priority))
        message.counter_data.packet_count, message.counter_data.byte_count = value.packets, value.bytes
    return message


def _direct_counter(pipeline: Pipeline, number: int) -> tuple[TableSchema, TableState]:
    schema, table = _table(pipeline, number)
    if schema.direct_counter is None:
        raise invalid(f"{schema.name} has no direct counter")
    return schema, table


def write_direct_counter(pipeline: Pipeline, kind: int, message: Any) -> None:
    """Sets the direct counter of an entry. Raises EntityError."""
    modify_only(kind, "direct counter")
    schema, table = _direct_counter(pipeline, message.table_entry.table_id)
    key = None if message.table_entry.is_default_action else _key(schema, message.table_entry)
    if key is not None and key not in table.entries:
        raise EntityError(rpc_code.NOT_FOUND, f"{schema.name} has no such entry")
    if message.HasField("data"):
        table.write_counter(key, counter_value(message.data))


def read_direct_counters(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The direct counters that a request asks for. Raises EntityError."""
    wanted = request.table_entry
    if wanted.table_id == 0:
        pairs = [_table(pipeline, schema.id) for schema in pipeline.schema.tables.values()]
        pairs = [(schema, table) for schema, table in pairs if schema.direct_counter is not None]
    else:
        pairs = [_direct_counter(pipeline, wanted.table_id)]
    for schema, table in pairs:
        if wanted.is_default_action:
            entries = [] if table.default is None else [table.default]
        elif wanted.match:
            key = _key(schema, wanted)
            if key not in table.entries:
                raise EntityError(rpc_code.NOT_FOUND, f"{schema.name} has no such entry")
            entries = [table.entries[key]]
        else:
            entries = list(table.entries.values())
        for entry in entries:
            value = table.read_counter(None if wanted.is_default_action else (entry.match, entry.priority))
            message = p4r.DirectCounterEntry()
            message.table_entry.table_id = schema.id
            message.table_entry.priority = entry.priority
            message.table_entry.is_default_action = wanted.is_default_action
            if not wanted.is_default_action:
                message.table_entry.match.extend(encode_match(schema, entry.match))
            message.data.packet_count, message.data.byte_count = value.packets, value.bytes
            yield message
