# SPDX-License-Identifier: Apache-2.0
"""What is seen of jobs in an interval: of counters the difference, of agents the mean step, each for its job alone."""

from typing import Any

import pytest

from gradlane import job
from gradlane_controller.adaptive.observing import Window
from gradlane_controller.desired.plan import Plan, make_plan
from gradlane_controller.network import fabric_file
from gradlane_controller.network.topology import whole
from gradlane_controller.policy.usage import Usage
from gradlane_controller.session.counters import Counters, Decision, collect
from tests.gradlane_controller.controller_thread import PROGRAMS
from tests.gradlane_controller.texts import job_text, leafspine_text

JOBS = {
    name: job.parse(job_text(name, number, hosts=hosts, base=4096 * number), name)
    for number, (name, hosts) in enumerate([("a", (1, 2)), ("b", (3, 4))], 1)
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(PROGRAMS, fabric_file.parse(leafspine_text(), "f.toml"), JOBS)


def window(plan: Plan, before: Counters) -> Window:
    return Window(plan, Usage(plan.fabric, whole(plan.fabric), plan.jobs.values()), before, 0.0)


def counters(*rows: tuple[str, str | None, str, int], away: tuple[str, ...] = ()) -> Counters:
    found = collect([], list(away))
    found.decisions.extend(Decision(switch, name, reason, 5, 3, packets, 0) for switch, name, reason, packets in rows)
    return found


def said(step: int, seconds: float | None, **changes: Any) -> dict[str, Any]:
    known = {"step": {"number": step, "seconds": seconds}, "budget": None, "lost": 0, "repaired": 0}
    return known | changes


def nothing(_end: object) -> None:
    return None


def test_counters_are_those_of_the_interval_and_of_switches_that_were_there(plan: Plan) -> None:
    before = counters(
        ("leaf1", "a", "forwarded", 1000),
        ("leaf1", "a", "dropped_red", 50),
        ("leaf2", "a", "forwarded", 7000),
        ("spine1", "a", "forwarded", 900),
        away=("spine2",),
    )
    after = counters(
        ("leaf1", "a", "forwarded", 1600),
        ("leaf1", "a", "dropped_red", 80),
        ("leaf1", "a", "dropped_yellow", 5),
        ("leaf1", "a", "trimmed_red", 4),
        ("leaf1", "a", "trimmed_yellow", 1),
        ("leaf1", "a", "budget_spent", 20),
        ("leaf1", "b", "forwarded", 3),
        ("leaf1", None, "dropped_guard", 10**6),
        ("leaf2", "a", "forwarded", 10),  # it has begun to count anew
        ("spine2", "a", "forwarded", 10**6),
        away=("spine1",),
    )
    found = window(plan, before).end(after)
    assert (found["a"].packets, found["a"].dropped, found["a"].spent) == (660, 40, 20)
    assert (found["b"].packets, found["b"].dropped, found["b"].step_seconds) == (3, 0, None)


def test_a_step_is_the_mean_of_all_steps_and_each_job_has_what_is_said_of_it(plan: Plan) -> None:
    it = window(plan, counters())
    budgets = [{"used": 0.02, "allowed": 0.1}, {"used": 0.04, "allowed": 0.1}]
    it.sample({"a": said(10, 9.0, lost=100, repaired=40)}, nothing)  # when that began is not known
    it.sample({"a": said(12, 0.5, lost=110, repaired=50, budget=budgets[0])}, nothing)
    it.sample({"a": said(12, 0.5, lost=110, repaired=50)}, nothing)  # no step since
    it.sample({"a": said(18, 0.1, lost=130, repaired=60, budget=budgets[1]), "b": said(1, None)}, nothing)
    found = it.end(counters())
    assert found["a"].step_seconds == pytest.approx((2 * 0.5 + 6 * 0.1) / 8)
    assert (found["a"].used, found["a"].allowed) == pytest.approx((0.03, 0.1))
    assert found["a"].lost == 50
    assert "b" not in found, "its agents report, and no step yet"


def test_counts_that_fall_are_no_steps(plan: Plan) -> None:
    it = window(plan, counters())
    for number, lost in ((10, 50), (3, 10), (2, 0)):
        it.sample({"a": said(number, 0.5, lost=lost)}, nothing)
    assert "a" not in it.end(counters())


def test_the_fullest_port_that_the_job_sends_by_counts(plan: Plan) -> None:
    sent = {("leaf1", 1): [0, 10_000_000], ("leaf1", 2): [25_000_000, 5_000_000], ("leaf2", 1): [99_000_000]}
    it = window(plan, counters())
    it.sample({}, sent.get)
    it.sample({}, {("leaf1", 2): [50_000_000]}.get)
    found = it.end(counters())
    assert found["a"].busiest == pytest.approx(0.4), "of 100 Mbit/s, in the mean"
    assert found["b"].busiest == pytest.approx(0.99)
