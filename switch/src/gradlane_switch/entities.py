# SPDX-License-Identifier: Apache-2.0
"""Writes and reads of P4Runtime entities on a pipeline. The gRPC service and the in-process switch both use this."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r, rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.match import decode_action, decode_match, encode, encode_action, encode_match, invalid
from gradlane_switch.pipeline import Pipeline
from gradlane_switch.schema import ArraySchema, TableSchema
from gradlane_switch.state import CounterValue, Entry, EntryKey, Group, MeterRates, Replica, TableState

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
# Entities of features that are refused at load, and the field that is 0 when a read asks for all of them.
_NEVER_THERE = {
    "action_profile_member": "action_profile_id",
    "action_profile_group": "action_profile_id",
    "value_set_entry": "value_set_id",
    "digest_entry": "digest_id",
}
_CHUNK = 512  # cells or entries read at a time
_MAX_METER = 1 << 53
_MAX_INSTANCE = (1 << 16) - 1
_MAX_GROUP = (1 << 16) - 1


def write(pipeline: Pipeline, update: Any) -> None:
    """Applies one p4.v1.Update, whole or not at all. Raises EntityError."""
    if update.type not in (INSERT, MODIFY, DELETE):
        raise invalid("the update has no type: INSERT, MODIFY or DELETE is wanted")
    kind = update.entity.WhichOneof("entity")
    writers = {
        "table_entry": _write_table_entry,
        "counter_entry": _write_counter,
        "direct_counter_entry": _write_direct_counter,
        "meter_entry": _write_meter,
        "packet_replication_engine_entry": _write_replication,
    }
    if kind is None:
        raise invalid("the update has no entity")
    if kind not in writers:
        raise EntityError(rpc_code.UNIMPLEMENTED, f"writing a {kind} is not supported")
    writers[kind](pipeline, update.type, getattr(update.entity, kind))


def read(pipeline: Pipeline, entity: Any) -> Iterator[Any]:
    """The entities (p4.v1.Entity) that a request asks for. Raises EntityError."""
    kind = entity.WhichOneof("entity")
    readers = {
        "table_entry": _read_table_entries,
        "counter_entry": _read_counters,
        "direct_counter_entry": _read_direct_counters,
        "meter_entry": _read_meters,
        "packet_replication_engine_entry": _read_replication,
    }
    if kind is None:
        raise invalid("the request has no entity")
    if kind in _NEVER_THERE and not getattr(getattr(entity, kind), _NEVER_THERE[kind]):
        return  # Every entity of a kind that no pipeline here can have: there are none.
    if kind not in readers:
        raise EntityError(rpc_code.UNIMPLEMENTED, f"reading a {kind} is not supported")
    for message in readers[kind](pipeline, getattr(entity, kind)):
        yield p4r.Entity(**{kind: message})


# Tables


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


def _write_table_entry(pipeline: Pipeline, kind: int, message: Any) -> None:
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
        table.write_counter(key, _counter_value(message.counter_data))


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
        table.write_counter(None, _counter_value(message.counter_data))


def _read_table_entries(pipeline: Pipeline, request: Any) -> Iterator[Any]:
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


# Counters


def _counter_value(data: Any) -> CounterValue:
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid("a counter can't be negative")
    return CounterValue(data.packet_count, data.byte_count)


def _array(arrays: dict[int, ArraySchema], kind: str, number: int) -> ArraySchema:
    if number not in arrays:
        raise EntityError(rpc_code.NOT_FOUND, f"there is no {kind} with the id {number}")
    return arrays[number]


def _cells(array: ArraySchema, message: Any) -> tuple[int, int]:
    """First cell and number of cells that a message means."""
    if not message.HasField("index"):
        return 0, array.size
    index = message.index.index
    if index < 0:
        raise invalid(f"{array.name}: index {index} is negative")
    if index >= array.size:
        raise EntityError(rpc_code.OUT_OF_RANGE, f"{array.name}: index {index} is beyond its size of {array.size}")
    return index, 1


def _modify_only(kind: int, what: str) -> None:
    if kind != MODIFY:
        raise invalid(f"a {what} can only be modified")


def _write_counter(pipeline: Pipeline, kind: int, message: Any) -> None:
    _modify_only(kind, "counter")
    array = _array(pipeline.schema.counters, "counter", message.counter_id)
    first, count = _cells(array, message)
    if message.HasField("data"):
        pipeline.state.write_counters(array.index, first, count, _counter_value(message.data))


def _read_counters(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    if request.counter_id == 0:
        arrays = list(pipeline.schema.counters.values())
    else:
        arrays = [_array(pipeline.schema.counters, "counter", request.counter_id)]
    for array in arrays:
        first, count = _cells(array, request) if request.counter_id else (0, array.size)
        for start in range(first, first + count, _CHUNK):
            values = pipeline.state.read_counters(array.index, start, min(_CHUNK, first + count - start))
            for index, value in enumerate(values, start):
                message = p4r.CounterEntry(counter_id=array.id)
                message.index.index = index
                message.data.SetInParent()
                if array.counts_packets:
                    message.data.packet_count = value.packets
                if array.counts_bytes:
                    message.data.byte_count = value.bytes
                yield message


def _direct_counter(pipeline: Pipeline, number: int) -> tuple[TableSchema, TableState]:
    schema, table = _table(pipeline, number)
    if schema.direct_counter is None:
        raise invalid(f"{schema.name} has no direct counter")
    return schema, table


def _write_direct_counter(pipeline: Pipeline, kind: int, message: Any) -> None:
    _modify_only(kind, "direct counter")
    schema, table = _direct_counter(pipeline, message.table_entry.table_id)
    key = None if message.table_entry.is_default_action else _key(schema, message.table_entry)
    if key is not None and key not in table.entries:
        raise EntityError(rpc_code.NOT_FOUND, f"{schema.name} has no such entry")
    if message.HasField("data"):
        table.write_counter(key, _counter_value(message.data))


def _read_direct_counters(pipeline: Pipeline, request: Any) -> Iterator[Any]:
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


# Meters


def _write_meter(pipeline: Pipeline, kind: int, message: Any) -> None:
    _modify_only(kind, "meter")
    array = _array(pipeline.schema.meters, "meter", message.meter_id)
    first, count = _cells(array, message)
    rates = None
    if message.HasField("config"):
        config = message.config
        if config.eburst:
            raise invalid(f"{array.name}: eburst is for single-rate meters")
        rates = MeterRates(config.cir, config.cburst, config.pir, config.pburst)
        for name in ("cir", "cburst", "pir", "pburst"):
            if not 0 <= getattr(rates, name) <= _MAX_METER:
                raise invalid(f"{array.name}: {name} = {getattr(rates, name)} is not in 0..{_MAX_METER}")
        if rates.cir > rates.pir:
            raise invalid(f"{array.name}: cir = {rates.cir} is above pir = {rates.pir}")
    for cell in range(first, first + count):
        pipeline.state.write_meter(array.index, cell, rates)


def _read_meters(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    if request.meter_id == 0:
        arrays = list(pipeline.schema.meters.values())
    else:
        arrays = [_array(pipeline.schema.meters, "meter", request.meter_id)]
    for array in arrays:
        first, count = _cells(array, request) if request.meter_id else (0, array.size)
        for cell in range(first, first + count):
            message = p4r.MeterEntry(meter_id=array.id)
            message.index.index = cell
            rates = pipeline.state.meters.get((array.index, cell))
            if rates is not None:
                message.config.cir, message.config.cburst = rates.cir, rates.cburst
                message.config.pir, message.config.pburst = rates.pir, rates.pburst
            yield message


# Multicast


def _write_replication(pipeline: Pipeline, kind: int, message: Any) -> None:
    if message.WhichOneof("type") != "multicast_group_entry":
        raise EntityError(rpc_code.UNIMPLEMENTED, "clone sessions are not supported")
    group = message.multicast_group_entry
    number = group.multicast_group_id
    if not 0 < number <= _MAX_GROUP:
        raise invalid(f"multicast group {number} is not in 1..{_MAX_GROUP}")
    exists = number in pipeline.state.groups
    if kind == INSERT and exists:
        raise EntityError(rpc_code.ALREADY_EXISTS, f"multicast group {number} exists already")
    if kind != INSERT and not exists:
        raise EntityError(rpc_code.NOT_FOUND, f"there is no multicast group {number}")
    if kind == DELETE:
        pipeline.state.set_group(number, None)
        return
    replicas = tuple(_replica(number, item) for item in group.replicas)
    if len(set(replicas)) != len(replicas):
        raise invalid(f"multicast group {number} has the same (port, instance) twice")
    pipeline.state.set_group(number, Group(replicas, group.metadata))


def _replica(number: int, item: Any) -> Replica:
    if item.backup_replicas:
        raise EntityError(rpc_code.UNIMPLEMENTED, f"multicast group {number}: backup replicas are not supported")
    port = int.from_bytes(item.port, "big") if item.WhichOneof("port_kind") == "port" else item.egress_port
    if not 0 < port < 511:
        raise invalid(f"multicast group {number}: {port} is not a port number (1..510)")
    if item.instance > _MAX_INSTANCE:
        raise invalid(f"multicast group {number}: instance {item.instance} is above {_MAX_INSTANCE}")
    return Replica(port, item.instance)


def _read_replication(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    if request.HasField("clone_session_entry") and request.clone_session_entry.session_id == 0:
        return  # Every clone session: there are none.
    if request.WhichOneof("type") != "multicast_group_entry":
        raise EntityError(rpc_code.UNIMPLEMENTED, "clone sessions are not supported")
    wanted = request.multicast_group_entry.multicast_group_id
    for number, group in list(pipeline.state.groups.items()):
        if wanted in (0, number):
            message = p4r.PacketReplicationEngineEntry()
            message.multicast_group_entry.multicast_group_id = number
            message.multicast_group_entry.metadata = group.metadata
            for item in group.replicas:
                message.multicast_group_entry.replicas.add(port=encode(item.port), instance=item.instance)
            yield message
