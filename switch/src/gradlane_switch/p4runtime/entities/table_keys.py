# SPDX-License-Identifier: Apache-2.0
"""Which table, and which of its entries, a P4Runtime message means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.p4info.bytestrings import invalid
from gradlane_switch.p4info.schema import TableSchema
from gradlane_switch.p4runtime.entities.match import decode_match
from gradlane_switch.p4runtime.entities.updates import find
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.tables import Entry, EntryKey, TableState

_FEW = 16


def find_table(pipeline: Pipeline, number: int) -> tuple[TableSchema, TableState]:
    """The table with an id. Raises EntityError (NOT_FOUND)."""
    schema = find(pipeline.schema.tables, "table", number)
    return schema, pipeline.state.tables[schema.index]


def entry_key(schema: TableSchema, message: Any) -> EntryKey:
    """The key of the entry that a message means. Raises EntityError naming the field."""
    match = decode_match(schema, message.match)
    check_priority(schema, message.priority)
    if schema.ordered and not message.priority:
        raise invalid(f"{schema.name}: an entry with ternary, range or optional fields needs a priority above 0")
    return match, message.priority


def check_priority(schema: TableSchema, priority: int) -> None:
    """Raises EntityError if entries of the table can't have the priority; 0 stands for none."""
    if not schema.ordered and priority:
        raise invalid(f"{schema.name}: priority {priority} in a table whose fields are all exact or lpm: leave it 0")
    if priority < 0:
        raise invalid(f"{schema.name}: priority {priority} is negative")


def no_such_entry(schema: TableSchema) -> EntityError:
    """The error to raise for an entry that does not exist."""
    return EntityError(rpc_code.NOT_FOUND, f"{schema.name} has no such entry")


def check_default(schema: TableSchema, message: Any) -> None:
    """Raises EntityError if a message about the default entry has what only other entries have."""
    if message.match or message.priority:
        raise invalid(f"the default entry of {schema.name} has neither match fields nor a priority")
    if message.idle_timeout_ns or message.HasField("time_since_last_hit"):
        raise invalid(f"the default entry of {schema.name} has no idle timeout")
    if message.HasField("meter_config") or message.HasField("meter_counter_data"):
        raise invalid(f"the default entry of {schema.name} has no meter: a miss is not metered")


def selected_entries(schema: TableSchema, table: TableState, request: Any) -> Iterator[list[Entry]]:
    """The entries that the key fields of a request select, a few at a time, each as it is when its turn comes.

    Raises EntityError.
    """
    if request.is_default_action:
        yield [] if table.default is None else [table.default]
        return
    match = decode_match(schema, request.match) if request.match else None
    if match is not None and (not schema.ordered or request.priority):
        keys = [(match, request.priority)]
    else:
        keys = list(table.entries)
    for start in range(0, len(keys), _FEW):
        some = (table.entries.get(key) for key in keys[start : start + _FEW] if match in (None, key[0]))
        yield [entry for entry in some if entry is not None]
