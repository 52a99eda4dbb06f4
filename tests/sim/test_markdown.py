# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/simulation.md: their figures by hand, and that they name what there is."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gradlane_sim import studies
from gradlane_sim.__main__ import main
from gradlane_sim.cases import Arm, Case
from gradlane_sim.errors import SimulationError
from gradlane_sim.report import markdown
from gradlane_sim.report.figures import Summary
from gradlane_sim.report.markdown import TABLES, Comparison, Details
from gradlane_sim.running import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"
EMPTY = Summary(
    arm=Arm("a", ""),
    runs=1,
    step=None,
    ideal=0.002,
    iteration=None,
    by_job=(),
    p50=None,
    mean=None,
    p99=None,
    spread=None,
    message_mean=None,
    message_p99=None,
    curve=(),
    no_room=0,
    by_policy=0,
    repaired=None,
    used=0,
    fairness=None,
    slowdown=None,
    errors=(),
    violations=0,
)


def runs(*steps: float) -> list[Summary]:
    """One seed each. A step in ms; its ideal is 2, its p99 twice that of the step."""
    return [replace(EMPTY, step=it / 1000, p99=it / 500, no_room=1000 * it) for it in steps]


def test_an_interval_is_by_students_t() -> None:
    assert markdown.interval([3.0]) is None
    # Of 1, 2, 3: a standard deviation of 1, so 4.303 / sqrt(3).
    assert markdown.interval([1, 2, 3]) == pytest.approx(2.484, abs=0.001)
    # Of five equal steps of 1: sqrt(2.5) times 2.776 / sqrt(5).
    assert markdown.interval([1, 2, 3, 4, 5]) == pytest.approx(1.963, abs=0.001)
    assert markdown.interval([2, 2]) == 0


@pytest.mark.parametrize(
    ("mean", "half", "shown"),
    [
        (1.2345, None, "1.23"),
        (0.0449, 0.001, "0.04 ± 0.00"),
        (12.345, 0.26, "12.3 ± 0.3"),
        (2512.2, 12.5, "2,512 ± 12"),
    ],
)
def test_numbers_have_three_digits(mean: float, half: float | None, shown: str) -> None:
    assert markdown.number(mean, half) == shown


def test_a_comparison_has_means_over_seeds_and_the_least_in_bold() -> None:
    rows = {"one": "first", "two": "second", "three": "third"}
    table = Comparison("what", rows, arms=("gradlane-p0", "dctcp", "pfabric"))
    failed = [*runs(1, 1), replace(EMPTY, errors=("gone",))]
    found = {("one", "gradlane-p0"): runs(2, 4, 6), ("one", "dctcp"): runs(3), ("two", "dctcp"): failed}
    found["three", "dctcp"] = runs(5)
    # Of ideal: 1, 2, 3, whose mean is 2; and 1.5.
    assert table.lines(found) == [
        ["what", "seeds", "Gradlane, p = 0", "DCTCP", "pFabric"],
        ["first", "1 to 3", "2.00 ± 2.48", "**1.50**", "–"],
        ["second", "3", "–", "1 of 3 fail", "–"],
        ["third", "1", "–", "2.50", "–"],
    ]


def test_details_are_of_those_that_have_run_the_best_first() -> None:
    table = Details("what", {"one": "first", "two": "second"}, ("gradlane-p0", "dctcp", "pfabric"))
    found = {("one", "gradlane-p0"): runs(6), ("one", "pfabric"): runs(2, 4)}
    head, *rows = table.lines(found)
    assert head[:4] == ["what", "arm", "seeds", "of ideal"]
    assert [row[:5] for row in rows] == [
        ["first", "pFabric", "2", "1.50 ± 6.35", "6.00 ± 25.41"],
        ["", "Gradlane, p = 0", "1", "3.00", "12.0"],
    ]
    assert [row[-1] for row in rows] == ["3,000", "6,000"]


