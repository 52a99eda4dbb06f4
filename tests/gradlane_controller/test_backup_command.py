# SPDX-License-Identifier: Apache-2.0
"""`backup` and `restore` beside a controller that runs, and what switches see of it afterwards."""

import sys
from collections.abc import Callable
from pathlib import Path

from tests.gradlane_controller.controller_process import Running
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text
from tests.support import zygote


def command(*arguments: str) -> tuple[int, str, str]:
    done = zygote.run([sys.executable, "-m", "gradlane_controller.cli", *arguments], 120)
    return done.returncode, done.stdout, done.stderr


def jobs(it: Running) -> list[str]:
    return [job["name"] for job in it.ask("GET", "/jobs")[1]["items"]]


def test_a_store_is_backed_up_while_its_controller_leads_and_goes_on_from_there(
    fake_switch: FakeSwitch, run_controller: Callable[..., Running], tmp_path: Path
) -> None:
    store, file = f"sqlite:///{tmp_path}/fabric.db", str(tmp_path / "store.backup")
    first = run_controller(fabric_text(fake_switch.address))
    first.wait_for("ready:")
    assert first.ask("POST", "/jobs", job_text("kept"))[0] == 200
    code, said, _ = command("backup", file, "--store", store)
    assert (code, "1 jobs" in said, "of revision" in said) == (0, True, True)
    key = job_text("kept").partition('key = "')[2].partition('"')[0]
    assert key not in said
    assert first.ask("DELETE", "/jobs/kept")[0] == 200
    assert first.ask("POST", "/jobs", job_text("later", 2, (3, 4), base=4096))[0] == 200
    code, _, said = command("restore", file, "--store", store, "--replace")
    assert (code, f"{store}: " in said, "leads; stop all its controllers first" in said) == (1, True, True)
    assert jobs(first) == ["later"]
    used = first.ask("GET", "/status")[1]["controller"]["number"]
    assert first.end() == 0

    code, _, said = command("restore", file, "--store", store)
    assert (code, "is not empty" in said) == (1, True), said
    code, said, _ = command("restore", file, "--store", store, "--replace")
    assert (code, "restored: " in said, "revoke again those that were revoked since" in said) == (0, True, True)
    fake_switch.writers.clear()
    second = run_controller(fabric_text(fake_switch.address))
    second.wait_for("ready:")
    assert jobs(second) == ["kept"]  # its token, too, is that of before
    assert second.ask("GET", "/status")[1]["controller"]["number"] > used
    assert fake_switch.writers
    assert min(fake_switch.writers) > 1_000_000_000 + used


def test_the_store_may_be_named_by_the_controllers_configuration(tmp_path: Path) -> None:
    config = tmp_path / "controller.toml"
    config.write_text(f'fabric = "{tmp_path}/fabric.toml"\nstore = "sqlite:///{tmp_path}/none.db"\n')
    code, _, said = command("backup", str(tmp_path / "b"), "--config", str(config))
    assert (code, said) == (
        1,
        f"gradlane-controller: error: store sqlite:///{tmp_path}/none.db: there is no such file\n",
    )
    code, _, said = command("backup", str(tmp_path / "b"))
    assert (code, "one of the arguments --store --config is required" in said) == (2, True)
