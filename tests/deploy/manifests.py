# SPDX-License-Identifier: Apache-2.0
"""The objects of deploy/kubernetes, and what its pods run, as processes: with their user, capabilities, arguments,
variables, files and probes. What is mounted lies below a folder, and all paths lead there."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.support.agents import PATIENCE
from tests.support.paths import ROOT

KUBERNETES = ROOT / "deploy/kubernetes"
PROGRAMS = {"agent": "gradlane", "controller": "gradlane-controller", "switch": "gradlane-switch"}  # entry points
BIN = Path(sys.executable).parent


def documents(file: Path) -> list[Any]:
    return list(yaml.safe_load_all(file.read_text()))


def template(file: Path, kind: str) -> Any:
    """The template of the pods of the file's one object of that kind."""
    [found] = [it["spec"]["template"] for it in documents(file) if it["kind"] == kind]
    return found


def validate(file: Path) -> str:
    """What is wrong with the objects of a file, by Kubernetes' schemas."""
    command = [sys.executable, BIN / "kubernetes-validate", "--strict", "--quiet", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def build(name: str) -> list[Any]:
    """The objects of a kustomization."""
    command = ["kubectl", "kustomize", KUBERNETES / name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return list(yaml.safe_load_all(done.stdout))


class Pod:
    """A pod with one container. `fields`: what the downward API tells; `prefix`: where its processes run."""

    def __init__(self, spec: Any, folder: Path, fields: dict[str, str], prefix: tuple[str, ...] = ()) -> None:
        [self.container] = spec["containers"]
        self._security = spec["securityContext"] | self.container["securityContext"]
        self._fields, self._prefix, self.folder = fields, prefix, folder
        self._mounts = sorted((it["mountPath"] for it in self.container["volumeMounts"]), key=len, reverse=True)
        self.process: subprocess.Popen[bytes] | None = None
        for mount in self._mounts:
            where = self.path(mount)
            where.mkdir(parents=True)
            os.chown(where, self._security["runAsUser"], self._security["runAsGroup"])

    def path(self, mounted: str) -> Path:
        """Where that file of the pod is."""
        return Path(self.moved(mounted))

    def moved(self, text: str) -> str:
        """A text with its paths where the mounts are."""
        found = "|".join(map(re.escape, self._mounts))
        return re.sub(rf"(?<!\w)(?:{found})(?![\w-])", lambda it: f"{self.folder}{it[0]}", text)

    def variables(self) -> dict[str, str]:
        """Its environment, as the manifest has it."""
        return {
            it["name"]: it.get("value") or self._fields[it["valueFrom"]["fieldRef"]["fieldPath"]]
            for it in self.container["env"]
        }

    def put(self, mount: str, files: dict[str, str]) -> None:
        """Files of a ConfigMap or a Secret, for its user alone."""
        for name, text in files.items():
            file = self.path(mount) / name
            file.write_text(self.moved(text))
            file.chmod(0o400)
            os.chown(file, self._security["runAsUser"], self._security["runAsGroup"])

    def _words(self, words: list[str]) -> list[str]:
        """A command as it is run here."""
        variables = self.variables()
        filled = [re.sub(r"\$\((\w+)\)", lambda it: variables[it[1]], word) for word in words]
        program, *arguments = map(self.moved, filled)
        program = str(BIN / ("python" if program == "python3" else program))
        capabilities = self._security["capabilities"]
        assert capabilities["drop"] == ["ALL"]
        assert self._security["allowPrivilegeEscalation"] is False
        kept = ",".join(["-all", *(f"+{it.lower()}" for it in capabilities.get("add", []))])
        groups = self._security.get("supplementalGroups")
        user = [f"--reuid={self._security['runAsUser']}", f"--regid={self._security['runAsGroup']}"]
        user += [f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"]
        lowered = ["setpriv", f"--bounding-set={kept}", "--inh-caps=-all", "--no-new-privs", *user]
        return [*self._prefix, *lowered, program, *arguments]

    def _environment(self) -> dict[str, str]:
        own = {name: self.moved(value) for name, value in self.variables().items()}
        return {**os.environ, "XDG_CACHE_HOME": str(self.folder / "var/cache"), "HOME": "/", **own}

    def start(self) -> None:
        """Runs it, by its own command or its image's."""
        image = PROGRAMS.get(self.container["image"].removeprefix("gradlane-"), "")
        words = self.container.get("command") or [image]
        with (self.folder / "said").open("ab") as said:
            self.process = subprocess.Popen(
                self._words([*words, *self.container.get("args", [])]),
                env=self._environment(), cwd=self.folder, stdout=said, stderr=said,
            )  # fmt: skip

    def said(self) -> str:
        """All that it has written."""
        return (self.folder / "said").read_text()

    def probe(self, kind: str) -> bool:
        """What the kubelet finds by a probe that runs a command."""
        command = self.container[kind]["exec"]["command"]
        done = subprocess.run(
            self._words(command), env=self._environment(), capture_output=True, check=False, timeout=PATIENCE
        )
        return not done.returncode

    def end(self) -> int:
        """Its exit code after SIGTERM."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
