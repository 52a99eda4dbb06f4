# SPDX-License-Identifier: Apache-2.0
"""Metrics: counts only grow whatever restarts, and what has gone leaves nothing behind."""

import asyncio
import itertools
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector
from sqlalchemy import text
from sqlalchemy.orm import Session

from gradlane import job
from gradlane_controller.errors import StoreError
from gradlane_controller.metrics import exposition
from gradlane_controller.metrics.decided import Decided
from gradlane_controller.metrics.exposition import Metrics, Seen
from gradlane_controller.metrics.lag import LoopLag
from gradlane_controller.network import fabric_file
from gradlane_controller.network.growth import growth
from gradlane_controller.network.loads import Loads
from gradlane_controller.session.convergence import Changes
from gradlane_controller.session.convergences import Convergences
from gradlane_controller.store import Store
from gradlane_controller.trainings.reports import Report, Reports
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.test_run_of_loads import metrics
from tests.gradlane_controller.test_run_of_sums import SCHEMA
from tests.gradlane_controller.texts import fabric_text, job_text, leafspine_text
from tests.support.agents import until
from tests.support.effort import tries

SWITCHES = ("s1", "s2")
JOBS = ("a", "b")
Cell = tuple[str, str | None, str, int]  # switch, job, reason, queue class


def collected(*parts: Collector) -> dict[tuple[str, ...], float]:
    """Values by name and labels, in the order of their names."""
    registry = CollectorRegistry()
    for part in parts:
        registry.register(part)
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def of(decided: Decided) -> dict[tuple[str, ...], float]:
    class It(Collector):
        def collect(self):
            return decided.families()

    return collected(It())


