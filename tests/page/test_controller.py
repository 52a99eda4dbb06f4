# SPDX-License-Identifier: Apache-2.0
"""The page as a controller serves it, over a leaf-spine of gradlane-switch processes: nothing here is simulated."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from gradlane.job import parse
from tests.gradlane_controller.conftest import controllers
from tests.gradlane_controller.controller_process import PATIENCE, Running
from tests.gradlane_controller.leafspine_lab import Lab, slice_of
from tests.gradlane_controller.texts import job_text
from tests.page.conftest import Opened, expect

pytestmark = pytest.mark.timed  # switches that are starved are late, and so is what the page shows of them
Visit = Callable[..., Opened]
REFUSED = "Failed to load resource"
DOWN = "leaf2:5 - spine1:2"  # the link whose wire can be broken


@dataclass
class Real:
    """Where the page is, and what it is about."""

    address: str
    controller: Running
    lab: Lab

    def open(self, visit: Visit, address: str = "", wait: str = "main h1") -> Opened:
        """The page, with the first token."""
        it = visit(self, f"#token={self.controller.token}{address and '&' + address}", wait=wait)
        it.page.context.set_default_timeout(1000 * PATIENCE)  # switches take their time on a busy machine
        return it


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """One for all tests here: each leaves it as it was."""
    folder = tmp_path_factory.mktemp("real")
    lab = Lab(folder)
    try:
        lab.start()
        with controllers(folder) as start:
            controller = start(lab.fabric, job_text(hosts=(1, 3, 4)))
            controller.wait_for("ready:", 120)
            yield Real(f"http://{controller.http}", controller, lab)
    finally:
        lab.close()


def state(real: Real, name: str) -> str:
    """Of a switch, as the API says."""
    return next(it["state"] for it in real.controller.ask("GET", "/state")[1]["switches"] if it["name"] == name)


def test_every_view_shows_what_the_controller_knows(visit: Visit, real: Real) -> None:
    for number in range(100):
        real.lab.send(1, slice_of(0, number))
    it = real.open(visit, wait="[data-node=leaf1].ready")
    page: Any = it.page
    page.get_by_text("4 switches, 4 links, 4 hosts").wait_for()
    expect(page.locator(".tables tbody th")).to_have_text(
        [f"leaf{leaf}:{4 + spine} – spine{spine}:{leaf}" for spine in (1, 2) for leaf in (1, 2)]
    )
    page.get_by_role("button", name="Switches", exact=True).click()
    expect(page.locator(".tables tbody .chip")).to_have_text([re.compile(r"\bready$")] * 4)
    it.see("#/overview?sel=host%3Ah1&job=demo")
    page.get_by_text("10.0.1.2, fd00:1::2").wait_for()
    page.get_by_text("Reduced by its hosts, over 4 links.").wait_for()

    it.see("#/jobs")
    page.get_by_role("link", name="demo").click()
    page.get_by_text("h1, h3, h4").wait_for()
    expect(page.locator("tr", has_text="forwarded").locator("td").first).to_have_text(re.compile(r"^[\d\u202f]+$"))

    it.see("#/timeline")
    page.get_by_text("is ready").nth(3).wait_for()
    expect(page.locator("ol li", has_text="leads, as number 1")).to_have_count(1)

    it.see("#/alarms")
    page.get_by_role("heading", name="Alarms").wait_for()
    assert real.controller.ask("GET", "/state")[1]["alarms"] == []
    page.get_by_text("No alarms").first.wait_for()

    for view in ("whatif", "plan"):  # nobody claims to know the policy of a file that is not told
        it.see(f"#/{view}/demo")
        page.get_by_text("a file of the controller that only its host can read").wait_for()
        expect(page.locator(".range")).to_have_count(0)


def test_a_job_is_planned_applied_asked_about_and_removed(visit: Visit, real: Real) -> None:
    it = real.open(visit, "/plan")
    it.expected.append(REFUSED)
    page: Any = it.page
    field = page.get_by_role("textbox", name="Job file, TOML")
    field.fill("[job]\nname = 3")
    page.get_by_role("button", name="See what would change").click()
    page.locator(".note.critical").wait_for()
    text = job_text("other", 2, hosts=(2, 4), base=4096)
    field.fill(text)
    page.get_by_label("compared with what the switches hold").check()
    page.get_by_role("button", name="See what would change").click()
    expect(page.get_by_text("0 to delete, at 4 switches.")).to_have_text(re.compile(r"^[1-9]\d* to insert"))
    page.get_by_role("button", name="Apply…").click()
    page.get_by_role("dialog").get_by_role("button", name="Apply").click()
    page.get_by_text("other is applied").wait_for()
    told = real.controller.ask("GET", "/jobs/other")[1]["text"]
    given = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("key"))
    assert parse(told, "it") == parse(given, "it") != parse(text, "it")
    page.get_by_role("button", name="See what would change").click()
    page.get_by_text("Nothing: the switches").wait_for()

    it.see("#/whatif/other")
    expect(page.locator(".range select").first).to_have_value("3")
    page.get_by_text("+0 %").wait_for()  # nothing was taken, and nothing would have been

    it.see("#/plan/other")
    page.wait_for_function("() => document.querySelector('textarea').value.includes('\"other\"')")
    changed = text.replace("drop_precedence = 3", "drop_precedence = 4")
    assert real.controller.ask("PUT", "/jobs/other", changed)[0] == 200  # by another one
    page.get_by_role("button", name="Remove the job…").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Read it again").click()
    page.wait_for_function("() => document.querySelector('textarea').value.includes('drop_precedence = 4')")
    page.get_by_role("button", name="Remove the job…").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    page.get_by_text("other is removed").wait_for()
    assert [job["name"] for job in real.controller.ask("GET", "/jobs")[1]["items"]] == ["demo"]


def test_a_switch_is_drained_and_undrained(visit: Visit, real: Real) -> None:
    it = real.open(visit, "/overview?sel=switch%3Aspine2", wait="[data-node=spine2].ready")
    it.expected.append(REFUSED)
    page: Any = it.page
    page.get_by_role("button", name="Drain…").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain", exact=True).click()
    page.locator("[data-node=spine2].drained").wait_for()
    assert state(real, "spine2") == "drained"
    page.locator("[data-node=spine1]").click()  # the last way between the leaves
    page.get_by_role("button", name="Drain…").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain", exact=True).click()
    page.locator("main [role=alert]").wait_for()
    assert state(real, "spine1") == "ready"
    page.locator("[data-node=spine2]").click()
    page.get_by_role("button", name="Undrain…").click()
    page.get_by_role("dialog").get_by_role("button", name="Undrain", exact=True).click()
    page.locator("[data-node=spine2].ready").wait_for()


def test_what_has_failed_is_seen_now_and_was_not_before_and_is_mended_in_the_replay(visit: Visit, real: Real) -> None:
    it = real.open(visit, wait="[data-node=leaf1].ready")
    page: Any = it.page
    events = "#/timeline?kind=link"

    def wait_for_event(text: str) -> Any:
        it.see(events)
        entry = page.locator("ol li", has_text=text)
        entry.first.wait_for()
        return entry.first

    real.lab.wire.broken = True
    page.get_by_text("1 link down").wait_for()
    page.get_by_text("leaf2:5 and spine1:2 hear nothing").wait_for()
    it.see("#/alarms")
    page.locator("main li", has_text=DOWN).get_by_text("traffic goes around this link").wait_for()
    wait_for_event(f"{DOWN} is down")
    real.lab.wire.broken = False
    wait_for_event(f"{DOWN} works")
    it.see("#/overview")
    page.get_by_text("4 switches, 4 links, 4 hosts").wait_for()
    page.get_by_text("1 link down").wait_for(state="hidden")

    down = wait_for_event(f"{DOWN} is down")
    # The picture of a time is what was known until then; a little later it is down.
    down.get_by_role("link", name="Show then").click()
    page.get_by_role("button", name="● Live").wait_for()
    page.locator(".time select").select_option("1×")
    page.get_by_text("1 link down").wait_for()
    page.locator(".time select").select_option("10×")
    page.wait_for_function("() => !location.hash.includes('at=')")  # it has come to the present
    page.get_by_text("1 link down").wait_for(state="hidden")
