# SPDX-License-Identifier: Apache-2.0
"""The controller's log: a record of each convergence, in JSON for programs, and no secrets whatever happens."""

import json
import re
from typing import Any

import pytest

from tests.gradlane_controller.controller_process import Running
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text
from tests.support.agents import until

KEY = "00112233445566ff00112233445566ff"  # of the jobs of `texts`


def records(it: Running) -> list[dict[str, Any]]:
    return [json.loads(line) for line in it.said]


def convergences(it: Running) -> list[dict[str, Any]]:
    return [row for row in records(it) if "seconds" in row]


def test_each_convergence_is_one_record(fake_switch: FakeSwitch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text(), more=("--log-format", "json"))
    it.wait_for("ready:")
    (first,) = convergences(it)
    assert first["message"].startswith("converged s1: ")
    assert (first["switch"], first["level"]) == ("s1", "info")
    inserts = sum(line.startswith("INSERT") for line in fake_switch.log)
    modified = sum(line.startswith("MODIFY") for line in fake_switch.log)
    assert (first["inserted"], first["modified"]) == (inserts, modified)
    assert (first["deleted"], first["refused"]) == (0, 0)
    assert 0 < first["seconds"] < 60

    fake_switch.refuse = lambda entity: entity.table_entry.table_id != 0
    assert it.ask("POST", "/jobs", job_text("other", 2, base=4096))[0] == 503
    until(lambda: [row for row in convergences(it) if row["refused"]])
    refused = next(row for row in convergences(it) if row["refused"])
    assert refused["inserted"] + refused["modified"] == 0

    fake_switch.refuse = lambda _entity: False
    before = len(convergences(it))
    assert it.ask("POST", "/jobs", job_text("other", 2, base=4096))[0] == 200
    until(lambda: len(convergences(it)) > before)
    assert convergences(it)[-1]["inserted"] > 0
    assert {"time", "level", "message", "switch"} <= set.intersection(*(set(row) for row in records(it)))


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_secret_is_in_the_log(fake_switch: FakeSwitch, run_controller, form: str) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text(), more=("--log-format", form, "--verbose"))
    it.wait_for("ready:")
    other = "fedcba98765432100123456789abcdef"
    made = it.ask("POST", "/tokens", json.dumps({"name": "x", "scope": "jobs"}), Content_Type="application/json")
    assert made[0] == 201
    secrets = [it.token, made[1]["token"], "wrong" + 40 * "z", KEY, other]
    assert it.ask("POST", "/jobs", job_text("other", 2, base=4096).replace(KEY, other))[0] == 200
    assert it.ask("POST", "/jobs", job_text("other", 2, base=4096).replace(KEY, other + "0"))[0] == 400
    assert it.ask("POST", "/jobs", job_text("bad", 2, base=4096))[0] == 400
    fake_switch.refuse = lambda entity: entity.table_entry.table_id != 0
    assert it.ask("POST", "/jobs", job_text("third", 3, base=8192).replace(KEY, other))[0] == 503
    fake_switch.refuse = lambda _entity: False
    assert it.ask("GET", "/status", Authorization=f"Bearer {secrets[2]}")[0] == 401
    assert it.ask("DELETE", "/jobs/other")[0] == 200
    fake_switch.stop()
    it.wait_for("trying again")
    assert it.end() == 0
    log = "\n".join(it.said)
    assert len(it.said) > 15
    for secret in secrets:
        assert secret.lower() not in re.sub(r"[\s:]", "", log.lower())
