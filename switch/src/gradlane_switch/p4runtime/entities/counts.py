# SPDX-License-Identifier: Apache-2.0
"""Counts and rates of counters and meters as P4Runtime writes them."""

from __future__ import annotations

from typing import Any

from finsy.proto import p4r

from gradlane_switch.p4info.bytestrings import invalid
from gradlane_switch.state.counts import Colours, CounterValue, MeterRates

_COLOURS = ("green", "yellow", "red")
_MAX_COUNT = (1 << 63) - 1
_MAX_RATE = 1 << 53


def counter_value(data: Any) -> CounterValue:
    """The counts in a p4.v1.CounterData. Raises EntityError."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid("a counter can't be negative")
    return CounterValue(data.packet_count, data.byte_count)


def counter_data(value: CounterValue) -> Any:
    """A p4.v1.CounterData. Its numbers are signed: beyond their range they stay at the end of it."""
    return p4r.CounterData(packet_count=min(value.packets, _MAX_COUNT), byte_count=min(value.bytes, _MAX_COUNT))


def meter_rates(config: Any, name: str) -> MeterRates:
    """The rates in a p4.v1.MeterConfig for the meter `name`. Raises EntityError."""
    if config.eburst:
        raise invalid(f"{name}: eburst is for single-rate meters")
    rates = MeterRates(config.cir, config.cburst, config.pir, config.pburst)
    for key in ("cir", "cburst", "pir", "pburst"):
        if not 0 <= getattr(rates, key) <= _MAX_RATE:
            raise invalid(f"{name}: {key} = {getattr(rates, key)} is not in 0..{_MAX_RATE}")
    if rates.cir > rates.pir:
        raise invalid(f"{name}: cir = {rates.cir} is above pir = {rates.pir}")
    return rates


def meter_config(rates: MeterRates) -> Any:
    """A p4.v1.MeterConfig."""
    return p4r.MeterConfig(cir=rates.cir, cburst=rates.cburst, pir=rates.pir, pburst=rates.pburst)


def colour_data(colours: Colours) -> Any:
    """A p4.v1.MeterCounterData."""
    found = {name: counter_data(getattr(colours, name)) for name in _COLOURS}
    return p4r.MeterCounterData(**found)


def check_clears(data: Any, name: str) -> None:
    """Raises EntityError if a p4.v1.MeterCounterData that is written to the meter `name` has anything but zeros."""
    for colour in _COLOURS:
        value = getattr(data, colour)
        if value.packet_count or value.byte_count:
            raise invalid(f"{name}: counts by colour can only be cleared, and {colour} is not 0")
