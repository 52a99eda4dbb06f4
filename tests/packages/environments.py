# SPDX-License-Identifier: Apache-2.0
"""Environments with the built packages, whose programs see nothing of the repository."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class Environment:
    """A virtual environment that has been made."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.share = folder / "share"

    @property
    def variables(self) -> dict[str, str]:
        """Those of this process but for what leads Python to the repository."""
        return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(self, program: str, *arguments: object, cwd: Path, timeout: float = 120) -> str:
        """What a program of it prints that has to succeed."""
        done = subprocess.run(
            [self.bin / program, *map(str, arguments)],
            capture_output=True, text=True, check=False, cwd=cwd, env=self.variables, timeout=timeout,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, program: str, *arguments: object, cwd: Path, **options: Any) -> subprocess.Popen[str]:
        """A program of it that the caller stops."""
        return subprocess.Popen(
            [self.bin / program, *map(str, arguments)],
            text=True,
            cwd=cwd,
            env=self.variables | options.pop("env", {}),
            **options,
        )


def make(folder: Path, *requirements: object) -> Environment:
    """A new one with these packages and what they need."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    made = Environment(folder)
    made.run("pip", "install", "-q", "--disable-pip-version-check", *requirements, cwd=folder, timeout=300)
    return made
