# SPDX-License-Identifier: Apache-2.0
"""What changes the network: plans, jobs, drained switches; each is asked about first, and refused to who may not."""

from collections.abc import Callable

from tests.page.conftest import Opened, expect
from tests.page.simulated.server import Server

Visit = Callable[..., Opened]
REFUSED = "Failed to load resource"
FIELD = "Job file, TOML"


def changes(server: Server) -> list[tuple[str, str]]:
    """The requests that were to change something."""
    return [it for it in server.requests if it[0] != "GET" and not it[1].startswith("/v1/plan")]


def test_a_plan_is_seen_entry_by_entry_and_applied_after_a_question(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=admin-token&/plan/train")
    page = it.page
    page.wait_for_function("() => document.querySelector('textarea').value.includes('[policy]')")
    field = page.get_by_role("textbox", name=FIELD)
    apply = page.get_by_role("button", name="Apply…")
    expect(apply).to_be_disabled()
    field.fill(field.input_value().replace("drop_precedence = 3", "drop_precedence = 5"))
    page.get_by_role("button", name="See what would change").click()
    page.get_by_text("0 to insert, 2 to modify, 0 to delete, at 2 switches.").wait_for()
    rows = page.locator("tbody tr")
    expect(rows.first.locator("th")).to_have_text("leaf1")
    expect(rows.first.locator("td")).to_have_text(
        [
            *("~ modify", "drop_precedences", "job=1 layer=0-65535 magnitude=0-63"),
            *("set_drop_precedence(drop_precedence=3)", "set_drop_precedence(drop_precedence=5)"),
        ]
    )
    page.get_by_role("combobox", name="Switch").select_option("leaf2")
    expect(rows).to_have_count(1)
    apply.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("writes 2 entries to 2 switches").wait_for()
    dialog.get_by_role("button", name="Cancel").click()
    assert changes(small_fabric) == []
    apply.click()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    assert changes(small_fabric) == []
    apply.click()
    dialog.get_by_role("button", name="Apply").click()
    page.get_by_text("train is applied").wait_for()
    assert changes(small_fabric) == [("PUT", "/v1/jobs/train")]
    assert "drop_precedence = 5" in small_fabric.desired.job("train")["text"]


def test_what_another_one_has_changed_meanwhile_is_not_overwritten(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=admin-token&/plan/train")
    it.expected.append(REFUSED)
    page = it.page
    page.wait_for_function("() => document.querySelector('textarea').value.includes('[policy]')")
    theirs = small_fabric.desired.job("train")["text"].replace("push = 0.05", "push = 0.01")
    small_fabric.desired.put("train", theirs, None, None)
    page.get_by_role("button", name="See what would change").click()
    page.get_by_role("button", name="Apply…").click()
    page.get_by_role("dialog").get_by_role("button", name="Apply").click()
    page.get_by_text("has changed meanwhile").wait_for()
    assert small_fabric.desired.job("train")["text"] == theirs
    page.get_by_role("button", name="Read it again").click()
    page.wait_for_function("() => document.querySelector('textarea').value.includes('push = 0.01')")


def test_a_new_job_a_wrong_one_and_its_removal(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=jobs-token&/plan")
    it.expected.append(REFUSED)
    page = it.page
    field = page.get_by_role("textbox", name=FIELD)
    field.fill("[job]\nname = 3")
    page.get_by_role("button", name="See what would change").click()
    page.get_by_text("job in the request").wait_for()
    text = small_fabric.desired.job("train")["text"]
    field.fill(text.replace('name = "train"', 'name = "another"').replace("id = 1\n", "id = 9\n"))
    page.get_by_label("compared with what the switches hold").check()
    page.get_by_role("button", name="See what would change").click()
    page.get_by_text("6 to insert, 0 to modify").wait_for()
    assert ("POST", "/v1/plan?live=true") in small_fabric.requests
    page.get_by_role("button", name="Apply…").click()
    page.get_by_role("dialog").get_by_role("button", name="Apply").click()
    page.get_by_text("another is applied").wait_for()
    it.expect_address("^#/plan/another")
    page.get_by_role("button", name="Remove the job…").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    page.get_by_text("another is removed").wait_for()
    assert [job["name"] for job in small_fabric.desired.jobs()] == ["train", "sums", "evaluate"]
    page.get_by_label("Begin with").select_option("sums")
    page.wait_for_function("() => document.querySelector('textarea').value.includes('name = \"sums\"')")


def test_a_switch_is_drained_and_undrained_after_a_question(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=admin-token&/overview?sel=switch%3Aspine2", wait="[data-node=spine2]")
    page = it.page
    page.get_by_role("button", name="Drain…").click()
    page.get_by_role("dialog").get_by_text("Traffic and trees leave spine2 first").wait_for()
    page.get_by_role("button", name="Cancel").click()
    assert changes(small_fabric) == []
    page.get_by_role("button", name="Drain…").click()
    page.get_by_role("button", name="Drain", exact=True).click()
    page.locator("[data-node=spine2].drained").wait_for()
    page.get_by_role("button", name="Undrain…").click()
    page.get_by_role("button", name="Undrain", exact=True).click()
    page.locator("[data-node=spine2].ready").wait_for()
    assert changes(small_fabric) == [("POST", f"/v1/switches/spine2/{verb}") for verb in ("drain", "undrain")]


def test_how_a_job_is_tuned_is_seen_undone_and_resumed_after_a_question(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=admin-token&/jobs/train")
    page = it.page
    panel = page.get_by_role("region", name="Adaptive policy")
    panel.get_by_text("thresholds x 2").wait_for()
    panel.get_by_text("4.0% of its packets were dropped").wait_for()
    expect(panel.get_by_role("button", name="Resume…")).to_have_count(0)
    panel.get_by_role("button", name="Undo…").click()
    page.get_by_role("button", name="Cancel").click()
    assert changes(small_fabric) == []
    panel.get_by_role("button", name="Undo…").click()
    page.get_by_role("button", name="Undo", exact=True).click()
    panel.get_by_text("as its file").wait_for()
    panel.get_by_text("(held by hand)").wait_for()
    panel.get_by_role("button", name="Resume…").click()
    page.get_by_role("button", name="Resume", exact=True).click()
    panel.get_by_text("(nothing to gain now)").wait_for()
    assert changes(small_fabric) == [("POST", f"/v1/adaptive/train/{verb}") for verb in ("undo", "resume")]
    it.see("#/jobs/sums")
    page.get_by_role("heading", name="sums").wait_for()
    expect(panel).to_have_count(0)  # nothing is said of a job that is not tuned


def test_who_may_not_learns_why_and_is_not_asked_again(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=read-token&/overview?sel=switch%3Aspine2", wait="[data-node=spine2]")
    it.expected.append(REFUSED)
    page = it.page
    page.get_by_role("button", name="Drain…").click()
    page.get_by_role("button", name="Drain", exact=True).click()
    page.get_by_text("it lacks the scope admin").first.wait_for()
    expect(page.get_by_role("button", name="Drain…")).to_be_disabled()
    assert small_fabric.desired.drained == set()
    it.see("#/plan/train")
    page.wait_for_function("() => document.querySelector('textarea').value.includes('[policy]')")
    page.get_by_role("button", name="See what would change").click()
    page.get_by_role("button", name="Apply…").click()
    page.get_by_role("dialog").get_by_role("button", name="Apply").click()
    page.get_by_text("it lacks the scope jobs").first.wait_for()
    expect(page.get_by_role("button", name="Apply…")).to_be_disabled()
    expect(page.get_by_role("button", name="Remove the job…")).to_be_disabled()


def test_the_past_can_not_be_changed(visit: Visit, small_fabric: Server) -> None:
    it = visit(small_fabric, "#token=admin-token&/overview?sel=switch%3Aspine2", wait="[data-node=spine2]")
    it.page.get_by_role("button", name="Pause").click()
    it.page.get_by_text("you are looking at the past: go to Live first").wait_for()
    expect(it.page.get_by_role("button", name="Drain…")).to_be_disabled()
