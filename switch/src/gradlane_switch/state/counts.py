# SPDX-License-Identifier: Apache-2.0
"""What counters and meters of packets hold, and what meters are configured with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CounterValue:
    """Packets and bytes."""

    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Colours:
    """What a meter has found green, yellow and red."""

    green: CounterValue
    yellow: CounterValue
    red: CounterValue


@dataclass(frozen=True)
class MeterRates:
    """Rates in bytes/s or packets/s, bursts in bytes or packets (RFC 2698)."""

    cir: int
    cburst: int
    pir: int
    pburst: int


def meter_config(rates: MeterRates | None) -> tuple[int, int, int, int, int]:
    """As the C side has it; None is the default: every packet is green."""
    return (0, 0, 0, 0, 0) if rates is None else (rates.cir, rates.cburst, rates.pir, rates.pburst, 1)


def meter_rates(config: Any) -> MeterRates | None:
    """The rates in a gl_meter_config; None if it is the default."""
    return MeterRates(config.cir, config.cbs, config.pir, config.pbs) if config.configured else None


def colours_of(out: Any, first: int) -> Colours:
    """The three counters of the C side from `first` on."""
    return Colours(*(CounterValue(out[first + n].packets, out[first + n].bytes) for n in range(3)))
