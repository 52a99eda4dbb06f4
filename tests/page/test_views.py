# SPDX-License-Identifier: Apache-2.0
"""Jobs, timeline, alarms and What if: each control does what it says."""

import re
from collections.abc import Callable
from typing import Any

from tests.page.conftest import Opened, expect
from tests.page.simulated.server import Server

Visit = Callable[..., Opened]


def test_jobs_are_filtered_and_sorted_and_lead_to_their_pages(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric)
    it.page.get_by_role("link", name="Jobs").first.click()
    names, rows = it.page.locator("tbody th"), it.page.locator("tbody tr")
    it.page.get_by_role("heading", name="Jobs").wait_for()
    expect(names).to_have_text(["evaluate", "sums", "train"])
    expect(rows.first).to_contain_text("no agent reports")
    expect(rows.nth(1)).to_contain_text("spine1, spine2")
    it.page.get_by_role("button", name="Workers").click()
    it.expect_address("sort=-workers")
    expect(names.first).to_have_text("train")
    it.page.get_by_role("searchbox").fill("su")
    expect(rows).to_have_count(1)
    it.page.get_by_role("searchbox").fill("")
    it.page.get_by_label("Only with stragglers").check()
    expect(rows).to_have_count(2)
    it.page.get_by_role("link", name="train").click()
    it.page.get_by_role("heading", name="train").wait_for()
    it.page.go_back()
    expect(rows).to_have_count(2)


