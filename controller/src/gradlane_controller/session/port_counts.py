# SPDX-License-Identifier: Apache-2.0
"""What a switch's ports have had and sent so far, read in one request.

There are many cells and they are read often, so the messages are made and taken apart here, which costs a quarter of
what it costs by finsy's entities.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from finsy import Switch
from finsy.proto import p4r

from gradlane.wire import CONTROL_CLASS
from gradlane_controller.data_plane import CLASSES, TRIMMED_BYTES, Way, sent_cell
from gradlane_controller.session.bounds import client_of

_WHOLE = [(way, number) for way in (Way.PATH, Way.TREE) for number in range(CLASSES)]


@dataclass(frozen=True)
class PortCounts:
    """By port, of those that the switch has told of.

    `routed`: bytes that have filled its virtual queue and followed no tree.
    `sent`: bytes that have left, by queue class what follows no tree, and then what does.
    """

    routed: dict[int, int]
    sent: dict[int, Sequence[int]]


async def read_port_counts(switch: Switch, links: Iterable[int], ports: Iterable[int]) -> PortCounts:
    """`routed` of the ports of links and `sent` of all ports; nothing of what the program does not count.

    Raises finsy.P4ClientError, or SwitchError.
    """
    ids = {name: known.id for name in ("routed", "sent") if (known := switch.p4info.counters.get(name)) is not None}
    request = _request(switch.device_id, ids.get("routed"), ids.get("sent"), tuple(links), tuple(ports))
    found = await _read(switch, request) if request.entities else {}
    routed, sent = dict[int, int](), dict[int, Sequence[int]]()
    for port in links:
        if (data := found.get((ids.get("routed", 0), port))) is not None:
            routed[port] = data.byte_count
    for port in ports:
        cells = [found.get((ids.get("sent", 0), cell)) for cell in _cells(port)]
        told = [data for data in cells if data is not None]
        if len(told) == len(cells):
            sent[port] = _octets(told)
    return PortCounts(routed, sent)


@lru_cache(maxsize=1024)
def _request(
    device_id: int, routed: int | None, sent: int | None, links: Sequence[int], ports: Sequence[int]
) -> p4r.ReadRequest:
    """Nobody changes it."""
    request = p4r.ReadRequest(device_id=device_id)
    wanted = [(routed, port) for port in links] + [(sent, cell) for port in ports for cell in _cells(port)]
    for number, cell in wanted:
        if number is not None:
            entry = request.entities.add().counter_entry
            entry.counter_id, entry.index.index = number, cell
    return request


@lru_cache(maxsize=1024)
def _cells(port: int) -> Sequence[int]:
    """Those of what leaves with the bytes that it came with, and those of trimmed slices."""
    trimmed = [sent_cell(port, way, CONTROL_CLASS) for way in TRIMMED_BYTES]
    return [sent_cell(port, way, number) for way, number in _WHOLE] + trimmed


def _octets(cells: Sequence[p4r.CounterData]) -> list[int]:
    """Of one port."""
    octets = [data.byte_count for data in cells[: len(_WHOLE)]]
    # The counter has these with the bytes that they came with.
    for data, length in zip(cells[len(_WHOLE) :], TRIMMED_BYTES.values(), strict=True):
        octets[CONTROL_CLASS] += length * data.packet_count
    return octets


async def _read(switch: Switch, request: p4r.ReadRequest) -> dict[tuple[int, int], p4r.CounterData]:
    """By counter and cell."""
    found: dict[tuple[int, int], p4r.CounterData] = {}
    async for reply in client_of(switch).request_iter(request):
        for entity in reply.entities[: len(request.entities)]:  # a switch may answer more than it was asked
            cell = entity.counter_entry
            found[cell.counter_id, cell.index.index] = cell.data
        await asyncio.sleep(0)  # others' turn
    return found
