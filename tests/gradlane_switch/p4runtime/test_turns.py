# SPDX-License-Identifier: Apache-2.0
"""Long work goes on in slices, in turn."""

import asyncio
import time
from collections import Counter
from collections.abc import Generator

import pytest
from finsy.proto import p4r

from gradlane_switch.p4runtime.service import Service
from gradlane_switch.p4runtime.turns import SLICE, Turns, Work
from gradlane_switch.state.program_state import Lock
from tests.gradlane_switch.flooding import punting_switch, station


def test_work_stops_after_a_slice_and_goes_on_where_it_was() -> None:
    def steps() -> Generator[int | None, None, str]:
        for number in range(50):
            time.sleep(SLICE / 4)
            yield number if number % 2 else None
        return "whole"

    work, found, slices = Work(steps()), list[int](), 0
    while not work.ended:
        part = work.advance()
        assert len(part) <= 2
        found += part
        slices += 1
    assert (found, work.result) == (list(range(1, 50, 2)), "whole")
    assert slices > 12


async def requests(turns: Turns, wanted: list[tuple[str, int]]) -> list[str]:
    """Who had the turn, one after the other; `wanted`: clients, and how many turns each of their requests takes."""
    order: list[str] = []
    holders = 0

    async def request(client: str, count: int) -> None:
        nonlocal holders
        for _ in range(count):
            async with turns.of(client):
                holders += 1
                assert holders == 1
                order.append(client)
                await asyncio.sleep(0)
                holders -= 1

    await asyncio.gather(*(request(*item) for item in wanted))
    return order


def test_clients_take_turns_however_many_requests_each_has() -> None:
    order = asyncio.run(requests(Turns(), [*[("many", 10)] * 10, ("one", 3), ("other", 3)]))
    assert order.count("many") == 100
    assert [order[:12].count(client) for client in ("one", "other")] == [3, 3]


class Context:
    """Of a call, as far as the service looks at it."""

    def peer(self) -> str:
        return "a client"


def test_a_wildcard_read_leaves_the_loop_to_others_every_few_messages() -> None:
    async def run() -> list[int]:
        switch, others = punting_switch(), 0
        for number in range(5000):
            switch.insert(station(number))
        service = Service(1, Lock(), lambda _: None, switch.pipeline)
        request = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(table_entry=p4r.TableEntry())])

        async def other() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        turns = [others async for _ in service.Read(request, Context())]
        beside.cancel()
        return turns

    turns = asyncio.run(run())
    assert len(turns) > 5000 // 64
    assert max(Counter(turns).values()) <= 8


@pytest.mark.parametrize("delay", range(12))
def test_who_goes_away_leaves_its_turn_to_the_next(delay: int) -> None:
    async def run() -> list[str]:
        turns = Turns()
        first = asyncio.create_task(requests(turns, [("first", 1)]))
        gone = asyncio.create_task(requests(turns, [("gone", 1)]))
        last = asyncio.create_task(requests(turns, [("last", 1)]))
        for _ in range(delay):
            await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        return [*await asyncio.wait_for(first, 5), *await asyncio.wait_for(last, 5)]

    assert asyncio.run(run()) == ["first", "last"]
