# SPDX-License-Identifier: Apache-2.0
"""The overview: picture, tables, selection, a job's way."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.page.conftest import Opened
from tests.page.simulated.server import Server

pytestmark = pytest.mark.alone  # a browser takes both cores, and what it shows is waited for

Visit = Callable[..., Opened]


@pytest.fixture
def overview(visit: Visit, small_fabric: Server) -> Opened:
    """Of the small fabric."""
    return visit(small_fabric, wait="[data-node=spine2]")


def expect_address(it: Opened, pattern: str) -> None:
    it.page.wait_for_function("pattern => new RegExp(pattern).test(location.hash)", arg=pattern)


def rows(it: Opened) -> Any:
    return it.page.locator(".tables tbody tr")


def test_switches_stand_in_the_layers_that_the_graph_has(overview: Opened) -> None:
    heights = {
        name: overview.page.locator(f"[data-node={name}]").bounding_box()["y"]
        for name in ("leaf1", "leaf2", "spine1", "spine2", "h1")
    }
    assert heights["spine1"] == heights["spine2"] < heights["leaf1"] == heights["leaf2"] < heights["h1"]
    label = overview.page.locator("[data-node=leaf1]").get_attribute("aria-label")
    assert label == "leaf1, leaf, ready, 2 hosts"


def test_a_switch_is_selected_by_mouse_and_by_keyboard_and_back_undoes_it(overview: Opened) -> None:
    page = overview.page
    page.locator("[data-node=spine1]").click()
    page.get_by_role("heading", name="spine1").wait_for()
    expect_address(overview, "sel=switch%3Aspine1")
    assert page.locator("[data-node=spine1]").get_attribute("aria-pressed") == "true"
    page.go_back()
    page.get_by_role("heading", name="Nothing selected").wait_for()
    page.locator("[data-node=leaf1]").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.node") == "leaf2"
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.dataset.node") == "spine2"
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
    expect_address(overview, "sel=switch%3Aleaf1")


def test_a_host_is_selected_and_its_port_and_jobs_are_said(overview: Opened) -> None:
    page = overview.page
    page.locator("[data-node=h3]").click()
    page.get_by_role("heading", name="h3", exact=True).wait_for()
    panel = page.locator("aside section").first
    panel.get_by_text("last in 29 of 32 steps").first.wait_for()
    panel.get_by_role("link", name="train").wait_for()
    panel.get_by_role("link", name="leaf2").click()
    expect_address(overview, "sel=switch%3Aleaf2")


def test_a_jobs_way_its_roots_and_buckets(overview: Opened) -> None:
    page = overview.page
    page.get_by_role("button", name=re.compile("^sums")).click()
    expect_address(overview, "job=sums")
    page.locator("text.badge", has_text="root of 8/16").nth(1).wait_for()
    assert "root of 8/16" in page.locator("[data-node=spine1]").get_attribute("aria-label")
    page.get_by_text("Summed in trees with the roots spine1 (8 of 16 buckets), spine2 (8 of 16 buckets).").wait_for()
    assert rows(overview).count() == 4
    assert rows(overview).first.locator("td").last.inner_text() == "8"
    opacity = "name => getComputedStyle(document.querySelector(`[data-node=${name}]`)).opacity"
    assert float(page.evaluate(opacity, "h2")) < 1 == float(page.evaluate(opacity, "h1"))
    page.get_by_role("button", name="Show all").click()
    page.wait_for_function("() => !location.hash.includes('job=')")
    page.get_by_role("button", name=re.compile("^evaluate")).click()
    page.get_by_text("Reduced by its hosts, over 4 links.").wait_for()
    page.get_by_role("link", name="Everything about evaluate").click()
    page.get_by_role("heading", name="evaluate").wait_for()


def test_the_tables_have_what_the_picture_has(overview: Opened) -> None:
    page = overview.page
    assert [row.locator("th").inner_text() for row in rows(overview).all()] == [
        *("leaf1:3 – spine1:1", "leaf1:4 – spine2:1", "leaf2:3 – spine1:2", "leaf2:4 – spine2:2")
    ]
    assert re.search(r"\d+ Mbit/s\s+\d+ %", rows(overview).first.inner_text())
    page.get_by_role("button", name="Load →").click()
    expect_address(overview, "sort=-there")
    page.get_by_role("button", name="Switches", exact=True).click()
    assert rows(overview).count() == 4
    page.get_by_role("columnheader", name="Layer").get_by_role("button").click()
    page.wait_for_function("() => document.querySelector('.tables tbody th').innerText.startsWith('leaf')")
    page.get_by_role("button", name="Hosts", exact=True).click()
    expect_address(overview, "tab=hosts")
    assert rows(overview).count() == 4
    page.get_by_label("Only what is in trouble").check()
    page.wait_for_function("() => document.querySelectorAll('.tables tbody tr').length === 1")
    assert "h3" in rows(overview).first.inner_text()
    assert "late" in rows(overview).first.inner_text()


def test_search_filters_and_zooms(overview: Opened) -> None:
    page = overview.page
    page.keyboard.press("/")
    page.keyboard.type("spine2")
    page.wait_for_function("() => document.querySelectorAll('.tables tbody tr').length === 2")
    page.keyboard.press("Enter")
    expect_address(overview, "zoom=3")
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
    expect_address(overview, "zoom=3")


def test_what_is_down_or_away_is_marked_not_only_coloured(visit: Visit, small_fabric: Server) -> None:
    def break_it(state: dict[str, Any]) -> None:
        state["switches"][3] |= {"state": "away", "problem": "no answer to a heartbeat for 4 s"}
        state["links"][0] |= {"up": False, "deaf": ["spine1:1"]}

    small_fabric.source.changes.append(break_it)  # type: ignore[attr-defined]
    it = visit(small_fabric, wait="[data-node=spine2].away")
    assert it.page.locator("[data-node=spine2]").text_content().strip() == "✕ spine2"
    assert "away" in it.page.locator("[data-node=spine2]").get_attribute("aria-label")
    it.page.get_by_text("1 link down").wait_for()
    it.page.get_by_text("1 switch not ready").wait_for()
    assert "✕" in rows(it).first.inner_text()
    assert "spine1:1 hears nothing" in rows(it).first.inner_text()
    it.page.get_by_label("Only what is in trouble").check()
    it.page.wait_for_function("() => document.querySelectorAll('.tables tbody tr').length === 1")


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
    assert [cell.inner_text().strip() for cell in rows(it).first.locator("td.number").all()][:2] == ["–", "–"]
    assert "500 Mbit/s 50 %" in rows(it).nth(1).inner_text()
    it.see("#/jobs/train")
    it.page.get_by_text("Not known yet: the counters of the switches have not been read.").wait_for()
    it.see("#/whatif/train")
    it.page.get_by_text("not known yet, so nothing can be said").wait_for()
