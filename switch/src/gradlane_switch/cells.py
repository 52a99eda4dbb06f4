# SPDX-License-Identifier: Apache-2.0
"""Cells of indirect counters, meters and registers, as P4Runtime writes and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r, rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.match import invalid
from gradlane_switch.pipeline import Pipeline
from gradlane_switch.schema import ArraySchema
from gradlane_switch.state import MeterRates
from gradlane_switch.updates import CHUNK, counter_value, modify_only

_MAX_METER = 1 << 53


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


def write_counter(pipeline: Pipeline, kind: int, message: Any) -> None:
    """Sets cells of an indirect counter. Raises EntityError."""
    modify_only(kind, "counter")
    array = _array(pipeline.schema.counters, "counter", message.counter_id)
    first, count = _cells(array, message)
    if message.HasField("data"):
        pipeline.state.write_counters(array.index, first, count, counter_value(message.data))


def read_counters(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The cells of indirect counters that a request asks for. Raises EntityError."""
    if request.counter_id == 0:
        arrays = list(pipeline.schema.counters.values())
    else:
        arrays = [_array(pipeline.schema.counters, "counter", request.counter_id)]
    for array in arrays:
        first, count = _cells(array, request) if request.counter_id else (0, array.size)
        for start in range(first, first + count, CHUNK):
            values = pipeline.state.read_counters(array.index, start, min(CHUNK, first + count - start))
            for index, value in enumerate(values, start):
                message = p4r.CounterEntry(counter_id=array.id)
                message.index.index = index
                message.data.SetInParent()
                if array.counts_packets:
                    message.data.packet_count = value.packets
                if array.counts_bytes:
                    message.data.byte_count = value.bytes
                yield message


def write_meter(pipeline: Pipeline, kind: int, message: Any) -> None:
    """Configures cells of an indirect meter. Raises EntityError."""
    modify_only(kind, "meter")
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


def read_meters(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The cells of indirect meters that a request asks for. Raises EntityError."""
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
