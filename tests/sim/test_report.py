# SPDX-License-Identifier: Apache-2.0
"""What is made of runs: figures, a table, and a page that a browser shows."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradlane_sim import fabrics, ideal, measures
from gradlane_sim.carriers import Gradlane, Rival
from gradlane_sim.cases import Arm, Case, Scenario
from gradlane_sim.report import figures
from gradlane_sim.running import Outcome
from gradlane_sim.specification import Background, Job, Specification, Tensor, ideal_time

MS = 1_000_000
FABRIC = fabrics.single(2, 10**9, 64_000, 1000)
OURS, THEIRS = Arm("gradlane-p3", "ours", True), Arm("dctcp", "theirs")


def specification() -> Specification:
    jobs = tuple(
        Job(n, (0, 1), Gradlane(slots=8, slot_base=8 * n), (Tensor(0, 1_000_000, 1),), steps=2) for n in (1, 2)
    )
    flows = ((0, 0, 1, 1250), (0, 0, 1, 12_500_000), (9, 1, 0, 1250))
    return Specification(FABRIC, jobs, 1, Background(Rival("tcp"), flows))


def result(times: Sequence[int] = (10 * MS, 30 * MS)) -> dict[str, Any]:
    """Of two jobs, the second one half as fast."""
    statistics = {"slices_expected": 1000, "slices_repaired": 10}
    jobs = [
        {
            "id": n,
            "error": "",
            "steps_complete": 2,
            "step_ends": [n * it for it in times],
            "worker_ends": [n * times[1] // 2, n * times[1]],
            "operations": [[1, 0, 0, 0, n * times[0]], [2, 0, 0, n * times[0], n * times[1]]],
            "statistics": statistics,
        }
        for n in (1, 2)
    ]
    link = {
        "from": 0,
        "to": 2,
        "rate": 10**9,
        "packets": 5,
        "bytes": 1_250_000,
        "dropped": 3,
        "marked": 2,
        "depth_max": 7,
    }
    reasons = [0] * 32
    reasons[6], reasons[7], reasons[12], reasons[13] = 1, 2, 30, 40
    return {
        "jobs": jobs,
        "messages": [[1, 0, 1, False, 9, 0, 5 * MS], [1, 0, 1, True, 9, 0, 7 * MS]],
        "flows": [[0, 20_000, 0, 1, 1250], [0, 300 * MS, 0, 1, 12_500_000], [9, 0, 1, 0, 1250]],
        "switches": [{"node": 2, "reasons": reasons, "drops": [[1, 0, 50], [1, 15, 23]]}],
        "links": [{**link, "lost": 1}, {**link, "lost": 0, "from": 2, "to": 0, "dropped": 4}],
        "violations": [],
        "slices_missing": 9,
        "simulated": 0.02,
        "events": 77,
        "wall": 1.5,
    }


def test_what_is_kept_of_a_run() -> None:
    found = measures.measured(specification(), result())
    first, second = found["jobs"]
    assert first["step_times"] == [0.01, 0.02]
    assert first["ideal"] == pytest.approx(0.008)
    assert first["throughput"] == pytest.approx(2 * 8e6 / 0.03)
    assert second["operations"]["mean"] == pytest.approx(0.03)
    assert found["messages"]["count"] == 1, "pushes"
    assert found["messages"]["p99"] == pytest.approx(0.005)
    assert first["iteration"] == pytest.approx((0.015 + 0.03) / 2 / 2), "two steps of each of two workers"
    assert found["fairness"] == pytest.approx(9 / 10), "(2 + 1)^2 / (2 (4 + 1))"
    assert found["flows"]["asked"] == 3
    small, large = (ideal.alone(FABRIC, (0, 0, 1, size)) for size in (1250, 12_500_000))
    assert found["flows"]["slowdowns"]["small"]["mean"] == pytest.approx(20e-6 / small)
    assert found["flows"]["slowdowns"]["large"]["mean"] == pytest.approx(0.3 / large)
    assert found["flows"]["times"]["all"]["count"] == 2, "one is not over"
    assert found["links"]["from hosts"]["most_used"] == pytest.approx(0.5)
    assert found["links"]["to hosts"]["dropped"] == 4
    assert found["drops"] == {"dropped": 70, "trimmed": 3, "cells": [[1, 0, 50], [1, 15, 23]]}


def test_a_run_of_which_nothing_completed_is_kept() -> None:
    broken = result()
    for job in broken["jobs"]:
        job |= {"steps_complete": 0, "step_ends": [0, 0], "worker_ends": [0, 9], "operations": []}
        job["error"] = "rank 1 is dead"
    broken |= {"messages": [], "flows": []}
    found = measures.measured(specification(), broken)
    assert found["jobs"][0]["throughput"] == 0
    assert found["jobs"][0]["iteration"] is None
    assert found["jobs"][0]["operations"] is None
    assert found["fairness"] is None
    summary = figures.summaries(scenario(), [Outcome(case(OURS), found)])[0]
    assert summary.mean is None
    assert summary.errors == ("rank 1 is dead", "rank 1 is dead")
    assert figures.NOTHING in figures.cells(summary)


def test_the_flow_that_alone_needs_its_time_has_no_slowdown() -> None:
    ideal = ideal_time(FABRIC, replace(specification().jobs[0], servers=1))
    assert ideal == pytest.approx(0.008), "one worker sends 1 MB at 1 Gbit/s"


def scenario(name: str = "two") -> Scenario:
    return Scenario(name, "two hosts", 2, (OURS, THEIRS), lambda arm, seed: specification(), "growth")


def case(arm: Arm, seed: int = 1) -> Case:
    return Case("two", arm, seed, specification())


def outcomes() -> list[Outcome]:
    """Ours takes 10 and 20 ms in one seed, twice that in the other; theirs takes four times that."""
    found: list[Outcome] = []
    for arm, times in ((OURS, 1), (THEIRS, 4)):
        for seed in (1, 2):
            told = result([times * seed * it for it in (10 * MS, 30 * MS)])
            found.append(Outcome(case(arm, seed), measures.measured(specification(), told)))
    return found


def test_an_arms_figures_are_means_over_seeds() -> None:
    from gradlane_sim.report import page  # with matplotlib, which takes a second to import

    ours, theirs = figures.summaries(scenario(), outcomes())
    assert ours.runs == 2
    assert ours.mean == pytest.approx(0.015 * (1 + 2) / 2 * (1 + 2) / 2)
    assert theirs.mean == pytest.approx(4 * (ours.mean or 0))
    assert ours.spread == pytest.approx((0.015, 0.06))
    assert ours.by_job == pytest.approx((0.015 * 1.5, 0.03 * 1.5)), "the second job is half as fast"
    assert ours.iteration == pytest.approx((0.015 + 0.03) / 4 * 1.5 * 1.5)
    assert ours.repaired == pytest.approx(0.01)
    assert ours.by_policy == 73
    assert ours.no_room == 7
    assert figures.drops(outcomes()[:1]) == {(1, 0): 50, (1, 15): 23}
    assert page.headline(scenario(), [ours, theirs]) == "two: the mean completion of gradlane-p3 is 75% below dctcp's"
    assert "gradlane-p3" in figures.table([(scenario(), outcomes())])


def test_a_failed_run_is_in_the_figures_and_on_the_page() -> None:
    from gradlane_sim.report import page  # with matplotlib, which takes a second to import

    failed = [*outcomes(), Outcome(case(OURS, 3), None, "<it> can't be")]
    text = page.render("small", [(scenario(), failed)])
    assert "gradlane-p3: &lt;it&gt; can&#39;t be" in text
    assert figures.document([(scenario(), failed)])["scenarios"][0]["arms"][0]["errors"] == ("<it> can't be",)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not on PATH")
def test_a_browser_shows_the_page_with_everything_in_it(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    from gradlane_sim.report import page

    file = tmp_path / "report.html"
    file.write_text(page.render("small", [(scenario(), outcomes()), (scenario("three"), outcomes())]))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1200, "height": 900})
        asked: list[str] = []
        shown.on("request", lambda request: asked.append(request.url))
        shown.goto(file.as_uri())
        assert [it.text_content() for it in shown.query_selector_all("h2")] == ["With more hosts", "two", "three"]
        # Growth, and of each scenario the distribution, the times, and what the policy took.
        plots = shown.query_selector_all("svg")
        assert len(plots) == 1 + 2 * 3
        boxes = [it.bounding_box() for it in plots]
        assert all(box and box["width"] > 200 and box["height"] > 50 for box in boxes)
        wide = shown.evaluate("document.documentElement.scrollWidth")
        assert wide <= 1200, "nothing sticks out"
        assert asked == [file.as_uri()], "it needs nothing else"
        browser.close()
