# SPDX-License-Identifier: Apache-2.0
"""What a controller concludes when a session with a switch ends, and when it leads again; and how it changes one."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from gradlane_controller import maintenance
from gradlane_controller.desired.pipeline import DEFAULT_FOLDER, load
from gradlane_controller.network.links import Links
from gradlane_controller.store import Store, lease
from tests.gradlane_controller.controller_thread import ControllerThread
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text, leafspine_text

JOBS = load(DEFAULT_FOLDER).schema.tables["jobs"].id


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., ControllerThread]]:
    started: list[ControllerThread] = []

    def begin(fabric: str, *jobs: str, check_links: bool = False) -> ControllerThread:
        started.append(ControllerThread(tmp_path, fabric, *jobs, check_links=check_links))
        return started[-1]

    yield begin
    for each in started:
        each.close()


def test_the_links_of_a_switch_that_closes_its_session_are_examined(
    make_fake_switch: Callable[[], FakeSwitch],
    start: Callable[..., ControllerThread],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its process has probably ended. One that falls silent is not: the way to it may be what has failed."""
    doubted: list[str] = []
    monkeypatch.setattr(Links, "doubt", lambda _links, name: doubted.append(name))
    switches = [make_fake_switch() for _ in range(4)]
    it = start(leafspine_text(addresses=[switch.address for switch in switches]), check_links=True)
    it.until(lambda: it.do(it.it.status)["ready"])
    switches[3].stop()
    it.until(lambda: not it.switch("spine2")["ready"])
    assert doubted == ["spine2"]
    it.do(lambda: it.it._managed_switches["spine1"].connection.renew("no answer"))
    it.until(lambda: "no answer; trying again" in caplog.text)
    assert doubted == ["spine2"]


def test_who_leads_again_takes_the_numbers_that_switches_have_from_another_leader(
    fake_switch: FakeSwitch, start: Callable[..., ControllerThread], tmp_path: Path
) -> None:
    it = start(fabric_text(fake_switch.address), job_text())
    it.until(lambda: it.do(it.it.status)["ready"])
    assert it.it.plan.numbers.indices == {1: 1}
    store = Store.open(f"sqlite:///{tmp_path}/fabric.db")
    number = None
    while number is None:
        it.do(it.it.leadership.resign)
        number = store.write(lease.acquire, "another", "another", 60.0)
    it.until(lambda: not it.it.leads)
    it.until(lambda: not it.switch()["ready"])
    entry = next(each for each in fake_switch.entities.values() if each.table_entry.table_id == JOBS)
    index = entry.table_entry.action.action.params[0]
    assert index.value == b"\x01"
    index.value = b"\x07"
    store.write(lease.release, "another", number)
    store.close()
    it.until(lambda: it.do(it.it.status)["ready"])
    assert it.it.plan.numbers.indices == {1: 7}
    assert index.value == b"\x07"


@pytest.mark.parametrize(("rate", "least"), [("100mbit", 0.3), ("1mbit", 1.024), ("500kbit", 1.5)])
def test_a_switch_that_is_drained_keeps_its_entries_while_packets_may_be_on_their_way(
    make_fake_switch: Callable[[], FakeSwitch],
    start: Callable[..., ControllerThread],
    monkeypatch: pytest.MonkeyPatch,
    rate: str,
    least: float,
) -> None:
    monkeypatch.setattr(maintenance, "SETTLE_SECONDS", 0.3)
    monkeypatch.setattr(maintenance, "MOST_SETTLE_SECONDS", 1.5)
    switches = [make_fake_switch() for _ in range(4)]
    addresses = [switch.address for switch in switches]
    it = start(leafspine_text(addresses=addresses, rates=(rate, "100mbit")), job_text(hosts=(1, 3)))
    it.until(lambda: it.do(it.it.status)["ready"])
    slept: list[float] = []
    written: list[list[bool]] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        written.append([len(switch.log) > count for switch, count in zip(switches, before, strict=True)])
        await asyncio.sleep(seconds)

    before = [len(switch.log) for switch in switches]
    monkeypatch.setattr(maintenance, "asyncio", SimpleNamespace(sleep=sleep))
    assert it.do(it.it.drain, "spine1")["may_go"]
    assert slept == [pytest.approx(least)]
    assert written == [[True, True, False, False]], "first the leaves lead around it"
    assert len(switches[2].log) > before[2]


def test_what_is_new_is_written_before_what_is_old_goes(
    make_fake_switch: Callable[[], FakeSwitch], start: Callable[..., ControllerThread]
) -> None:
    switches = [make_fake_switch() for _ in range(4)]
    it = start(leafspine_text(addresses=[switch.address for switch in switches]), job_text(hosts=(1, 3)))
    it.until(lambda: it.do(it.it.status)["ready"])
    for switch in switches:
        switch.log.clear()
    it.do(it.it.put_job, job_text(number=2, hosts=(2, 4), base=4096))  # the same job, and nothing of it as before
    for switch in switches:
        kinds = [line.split()[0] for line in switch.log]
        first = kinds.index("DELETE")
        assert "INSERT" in kinds[:first]
        assert set(kinds[first:]) == {"DELETE"}