def counters(cells: Counter[Cell], away: tuple[str, ...] = ()) -> dict[str, Any]:
    """As `Counters.to_json`: 10 bytes of each packet, and two drop precedences of each cell."""
    rows = [
        {"switch": switch, "job": name, "reason": reason, "queue_class": number, "drop_precedence": precedence,
         "packets": part, "bytes": 10 * part}
        for (switch, name, reason, number), packets in cells.items()
        for precedence, part in ((1, packets // 2), (2, packets - packets // 2))
        if switch not in away and part
    ]  # fmt: skip
    return {"decisions": rows, "drop_map": [], "sums": [], "away": list(away)}


Cells = st.tuples(
    st.sampled_from(SWITCHES), st.sampled_from((*JOBS, None)), st.sampled_from(("forwarded", "dropped_red")),
    st.sampled_from((5, 6)),
)  # fmt: skip
Steps = st.lists(
    st.one_of(
        st.tuples(st.just("count"), Cells, st.integers(1, 1000)),
        st.tuples(st.just("restart"), st.sampled_from(SWITCHES)),
        st.tuples(st.just("read"), st.sampled_from([(), ("s1",), ("s1", "s2")])),
    ),
    max_size=30,
)


@settings(max_examples=tries(100), deadline=None)
@given(Steps)
def test_decisions_are_counted_once_and_only_grow_whatever_restarts_and_is_away(steps: list[Any]) -> None:
    decided = Decided()
    at_switch, counted, told = Counter[Cell](), Counter[Cell](), Counter[Cell]()
    before: dict[tuple[str, ...], float] = {}

    def read(away: tuple[str, ...]) -> None:
        nonlocal before
        decided.take(counters(at_switch, away), SWITCHES, JOBS)
        told.update({cell: counted[cell] - told[cell] for cell in counted if cell[0] not in away})
        found = of(decided)
        assert all(found[key] >= value for key, value in before.items())
        before = found

    for kind, *arguments in steps:
        if kind == "count":
            cell, packets = arguments
            at_switch[cell] += packets
            counted[cell] += packets
        elif kind == "restart":  # seen as such: what a switch counts between two readings it loses with the second
            read(())
            for cell in [it for it in at_switch if it[0] == arguments[0]]:
                del at_switch[cell]
            read(())
        else:
            read(*arguments)
    read(())
    found = {key: value for key, value in of(decided).items() if "bytes" not in key[0] and value}
    expected = Counter[tuple[str, ...]]()
    for (switch, name, reason, number), packets in told.items():
        expected["gradlane_controller_switch_packets_total", reason, switch] += packets
        if name is not None:
            expected["gradlane_controller_job_packets_total", name, str(number), reason] += packets
    assert found == +expected


def test_a_job_that_has_gone_takes_its_series_with_it_and_nothing_of_its_switches() -> None:
    decided = Decided()
    cells = Counter[Cell]({("s1", "a", "forwarded", 6): 7, ("s1", "b", "forwarded", 6): 5})
    decided.take(counters(cells), SWITCHES, JOBS)
    del cells["s1", "a", "forwarded", 6]
    for _ in range(2):
        decided.take(counters(cells), SWITCHES, ("b",))
    found = of(decided)
    assert found["gradlane_controller_switch_packets_total", "forwarded", "s1"] == 12
    assert {key[1] for key in found if key[0] == "gradlane_controller_job_packets_total"} == {"b"}
    cells["s1", "a", "forwarded", 6] = 2  # one of its name comes; its index has begun at 0
    decided.take(counters(cells), SWITCHES, JOBS)
    assert of(decided)["gradlane_controller_job_packets_total", "a", "6", "forwarded"] == 2
    assert of(decided)["gradlane_controller_switch_packets_total", "forwarded", "s1"] == 14
    decided.take(counters(cells), ("s2",), JOBS)
    assert not [key for key in of(decided) if "s1" in key]


def test_what_was_read_once_counts_once() -> None:
    decided, same = Decided(), counters(Counter({("s1", "a", "forwarded", 6): 7}))
    for _ in range(3):
        decided.take(same, SWITCHES, JOBS)
        decided.take(None, SWITCHES, JOBS)
    assert of(decided)["gradlane_controller_switch_packets_total", "forwarded", "s1"] == 7


@pytest.mark.parametrize(
    ("before", "now", "more"),
    [
        (None, [5, 6], [5, 6]),
        ([5, 6], [7, 6], [2, 0]),
        ([5, 100], [7, 3], [7, 3]),  # it has begun anew, also what is more than before
        ([5], [-3], [0]),  # what a hostile switch may say
        ([-3], [5], [5]),
    ],
)
def test_growth(before: list[int] | None, now: list[int], more: list[int]) -> None:
    assert growth(before, now) == more


def test_bytes_of_ports_only_grow_over_a_restart_of_the_switch_and_go_with_the_port() -> None:
    fabric = fabric_file.parse(leafspine_text(), "f.toml")
    now = [100.0]
    loads = Loads(fabric, lambda: now[0])

    def take(*octets: int) -> list[int]:
        now[0] += 2
        loads.take_sent("leaf1", {1: octets})
        return list(loads.octets["leaf1", 1])

    assert take(100, 10) == [100, 10]
    assert take(150, 10) == [150, 10]
    assert take(20, 30) == [170, 40]
    assert take(25, 30) == [175, 40]
    assert ("leaf2", 1) not in loads.octets
    loads.follow(fabric_file.parse(fabric_text(), "f.toml"))
    assert loads.octets == {}


def test_repaired_and_lost_slices_only_grow_when_agents_restart_or_fall_silent() -> None:
    jobs = {"train": job.parse(job_text("train", 7), "train")}
    now = [0.0]
    reports = Reports(lambda: now[0])

    def put(rank: int, repaired: int, lost: int, number: int = 7) -> tuple[int, int] | None:
        row: dict[str, Any] = {"name": "train", "id": number, "rank": rank, "state": "running", "step": 1}
        row |= {"step_seconds": None, "in_flight": 0, "budget": None, "repaired": repaired, "lost": lost}
        row |= {"stragglers": [], "waits": [], "sums": None}
        content = {"name": "n", "version": "1", "addresses": [], "jobs": [row]}
        reports.put(f"h{rank + 1}", Report.model_validate(content), datetime.now(timezone.utc), jobs)
        return reports.slices(jobs).get("train")

    assert put(0, 10, 1) == (10, 1)
    assert put(1, 5, 0) == (15, 1)
    assert put(0, 12, 1) == (17, 1)
    now[0] += 3600  # the agents' reports are old
    assert put(0, 3, 0) == (20, 1)  # an agent that was started anew
    assert put(2, 99, 99) == (20, 1), "no rank of the job is at that host"
    jobs["train"] = job.parse(job_text("train", 8), "train")
    assert reports.slices(jobs) == {}, "another job of that name"
    assert put(1, 9, 0, 8) == (9, 0)
    del jobs["train"]
    assert reports.slices(jobs) == {}


def test_convergences_are_measured_of_the_switches_that_are_there() -> None:
    it = Convergences()
    it.follow(["s1", "s2"])
    name = "gradlane_controller_switch_{}".format
    assert collected(*it.collectors)[name("convergence_seconds_count"), "s2"] == 0
    it.took("s1", Changes(3, 2, 1), 4, 0.3, quiet=False)
    it.failed("s1")
    found = collected(*it.collectors)
    assert found[name("convergence_seconds_sum"), "s1"] == 0.3
    assert [found[name("convergence_seconds_bucket"), le, "s1"] for le in ("0.25", "0.5")] == [0, 1]
    written = [found[name("entries_written_total"), change, "s1"] for change in ("inserted", "modified", "deleted")]
    assert written == [3, 2, 1]
    assert (found[name("refused_entries"), "s1"], found[name("convergence_failures_total"), "s1"]) == (4, 1)
    it.follow(["s2"])
    it.took("s1", Changes(1, 0, 0), 0, 0.1, quiet=False)  # its session has not ended yet
    it.failed("s1")
    assert not [key for key in collected(*it.collectors) if "s1" in key]


def test_the_store_tells_how_long_it_took_and_whether_it_answered(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/a.db")

    def fails(session: Session) -> None:
        session.execute(text("SELECT * FROM nothing"))

    def counts() -> list[float]:
        found = collected(store.seconds)
        return [found["gradlane_controller_store_request_seconds_count", it] for it in ("ok", "failed")]

    try:
        ok, _ = counts()
        store.read(lambda session: session.execute(text("SELECT 1")).all())
        with pytest.raises(StoreError):
            store.update(fails)
        assert counts() == [ok + 1, 1]
    finally:
        store.close()


def test_a_loop_that_is_held_up_lags() -> None:
    async def run() -> LoopLag:
        lag = LoopLag()
        task = asyncio.create_task(lag.run())
        await asyncio.sleep(0.01)
        time.sleep(0.7)  # what is measured
        await asyncio.sleep(0.01)
        task.cancel()
        return lag

    found = collected(asyncio.run(run()).seconds)
    name = "gradlane_controller_event_loop_lag_seconds_bucket"
    assert (found[name, "0.5"], found[name, "+Inf"]) == (0, 1)


@pytest.mark.parametrize(("seconds", "fresh"), [(0.0, 60.0), (6.0, -1.0)], ids=["often", "costly"])
def test_who_asks_often_gets_what_was_made_for_another(
    monkeypatch: pytest.MonkeyPatch, seconds: float, fresh: float
) -> None:
    clock, looks = itertools.count(step=seconds), 0
    monkeypatch.setattr(exposition, "FRESH_SECONDS", fresh)
    monkeypatch.setattr(exposition, "time", SimpleNamespace(monotonic=time.monotonic, thread_time=clock.__next__))
    controller = {"leader": True, "number": 1, "store": "", "events": ""}

    def look() -> Seen:
        nonlocal looks
        looks += 1
        return Seen({"controller": controller, "switches": [], "jobs": []}, {"links": []}, [], {}, None, {}, {})

    async def run() -> list[bytes]:
        it = Metrics(look, (), LoopLag())
        return await asyncio.gather(*(it.text() for _ in range(50)))

    answers = asyncio.run(run())
    assert looks == 1
    assert b"\ngradlane_controller_leader 1.0\n" in answers[0]
    assert b"\nprocess_cpu_seconds_total " in answers[0]


def test_counts_of_a_running_controller_only_grow_when_its_switch_restarts(
    fake_switch: FakeSwitch, run_controller
) -> None:
    sent, decided = (SCHEMA.counters[name].id for name in ("sent", "decisions"))
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    index = it.ask("GET", "/status")[1]["jobs"][0]["index"]

    def counts(packets: int) -> None:
        for cell in (*range(16), 2 << 3 | 7, 3 << 3 | 7):
            fake_switch.counters[sent, 1 << 5 | cell] = packets, 100 * packets
        fake_switch.counters[decided, index << 11 | 13 << 6 | 6 << 3 | 3] = packets, 100 * packets  # dropped_red

    def told() -> tuple[float, ...]:
        assert it.ask("GET", "/state")[0] == 200  # somebody watches: counters are read soon
        found = metrics(it)
        names = (
            'gradlane_controller_port_sent_bytes_total{port="1",queue_class="5",switch="s1"}',
            'gradlane_controller_job_packets_total{job="demo",queue_class="6",reason="dropped_red"}',
            'gradlane_controller_switch_bytes_total{reason="dropped_red",switch="s1"}',
        )
        return tuple(found.get(name, 0.0) for name in names)

    counts(1000)
    until(lambda: told() == (200_000, 1000, 100_000))
    fake_switch.stop()
    fake_switch.counters.clear()
    fake_switch.forget()
    fake_switch.start()
    least = told()
    counts(7)

    def grown() -> bool:
        nonlocal least
        found = told()
        assert all(a >= b for a, b in zip(found, least, strict=True)), (found, least)
        least = found
        return found == (201_400, 1007, 100_700)

    until(grown)
