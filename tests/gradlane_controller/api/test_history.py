# SPDX-License-Identifier: Apache-2.0
"""The last hour, kept and read again: by whom, how often, at what cost, and what goes wrong."""

import asyncio
import itertools
import json
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from gradlane_controller.api import history, live_state
from gradlane_controller.api.history import History
from gradlane_controller.api.live_state import Picture
from gradlane_controller.errors import StoreError
from gradlane_controller.live import stamp
from gradlane_controller.store import Store, pictures
from gradlane_controller.store.pictures import Kept
from tests.gradlane_controller.api.server import PATIENCE, Server
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text

DAY = timedelta(days=1)


class World:
    """A controller, as the history sees it: it leads, or not, and things happen. Pictures are a minute apart."""

    def __init__(self, folder: Path) -> None:
        self.store = Store.open(f"sqlite:///{folder / 'fabric.db'}")
        self.leadership = SimpleNamespace(held=object())
        self.journal = self
        self.events: list[Any] = []
        self.made = 0
        self.size = 100
        self.begin = datetime(2026, 1, 1, tzinfo=timezone.utc)
        self.restart()

    async def look(self) -> Picture:
        at = self.begin + timedelta(seconds=20 * self.made)
        self.made += 1
        return Picture(self.made, 0.0, at, json.dumps({"at": stamp(at)}).encode().ljust(self.size))

    def after(self, last: int) -> list[Any]:
        return [it for it in self.events if it.id > last]

    async def wait(self, last: int) -> list[Any]:
        while not (found := self.after(last)):
            self._event.clear()
            await self._event.wait()
        return found

    def happens(self) -> None:
        self.events.append(SimpleNamespace(id=len(self.events) + 1))
        self._event.set()

    @property
    def kept(self) -> list[Kept]:
        first, last = self.begin - DAY, self.begin + DAY
        return list(self.store.read(pictures.between, first, last, timedelta(0), 1000, 1 << 30)[0])

    def restart(self) -> None:
        self.history = History(self, self.store, self)  # type: ignore[arg-type]

    def play(self, what: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            self._event = asyncio.Event()
            task = asyncio.create_task(self.history.run())
            try:
                await asyncio.wait_for(what(), PATIENCE)
            finally:
                assert not task.done()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        asyncio.run(run())


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name, seconds in (("EVERY_SECONDS", 0.05), ("LEAST_SECONDS", 0.01), ("TRY_SECONDS", 0.01)):
        monkeypatch.setattr(history, name, seconds)
    monkeypatch.setattr(pictures, "LONGEST", timedelta(days=10_000))  # these pictures are of no particular time
    monkeypatch.setattr(pictures, "DETAILED", timedelta(days=10_000))
    it = World(tmp_path)
    yield it
    it.store.close()


async def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_pictures_are_kept_as_they_were_and_the_first_of_each_minute_for_longer(world: World) -> None:
    async def run() -> None:
        await until(lambda: len(world.kept) >= 7)

    world.play(run)
    found = world.kept
    assert [it.at for it in found] == [world.begin + timedelta(seconds=20 * n) for n in range(len(found))]
    assert [it.lasting for it in found] == [n % 3 == 0 for n in range(len(found))]
    for it in found:
        content = zlib.decompress(it.content)
        assert (json.loads(content), len(content)) == ({"at": stamp(it.at)}, it.size)


def test_only_who_leads_keeps_any_and_a_take_over_or_a_restart_loses_none(world: World) -> None:
    async def lead() -> None:
        await until(lambda: len(world.kept) >= 3)
        world.leadership.held = None
        made = -1
        while made != world.made:  # what was under way is done
            made = world.made
            await asyncio.sleep(0.3)
        world.happens()
        await asyncio.sleep(0.3)
        assert world.made == made

    world.play(lead)
    before = world.kept
    world.restart()

    async def follow() -> None:
        world.leadership.held = object()
        await until(lambda: len(world.kept) >= len(before) + 3)

    world.play(follow)
    assert world.kept[: len(before)] == before


def test_what_happens_is_seen_at_once_and_pictures_are_apart_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "EVERY_SECONDS", 10 * PATIENCE)
    monkeypatch.setattr(history, "LEAST_SECONDS", 0.2)

    async def run() -> None:
        await asyncio.sleep(0.5)
        assert world.made == 0
        world.happens()
        await until(lambda: world.made == 1)
        begun = time.monotonic()
        while world.made < 5:
            world.happens()
            await asyncio.sleep(0.005)
        assert time.monotonic() >= begun + 4 * 0.2 - 0.1

    world.play(run)


