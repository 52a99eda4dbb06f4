# SPDX-License-Identifier: Apache-2.0
"""What the writers of P4Runtime entities share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r

from gradlane_switch.bytestrings import invalid
from gradlane_switch.state import CounterValue

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
_MAX_COUNT = (1 << 63) - 1
_PIECE = 4096  # cells; what is read or written in one go, while forwarding waits


def modify_only(kind: int, what: str) -> None:
    """Raises EntityError if an update is not a MODIFY."""
    if kind != MODIFY:
        raise invalid(f"a {what} can only be modified")


def counter_value(data: Any) -> CounterValue:
    """The counts in a p4.v1.CounterData. Raises EntityError."""
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid("a counter can't be negative")
    return CounterValue(data.packet_count, data.byte_count)


def counter_data(value: CounterValue) -> Any:
    """A p4.v1.CounterData. Its numbers are signed: beyond their range they stay at the end of it."""
    return p4r.CounterData(packet_count=min(value.packets, _MAX_COUNT), byte_count=min(value.bytes, _MAX_COUNT))


def pieces(first: int, count: int) -> Iterator[tuple[int, int]]:
    """(first cell, number of cells) of the pieces in which `count` cells are read or written."""
    for start in range(first, first + count, _PIECE):
        yield start, min(_PIECE, first + count - start)
