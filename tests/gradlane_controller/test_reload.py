# SPDX-License-Identifier: Apache-2.0
"""A controller with a configuration file, and what SIGHUP takes from it: what it can, and what it can't by name."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gradlane_controller.controller_process import Running
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text
from tests.support.ports import free_ports


@pytest.fixture
def configured(fake_switch: FakeSwitch, tmp_path: Path):
    """Starts a controller with a configuration of these lines, and these flags; gives it and how to configure it."""
    port = free_ports(1)[0]
    file, token_file = tmp_path / "controller.toml", tmp_path / "store.db.token"
    (tmp_path / "fabric.toml").write_text(fabric_text(fake_switch.address))
    head = f'fabric = "{tmp_path}/fabric.toml"\nstore = "sqlite:///{tmp_path}/store.db"\n'
    started: list[Running] = []

    def configure(text: str) -> None:
        file.write_text(head + text)

    def start(text: str, *flags: str) -> tuple[Running, Callable[[str], None]]:
        configure(text)
        started.append(Running(["--config", str(file), *flags], port, token_file))
        started[-1].wait_for("ready:")
        return started[-1], configure

    yield start
    for it in started:
        it.process.kill()
        it.process.wait(60)


def jobs(it: Running) -> list[str]:
    return [job["name"] for job in it.ask("GET", "/status")[1]["jobs"]]


def test_a_reload_takes_another_list_of_job_files(configured, tmp_path: Path) -> None:
    for name, number, hosts in (("one", 1, (1, 2)), ("two", 2, (3, 4))):
        (tmp_path / f"{name}.toml").write_text(job_text(name, number, hosts, base=4096 * number))
    it, configure = configured(f'job = "{tmp_path}/one.toml"')
    assert jobs(it) == ["one"]
    configure(f'job = ["{tmp_path}/one.toml", "{tmp_path}/two.toml"]')
    it.reload()
    assert jobs(it) == ["one", "two"]
    configure(f'job = ["{tmp_path}/two.toml"]')
    it.reload()
    assert jobs(it) == ["two"]
    assert not [line for line in it.said if "restart the controller" in line]


def test_flags_win_over_the_file_also_when_it_is_read_again(configured, tmp_path: Path) -> None:
    for name, number in (("one", 1), ("two", 2)):
        (tmp_path / f"{name}.toml").write_text(job_text(name, number))
    it, configure = configured("", "--job", f"{tmp_path}/one.toml")
    configure(f'job = ["{tmp_path}/two.toml"]\nhttp = "127.0.0.1:1"')
    it.reload()
    assert jobs(it) == ["one"]
    assert not [line for line in it.said if "restart the controller" in line]


def test_what_needs_a_restart_is_named_and_the_rest_is_applied(configured, tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(job_text("one"))
    it, configure = configured("")
    configure(f'job = "{tmp_path}/one.toml"\nname = "other"\nno_link_check = true\njob_grace = 1')
    it.reload()
    assert jobs(it) == ["one"]
    waiting = [line.partition("warning: ")[2] for line in it.said if "restart the controller" in line]
    file = f"{tmp_path}/controller.toml"
    assert sorted(waiting) == [
        f"name has changed in {file}: restart the controller to apply it",
        f"no_link_check has changed in {file}: restart the controller to apply it",
    ]


def test_a_bad_configuration_changes_nothing(configured, tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(job_text("one"))
    it, configure = configured(f'job = "{tmp_path}/one.toml"')
    (tmp_path / "one.toml").write_text(job_text("other"))
    configure(f'job = "{tmp_path}/one.toml"\ntemplates = "/t.toml"')
    it.process.send_signal(signal.SIGHUP)
    line = it.wait_for("reload failed, nothing has changed")
    assert f"{tmp_path}/controller.toml:4: templates: is not known here; did you mean 'template'?" in line
    assert jobs(it) == ["one"]


def test_a_template_is_read_again_and_jobs_that_are_there_keep_theirs(configured, tmp_path: Path) -> None:
    template = tmp_path / "plain.toml"
    template.write_text("[job]\npatience = 31\n")
    it, configure = configured(f'template = "{template}"')

    def ask(name: str) -> tuple[int, str]:
        body = f'{{"name": "{name}", "rank": 0, "workers": 1, "processes": 1, "address": "10.0.1.2"}}'
        status, answer = it.ask("POST", "/trainings", body, Content_Type="application/json")
        return status, answer.get("text", answer.get("error"))

    status, first = ask("early")
    assert (status, "patience = 31" in first) == (200, True)
    template.write_text("[job]\npatience = 32\n")
    it.reload()
    assert ask("early") == (200, first)  # a rank that was restarted
    status, late = ask("late")
    assert (status, "patience = 32" in late) == (200, True)
    # A bad one leaves the one before, and is named; what else is there is taken.
    template.write_text("[slots]\nbase = 0\n")
    configure(f'template = "{template}"\njob_grace = 30')
    it.process.send_signal(signal.SIGHUP)
    assert f"{template}:1: slots: can't be in a template" in it.wait_for("the templates are those of before")
    it.wait_for("files read again")
    status, later = ask("later")
    assert (status, "patience = 32" in later) == (200, True)