def test_while_the_store_is_away_the_latest_wait_within_bounds_and_nobody_waits_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "WAITING", 5)
    whole = Store.append

    def refuse(*_: Any) -> None:
        raise StoreError("gone")

    async def run() -> None:
        monkeypatch.setattr(Store, "append", refuse)
        await until(lambda: world.made >= 20)
        assert "gone" in world.history.problem
        assert world.kept == []
        made = world.made
        monkeypatch.setattr(Store, "append", whole)
        await until(lambda: len(world.kept) >= 6 and world.history.problem == "")
        number = (world.kept[0].at - world.begin) // timedelta(seconds=20)
        assert number >= made - 5 - 1  # the oldest that can have waited
        assert number < world.made

    world.play(run)


def test_a_store_that_hangs_holds_up_no_picture(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradlane_controller.store.database.ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(history, "WAITING", 3)
    released = False

    def hang(*_: Any) -> None:
        while not released:
            time.sleep(0.01)

    async def run() -> None:
        monkeypatch.setattr(Store, "append", hang)
        await until(lambda: world.made >= 10)
        await until(lambda: "no answer in 0.3 s" in world.history.problem)

    try:
        world.play(run)
    finally:
        released = True


def test_large_pictures_wait_within_bounds_too_and_too_large_ones_are_not_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "WAITING_BYTES", 3 * 60)

    def refuse(*_: Any) -> None:
        raise StoreError("gone")

    monkeypatch.setattr(Store, "append", refuse)

    async def run() -> None:
        await until(lambda: world.made >= 20)
        waiting = list(world.history._waiting)
        assert 0 < len(waiting) <= 3 * 60 // min(len(it.content) for it in waiting)
        monkeypatch.setattr(history, "MAX_BYTES", world.size - 1)
        made = world.made
        await until(lambda: world.made >= made + 5)
        assert all(it.at < world.begin + timedelta(seconds=20 * (made + 1)) for it in world.history._waiting)

    world.play(run)


def test_old_ones_are_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MOST", 4)
    monkeypatch.setattr(history, "LASTING_SECONDS", 0.05)

    async def run() -> None:
        await until(lambda: world.made >= 30)
        await until(lambda: len(world.kept) <= 6)

    world.play(run)
    assert len(world.kept) <= 6


def test_a_picture_that_can_not_be_made_is_an_error_of_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "QUIET_SECONDS", 0.01)
    whole, failures = world.look, 0

    async def fail() -> Picture:
        nonlocal failures
        failures += 1
        raise ZeroDivisionError

    async def run() -> None:
        monkeypatch.setattr(world, "look", fail)
        await until(lambda: failures >= 2)
        monkeypatch.setattr(world, "look", whole)
        await until(lambda: world.kept)

    world.play(run)


def ask(server: Server, first: datetime, last: datetime, more: str = "") -> Any:
    status, answer = server.ask(
        "GET", f"/v1/history?from={stamp(first)}&to={quote(last.isoformat())}{more}", token="read"
    )
    assert status == 200, answer
    return answer


@pytest.fixture(scope="module")
def old(server: Server) -> datetime:
    """When there were pictures, each 5 s for a minute, whose alarms are numbers."""
    first = (datetime.now(timezone.utc) - timedelta(minutes=30)).replace(second=0, microsecond=0)
    for number in range(12):
        at = first + timedelta(seconds=5 * number)
        content = json.dumps({"at": stamp(at), "number": number}).encode()
        server.store.append(pictures.add, Kept(at, number == 0, len(content), zlib.compress(content)))
    return first


def numbers(answer: Any) -> list[int]:
    return [it["number"] for it in answer["items"]]


