# SPDX-License-Identifier: Apache-2.0
"""Cells of indirect counters, meters and registers, as P4Runtime writes and reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from finsy.proto import p4r, rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.p4info.bytestrings import invalid
from gradlane_switch.p4info.p4data import decode_data, encode_data
from gradlane_switch.p4info.schema import ArraySchema, Known
from gradlane_switch.p4runtime.entities.counts import (
    check_clears,
    colour_data,
    counter_data,
    counter_value,
    meter_config,
    meter_rates,
)
from gradlane_switch.p4runtime.entities.updates import find, modify_only, select
from gradlane_switch.state.counts import CounterValue
from gradlane_switch.state.pipeline import Pipeline

_PIECE = 1024  # cells that are read or written in one go, while forwarding waits
_Array = TypeVar("_Array", bound=ArraySchema)


def pieces(count: int) -> Iterator[tuple[int, int]]:
    """(first cell, number of cells) of the pieces in which `count` cells are read or written."""
    return ((start, min(_PIECE, count - start)) for start in range(0, count, _PIECE))


def _selected(arrays: Known[_Array], kind: str, number: int, request: Any) -> Iterator[tuple[_Array, int, int]]:
    """The arrays that a read means (id 0: all of them), in pieces: first cell and number of cells of each."""
    if number == 0 and request.HasField("index"):
        raise invalid(f"a read of every {kind} has no index")
    for array in select(arrays, kind, number):
        for first, count in _cells(array, request):
            yield array, first, count


def _cells(array: ArraySchema, message: Any) -> Iterable[tuple[int, int]]:
    """The cells that a message means, in pieces."""
    if not message.HasField("index"):
        return pieces(array.size)
    index = message.index.index
    if index < 0:
        raise invalid(f"{array.name}: index {index} is negative")
    if index >= array.size:
        raise EntityError(rpc_code.OUT_OF_RANGE, f"{array.name}: index {index} is beyond its size of {array.size}")
    return [(index, 1)]


def array(pipeline: Pipeline, kind: str, message: Any) -> ArraySchema | None:
    """The array that an entity of some kind is about; None if there is no such array."""
    schema = pipeline.schema
    if kind == "counter_entry":
        return schema.counters.get(message.counter_id)
    if kind == "meter_entry":
        return schema.meters.get(message.meter_id)
    return schema.registers.get(message.register_id)


def size(pipeline: Pipeline, kind: str, message: Any) -> int:
    """How many cells an update changes; 0 if there is no such array."""
    found = array(pipeline, kind, message)
    return 0 if found is None else 1 if message.HasField("index") else found.size


def write_counter(pipeline: Pipeline, kind: int, message: Any) -> Iterator[None]:
    """Sets cells of an indirect counter. Some in each step; raises EntityError in the first one."""
    modify_only(kind, "counter")
    array = find(pipeline.schema.counters, "counter", message.counter_id)
    cells = _cells(array, message)
    if message.HasField("data"):
        value = counter_value(message.data)
        for first, count in cells:
            pipeline.state.write_counters(array.index, first, count, value)
            yield


def read_counters(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The cells of indirect counters that a request asks for. Raises EntityError."""
    for array, first, count in _selected(pipeline.schema.counters, "counter", request.counter_id, request):
        for index, value in enumerate(pipeline.state.read_counters(array.index, first, count), first):
            packets, octets = value.packets * array.counts_packets, value.bytes * array.counts_bytes
            message = p4r.CounterEntry(counter_id=array.id, data=counter_data(CounterValue(packets, octets)))
            message.index.index = index
            yield message


def write_meter(pipeline: Pipeline, kind: int, message: Any) -> Iterator[None]:
    """Configures cells of an indirect meter, and clears what they have counted if the message says so.

    Some in each step. Raises EntityError in the first one.
    """
    modify_only(kind, "meter")
    array = find(pipeline.schema.meters, "meter", message.meter_id)
    cells = _cells(array, message)
    check_clears(message.counter_data, array.name)
    rates = meter_rates(message.config, array.name) if message.HasField("config") else None
    for first, count in cells:
        pipeline.state.write_meters(array.index, first, count, rates)
        if message.HasField("counter_data"):
            pipeline.state.clear_colours(array.index, first, count)
        yield


def read_meters(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The cells of indirect meters that a request asks for. Raises EntityError."""
    for array, first, count in _selected(pipeline.schema.meters, "meter", request.meter_id, request):
        found = zip(
            pipeline.state.read_meters(array.index, first, count),
            pipeline.state.read_colours(array.index, first, count),
            strict=True,
        )
        for cell, (rates, colours) in enumerate(found, first):
            message = p4r.MeterEntry(meter_id=array.id)
            message.index.index = cell
            if rates is not None:
                message.config.CopyFrom(meter_config(rates))
            if request.HasField("counter_data"):
                message.counter_data.CopyFrom(colour_data(colours))
            yield message


def write_register(pipeline: Pipeline, kind: int, message: Any) -> Iterator[None]:
    """Sets cells of a register: one, or without an index all. Some in each step. Raises EntityError, in the first."""
    modify_only(kind, "register")
    array = find(pipeline.schema.registers, "register", message.register_id)
    cells = _cells(array, message)
    value = decode_data(message.data, array.data, array.name)
    for first, count in cells:
        pipeline.state.write_registers(array.index, first, count, value)
        yield


def read_registers(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The cells of registers that a request asks for. Raises EntityError."""
    for array, first, count in _selected(pipeline.schema.registers, "register", request.register_id, request):
        for index, value in enumerate(pipeline.state.read_registers(array.index, first, count), first):
            message = p4r.RegisterEntry(register_id=array.id, data=encode_data(value, array.data))
            message.index.index = index
            yield message
