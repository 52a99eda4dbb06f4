# SPDX-License-Identifier: Apache-2.0
"""The overview: picture, tables, selection, a job's way."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.page.conftest import Opened, expect
from tests.page.simulated.server import Server

Visit = Callable[..., Opened]


@pytest.fixture
def overview(visit: Visit, small_fabric: Server) -> Opened:
    """Of the small fabric."""
    return visit(small_fabric, wait="[data-node=spine2]")


def rows(it: Opened) -> Any:
    return it.page.locator(".tables tbody tr")


def test_switches_stand_in_the_layers_that_the_graph_has(overview: Opened) -> None:
    heights = overview.page.locator("[data-node]").evaluate_all(
        "all => Object.fromEntries(all.map(it => [it.dataset.node, it.getBoundingClientRect().y]))"
    )
    assert heights["spine1"] == heights["spine2"] < heights["leaf1"] == heights["leaf2"] < heights["h1"]
    leaf = overview.page.locator("[data-node=leaf1]")
    expect(leaf).to_have_attribute("aria-label", "leaf1, leaf, ready, 2 hosts")


def test_a_switch_is_selected_by_mouse_and_by_keyboard_and_back_undoes_it(overview: Opened) -> None:
    page = overview.page
    page.locator("[data-node=spine1]").click()
    page.get_by_role("heading", name="spine1").wait_for()
    overview.expect_address("sel=switch%3Aspine1")
    expect(page.locator("[data-node=spine1]")).to_have_attribute("aria-pressed", "true")
    page.go_back()
    page.get_by_role("heading", name="Nothing selected").wait_for()
    page.locator("[data-node=leaf1]").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[data-node=leaf2]")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(page.locator("[data-node=spine2]")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="leaf1", exact=True).wait_for()
    page.get_by_role("button", name="Close").click()
    page.get_by_role("heading", name="Nothing selected").wait_for()


def test_a_link_is_selected_in_the_picture_and_says_its_load_by_class(overview: Opened) -> None:
    page = overview.page
    leaf, spine = (page.locator(f"[data-node={name}]").bounding_box() for name in ("leaf1", "spine1"))
    page.mouse.move(spine["x"] + spine["width"] / 2, (spine["y"] + leaf["y"]) / 2 + 12)
    page.locator(".tip", has_text="leaf1:3 – spine1:1").wait_for()
    page.mouse.down()
    page.mouse.up()
    page.get_by_role("heading", name="leaf1:3 – spine1:1").wait_for()
    page.locator("aside .classes", has_text="7 control").first.wait_for()
    page.get_by_role("link", name="leaf1:3", exact=True).click()
    overview.expect_address("sel=switch%3Aleaf1")


def test_a_host_is_selected_and_its_port_and_jobs_are_said(overview: Opened) -> None:
    page = overview.page
    page.locator("[data-node=h3]").click()
    page.get_by_role("heading", name="h3", exact=True).wait_for()
    panel = page.locator("aside section").first
    panel.get_by_text("last in 29 of 32 steps").first.wait_for()
    panel.get_by_role("link", name="train").wait_for()
    panel.get_by_role("link", name="leaf2").click()
    overview.expect_address("sel=switch%3Aleaf2")


def test_a_jobs_way_its_roots_and_buckets(overview: Opened) -> None:
    page = overview.page
    page.get_by_role("button", name=re.compile("^sums")).click()
    overview.expect_address("job=sums")
    page.locator("text.badge", has_text="root of 8/16").nth(1).wait_for()
    expect(page.locator("[data-node=spine1]")).to_have_attribute("aria-label", re.compile("root of 8/16"))
    page.get_by_text("Summed in trees with the roots spine1 (8 of 16 buckets), spine2 (8 of 16 buckets).").wait_for()
    expect(rows(overview)).to_have_count(4)
    expect(rows(overview).first.locator("td").last).to_have_text("8")
    expect(page.locator("[data-node=h1]")).to_have_css("opacity", "1")
    expect(page.locator("[data-node=h2]")).not_to_have_css("opacity", "1")
    page.get_by_role("button", name="Show all").click()
    page.wait_for_function("() => !location.hash.includes('job=')")
    page.get_by_role("button", name=re.compile("^evaluate")).click()
    page.get_by_text("Reduced by its hosts, over 4 links.").wait_for()
    page.get_by_role("link", name="Everything about evaluate").click()
    page.get_by_role("heading", name="evaluate").wait_for()


def test_the_tables_have_what_the_picture_has(overview: Opened) -> None:
    page = overview.page
    expect(rows(overview).locator("th")).to_have_text(
        ["leaf1:3 – spine1:1", "leaf1:4 – spine2:1", "leaf2:3 – spine1:2", "leaf2:4 – spine2:2"]
    )
    expect(rows(overview).first).to_contain_text(re.compile(r"\d+ Mbit/s\s+\d+ %"), use_inner_text=True)
    page.get_by_role("button", name="Load →").click()
    overview.expect_address("sort=-there")
    page.get_by_role("button", name="Switches", exact=True).click()
    expect(rows(overview)).to_have_count(4)
    page.get_by_role("columnheader", name="Layer").get_by_role("button").click()
    expect(rows(overview).first.locator("th")).to_have_text(re.compile("^leaf.$"))
    page.get_by_role("button", name="Hosts", exact=True).click()
    overview.expect_address("tab=hosts")
    expect(rows(overview).locator("th")).to_have_text(["h1", "h2", re.compile("^h3"), "h4"])
    page.get_by_label("Only what is in trouble").check()
    expect(rows(overview)).to_have_count(1)
    expect(rows(overview).first).to_contain_text("h3")
    expect(rows(overview).first).to_contain_text("late")


def test_search_filters_and_zooms(overview: Opened) -> None:
    page = overview.page
    page.keyboard.press("/")
    page.keyboard.type("spine2")
    expect(rows(overview)).to_have_count(2)
    page.keyboard.press("Enter")
    overview.expect_address("zoom=3")
    page.get_by_role("heading", name="spine2", exact=True).wait_for()
    page.get_by_text("3.0×").wait_for()
    page.get_by_role("button", name="Fit").click()
    page.get_by_text("1.0×").wait_for()
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_text("1.5×").wait_for()
    page.get_by_role("button", name="Zoom out").click()
    page.get_by_text("1.0×").wait_for()
    page.locator("[data-node=leaf1]").focus()
    page.keyboard.press("+")
    page.get_by_text("1.5×").wait_for()
    before = page.locator("[data-node=leaf1]").bounding_box()["x"]
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_function(
        "x => document.querySelector('[data-node=leaf1]').getBoundingClientRect().x < x - 30", arg=before
    )
    page.keyboard.press("0")
    page.get_by_text("1.0×").wait_for()
    page.get_by_role("button", name="Zoom to it").click()
    overview.expect_address("zoom=3")


def test_what_is_down_or_away_is_marked_not_only_coloured(visit: Visit, small_fabric: Server) -> None:
    def break_it(state: dict[str, Any]) -> None:
        state["switches"][3] |= {"state": "away", "problem": "no answer to a heartbeat for 4 s"}
        state["links"][0] |= {"up": False, "deaf": ["spine1:1"]}

    small_fabric.source.changes.append(break_it)  # type: ignore[attr-defined]
    it = visit(small_fabric, wait="[data-node=spine2].away")
    spine = it.page.locator("[data-node=spine2]")
    expect(spine).to_have_text("✕ spine2")
    expect(spine).to_have_attribute("aria-label", re.compile("away"))
    it.page.get_by_text("1 link down").wait_for()
    it.page.get_by_text("1 switch not ready").wait_for()
    expect(rows(it).first).to_contain_text("✕")
    expect(rows(it).first).to_contain_text("spine1:1 hears nothing")
    it.page.get_by_label("Only what is in trouble").check()
    expect(rows(it)).to_have_count(1)


def test_what_is_not_known_is_a_dash(visit: Visit, small_fabric: Server) -> None:
    def forget(state: dict[str, Any]) -> None:
        for link in state["links"]:
            link["load"] = None
        state["links"][1]["load"] = [[5e8], None]
        for switch in state["switches"]:
            switch["entries"] = None
        for job in state["jobs"]:
            for key in ("trees", "path_links", "decisions", "drop_map", "step", "budget", "sums"):
                job.pop(key, None)

    small_fabric.source.changes.append(forget)  # type: ignore[attr-defined]
    it = visit(small_fabric, wait="[data-node=leaf1]")
    for cell in (0, 1):
        expect(rows(it).first.locator("td.number").nth(cell)).to_have_text("–")
    expect(rows(it).nth(1)).to_contain_text("500 Mbit/s 50 %", use_inner_text=True)
    it.see("#/jobs/train")
    it.page.get_by_text("Not known yet: the counters of the switches have not been read.").wait_for()
    it.see("#/whatif/train")
    it.page.get_by_text("not known yet, so nothing can be said").wait_for()
