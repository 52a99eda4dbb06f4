# SPDX-License-Identifier: Apache-2.0
"""Starts the programs as forks of processes that have imported them: what they import takes longer than most tests."""

import subprocess
from collections.abc import Sequence
from typing import Any

from lab.net.forks import Forks
from tests.support.paths import ROOT

_FORKS = Forks(
    {
        "gradlane.cli": (
            *(f"gradlane.commands.{name}" for name in ("agent", "config", "doctor", "serve", "status", "top")),
            "gradlane.daemon.service",
            "cryptography.hazmat.backends.openssl.backend",
        ),
        "gradlane_controller.cli": (
            *(
                f"gradlane_controller.{name}"
                for name in ("api.application", "api.connections", "service", "trainings.templates")
            ),
            *(
                f"gradlane_controller.commands.{name}"
                for name in ("run", "changing", "looking", "tuning", "validating")
            ),
            *("alembic.command", "psycopg", "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite"),
        ),
        "gradlane_switch": ("gradlane_switch.cli",),
        "tests.gradlane.sync.surviving_worker": (),
        "tests.support.introspection": (),
    },
    directory=ROOT,
)
start = _FORKS.start


def run(argv: Sequence[str], timeout: float, check: bool = False, **options: Any) -> "subprocess.CompletedProcess[str]":
    """As `subprocess.run` of what `start` starts, with its output as text."""
    with start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done
