# SPDX-License-Identifier: Apache-2.0
"""What would change is told before, and is what is written afterwards; to ask changes nothing."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.gradlane_controller.texts import fabric_text, job_text
from tests.support import zygote

OTHER = job_text("other", 2, base=4096)


def told(answer: dict[str, Any]) -> Counter[str]:
    """By kind, how many changes of the only switch an answer tells."""
    (switch,) = answer["switches"]
    assert switch["problem"] == ""
    return Counter(change["change"] for change in switch["changes"])


def written(log: list[str]) -> Counter[str]:
    """By kind, how many updates a switch has had."""
    return Counter(line.split()[0].lower() for line in log)


def test_what_a_job_would_change_is_what_it_changes(fake_switch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    held = dict(fake_switch.entities)
    fake_switch.log.clear()
    status, answer = it.ask("POST", "/plan", OTHER)
    assert status == 200
    assert not answer["live"]
    (switch,) = answer["switches"]
    assert switch["name"] == "s1"
    (job,) = (change for change in switch["changes"] if change["table"] == "jobs")
    assert (job["change"], job["key"], job["before"]) == ("insert", "job=2", "")
    assert "slot_base=4096" in job["after"]
    assert fake_switch.log == []
    assert fake_switch.entities == held
    assert [job["name"] for job in it.ask("GET", "/status")[1]["jobs"]] == ["demo"]

    assert it.ask("POST", "/jobs", OTHER)[0] == 200
    assert told(answer) == written(fake_switch.log) != {}
    assert told(it.ask("POST", "/plan", OTHER)[1]) == {}


def test_what_the_files_would_change_is_what_a_reload_changes(fake_switch, run_controller, tmp_path: Path) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text(), OTHER)
    it.wait_for("ready:")
    assert told(it.ask("GET", "/plan")[1]) == {}
    fake_switch.log.clear()
    file = tmp_path / "fabric.toml"
    file.write_text(file.read_text().replace('rate = "100mbit"', 'rate = "200mbit"', 1))
    (tmp_path / "job1.toml").write_text(job_text("other", 2, base=4096, hosts=(1, 2, 3)))
    status, answer = it.ask("GET", "/plan")
    assert status == 200, answer
    assert fake_switch.log == []
    (switch,) = answer["switches"]
    changed = [change for change in switch["changes"] if change["change"] == "modify"]
    assert changed
    assert all(change["before"] != change["after"] for change in changed)

    it.reload()
    assert told(answer) == written(fake_switch.log)
    assert set(told(answer)) >= {"insert", "modify"}


def test_live_is_what_the_switch_holds(fake_switch, run_controller) -> None:
    """What another client has taken away, and left behind."""
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    assert told(it.ask("GET", "/plan?live=true")[1]) == {}
    key, gone = next((key, entity) for key, entity in fake_switch.entities.items() if entity.HasField("table_entry"))
    for _ in range(5):  # the controller looks by itself, and may have been sooner
        del fake_switch.entities[key]
        answer = it.ask("GET", "/plan?live=true")[1]
        if told(answer):
            break
        fake_switch.entities[key] = gone
    assert told(answer) == {"insert": 1}
    assert told(it.ask("GET", "/plan")[1]) == {}


def test_a_switch_that_is_away_is_named(fake_switch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    fake_switch.stop()
    it.wait_for("trying again")
    (switch,) = it.ask("POST", "/plan?live=true", OTHER)[1]["switches"]
    assert fake_switch.address in switch["problem"]
    assert switch["changes"] == []
    assert told(it.ask("POST", "/plan", OTHER)[1])["insert"] > 0


def test_what_can_not_be_planned_is_named(fake_switch, run_controller, tmp_path: Path) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    fake_switch.log.clear()
    for path, body, status, words in (
        ("/plan?live=maybe", OTHER, 422, "live is 'maybe': input should be 'true' or 'false'"),
        ("/plan", job_text(number=0), 400, "job.id"),
        ("/plan", "not toml", 400, "job in the request"),
    ):
        found, answer = it.ask("POST", path, body)
        assert (found, words in answer["error"]) == (status, True), answer
    assert it.ask("POST", "/plan", OTHER, Content_Type="text/plain")[0] == 415
    (tmp_path / "fabric.toml").write_text("[[switch]]\n")
    status, answer = it.ask("GET", "/plan")
    assert (status, "switch[0].name" in answer["error"]) == (400, True), answer
    assert fake_switch.log == []


def test_the_command_shows_it(fake_switch, run_controller, tmp_path: Path) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    file = tmp_path / "other.toml"
    file.write_text(OTHER)

    def plan(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "gradlane_controller.cli", "plan", *it.access, *arguments]
        return zygote.run(command, 60)

    shown = plan("--job", str(file))
    assert shown.returncode == 0, shown.stderr
    counts = told(it.ask("POST", "/plan", OTHER)[1])
    assert shown.stdout.count("\n  insert ") == counts["insert"]
    assert f"s1: {counts['insert']} to insert, {counts['modify']} to modify, 0 to delete" in shown.stdout
    assert told(json.loads(plan("--job", str(file), "--live", "--json").stdout)) == counts
    assert plan().stdout == "s1: 0 to insert, 0 to modify, 0 to delete\n"
    missing = plan("--job", str(tmp_path / "none.toml"))
    assert (missing.returncode, "none.toml: can't be read" in missing.stderr) == (2, True)
