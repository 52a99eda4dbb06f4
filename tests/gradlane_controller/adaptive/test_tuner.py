# SPDX-License-Identifier: Apache-2.0
"""When jobs are looked at, and what is kept: on its own clock, beside a controller that notes what it is told."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from gradlane import job
from gradlane_controller.adaptive.tuner import NotTunedError, Tuner
from gradlane_controller.desired.plan import Plan, make_plan
from gradlane_controller.errors import UnknownJobError
from gradlane_controller.network import fabric_file
from gradlane_controller.service import Controller
from gradlane_controller.session.counters import Counters, Decision, collect
from tests.gradlane_controller.controller_thread import PROGRAMS
from tests.gradlane_controller.texts import fabric_text, job_text

BOUNDS = "[adaptive]\ninterval = 10\nleast_threshold = 0.05\nmost_threshold = 0.6\ntolerance = 0.25\n"
JOBS = [
    job.parse(job_text(name, number, hosts=hosts, base=4096 * number) + "[loss]\npush = 0.1\n", name)
    for number, (name, hosts) in enumerate([("a", (1, 2)), ("b", (3, 4))], 1)
]


def plan_of(bounds: str = BOUNDS) -> Plan:
    return make_plan(PROGRAMS, fabric_file.parse(fabric_text() + bounds, "f.toml"), {it.name: it for it in JOBS})


class Stub:
    """Job a drops a tenth of its packets; job b drops none."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.leads, self.settled = plan, True, True
        self.tuned: dict[str, Any] = {}
        self.reasons: list[tuple[str, str]] = []
        self.now = 0.0
        self.readings = 0

    def clock(self) -> float:
        return self.now

    def sent(self, _end: object) -> None:
        return None

    async def counters(self) -> Counters:
        self.readings += 1
        found = collect([], [])
        for name in ("a", "b"):
            rows = [("forwarded", int(1000 * self.now)), ("dropped_red", int(100 * self.now) if name == "a" else 0)]
            found.decisions.extend(Decision("s1", name, reason, 5, 3, packets, 0) for reason, packets in rows)
        return found

    async def tune(self, new: Mapping[str, tuple[Mapping[str, Any] | None, str]]) -> None:
        for name, (state, reason) in new.items():
            self.tuned.pop(name, None)
            if state is not None:
                self.tuned[name] = state
            if reason:
                self.reasons.append((name, reason))


def tuner(stub: Stub, seconds: float | None = 0.5) -> Tuner:
    """Whose job a has steps of so long, as its agents say; None: they say nothing."""

    def of_jobs() -> dict[str, Any]:
        if seconds is None:
            return {}
        step = {"number": int(stub.now / seconds), "seconds": seconds}
        return {"a": {"step": step, "budget": {"used": 0.07, "allowed": 0.1}, "lost": 9, "repaired": 0}}

    return Tuner(cast(Controller, stub), of_jobs, stub.clock)


def run(it: Tuner, stub: Stub, seconds: int) -> None:
    """Looks once a second."""

    async def look() -> None:
        for _ in range(seconds):
            stub.now += 1
            await it.look()

    asyncio.run(look())


def test_a_step_in_an_interval_and_only_of_the_job_that_needs_it() -> None:
    stub = Stub(plan_of())
    it = tuner(stub)
    run(it, stub, 10)
    assert stub.reasons == [], "the first interval is not over"
    run(it, stub, 1)
    assert [name for name, _ in stub.reasons] == ["a"]
    assert it.of_jobs()["a"]["tuning"]["text"] == "thresholds x 2"
    assert [(row["name"], row["state"]) for row in it.state()["jobs"]] == [("a", "tried"), ("b", "at rest")]
    run(it, stub, 11)
    assert len(stub.reasons) == 1, "2 s to settle come first"
    run(it, stub, 2)
    assert len(stub.reasons) == 2
    assert "taken back" in stub.reasons[1][1]


def test_nothing_is_judged_before_switches_hold_what_was_changed() -> None:
    stub = Stub(plan_of())
    it = tuner(stub)
    run(it, stub, 11)
    stub.settled = False
    run(it, stub, 60)
    assert len(stub.reasons) == 1
    stub.settled = True
    run(it, stub, 12)
    assert len(stub.reasons) == 2


def test_another_leader_goes_on_with_the_trial() -> None:
    stub = Stub(plan_of())
    run(tuner(stub), stub, 11)
    run(tuner(stub), stub, 11)
    assert [reason.split()[0] for _, reason in stub.reasons] == ["threshold+1", "threshold+1"]
    assert "is taken back (as its file)" in stub.reasons[1][1]


@pytest.mark.parametrize("bounds", ["", BOUNDS])
def test_who_does_not_lead_or_has_no_bounds_reads_and_changes_nothing(bounds: str) -> None:
    stub = Stub(plan_of(bounds))
    stub.leads = not bounds
    run(tuner(stub), stub, 40)
    assert (stub.readings, stub.reasons) == (0, [])


def test_hosts_of_a_job_are_told_what_is_left_of_its_tolerance_within_the_bounds() -> None:
    stub = Stub(plan_of())
    it = tuner(stub)
    state = {"earlier": [], "trial": None, "refused": [], "baseline": None, "held": False}
    stub.tuned = {"a": {**state, "tuning": {"threshold": 0, "protection": 0, "tolerance": 9}}}
    assert it.tolerated("h1") == it.tolerated("h2") == {"a": 0.25}
    assert it.tolerated("h3") == {}
    stub.plan = plan_of("")
    assert it.tolerated("h1") == {}
    stub.tuned = {"gone": stub.tuned["a"]}
    assert it.tolerated("h1") == {}


def test_undo_holds_a_job_and_resume_lets_it_go_on() -> None:
    stub = Stub(plan_of())
    it = tuner(stub)
    run(it, stub, 11)
    assert asyncio.run(it.undo("a"))["state"] == "held"
    run(it, stub, 60)
    assert [reason for _, reason in stub.reasons[1:]] == ["taken back by hand, and held"]
    with pytest.raises(NotTunedError, match="there is nothing to undo"):
        asyncio.run(it.undo("a"))
    with pytest.raises(UnknownJobError, match="no job 'c'; there are: a, b"):
        asyncio.run(it.undo("c"))
    assert asyncio.run(it.resume("a"))["state"] == "at rest"
    run(it, stub, 14)
    assert len(stub.reasons) == 3


def test_what_is_kept_of_a_job_that_is_gone_is_forgotten() -> None:
    stub = Stub(plan_of())
    stub.tuned = {"gone": {}}
    run(tuner(stub), stub, 1)
    assert stub.tuned == {}
