# SPDX-License-Identifier: Apache-2.0
"""What the operator of an ordinary switch configures, as entries of commodity.p4: docs/commodity-switches.md.

Written once when the switch starts, whatever jobs come: it knows no job.
"""

import asyncio
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from finsy import (
    Action,
    Match,
    P4CounterEntry,
    P4MeterConfig,
    P4MeterEntry,
    P4MulticastGroupEntry,
    P4TableEntry,
    Switch,
    SwitchOptions,
)

_BUILD = Path(__file__).resolve().parent / "build"
_OPTIONS = SwitchOptions(
    p4info=_BUILD / "commodity.p4info.txtpb", p4blob=_BUILD / "commodity.json", device_id=1, fail_fast=True
)
_SECONDS = 60.0  # the switch may have to compile the program
_GROUP = 1  # of IP multicast
# Thresholds as fractions of a port's buffer: the defaults of the fabric file.
YELLOW, RED = 0.25, 0.5
# By drop precedence, the chance (of 255) that a packet is dropped above the lower and above the upper threshold.
WRED = {0: (0, 0), 1: (0, 128), 2: (64, 255), 3: (128, 255)}
_QUEUES, _PRECEDENCES = range(8), range(8)


@dataclass(frozen=True)
class Port:
    """A host and its port. `rate` in bit/s, `buffer` in bytes, MAC addresses of the host and of the switch there."""

    number: int
    address: str
    host_mac: str
    own_mac: str
    rate: int
    buffer: int


def entries(ports: Sequence[Port], multicast: str, receivers: Iterable[int], dscp_queues: dict[int, int]) -> list[Any]:
    """Everything that the switch holds.

    `multicast` is a /24 of groups that go to the ports `receivers`; `dscp_queues` further DSCPs of ordinary traffic.
    """
    found: list[Any] = [P4MulticastGroupEntry(_GROUP, replicas=tuple(receivers))]
    found.append(P4TableEntry("routes", match=Match(destination=multicast), action=Action("replicate", group=_GROUP)))
    for port in ports:
        forward = Action("forward", port=port.number, next_hop=port.host_mac, own=port.own_mac)
        found.append(P4TableEntry("routes", match=Match(destination=f"{port.address}/32"), action=forward))
        rate = port.rate // 8
        config = P4MeterConfig(cir=rate, cburst=round(YELLOW * port.buffer), pir=rate, pburst=round(RED * port.buffer))
        found.append(P4MeterEntry("queues", index=port.number, config=config))
    # The upper three bits pick the queue, like the class selectors; early drops where gradients queue.
    queues = {queue << 3 | precedence: (queue, int(queue > 0)) for queue in _QUEUES for precedence in _PRECEDENCES}
    queues |= {dscp: (queue, 0) for dscp, queue in dscp_queues.items()}
    for dscp, (queue, early) in queues.items():
        action = Action("set_queue", queue=queue, with_wred=early)
        found.append(P4TableEntry("dscp_to_queue", match=Match(dscp=dscp), action=action))
        yellow, red = WRED.get(dscp & 7, WRED[3])
        if early and red:
            chances = Action("set_chances", yellow=yellow, red=red)
            found.append(P4TableEntry("wred", match=Match(dscp=dscp), action=chances))
    return found


def _with_switch(address: str, use: Callable[[Switch], Awaitable[None]]) -> None:
    logging.getLogger("finsy").setLevel(logging.ERROR)  # the switch has no gNMI

    async def session() -> None:
        async with Switch("s1", address, _OPTIONS) as switch:
            await use(switch)

    asyncio.run(asyncio.wait_for(session(), _SECONDS))


def configure(address: str, wanted: Sequence[Any]) -> None:
    """Loads the program into the switch at that P4Runtime address, and writes the entries. Raises P4ClientError."""

    async def write(switch: Switch) -> None:
        await switch.insert([item for item in wanted if not isinstance(item, P4MeterEntry)])
        await switch.modify([item for item in wanted if isinstance(item, P4MeterEntry)])

    _with_switch(address, write)


def early_drops(address: str) -> dict[int, int]:
    """Packets that WRED has dropped so far, by DSCP. Raises P4ClientError."""
    found: dict[int, int] = {}

    async def read(switch: Switch) -> None:
        async for row in cast(AsyncIterable[P4CounterEntry], switch.read(P4CounterEntry("early_drops"))):
            if row.index is not None and row.packet_count:
                found[row.index] = row.packet_count

    _with_switch(address, read)
    return found
