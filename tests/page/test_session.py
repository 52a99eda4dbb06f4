# SPDX-License-Identifier: Apache-2.0
"""Tokens, and a connection that is lost."""

from collections.abc import Callable

from tests.page.conftest import Opened, expect
from tests.page.simulated.server import Server

Visit = Callable[..., Opened]
REFUSED = "Failed to load resource"


def test_the_token_leaves_the_address_and_stays_in_this_tab(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=read-token", wait="[data-node=leaf1]")
    assert "token" not in it.page.url
    assert it.page.evaluate("[sessionStorage.length, document.cookie, Object.keys(localStorage).length]") == [1, "", 0]
    it.page.reload()
    it.page.locator("[data-node=leaf1]").wait_for()
    assert not [path for _, path in small_fabric.requests if "token" in path]


def test_without_a_token_there_is_a_form(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#/jobs", wait="form")
    assert small_fabric.requests == []
    it.page.get_by_label("Token of the controller").fill(" read-token ")
    it.page.get_by_role("button", name="Sign in").click()
    it.page.get_by_role("heading", name="Jobs").wait_for()
    it.page.get_by_role("link", name="train").wait_for()
    it.page.get_by_role("button", name="Sign out").click()
    it.page.get_by_label("Token of the controller").wait_for()
    assert it.page.evaluate("sessionStorage.length") == 0


def test_a_wrong_token_is_said_and_another_one_is_asked_for(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=stolen", wait="form")
    it.expected.append(REFUSED)
    it.page.get_by_text("no such token").wait_for()
    it.page.get_by_label("Token of the controller").fill("read-token")
    it.page.keyboard.press("Enter")
    it.page.locator("[data-node=leaf1]").wait_for()


def test_a_lost_connection_is_said_shown_as_stale_and_comes_back(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, wait="[data-node=leaf1]")
    it.expected.append(REFUSED)
    page = it.page
    with small_fabric.cut_off():
        page.get_by_text("Connection lost.").wait_for()
        page.get_by_text("What you see is of").wait_for()
        page.get_by_text("Stale", exact=True).wait_for()
        page.locator("main.stale").wait_for()
        page.locator("[data-node=leaf1]").wait_for()
        page.get_by_role("button", name="Try now").click()
        page.get_by_text("the controller can't be reached").wait_for()
    page.get_by_role("button", name="Try now").or_(page.get_by_text("Live", exact=True)).first.click()
    page.get_by_text("Live", exact=True).wait_for()
    expect(page.locator("main.stale")).to_have_count(0)
    expect(page.get_by_text("Connection lost.")).to_have_count(0)


def test_it_tries_less_and_less_often(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, wait="[data-node=leaf1]")
    it.expected.append(REFUSED)
    tries: list[str] = []
    it.page.on("request", lambda request: tries.append(request.url) if request.url.endswith("/stream") else None)
    with small_fabric.cut_off():
        it.page.get_by_text("Connection lost.").wait_for()
        it.page.wait_for_timeout(6000)
        assert 1 <= len(tries) <= 4  # after 1, 2, 4 s, a quarter more or less


def test_colours_are_chosen_and_kept(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, wait="[data-node=leaf1]", color_scheme="light")
    ground = "getComputedStyle(document.body.parentElement).backgroundColor"
    light = it.page.evaluate(ground)
    it.page.emulate_media(color_scheme="dark")
    it.page.wait_for_function(f"light => {ground} !== light", arg=light)
    it.page.get_by_label("Colours").select_option("Light")
    it.page.wait_for_function(f"light => {ground} === light", arg=light)
    it.page.reload()
    it.page.locator("[data-node=leaf1]").wait_for()
    assert it.page.evaluate(ground) == light
