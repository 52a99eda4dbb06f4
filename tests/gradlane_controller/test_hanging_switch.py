# SPDX-License-Identifier: Apache-2.0
"""A switch that answers everything but writes: only those wait for it who have asked for the change that it gets."""

import argparse
import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from finsy import p4client

from gradlane_controller.commands.reloading import Reloading
from gradlane_controller.errors import BusyError, NotLeadingError, SwitchLostError
from gradlane_controller.session import connection
from gradlane_controller.turns import Turns
from tests.gradlane_controller.api.server import Server
from tests.gradlane_controller.controller_thread import PATIENCE, ControllerThread
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import job_text, leafspine_text

SILENT = 0.5  # s
ANSWER = 30.0  # that a request may take; far longer than all others do here
OTHER = job_text("other", 2, hosts=(2, 4), base=4096)
THIRD = job_text("third", 3, hosts=(1, 3), base=8192)


class HangingSwitch(FakeSwitch):
    """`hang` has it answer no write until `release`; `waits`: one does."""

    def __init__(self) -> None:
        super().__init__()
        self._free, self.waits = threading.Event(), threading.Event()
        self._free.set()

    def hang(self) -> None:
        self._free.clear()

    def release(self) -> None:
        self._free.set()

    def Write(self, request, context):
        if not self._free.is_set():
            self.waits.set()
            self._free.wait()
        return super().Write(request, context)


@pytest.fixture
def switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[HangingSwitch]]:
    monkeypatch.setattr(connection, "SILENT_SECONDS", SILENT)
    monkeypatch.setattr(connection, "OPERATION_SECONDS", ANSWER)
    monkeypatch.setattr(p4client, "_DEFAULT_RPC_TIMEOUT", ANSWER)
    made = [HangingSwitch() for _ in range(4)]
    for each in made:
        each.start()
    yield made
    for each in made:
        each.release()
        each.stop()


@pytest.fixture
def it(switches: list[HangingSwitch], tmp_path: Path) -> Iterator[ControllerThread]:
    """Of four switches, which hold a job."""
    text = leafspine_text(addresses=[switch.address for switch in switches])
    made = ControllerThread(tmp_path, text, job_text(hosts=(1, 3)))
    made.until(lambda: made.do(made.it.status)["ready"])
    yield made
    made.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def waiting(it: ControllerThread, pool: ThreadPoolExecutor, switch: HangingSwitch) -> "Future[Any]":
    """A change that waits for that switch."""
    switch.hang()
    change = pool.submit(it.do, it.it.put_job, OTHER)
    assert switch.waits.wait(PATIENCE)
    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it.it.put_job(THIRD),
        lambda it: it.it.delete_job("demo"),
        lambda it: it.it.drain("spine1"),
        lambda it: it.it.undrain("spine1"),
        lambda it: it.it.reload(),
        lambda it: it.it.tune({"demo": (None, "")}),
    ],
)
def test_who_wants_another_change_is_told_which_switch_is_waited_for(
    it: ControllerThread, pool: ThreadPoolExecutor, switches: list[HangingSwitch], change: Callable[..., Any]
) -> None:
    first = waiting(it, pool, switches[3])
    begun = time.monotonic()
    with pytest.raises(BusyError, match=r"another change waits for switch 'spine2' at .*; try again"):
        it.do(change, it)
    assert time.monotonic() < begun + ANSWER / 2
    assert not first.done()
    switches[3].release()
    assert first.result(PATIENCE).name == "other"
    it.do(it.it.put_job, THIRD)


