# SPDX-License-Identifier: Apache-2.0
"""How long switches are waited for on a machine that is busy, and how many at a time."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradlane_controller.desired import planner
from gradlane_controller.session import patience
from gradlane_controller.session.patience import Places, any_done
from tests.gradlane_controller.controller_thread import ControllerThread
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text, leafspine_text, summed_text


class Turns:
    """In place of asyncio's clock: each turn takes `lateness` times as long as it should; something is done in that of
    number `done`, from 1."""

    def __init__(self, lateness: float, done: int = 0) -> None:
        self.now, self.count = 0.0, 0
        self._lateness, self._done = lateness, done

    def time(self) -> float:
        return self.now

    async def wait(self, tasks: Any, *, timeout: float, return_when: str) -> tuple[set[Any], set[Any]]:
        self.count += 1
        self.now += self._lateness * timeout
        return ({self}, set()) if self.count == self._done else (set(), set(tasks))


def waited(monkeypatch: pytest.MonkeyPatch, seconds: float, turns: Turns) -> bool:
    async def run() -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(patience.asyncio, "wait", turns.wait)
            patch.setattr(patience.asyncio, "get_running_loop", lambda: turns)
            return await any_done(seconds)

    return asyncio.run(run())


@pytest.mark.parametrize("lateness", [1.0, 1.4])
def test_a_switch_that_says_nothing_has_its_time_and_no_more(monkeypatch: pytest.MonkeyPatch, lateness: float) -> None:
    turns = Turns(lateness)
    assert not waited(monkeypatch, 4.0, turns)
    assert turns.count == 16


@pytest.mark.parametrize("lateness", [1.6, 40.0])
def test_where_turns_come_late_it_has_more_of_them_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, lateness: float
) -> None:
    turns = Turns(lateness)
    assert not waited(monkeypatch, 4.0, turns)
    assert turns.count == 64


def test_what_is_done_in_its_last_turn_is_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, 4.0, Turns(1.0, done=16))
    assert not waited(monkeypatch, 4.0, Turns(1.0, done=17))
    assert waited(monkeypatch, 4.0, Turns(9.0, done=64))


def test_only_so_many_are_at_work_at_a_time_and_all_are_done() -> None:
    at_work, most, done = 0, 0, 0

    async def work() -> int:
        nonlocal at_work, most, done
        at_work += 1
        most = max(most, at_work)
        for _ in range(5):
            await asyncio.sleep(0)
        at_work -= 1
        done += 1
        return done

    async def run() -> list[int]:
        places = Places(3, 60.0)
        return await asyncio.gather(*(places.run(work) for _ in range(20)))

    assert sorted(asyncio.run(run())) == list(range(1, 21))
    assert most == 3


def test_who_takes_long_keeps_nobody_from_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "TURN_SECONDS", 0.01)

    async def run() -> str:
        places, end = Places(2, 0.05), asyncio.Event()
        slow = [asyncio.ensure_future(places.run(end.wait)) for _ in range(6)]

        async def work() -> str:
            return "done"

        found = await asyncio.wait_for(places.run(work), 60)
        assert not any(it.done() for it in slow)
        end.set()
        assert await asyncio.gather(*slow) == [True] * 6
        return found

    assert asyncio.run(run()) == "done"


@pytest.mark.parametrize("seconds", [60.0, 0.01])
def test_who_is_cancelled_stops_its_work_and_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(patience, "TURN_SECONDS", 0.01)

    async def run() -> None:
        places, begun, stopped = Places(1, seconds), asyncio.Event(), asyncio.Event()

        async def work() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        async def fail() -> None:
            raise ValueError("no")

        task = asyncio.ensure_future(places.run(work))
        await begun.wait()
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stopped.is_set()
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                await asyncio.wait_for(places.run(fail), 60)

    asyncio.run(run())


def test_one_plan_leads_sums_around_all_switches_that_are_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[object] = []
    make_plan: Callable[..., Any] = planner.make_plan

    def counted(*arguments: object) -> Any:
        plans.append(arguments)
        return make_plan(*arguments)

    monkeypatch.setattr(planner, "make_plan", counted)
    fabric = leafspine_text(spines=8).replace('\naddress = "127', '\naggregation = true\naddress = "127')
    it = ControllerThread(tmp_path, fabric, summed_text(1))
    try:
        begun = len(plans)

        def all_late() -> None:
            for managed in it.it._managed_switches.values():
                it.it._events.on_late(managed)

        it.do(all_late)
        it.until(lambda: it.it.plan.summed[1].ways.flaws)
        assert len(plans) == begun + 1, "ten switches"
    finally:
        it.close()


def test_a_switch_that_has_just_loaded_its_program_is_not_read_and_any_other_in_one_request(
    fake_switch: FakeSwitch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    read = fake_switch.Read

    def noted(request: Any, context: Any) -> Any:
        asked.append(sum(entity.HasField("table_entry") for entity in request.entities))
        return read(request, context)

    monkeypatch.setattr(fake_switch, "Read", noted)
    monkeypatch.setattr("gradlane_controller.session.connection.HEARTBEAT_SECONDS", 3600.0)
    fake_switch.stop()
    fake_switch.start()
    first = ControllerThread(tmp_path, fabric_text(fake_switch.address), job_text())
    first.until(lambda: first.switch()["ready"])
    first.close()
    assert fake_switch.entities
    assert not any(asked)
    fake_switch.log.clear()
    second = ControllerThread(tmp_path, fabric_text(fake_switch.address), job_text())
    second.until(lambda: second.switch()["ready"])
    second.close()
    tables = len(second.it._managed_switches["s1"].schema.tables)
    assert [count for count in asked if count > 1] == [tables]
    assert fake_switch.log == []
