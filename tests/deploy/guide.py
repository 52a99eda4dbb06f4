# SPDX-License-Identifier: Apache-2.0
"""Follows the commands of docs/upgrade.md: runs the programs as they stand there; systemctl starts and ends processes.

What installs or links versions does nothing here, as there is one.
"""

import re
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.gradlane_controller.controller_process import Running
from tests.gradlane_controller.leafspine_lab import Lab
from tests.support import zygote
from tests.support.agents import pause
from tests.support.paths import DOCS
from tests.support.ports import free_ports

CONFIGURATION = "/etc/gradlane-controller/controller.toml"
STATE = "/var/lib/gradlane-controller"
NOTHING = ("python3 -m venv ", "/opt/gradlane-NEW/bin/pip ", "ln -sfn ", "diff -r ")


def section(title: str) -> list[tuple[str, str]]:
    """The commands of a section of the guide, each with its comment."""
    text = re.split(r"^## ", (DOCS / "upgrade.md").read_text(), flags=re.MULTILINE)
    (body,) = [it for it in text if it.startswith(f"{title}\n")]
    lines = re.findall(r"^    (.+)$", body, re.MULTILINE)
    return [(command.strip(), comment.strip()) for command, _, comment in (line.partition(" # ") for line in lines)]


class Machines:
    """c1 and c2 with their controllers, and the switches of a lab. Files of the guide are in `folder`."""

    def __init__(self, folder: Path, lab: Lab, job: str) -> None:
        self.folder, self.lab = folder, lab
        self.configuration, self.state = folder / "controller.toml", folder / "state"
        self.state.mkdir()
        (folder / "fabric.toml").write_text(lab.fabric)
        (folder / "job.toml").write_text(job)
        self.configuration.write_text(
            f'fabric = "{folder}/fabric.toml"\njob = "{folder}/job.toml"\nstore = "sqlite:///{self.state}/controller.db"\n'
            f'token_file = "{folder}/token"\n'
        )
        self.ports = dict(zip(("c1", "c2"), free_ports(2), strict=True))
        self.controllers: dict[str, Running] = {}

    def start(self, name: str) -> None:
        """A controller; it is there when it answers."""
        arguments = ["--config", str(self.configuration), "--name", name]
        it = self.controllers[name] = Running(arguments, self.ports[name], self.folder / "token")
        until(lambda: it.process.poll() is None and self._answers(it))

    def leader(self) -> Running | None:
        """The controller that leads."""
        living = [it for it in self.controllers.values() if it.process.poll() is None and self._answers(it)]
        return next((it for it in living if it.ask("GET", "/status")[1]["controller"]["leader"]), None)

    def follow(self, command: str, comment: str) -> str:
        """Does what a line says; what it printed."""
        if command.startswith(NOTHING):
            return ""
        if command.startswith("$EDITOR "):
            key, _, value = comment.partition(": ")[2].partition(" = ")
            text = self.configuration.read_text()
            self.configuration.write_text(re.sub(rf"^{key} = .*$", f"{key} = {self._here(value)}", text, flags=re.M))
            return ""
        if command.startswith("systemctl "):
            _, action, unit = command.split()
            names = re.findall(r"\bc[12]\b", comment.split(":")[0].split(",")[0])
            if "stands by" in comment and self.leader() is self.controllers[names[0]]:  # as the machine was busy
                self.controllers = dict(zip(self.controllers, reversed(self.controllers.values()), strict=True))
                self.ports = dict(zip(self.ports, reversed(self.ports.values()), strict=True))
            for name in names or [unit.partition("@")[2]]:
                self._service(action, name)
            return ""
        program, *arguments = shlex.split(self._here(command))
        assert program == "gradlane-controller", command
        if not {"--store", "--config"} & {*arguments}:
            until(self.leader)
            it = self.leader()
            assert it is not None
            arguments += it.access
        done = zygote.run([sys.executable, "-m", "gradlane_controller.cli", *arguments], 120, cwd=self.folder)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def close(self) -> None:
        for it in self.controllers.values():
            it.process.kill()
            it.process.wait(60)

    def _service(self, action: str, name: str) -> None:
        if name in self.ports:
            if action in ("stop", "restart"):
                assert self.controllers[name].end() == 0
            if action in ("start", "restart"):
                self.start(name)
            return
        assert action == "restart"
        self.lab.switches[name].stop()
        self.lab.switches[name].start()

    def _here(self, text: str) -> str:
        return text.replace(CONFIGURATION, str(self.configuration)).replace(STATE, str(self.state))

    @staticmethod
    def _answers(it: Running) -> bool:
        try:
            return it.ask("GET", "/status")[0] == 200
        except OSError:
            return False


def until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Waits for it, and fails if it does not come."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + seconds
        pause(begun)
