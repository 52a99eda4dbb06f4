# SPDX-License-Identifier: Apache-2.0
"""The timeline as controllers tell it and read it."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gradlane_controller import journal
from gradlane_controller.errors import StoreError
from gradlane_controller.journal import Journal
from gradlane_controller.store import Store


def play(what: Callable[[], Awaitable[None]], *journals: Journal) -> None:
    async def run() -> None:
        tasks = [asyncio.create_task(each.run()) for each in journals]
        try:
            await asyncio.wait_for(what(), 60)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


def texts(found: Any) -> list[str]:
    return [it.text for it in found]


async def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_what_one_tells_all_see_in_one_order(store: Store) -> None:
    first, second = Journal(store, "a"), Journal(store, "b")

    async def run() -> None:
        waiting = asyncio.create_task(second.wait(0))
        first.record("link", "x:1 - y:2", "link x:1 - y:2 is down", up=False)
        (event,) = await waiting
        assert (event.kind, event.subject, event.data, event.controller) == ("link", "x:1 - y:2", {"up": False}, "a")
        for number in range(5):
            first.record("job", str(number), f"first {number}")
            second.record("job", str(number), f"second {number}")
        await until(lambda: len(first.after(0)) == len(second.after(0)) == 11)
        assert first.after(0) == second.after(0)
        ids = [it.id for it in first.after(0)]
        assert ids == sorted(set(ids))
        assert texts(it for it in first.after(0) if it.controller == "b") == [f"second {n}" for n in range(5)]
        assert first.after(ids[7]) == first.after(0)[8:]
        assert first.after(ids[-1]) == []
        assert texts(await first.read(0, 2)) == texts(first.after(0)[:2])
        assert texts(await first.read(0, 99, "link")) == ["link x:1 - y:2 is down"]

    play(run, first, second)


def test_who_starts_later_has_what_was_before_and_what_waits_at_the_end_is_kept(store: Store) -> None:
    first = Journal(store, "a")

    async def run() -> None:
        first.record("job", "x", "one")
        await first.wait(0)
        first.record("job", "x", "two")  # and it ends

    play(run, first)
    second = Journal(store, "b")

    async def look() -> None:
        await until(lambda: texts(second.after(0)) == ["one", "two"])

    play(look, second)


@pytest.mark.parametrize("slow", [False, True])
def test_while_the_store_is_away_the_latest_wait_and_the_oldest_are_counted(
    store: Store, monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    """Also if it takes the first one, and says only after the others have come that it can't."""
    monkeypatch.setattr(journal, "WAITING", 5)
    monkeypatch.setattr(journal, "LOOK_SECONDS", 0.05)
    it = Journal(store, "a")
    whole = Store.append

    answers = threading.Event()

    def refuse(*_: Any) -> None:
        assert answers.wait(30)
        raise StoreError("gone")

    async def run() -> None:
        monkeypatch.setattr(Store, "append", refuse)
        if not slow:
            answers.set()
        for number in range(8):
            begun = time.monotonic()
            it.record("job", "x", str(number))
            assert time.monotonic() < begun + 1
            await asyncio.sleep(0.02)
        answers.set()
        await until(lambda: it.problem)
        assert "gone" in it.problem
        assert it.after(0) == []
        monkeypatch.setattr(Store, "append", whole)
        await until(lambda: len(it.after(0)) == 6)
        found = texts(it.after(0))
        assert found[-5:] == ["3", "4", "5", "6", "7"]
        assert found[0] == "3 entries are lost, as the store could not take them"
        assert it.problem == ""

    play(run, it)


def test_memory_is_bounded_and_the_store_has_the_rest(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "RECENT", 4)
    it = Journal(store, "a")

    async def run() -> None:
        for number in range(10):
            it.record("job", "x", str(number))
        await until(lambda: texts(it.after(0)) == ["6", "7", "8", "9"])
        assert texts(await it.read(0, 100)) == [str(number) for number in range(10)]

    play(run, it)


def test_a_text_from_outside_is_cut(store: Store) -> None:
    it = Journal(store, "a")

    async def run() -> None:
        it.record("switch", "s" * 1000, "t" * 100_000)
        (event,) = await it.wait(0)
        assert (len(event.subject), len(event.text)) == (journal.MAX_SUBJECT, journal.MAX_TEXT)

    play(run, it)
