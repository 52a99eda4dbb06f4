# SPDX-License-Identifier: Apache-2.0
"""The report is one file with everything in it, and the tables hold the figures."""

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

from lab.model import results, waiting
from lab.model.waiting import Part
from lab.report import tables
from lab.report.claims import evaluate
from tests.support.figures import arm_result


class Links(HTMLParser):
    """Collects what a page would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.outside += [
            v for k, v in attrs if k in ("src", "href", "xlink:href") and v and not v.startswith(("#", "data:"))
        ]


def render(*runs: results.ArmResult) -> str:
    from lab.report import page  # with matplotlib, which takes a second to import

    return page.render("burst", "bursts & <traffic>", {"rate": "100mbit"}, runs, evaluate(runs))


def test_the_report_is_self_contained_and_escapes() -> None:
    page = render(arm_result("gradlane", policy_drops=800), arm_result("ddp-gloo", to_target=31.0))
    links = Links()
    links.feed(page)
    assert links.outside == []
    assert links.tags.count("svg") == 3
    assert "<traffic>" not in page
    assert "gradlane reached 95 % accuracy 3.10 times as fast as ddp-gloo" in page
    assert not re.search(r"@import|url\(http", page)


def test_the_report_of_a_straggler_shows_who_waited_for_whom() -> None:
    seen = waiting.exchanges([[Part((0, 1), 1.0, 4.0)], [Part((0, 1), 3.0, 4.0)]])
    runs = [
        dataclasses.replace(arm_result("ripples", exchanges=seen, final=0.961), seconds=10.0),
        dataclasses.replace(arm_result("ddp-gloo-fp16", exchanges=seen, final=0.973), seconds=20.0),
    ]
    page = render(*runs)
    assert page.count("<svg") == 5 - 1  # no drops
    assert "ripples did the same work 2.00 times as fast as ddp-gloo-fp16" in page
    assert "for all steps, ripples; final accuracy 96.10%" in page
    assert tables.work(runs)[0] == ["ripples", "10.0 s", "96.10%", "2.00x", "4 4", "worker 1: 20% of the others' time"]
    assert "Who waited for whom" not in render(arm_result("gradlane"), arm_result("ddp-gloo"))


def test_the_report_of_a_run_without_drops_and_without_the_target() -> None:
    page = render(arm_result("gradlane", to_target=None), arm_result("ddp-gloo", to_target=31.0))
    assert "gradlane did not reach 95 % accuracy" in page
    assert "dropped nothing" in page


def test_the_report_of_a_single_baseline() -> None:
    assert "ddp-gloo reached 95 % accuracy" in render(arm_result("ddp-gloo"))


def test_the_tables_tell_drops_and_speed_up() -> None:
    runs = [arm_result("gradlane", policy_drops=800), arm_result("ddp-gloo", to_target=31.0)]
    rows = tables.figures(runs)
    assert rows[0][-1] == "3.10x"
    assert rows[0][tables.FIGURES.index("policy drops")] == "800"
    assert rows[1][tables.FIGURES.index("budget violations")] == "-"
    assert tables.drops(runs) == [["gradlane", "6", "3", "800", "1,186", "60,800", "1.32%"]]


def test_the_tables_tell_what_a_switch_has_summed() -> None:
    runs = [arm_result("gradlane-switch-sum"), arm_result("gradlane"), arm_result("ps-tcp")]
    (table,) = [it for it in tables.of_runs(runs, []) if it.columns is tables.SUMS]
    assert table.rows == [["gradlane-switch-sum", "75.0%", "25", "7"]]
    assert "Summed in the switch" in render(*runs)
    assert "Summed in the switch" not in render(*runs[1:])
    assert not [it for it in tables.of_runs(runs[1:], []) if it.columns is tables.SUMS]


def test_the_benchmark_table_says_how_many_seeds_reached_the_target() -> None:
    runs = [arm_result("gradlane", seed=1), arm_result("gradlane", seed=2, to_target=None)]
    (row,) = tables.summary(runs)
    assert row[tables.SUMMARY.index("reached")] == "1 of 2"
    assert row[tables.SUMMARY.index("to target")] == ">= 15.0 s"


def test_the_result_file_is_json_with_claims_and_runs(tmp_path: Path) -> None:
    runs = [arm_result("gradlane"), arm_result("ddp-gloo", to_target=31.0)]
    results.save(tmp_path / "deep" / "result.json", results.document({"seed": 1}, runs, evaluate(runs)))
    read = json.loads((tmp_path / "deep" / "result.json").read_text())
    assert [run["arm"] for run in read["runs"]] == ["gradlane", "ddp-gloo"]
    assert read["runs"][0]["speed_up"] == 3.1
    assert {"name", "value", "goal", "met"} == set(read["claims"][0])
    assert {field.name for field in dataclasses.fields(results.ArmResult)} <= set(read["runs"][0])
