# SPDX-License-Identifier: Apache-2.0
"""SIGHUP that comes while a service starts does not end it: files are read again as soon as they can be."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gradlane.controller_client import Client
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text
from tests.support.agents import loopback
from tests.support.ports import free_ports

# Sends it when the module is imported, or when the method begins, and changes a file then, which has been read.
WHEN_IMPORTED = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # where the tests run under nohup, it is ignored
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGHUP)
sys.meta_path.insert(0, Finder())
from {program} import main
sys.exit(main())
"""
WHEN_LEADING = """
import os, signal, sys
from gradlane_controller.leadership import Leadership
begin = Leadership.start
async def start(self):
    os.replace({new!r}, {file!r})
    os.kill(os.getpid(), signal.SIGHUP)
    await begin(self)
Leadership.start = start
from gradlane_controller.cli import main
sys.exit(main())
"""


@contextmanager
def started(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def until_said(process: subprocess.Popen[str], text: str) -> None:
    """Reads what it says until that is said. Fails if it ends before, or says that it can't read again."""
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line)
        if text in line:
            return
        assert "reload failed" not in line
    pytest.fail(f"it has ended with {process.wait(60)}, and has said {said}")


@pytest.mark.parametrize("module", ["gradlane.commands.agent", "gradlane.daemon.service"])
def test_an_agent_that_is_imported(module: str, tmp_path: Path) -> None:
    code = WHEN_IMPORTED.format(module=module, program="gradlane.cli")
    with started(code, "agent", "--address", loopback(1)[0], "--socket", tmp_path / "a.sock") as process:
        until_said(process, "configuration read again")


@pytest.mark.parametrize("module", ["finsy", "gradlane_controller.service"])
def test_a_controller_that_is_imported(module: str, tmp_path: Path) -> None:
    (tmp_path / "fabric.toml").write_text(fabric_text("127.0.0.1:9"))
    code = WHEN_IMPORTED.format(module=module, program="gradlane_controller.cli")
    http = f"127.0.0.1:{free_ports(1)[0]}"
    with started(code, "run", "--fabric", tmp_path / "fabric.toml", "--http", http) as process:
        until_said(process, "reload failed, fabric and jobs are as before: switch 's1'")  # there is none


def test_a_switch_that_is_imported() -> None:
    code = WHEN_IMPORTED.format(module="finsy", program="gradlane_switch.cli")
    with started(code, "--grpc-server-addr", "127.0.0.1:0") as process:
        until_said(process, "configuration and certificates read again")


def test_a_controller_takes_what_has_changed_since_it_read_its_files(tmp_path: Path) -> None:
    switch = FakeSwitch()
    switch.start()
    (tmp_path / "fabric.toml").write_text(fabric_text(switch.address))
    (tmp_path / "job.toml").write_text(job_text("old"))
    (tmp_path / "new.toml").write_text(job_text("new"))
    code = WHEN_LEADING.format(new=str(tmp_path / "new.toml"), file=str(tmp_path / "job.toml"))
    http = f"127.0.0.1:{free_ports(1)[0]}"
    arguments = "run", "--fabric", tmp_path / "fabric.toml", "--job", tmp_path / "job.toml", "--http", http
    with started(code, *arguments) as process:
        until_said(process, "files read again")
        answer = Client(http, (tmp_path / "fabric.db.token").read_text().strip()).ask("GET", "/v1/status")
    switch.stop()
    assert [it["name"] for it in answer.content["jobs"]] == ["new"]


def test_a_command_ends_with_its_terminal() -> None:
    code = WHEN_IMPORTED.format(module="gradlane_controller.commands.top", program="gradlane_controller.cli")
    with started(code, "top") as process:
        assert process.wait(60) == -1