def test_what_was_is_answered_from_that_time_on(server: Server, old: datetime) -> None:
    second = timedelta(seconds=1)
    whole = ask(server, old, old + 60 * second)
    assert (numbers(whole), whole["next"]) == (list(range(12)), None)
    assert whole["items"][3]["at"] == stamp(old + 15 * second)
    assert numbers(ask(server, old + 7 * second, old + 11 * second)) == [1, 2]
    assert numbers(ask(server, old + 7 * second, old + 7 * second)) == [1]
    assert numbers(ask(server, old, old + 60 * second, "&step=20")) == [0, 4, 8]
    assert ask(server, old - DAY, old - second) == {"items": [], "next": None}
    assert (
        ask(server, datetime(2020, 1, 1, tzinfo=timezone.utc), datetime(2020, 1, 2, tzinfo=timezone.utc))["items"] == []
    )


def test_long_answers_come_in_pages(server: Server, old: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    first: str | None = stamp(old)
    while first is not None:
        page = ask(server, datetime.fromisoformat(first), old + timedelta(minutes=1), "&limit=5&step=10")
        assert len(page["items"]) <= 5
        found += numbers(page)
        first = page["next"]
    assert found == [0, 2, 4, 6, 8, 10]
    monkeypatch.setattr(history, "ANSWER_BYTES", 1)
    page = ask(server, old, old + timedelta(minutes=1))
    assert (numbers(page), page["next"]) == ([0], stamp(old + timedelta(seconds=5)))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "from is 'None': field required"),
        ("from=2026-01-01T00:00:00Z", "to is 'None': field required"),
        ("from=yesterday&to=2026-01-01T00:00:00Z", "from is 'yesterday'"),
        ("from=2026-01-01T00:00:00&to=2026-01-01T00:00:00Z", "timezone"),
        ("from=2026-01-01T00:00:01Z&to=2026-01-01T00:00:00Z", "from (2026-01-01T00:00:01+00:00) is after to"),
        ("from=2026-01-01T00:00:00Z&to=2026-01-01T00:00:00Z&step=-1", "step"),
        ("from=2026-01-01T00:00:00Z&to=2026-01-01T00:00:00Z&step=nan", "step"),
        ("from=2026-01-01T00:00:00Z&to=2026-01-01T00:00:00Z&step=86401", "step"),
        ("from=2026-01-01T00:00:00Z&to=2026-01-01T00:00:00Z&limit=1001", "limit"),
    ],
)
def test_a_wrong_time_is_refused_with_what_would_be_right(server: Server, query: str, reason: str) -> None:
    status, answer = server.ask("GET", f"/v1/history?{query}")
    assert status == 422
    assert reason in answer["error"]


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00", "1e10", "-1", "0"])
def test_times_at_the_end_of_all_calendars_are_answered(server: Server, time: str) -> None:
    assert server.ask("GET", f"/v1/history?from={time}&to={time}")[0] in (200, 422)
    assert server.ask("GET", f"/v1/history?from=0001-01-01T00:00:00%2B14:00&to={time}")[0] in (200, 422)


@pytest.fixture
def leader(fake_switch: FakeSwitch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(history, "EVERY_SECONDS", 0.1)
    monkeypatch.setattr(history, "LEAST_SECONDS", 0.05)
    it = Server(tmp_path, fabric=fabric_text(fake_switch.address), jobs=(job_text(),))
    yield it
    it.close()


def test_a_controller_keeps_what_it_says_though_nobody_watches_and_seldom_asks_switches(
    leader: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    real = leader.controller.counters

    async def counters(*_: object) -> Any:
        asked.append(time.monotonic())
        return await real()

    monkeypatch.setattr(leader.controller, "counters", counters)
    monkeypatch.setattr(live_state, "COUNTER_SECONDS", 0.0)
    monkeypatch.setattr(live_state, "SELDOM_SECONDS", 0.4)
    begun, deadline = datetime.now(timezone.utc), time.monotonic() + PATIENCE
    while len(asked) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert leader.context.live.idle
    assert min(b - a for a, b in itertools.pairwise(asked)) > 0.3
    found: list[Any] = []
    while not any("decisions" in job for it in found for job in it["jobs"]):
        assert time.monotonic() < deadline
        found = ask(leader, begun, datetime.now(timezone.utc))["items"]
    assert [it["name"] for it in found[-1]["jobs"]] == ["demo"]
    now = leader.ask("GET", "/v1/state")[1]
    assert found[-1].keys() == now.keys()
    assert found[-1]["switches"][0]["name"] == now["switches"][0]["name"]
    assert len({it["at"] for it in found}) == len(found)