def test_a_comparison_keeps_what_the_page_has_of_arms_that_have_not_run() -> None:
    table = Comparison("what", {"one": "first", "two": "second", "three": "third"}, arms=("gradlane-p0", "dctcp"))
    before = [
        ["what", "seeds", "DCTCP", "Gradlane, p = 0"],
        ["second", "1 to 5", "**2.10 ± 0.10**", "2,200"],
        ["gone", "1", "1.00", "1.00"],
        ["first", "2 to 5", "9.00 ± 1.00", "**1.00 ± 0.10**"],
    ]
    assert table.lines({}, before) == [
        ["what", "seeds", "Gradlane, p = 0", "DCTCP"],
        ["first", "2 to 5", "**1.00 ± 0.10**", "9.00 ± 1.00"],
        ["second", "1 to 5", "2,200", "**2.10 ± 0.10**"],
        ["third", "–", "–", "–"],
    ]
    found = {("one", "gradlane-p0"): runs(20), ("two", "gradlane-p0"): runs(2, 2, 2)}
    assert table.lines(found, before)[1:3] == [
        ["first", "1 to 5", "10.0", "**9.00 ± 1.00**"],
        ["second", "3 to 5", "**1.00 ± 0.00**", "2.10 ± 0.10"],
    ]
    failed = [["what", "seeds", "DCTCP", "Gradlane, p = 0"], ["first", "1 to 3", "3 of 3 fail", "2.00"]]
    assert table.lines({}, failed)[1] == ["first", "1 to 3", "2.00", "3 of 3 fail"]


def test_details_keep_what_the_page_has_of_arms_that_have_not_run() -> None:
    table = Details("what", {"one": "first", "two": "second"}, ("gradlane-p0", "dctcp", "pfabric"))
    old = ["0.1", "0.2", "0.3", "1,000"]
    before = [
        ["what", "arm", "seeds", "of ideal", "a", "b", "c", "d"],
        ["first", "DCTCP", "3", "1.20 ± 0.10", *old],
        ["", "pFabric", "3", "1.40 ± 0.10", *old],
        ["second", "DCTCP", "1", "7.00", *old],
        ["", "pFabric", "1", "8.00", *old],
    ]
    found = {("one", "gradlane-p0"): runs(2.6), ("one", "pfabric"): runs(2)}
    _, *rows = table.lines(found, before)
    assert [row[:4] for row in rows] == [
        ["first", "pFabric", "1", "1.00"],
        ["", "DCTCP", "3", "1.20 ± 0.10"],
        ["", "Gradlane, p = 0", "1", "1.30"],
        ["second", "DCTCP", "1", "7.00"],
        ["", "pFabric", "1", "8.00"],
    ]
    assert rows[1][4:] == old == rows[3][4:]


def test_a_page_without_results_stays_as_it_is(tmp_path: Path) -> None:
    page, program = tmp_path / "page.md", tmp_path / "program"
    before = PAGE.read_text()
    page.write_text(before)
    program.write_text("has run nothing")
    arguments = ["table", "--out", str(tmp_path), "--program", str(program), "--into", str(page)]
    assert main(arguments) == 0
    assert page.read_text() == before


def test_a_page_has_tables_between_their_markers() -> None:
    page = "a\n<!-- table one -->\nold\n<!-- end of one -->\nb\n"
    new = markdown.replaced(page, {"one": markdown.render([["x", "y"], ["1", "2"]])})
    assert new == "a\n<!-- table one -->\n\n| x | y |\n| --- | --- |\n| 1 | 2 |\n\n<!-- end of one -->\nb\n"
    assert markdown.replaced(new, {"one": "| z |"}) == page.replace("old", "\n| z |\n")
    assert markdown.table_of(new, "one") == [["x", "y"], ["1", "2"]]
    assert markdown.table_of(page, "one") == []
    for broken in (page.replace("table one", "table two"), page.replace("end of one", "end of two")):
        with pytest.raises(SimulationError, match="no place for a table: <!-- table one -->"):
            markdown.replaced(broken, {"one": ""})


def test_more_seeds_than_intervals_are_known_for_are_refused() -> None:
    outcomes: Sequence[Outcome] = [Outcome(case, None) for case in smoke_cases(11)]
    markdown.found_of({"smoke": studies.smoke()[0]}, outcomes[:10])
    with pytest.raises(SimulationError, match="at most 10 seeds"):
        markdown.found_of({"smoke": studies.smoke()[0]}, outcomes)


def smoke_cases(seeds: int) -> list[Case]:
    (scenario,) = studies.smoke()
    return [case for case in scenario.cases(range(1, seeds + 1)) if case.arm.name == "dctcp"]


def test_tables_name_scenarios_and_arms_that_there_are_and_the_page_has_them_all() -> None:
    there = {(it.name, arm.name) for it in (*studies.small(), *studies.study()) for arm in it.arms}
    for name, table in TABLES.items():
        assert not set(table.asked) - there
        assert f"<!-- table {name} -->" in PAGE.read_text()
    markdown.replaced(PAGE.read_text(), dict.fromkeys(TABLES, ""))
