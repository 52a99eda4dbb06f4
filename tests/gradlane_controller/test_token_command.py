# SPDX-License-Identifier: Apache-2.0
"""`gradlane-controller token`, and the flags of `run` about who is let in, as an operator uses them."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.gradlane.control.certificates import Authority
from tests.gradlane_controller.controller_process import Running
from tests.gradlane_controller.test_run import CLI, command
from tests.gradlane_controller.texts import fabric_text, job_text
from tests.support.agents import until


def test_tokens_are_made_listed_and_revoked(fake_switch, run_controller, tmp_path: Path) -> None:
    it: Running = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    file = tmp_path / "fabric.db.token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert not [line for line in it.said if file.read_text().strip() in line]
    made = command("token", "create", "x", "--scope", "read", "--days", "1", *it.access)
    assert made.returncode == 0, made.stderr
    mine = tmp_path / "mine"
    mine.write_text(made.stdout)
    asked = ("--http", it.http, "--token-file", str(mine))
    assert command("status", *asked).returncode == 0
    refused = command("token", "list", *asked)
    assert (refused.returncode, "this needs a token of scope admin" in refused.stderr) == (1, True)
    (row,) = [row for row in json.loads(command("token", "list", "--json", *it.access).stdout) if row["name"] == "x"]
    assert row["scope"] == "read"
    assert command("token", "revoke", row["id"], *it.access).stdout == f"token {row['id']} is worth nothing now\n"
    gone = command("status", *asked)
    assert (gone.returncode, "nobody has this token" in gone.stderr) == (1, True)
    last = json.loads(command("token", "list", "--json", *it.access).stdout)[0]["id"]
    refused = command("token", "revoke", last, *it.access)
    assert (refused.returncode, "is the last of scope admin" in refused.stderr) == (1, True)

    store = f"sqlite:///{tmp_path / 'fabric.db'}"
    mine.write_text(command("token", "create", "lost", "--scope", "admin", "--store", store).stdout)
    assert "lost" in command("token", "list", "--store", store).stdout
    assert command("token", "revoke", last, "--store", store).returncode == 0
    until(lambda: command("token", "list", *asked).returncode == 0)  # the controller looks every half second


def test_without_a_token_it_is_said_how_to_give_one(fake_switch, run_controller) -> None:
    it: Running = run_controller(fabric_text(fake_switch.address))
    it.wait_for("ready:")
    ended = subprocess.run(
        [*CLI, "status", "--http", it.http],
        env={key: value for key, value in os.environ.items() if key != "GRADLANE_TOKEN"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1
    assert "send a token" in ended.stderr
    environment = {**os.environ, "GRADLANE_TOKEN": it.token}
    ended = subprocess.run(
        [*CLI, "status", "--http", it.http], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stderr


def test_it_listens_over_tls_and_asks_so(fake_switch, run_controller, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    authority.issue("server", address="127.0.0.1")
    authority.issue("operator", host="operator")
    at = {name: str(tmp_path / name) for name in ("ca.pem", "server.crt", "server.key", "operator.crt", "operator.key")}
    more = ("--tls-cert", at["server.crt"], "--tls-key", at["server.key"], "--client-ca", at["ca.pem"])
    it: Running = run_controller(fabric_text(fake_switch.address), more=more)
    it.wait_for("ready:")
    pair = ("--cert", at["operator.crt"], "--key", at["operator.key"])
    assert command("status", *it.access, "--ca", at["ca.pem"], *pair).returncode == 0
    assert command("status", *it.access, "--ca", at["ca.pem"]).returncode == 1
    assert command("status", *it.access).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--http", "0.0.0.0:9560"), "add --tls-cert and --tls-key, or --insecure"),
        (("--tls-cert", "x"), "--tls-cert and --tls-key go together"),
        (("--client-ca", "x"), "--client-ca: needs --tls-cert and --tls-key"),
        (
            ("--tls-cert", "none.crt", "--tls-key", "none.key"),
            "--tls-cert: none.crt with the key none.key can't be used",
        ),
    ],
)
def test_flags_that_let_in_whom_they_should_not_are_refused(
    tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    (tmp_path / "f.toml").write_text(fabric_text())
    ended = command("run", "--fabric", str(tmp_path / "f.toml"), *arguments)
    assert (ended.returncode, reason in ended.stderr) == (2, True), ended.stderr
