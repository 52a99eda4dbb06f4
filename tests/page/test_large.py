# SPDX-License-Identifier: Apache-2.0
"""64 switches, 1,024 hosts, 100 jobs at 1 Hz: readable, and memory does not grow."""

from collections.abc import Callable

from tests.page.conftest import Opened, expect
from tests.page.measures import MOST_GROWTH, elements, heap, settle
from tests.page.simulated.server import Server
from tests.support import effort

Visit = Callable[..., Opened]
NODES = "[data-node]"


def test_switches_do_not_cover_one_another_and_hosts_are_grouped(visit: Visit, large_fabric: Server) -> None:
    it = visit(large_fabric, wait=NODES)
    it.page.get_by_text("64 switches, 192 links, 1 024 hosts".replace("1 0", "1\u202f0")).wait_for()
    expect(it.page.locator(NODES)).to_have_count(64)
    boxes = it.page.locator(NODES).evaluate_all("all => all.map(it => it.getBoundingClientRect().toJSON())")
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            apart = a["x"] + a["width"] <= b["x"] + 1 or b["x"] + b["width"] <= a["x"] + 1
            assert apart or a["y"] + a["height"] <= b["y"] + 1 or b["y"] + b["height"] <= a["y"] + 1
    it.page.get_by_role("searchbox").fill("h777")
    it.page.get_by_role("button", name="Zoom to").click()
    it.page.get_by_role("heading", name="h777").wait_for()
    expect(it.page.locator("tbody tr")).to_have_count(1)
    expect(it.page.locator("[data-node=leaf25]")).to_be_visible()


def test_a_job_of_hundred_is_found_and_shown(visit: Visit, large_fabric: Server) -> None:
    it = visit(large_fabric, wait=NODES)
    it.page.get_by_placeholder("Filter 100 jobs").fill("job61")
    it.page.get_by_role("button", name="job61").click()
    it.page.get_by_text("root of").or_(it.page.get_by_text("4/16")).first.wait_for()
    it.see("#/jobs")
    it.page.get_by_text("100 of 100 jobs").wait_for()


def test_only_what_differs_is_written_into_the_document(visit: Visit, large_fabric: Server) -> None:
    def calm(state: dict[str, list[dict[str, object]]]) -> None:
        for switch in state["switches"]:
            switch["state"] = "ready"

    large_fabric.source.changes.append(calm)  # type: ignore[attr-defined]
    it = visit(large_fabric, wait=NODES)
    settle(it.page, 2)
    it.page.evaluate(
        """() => {
          window.counted = { nodes: 0, attributes: 0 };
          new MutationObserver(list => {
            for (const it of list) it.type === "childList"
              ? window.counted.nodes += it.addedNodes.length + it.removedNodes.length
              : window.counted.attributes += it.type === "attributes" ? 1 : 0;
          }).observe(document.querySelector("svg[role=group]"), { subtree: true, childList: true, attributes: true });
        }"""
    )
    settle(it.page, 3)
    assert it.page.evaluate("window.counted") == {"nodes": 0, "attributes": 0}


def test_memory_does_not_grow(visit: Visit, large_fabric: Server) -> None:
    """Over 10 snapshots; thoroughly over 600. What is kept of each is bounded from the beginning."""
    it = visit(large_fabric, wait=NODES)
    for view in ("#/jobs/job1", "#/timeline", "#/overview"):
        it.see(view)
        settle(it.page, 1)
    settle(it.page, 3)
    before, size = heap(it.page), elements(it.page)
    settle(it.page, 10 if effort.tries(1) == 1 else 600)
    grown, more = heap(it.page) - before, elements(it.page) - size
    assert grown < MOST_GROWTH, f"{grown / 1e6:.1f} MB more than {before / 1e6:.1f}"
    assert abs(more) < 200, f"{more} elements more than {size}"