def test_who_wants_another_change_waits_while_switches_answer(
    it: ControllerThread, pool: ThreadPoolExecutor, switches: list[HangingSwitch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SILENT_SECONDS", PATIENCE)
    first = waiting(it, pool, switches[3])
    second = pool.submit(it.do, it.it.put_job, THIRD)
    time.sleep(2 * SILENT)
    assert not second.done()
    switches[3].release()
    assert [it.result(PATIENCE).name for it in (first, second)] == ["other", "third"]


def test_a_switch_that_comes_back_gets_its_entries_meanwhile(
    it: ControllerThread, pool: ThreadPoolExecutor, switches: list[HangingSwitch]
) -> None:
    held = len(switches[2].entities)
    first = waiting(it, pool, switches[3])
    switches[2].stop()
    it.until(lambda: not it.switch("spine1")["ready"])
    switches[2].forget()
    switches[2].start()
    it.until(lambda: it.switch("spine1")["ready"])
    assert len(switches[2].entities) == held
    assert not first.done()
    switches[3].release()
    first.result(PATIENCE)
    it.until(lambda: len(switches[2].entities) > held)  # the change, which it was not there for


def test_who_leads_no_more_does_not_wait_and_can_lead_again(
    it: ControllerThread, pool: ThreadPoolExecutor, switches: list[HangingSwitch]
) -> None:
    first = waiting(it, pool, switches[3])
    it.do(it.it.leadership.resign)
    with pytest.raises(NotLeadingError):
        first.result(ANSWER / 2)
    it.until(lambda: it.it.leads, ANSWER / 2)
    switches[3].release()
    it.until(lambda: it.do(it.it.status)["ready"])
    it.do(it.it.put_job, OTHER)


@pytest.mark.parametrize(("place", "needed"), [(3, False), (1, True)])
def test_a_switch_that_does_not_answer_is_lost_once(
    it: ControllerThread,
    pool: ThreadPoolExecutor,
    switches: list[HangingSwitch],
    monkeypatch: pytest.MonkeyPatch,
    place: int,
    needed: bool,
) -> None:
    """A change that it is needed for is taken back without it, and does not wait for it again."""
    monkeypatch.setattr(p4client, "_DEFAULT_RPC_TIMEOUT", 3.0)
    begun = time.monotonic()
    first = waiting(it, pool, switches[place])
    if needed:
        with pytest.raises(SwitchLostError, match=r"switch 'leaf2' at .* was lost meanwhile: does not answer"):
            first.result(PATIENCE)
    else:
        assert first.result(PATIENCE).name == "other"
    assert 3 <= time.monotonic() - begun < 6
    switches[place].release()
    it.until(lambda: it.do(it.it.status)["ready"])
    assert ("other" in it.it.plan.jobs) != needed


def test_http_says_when_to_try_again(switches: list[HangingSwitch], pool: ThreadPoolExecutor, tmp_path: Path) -> None:
    live = Server(tmp_path, fabric=leafspine_text(addresses=[switch.address for switch in switches]))
    try:
        switches[3].hang()
        first = pool.submit(live.ask, "PUT", "/v1/jobs/other", OTHER)
        assert switches[3].waits.wait(PATIENCE)
        status, answer, headers = live.ask_all("PUT", "/v1/jobs/third", THIRD)
        assert (status, headers["retry-after"]) == (503, "1")
        assert answer["error"].startswith("another change waits for switch 'spine2' at ")
        assert live.ask("GET", "/v1/status")[0] == 200
        assert not first.done()
        switches[3].release()
        assert first.result(PATIENCE)[0] == 200
        assert live.ask("PUT", "/v1/jobs/third", THIRD)[0] == 200
    finally:
        switches[3].release()
        live.close()


def test_files_are_read_again_when_the_change_is_over() -> None:
    tried: list[object] = []

    async def reload(paths: object) -> None:
        tried.append(paths)
        if len(tried) < 3:
            raise BusyError("another change waits")

    async def run() -> None:
        options = argparse.Namespace()
        controller: Any = SimpleNamespace(reload=reload)
        await Reloading(SimpleNamespace(), options, options, controller, SimpleNamespace(), None)._reload_files([])

    asyncio.run(run())
    assert tried == [[]] * 3


def test_who_gives_up_or_is_told_to_leaves_the_turn_to_others() -> None:
    async def run() -> None:
        silent = ""
        turns = Turns(lambda: silent)

        async def take() -> None:
            async with turns.turn():
                pass

        async with turns.turn():
            others = [asyncio.ensure_future(take()) for _ in range(3)]
            await asyncio.sleep(0.01)
            others[0].cancel()
            silent = "s1"
            await asyncio.wait(others)
            assert others[0].cancelled()
            assert [type(other.exception()) for other in others[1:]] == [BusyError] * 2
            patient = turns.turn(patient=True)
            waits = asyncio.ensure_future(patient.__aenter__())
            await asyncio.sleep(0.6)
            assert not waits.done()
        await waits
        await patient.__aexit__(None, None, None)
        await asyncio.wait_for(take(), 5)

    asyncio.run(run())
