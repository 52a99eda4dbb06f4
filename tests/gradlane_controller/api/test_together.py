# SPDX-License-Identifier: Apache-2.0
"""Answers that take long to make: together for all who wait, never older than the question, with a rest in between."""

import asyncio
import json
import time
from itertools import pairwise

import pytest

from gradlane_controller.api.together import REST, Together


def test_all_who_wait_get_one_answer_and_nobody_an_old_one() -> None:
    made = 0

    def make() -> int:
        nonlocal made
        made += 1
        return made

    async def run() -> None:
        it = Together(make)
        asked = [asyncio.create_task(it.answer()) for _ in range(50)]
        assert {json.loads(answer) for answer in await asyncio.gather(*asked)} == {1}
        for _ in range(3):
            before = made
            assert json.loads(await it.answer()) > before
        assert made == 4

    asyncio.run(run())


def test_one_who_gives_up_takes_nothing_from_the_others() -> None:
    async def run() -> None:
        it = Together(lambda: "here")
        gives_up, stays = (asyncio.create_task(it.answer()) for _ in range(2))
        await asyncio.sleep(0)
        gives_up.cancel()
        assert await stays == b'"here"'

    asyncio.run(run())


def test_an_error_is_for_those_who_waited_and_not_for_the_next() -> None:
    problems = [ValueError("no"), None]

    def make() -> str:
        if (problem := problems.pop(0)) is not None:
            raise problem
        return "yes"

    async def run() -> None:
        it = Together(make)
        with pytest.raises(ValueError, match="no"):
            await it.answer()
        assert await it.answer() == b'"yes"'

    asyncio.run(run())


def test_there_is_time_for_others_between_two() -> None:
    spans: list[tuple[float, float]] = []

    def make() -> None:
        begun = time.monotonic()
        time.sleep(0.02)
        spans.append((begun, time.monotonic()))

    async def run() -> None:
        it = Together(make)
        for _ in range(4):
            await asyncio.gather(*(it.answer() for _ in range(10)))

    asyncio.run(run())
    assert len(spans) == 4
    for (begun, ended), (following, _) in pairwise(spans):
        assert following - ended >= REST * (ended - begun)