def test_a_jobs_page_says_what_its_agents_and_the_switches_say(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=admin-token&/jobs/train")
    page = it.page
    page.get_by_role("heading", name="train").wait_for()
    state: dict[str, Any] = small_fabric.source.snapshot(small_fabric.second)
    job = state["jobs"][0]
    page.get_by_text(f"missing, of {job['budget']['allowed']:.1%} allowed".replace("%", " %")).wait_for()
    page.get_by_text("h3: last in 29 of 32 steps, by 84 ms in the median").wait_for()
    waits = page.get_by_role("region", name="Waits, the longest first").locator("tbody tr")
    expect(waits).to_have_count(3)
    for host in ("h1", "h2", "h4"):
        expect(waits.filter(has_text=host)).to_have_count(1)
    heat = page.locator("table.heat tbody tr")
    expect(heat).to_have_count(12)
    cells = heat.first.locator("td")
    expect(cells.filter(has_not_text="·")).to_have_count(8)
    packets = re.compile(r"^layer 0, magnitudes 0 to 15: [\d\u202f]+ packets, [\d.]+ MB$")
    expect(cells.first).to_have_attribute("title", packets)
    page.get_by_text("dropped yellow").wait_for()
    expect(page.locator(".uplot canvas")).to_have_count(2)
    page.locator("details", has_text="As a table").first.locator("summary").click()
    table = page.get_by_role("region", name="Step time, as a table").locator("tbody tr")
    table.nth(20).wait_for()  # from the history
    expect(table.first).to_contain_text(re.compile(r"\d+ ms"))
    page.get_by_label("Charts of").select_option("the last hour")
    it.expect_address("span=3600")
    page.get_by_role("link", name="Show its way").click()
    it.expect_address("^#/overview.*job=train")


def test_without_agents_it_says_so_and_shows_what_switches_know(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=admin-token&/jobs/evaluate")
    it.page.get_by_text("No agent reports.").wait_for()
    expect(it.page.locator("table.heat tbody tr")).to_have_count(4)
    expect(it.page.locator(".uplot")).to_have_count(0)
    it.see("#/jobs/nobody")
    it.page.get_by_text("There is no job nobody.").wait_for()


def test_drops_that_are_of_all_jobs_together_are_called_that(visit: Visit, small_fabric: Server) -> None:
    def together(state: dict[str, Any]) -> None:
        state["drop_map"] = [[0, 0, 40, 400]]
        for job in state["jobs"]:
            del job["drop_map"]

    small_fabric.source.changes.append(together)  # type: ignore[attr-defined]
    it = visit(small_fabric, "#token=admin-token&/jobs/train")
    it.page.get_by_text("Of all jobs together").wait_for()
    it.see("#/whatif/train")
    it.page.get_by_text("for all jobs together").wait_for()


def test_the_timeline_is_filtered_and_leads_to_what_was_then(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=admin-token&/timeline")
    page = it.page
    page.get_by_text("foreign").or_(page.get_by_text("gradients of job 77 were refused")).first.wait_for()
    entries = page.locator("ol li")
    entries.nth(50).wait_for()
    everything = entries.count()
    page.get_by_label("Kind").select_option("link")
    page.wait_for_function("n => document.querySelectorAll('ol li').length < n", arg=everything)
    entries.first.wait_for()
    expect(entries.locator(".chip").filter(has_not_text=re.compile("^link$"))).to_have_count(0)
    page.get_by_role("searchbox").fill("is down")
    page.wait_for_function(
        "() => [...document.querySelectorAll('ol li')].every(it => it.innerText.includes('is down'))"
    )
    it.expect_address("kind=link.*q=is\\+down")
    entries.first.get_by_role("button", name="Details").click()
    number = entries.first.locator("dd").first.inner_text()
    it.expect_address(f"event={number}")
    entries.first.get_by_role("link", name="Show then").click()
    it.expect_address("^#/overview\\?at=")
    page.get_by_text("1 link down").wait_for()
    page.go_back()
    expect(page.get_by_role("searchbox")).to_have_value("is down")


def test_new_events_come_by_themselves(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=admin-token&/timeline")
    it.page.locator("ol li").first.wait_for()
    real = small_fabric.source.events
    event = {"id": 10**6, "at": "2030-01-01T00:00:00.000Z", "kind": "note", "subject": "x", "text": "has just happened"}
    small_fabric.source.events = lambda first, last: [*real(first, last), event]  # type: ignore[method-assign]
    it.page.get_by_text("has just happened").wait_for()


def test_alarms_name_culprit_and_remedy_and_lead_there(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric)
    page = it.page
    page.wait_for_function("() => document.title.startsWith('(2) ')")
    expect(page.locator("link[rel=icon]")).to_have_attribute("href", re.compile(r"icons/2\.svg$"))
    page.get_by_role("link", name="Alarms").click()
    alarm = page.locator("main li", has_text="leaf2:1")
    alarm.get_by_text("sends gradients of job 77").wait_for()
    alarm.get_by_text("stop what runs on h3").wait_for()
    page.get_by_label("Severity").select_option("critical")
    page.get_by_text("No alarm of that severity; 2 others.").wait_for()
    page.get_by_label("Severity").select_option("warning")
    alarm.get_by_role("link", name="Show it").click()
    it.expect_address("sel=host%3Ah3")
    page.go_back()
    page.locator("main li", has_text="leaf2:1").get_by_role("link", name="Its events").click()
    it.expect_address("^#/timeline\\?q=leaf2")


def test_new_alarms_are_spoken_once(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric)
    it.page.wait_for_function("() => document.title.startsWith('(2) ')")
    status = it.page.locator("p[role=status]").first
    fresh = {"id": "x", "severity": "critical", "subject": "spine9", "text": "is on fire", "remedy": "pour water"}
    small_fabric.source.changes.append(lambda state: state["alarms"].append(fresh))  # type: ignore[attr-defined]
    it.page.wait_for_function("() => document.title.startsWith('(3) ')")
    expect(status).to_have_text("critical: spine9: is on fire")
    expect(status).to_have_attribute("aria-live", "polite")


def test_what_if_reads_the_policy_and_computes_another_one(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=admin-token&/whatif/train")
    page = it.page
    expect(page.get_by_label("0–15", exact=False).first).to_have_value("3")
    expect(page.get_by_role("button", name="Take it to a plan")).to_be_disabled()
    for step in range(8):
        page.locator(".range select").nth(step).select_option("0")
    it.expect_address("mag=0{16}")
    figures = page.locator(".figure .value")
    expect(figures.nth(1)).to_have_text("0")
    expect(figures.nth(2)).to_have_text("−100 %")
    page.get_by_role("button", name="As it is").click()
    expect(figures.nth(1)).not_to_have_text("0")
    page.get_by_label("at red from").select_option("5")
    it.expect_address("yellow=5&red=5")
    expect(figures.nth(1)).to_have_text("0")
    page.get_by_label("Dropped at yellow from precedence").select_option("1")
    it.expect_address("yellow=1&red=1")
    expect(figures.nth(1)).to_have_text(re.compile("^~"))
    page.get_by_text("Ports would have been yellow and red at the same times").wait_for()
    page.get_by_text("Of what both colours take").wait_for()
    page.get_by_role("button", name="Take it to a plan").click()
    page.get_by_text("This file comes from What if").wait_for()
    text = page.get_by_role("textbox", name="Job file, TOML").input_value()
    assert re.search(r"^yellow = 1$", text, re.MULTILINE)
    page.get_by_role("button", name="See what would change").click()
    page.get_by_text("Nothing: the switches should hold all of it already.").wait_for()  # precedences are the same
    it.see("#/whatif/train")
    page.get_by_label("Job").select_option("sums")
    it.expect_address("^#/whatif/sums")
