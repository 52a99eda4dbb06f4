# SPDX-License-Identifier: Apache-2.0
"""Hosts whose links differ, and jobs that share links: who reduces how much, and who gets how much."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from gradlane.job import ownership
from gradlane.job.ownership import Case, Owner
from gradlane_sim import measures, workloads
from gradlane_sim.carriers import Gradlane
from gradlane_sim.cases import Arm, Scenario
from gradlane_sim.document import document
from gradlane_sim.errors import SpecificationError
from gradlane_sim.fabrics import leaf_spine
from gradlane_sim.program import Program
from gradlane_sim.report import figures
from gradlane_sim.running import Outcome
from gradlane_sim.specification import Job, Specification, Tensor, ideal_time
from tests.sim.simulator import needs_simulator

GBIT = 1_000_000_000
DCTCP = next(it for it in workloads.arms() if it.name == "dctcp")
SIZE, HOSTS = 2_000_000, 8


def simulated(specification: Specification) -> dict[str, Any]:
    return Program().run(document(specification), lambda _simulated, _wall: None)


def mixed(uneven: bool, arm: Arm) -> Specification:
    fabric = leaf_spine(2, 4, 2, 10 * GBIT, 40 * GBIT, 200_000, 1000)
    return workloads.mixed_rates(fabric, SIZE, uneven, arm, 1, steps=2)


def test_shares_are_those_of_the_agents_rule_for_the_links_of_the_fabric() -> None:
    job = mixed(True, workloads.LOSSLESS).jobs[0]
    rates = np.array([10, 5, 10, 2.5] * 2) * 1e9
    case = Case(SIZE, HOSTS, tuple(Owner(float(rate)) for rate in rates))
    assert job.weights == tuple(ownership.weights(ownership.best(case)))
    parts = np.array(job.weights) / sum(job.weights)
    # Who has a quarter of the rate owns nothing: its link carries its contribution and the result, and nothing else.
    assert list(parts > 0) == [True, False, True, False] * 2 or list(parts > 0) == [True, True, True, False] * 2
    least = (SIZE * 8 * (1 + (HOSTS - 2) * parts) / rates).max()
    assert ideal_time(mixed(True, workloads.LOSSLESS).fabric, job) == pytest.approx(least)
    assert least == pytest.approx(ownership.seconds(case, list(parts)), rel=0.01)
    even = ideal_time(mixed(False, workloads.LOSSLESS).fabric, replace(job, weights=()))
    assert even == pytest.approx(2 * 7 / 8 * SIZE * 8 / 2.5e9)
    assert even > 1.5 * least


@needs_simulator
@pytest.mark.parametrize("arm", [workloads.LOSSLESS, DCTCP], ids=lambda it: it.name)
def test_who_has_the_faster_link_reduces_more_and_all_are_done_earlier(arm: Arm) -> None:
    took: dict[bool, float] = {}
    for uneven in (True, False):
        specification = mixed(uneven, arm)
        result = simulated(specification)
        (job,) = result["jobs"]
        assert (job["error"], job["steps_complete"], result["violations"]) == ("", 2, [])
        took[uneven] = job["step_ends"][-1] / 2e9
        needed = ideal_time(specification.fabric, specification.jobs[0])
        # Both have to find out what links carry.
        assert needed < took[uneven] < 2 * needed
        weights = np.array(specification.jobs[0].weights or [1] * HOSTS)
        payload = 2 * SIZE * (1 + (HOSTS - 2) * weights / weights.sum())
        sent = np.array([it["bytes"] for it in result["links"] if it["from"] < HOSTS])
        assert (sent > 0.98 * payload).all()
        # What finds no room before a slower link is sent again.
        assert (sent < 1.4 * payload).all()
    assert took[True] < 0.75 * took[False]


def test_weights_that_make_no_sense_are_refused() -> None:
    make = partial(Job, 1, (0, 1, 2), Gradlane(), (Tensor(0, 400, 1),))
    for weights in ((1, 1), (0, 0, 0), (1, 2, -1)):
        with pytest.raises(SpecificationError, match="it must have 3 from 0 on"):
            make(weights=weights)
    with pytest.raises(SpecificationError, match="its algorithm must be direct"):
        make(weights=(1, 2, 1), algorithm="ring")


@needs_simulator
@pytest.mark.parametrize("count", [2, 4])
def test_jobs_that_share_the_spines_are_in_the_report_each_with_its_time(count: int) -> None:
    """What is told is counted here by itself, from the moments at which workers had results."""
    fabric = leaf_spine(2, 4, 2, 10 * GBIT, 10 * GBIT, 200_000, 1000)
    make = partial(workloads.several_jobs, fabric, count, 400_000)
    outcomes: list[Outcome] = []
    scenario = Scenario("jobs", "", 8, (workloads.LOSSLESS,), make)
    steps: dict[int, list[float]] = {}
    fair: list[float] = []
    for case in scenario.cases((1, 2)):
        jobs = case.specification.jobs
        hosts = Counter(host for job in jobs for host in job.members)
        assert hosts == Counter(range(8))
        result = simulated(case.specification)
        outcomes.append(Outcome(case, measures.measured(case.specification, result)))
        speeds: list[float] = []
        for job, row in zip(jobs, result["jobs"], strict=True):
            last = max(end for *_, end in row["operations"]) / 1e9
            assert row["steps_complete"] == 4
            steps.setdefault(job.id, []).append(last / 4)
            speeds.append(1 / last)
        fair.append(float(np.mean(speeds) ** 2 / np.mean(np.square(speeds))))
    (found,) = figures.summaries(scenario, outcomes)
    assert found.by_job == pytest.approx([np.mean(steps[number]) for number in sorted(steps)])
    assert found.fairness == pytest.approx(np.mean(fair))
    assert np.mean(fair) > 0.97
    row = dict(zip(figures.COLUMNS, figures.cells(found), strict=True))
    assert row["jobs' steps, ms"] == " ".join(f"{1000 * np.mean(steps[number]):.2f}" for number in sorted(steps))
    assert row["fairness"] == f"{np.mean(fair):.3f}"
