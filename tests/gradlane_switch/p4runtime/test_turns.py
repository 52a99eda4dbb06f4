# SPDX-License-Identifier: Apache-2.0
"""Long work goes on in slices, in turn."""

import asyncio
import time
from collections.abc import Generator

import pytest

from gradlane_switch.p4runtime.turns import SLICE, Turns, Work


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


@pytest.mark.parametrize("delay", range(6))
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
