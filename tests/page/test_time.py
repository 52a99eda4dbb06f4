# SPDX-License-Identifier: Apache-2.0
"""Pause, replay and permalinks: what is seen is in the address."""

import re
from collections.abc import Callable
from datetime import datetime, timezone

from tests.page.conftest import Opened, expect
from tests.page.simulated.server import Server
from tests.page.simulated.story import PERIOD, moment

Visit = Callable[..., Opened]


def at(it: Opened) -> datetime | None:
    """The time that the address names."""
    found = re.search(r"at=([^&]+)", it.address)
    return datetime.fromisoformat(found[1].replace("%3A", ":").replace("Z", "+00:00")) if found else None


def test_pause_holds_what_is_seen_and_live_goes_on(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, wait="[data-node=leaf1]")
    page = it.page
    page.get_by_role("button", name="Pause").click()
    page.wait_for_function("() => location.hash.includes('at=')")
    cell = page.locator(".tables tbody tr td").nth(1)
    held = cell.inner_text()
    page.wait_for_timeout(2500)
    assert cell.inner_text() == held
    page.get_by_role("button", name="Live").click()
    page.wait_for_function("() => !location.hash.includes('at=')")
    page.wait_for_function("held => document.querySelectorAll('.tables tbody td')[1].innerText !== held", arg=held)
    page.keyboard.press("p")
    page.wait_for_function("() => location.hash.includes('at=')")
    page.keyboard.press("p")
    page.wait_for_function("() => !location.hash.includes('at=')")


def test_the_slider_goes_back_an_hour_and_no_further(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, wait="[data-node=leaf1]")
    page = it.page
    slider = page.get_by_role("slider", name="Replay of the last hour")
    slider.focus()
    page.keyboard.press("Home")
    page.wait_for_function("() => location.hash.includes('at=')")
    seen = at(it)
    assert seen is not None
    assert 3590 <= (datetime.now(timezone.utc) - seen).total_seconds() <= 3615
    page.get_by_text("59:5").or_(page.get_by_text("60:0")).first.wait_for()
    page.keyboard.press("End")
    page.wait_for_function("() => !location.hash.includes('at=')")


def test_a_replay_shows_what_was_and_comes_to_the_present(visit: Visit, small_fabric: Server) -> None:
    source = small_fabric.source
    then = small_fabric.second // PERIOD * PERIOD - PERIOD + 30  # ten seconds before a link failed
    it = visit(small_fabric, f"#token=admin-token&/overview?at={moment(source.base, then)}", wait="[data-node=leaf1]")
    page = it.page
    page.get_by_text("4 switches, 4 links, 4 hosts").wait_for()
    expect(page.get_by_text("1 link down")).to_have_count(0)
    page.locator(".time select").select_option("10×")
    page.get_by_text("1 link down").wait_for()
    first = at(it)
    page.locator(".time select").select_option("60×")
    page.wait_for_function("() => !location.hash.includes('at=')", timeout=30_000)
    assert first is not None
    page.get_by_text("Live", exact=True).wait_for()


def test_a_time_of_which_nothing_is_kept_is_said(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=admin-token&/overview?at=2020-01-01T00:00:00Z", wait="main h1")
    it.page.get_by_text("the controller has kept nothing of that time").wait_for()


def test_a_permalink_opens_what_was_seen(visit: Visit, small_fabric: Server) -> None:
    then = moment(small_fabric.source.base, small_fabric.second // PERIOD * PERIOD - PERIOD + 60)
    seen = f"/overview?tab=switches&sel=switch%3Aleaf1&job=sums&q=leaf&zoom=2.00~0.3000~0.5000&at={then}"
    it = visit(small_fabric, f"#token=admin-token&{seen}", wait="[data-node=leaf1]")
    page = it.page
    page.get_by_role("heading", name="leaf1", exact=True).wait_for()
    expect(page.get_by_role("searchbox")).to_have_value("leaf")
    expect(page.get_by_role("button", name="Switches", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("button", name=re.compile("^sums"))).to_have_attribute("aria-pressed", "true")
    page.get_by_text("2.0×").wait_for()
    page.get_by_text("1 link down").wait_for()
    assert it.address == f"#{seen}"
    page.reload()
    page.get_by_text("1 link down").wait_for()
    assert it.address == f"#{seen}"


def test_keys_lead_from_view_to_view_and_keep_the_time(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, wait="[data-node=leaf1]")
    page = it.page
    page.keyboard.press("p")
    page.wait_for_function("() => location.hash.includes('at=')")
    for key, heading in (
        ("2", "Jobs"),
        ("3", "Timeline"),
        ("4", "Alarms"),
        ("5", "What if"),
        ("6", "Plan"),
        ("1", "Fabric"),
    ):
        page.keyboard.press(key)
        page.get_by_role("heading", name=heading, exact=True).wait_for()
        assert at(it) is not None
    for _ in range(6):
        page.go_back()
    page.get_by_role("heading", name="Fabric").wait_for()


def test_a_broken_address_shows_the_overview(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, wait="[data-node=leaf1]")
    for address in ("#/%E0%A4%A", "#/nonsense/x?zoom=a~b~c&at=yesterday&sel=:::", "#/overview?zoom=9e9~~&job=nobody"):
        it.see(address)
        it.page.get_by_role("heading", name="Fabric").wait_for()
        it.page.locator("[data-node=leaf1]").wait_for()
