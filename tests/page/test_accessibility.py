# SPDX-License-Identifier: Apache-2.0
"""axe-core finds nothing on any view, in light and in dark; phones need not scroll sideways."""

from collections.abc import Callable

import pytest

from tests.page.conftest import Opened, expect
from tests.page.simulated.server import Server
from tests.page.test_build import SOURCE

Visit = Callable[..., Opened]
AXE = SOURCE / "node_modules" / "axe-core" / "axe.min.js"
FIND = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  const where = it => it.nodes.slice(0, 3).map(node => node.html.slice(0, 160)).join(" | ");
  return found.violations.map(it => `${it.id}: ${it.help}: ${where(it)}`);
}"""
VIEWS = {
    "overview": ("#/overview", "[data-node=leaf1]"),
    "job's way": ("#/overview?job=sums&sel=link%3Aleaf1:3-spine1:1&tab=hosts", "[data-node=leaf1]"),
    "switch": ("#/overview?sel=switch%3Aleaf1&tab=switches", ".tables tbody tr"),
    "jobs": ("#/jobs", "tbody tr"),
    "job": ("#/jobs/train", ".uplot"),
    "job without agents": ("#/jobs/evaluate", "table.heat"),
    "timeline": ("#/timeline", "ol li"),
    "alarms": ("#/alarms", "main li"),
    "what if": ("#/whatif/train?mag=3330322200000000", "table.heat"),
    "plan": ("#/plan/train", "textarea"),
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit: Visit, small_fabric: Server, scheme: str) -> None:
    if not AXE.exists():
        pytest.skip("no controller/page/node_modules (`make page` installs it): accessibility was not checked")
    it = visit(small_fabric, wait="[data-node=leaf1]", color_scheme=scheme)
    script = AXE.read_text()
    it.page.evaluate(script)
    found: dict[str, list[str]] = {}
    for name, (address, wait) in VIEWS.items():
        it.see(address)
        it.page.locator(wait).first.wait_for()
        if name == "plan":
            it.page.wait_for_function("() => document.querySelector('textarea').value")
            it.page.get_by_role("button", name="See what would change").click()
            it.page.locator("#changes-title").wait_for()
        if problems := it.page.evaluate(FIND):
            found[name] = problems
    it.page.get_by_role("button", name="Sign out").click()
    it.page.locator("form").wait_for()
    if problems := it.page.evaluate(FIND):
        found["sign in"] = problems
    assert found == {}, found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_where_things_are_wrong(visit: Visit, small_fabric: Server, scheme: str) -> None:
    if not AXE.exists():
        pytest.skip("no controller/page/node_modules (`make page` installs it): accessibility was not checked")

    def break_it(state: dict[str, list[dict[str, object]]]) -> None:
        for switch, kind in zip(state["switches"], ("away", "drained", "converging", "standby"), strict=True):
            switch |= {"state": kind, "problem": "something is wrong"}
        state["links"][0] |= {"up": False}

    small_fabric.source.changes.append(break_it)  # type: ignore[attr-defined]
    it = visit(small_fabric, wait="[data-node=leaf1].away", color_scheme=scheme)
    it.expected.append("Failed to load resource")
    it.page.evaluate(AXE.read_text())
    it.see("#/overview?tab=switches&sel=switch%3Aleaf2")
    it.page.get_by_role("button", name="Pause").click()
    it.page.wait_for_function("() => location.hash.includes('at=')")
    assert it.page.evaluate(FIND) == []
    it.page.get_by_role("button", name="Live").click()
    with small_fabric.cut_off():
        it.page.get_by_text("Connection lost.").wait_for()
        assert it.page.evaluate(FIND) == []


def test_a_phone_needs_not_scroll_sideways(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, wait="[data-node=leaf1]", viewport={"width": 360, "height": 740}, has_touch=True)
    wide = {}
    for name, (address, wait) in VIEWS.items():
        it.see(address)
        it.page.locator(wait).first.wait_for()
        width = it.page.evaluate("document.documentElement.scrollWidth")
        if width > 360:
            wide[name] = width
    assert wide == {}


def test_where_the_keyboard_is_can_be_seen(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, wait="[data-node=leaf1]")
    seen: list[str] = []
    for _ in range(12):
        it.page.keyboard.press("Tab")
        seen.append(
            it.page.evaluate(
                "() => { const s = getComputedStyle(document.activeElement);"
                " return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 1"
                " ? '' : document.activeElement.outerHTML.slice(0, 120); }"
            )
        )
    assert [it for it in seen if it] == []


def test_landmarks_and_headings(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, wait="[data-node=leaf1]")
    for role in ("banner", "navigation", "main", "complementary", "search"):
        expect(it.page.get_by_role(role)).to_have_count(1)
    expect(it.page.locator("h1")).to_have_count(1)
    it.page.keyboard.press("Tab")
    it.page.keyboard.press("Enter")
    expect(it.page.locator("#content")).to_be_focused()
