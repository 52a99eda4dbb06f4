# SPDX-License-Identifier: Apache-2.0
"""Training processes of a framework, each a program of its own that says what became of it in its last line."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

PATIENCE = 180.0  # seconds: importing TensorFlow takes up to ten of them on a busy machine
# One thread each, and sums in an order that does not depend on the machine.
_QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_NUM_INTRAOP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}


def needs(*modules: str) -> pytest.MarkDecorator:
    """What the tests take from .venv-frameworks. Does not import it."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)}: `make test-frameworks` installs it")


def run(program: str, *arguments: object, ranks: int = 2, prefix: Sequence[str] = (), **environment: str) -> list[Any]:
    """What the module of that name in this folder says at each rank."""
    ended = run_to_end(program, *arguments, ranks=ranks, prefix=prefix, **environment)
    for rank in ended:
        assert rank.returncode == 0, rank.stderr[-5000:]
    return [json.loads(rank.stdout.splitlines()[-1]) for rank in ended]


def run_to_end(
    program: str, *arguments: object, ranks: int = 2, prefix: Sequence[str] = (), **environment: str
) -> list[subprocess.CompletedProcess[str]]:
    """Runs that module at each rank, however it ends."""
    command = [*prefix, sys.executable, "-m", f"tests.frameworks.{program}", *map(str, arguments)]
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("GRADLANE_")}
    processes = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=inherited | _QUIET | environment | {"RANK": str(rank), "WORLD_SIZE": str(ranks)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=PATIENCE) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [
        subprocess.CompletedProcess(command, process.returncode, *texts)
        for process, texts in zip(processes, said, strict=True)
    ]


def within(job: Path) -> dict[str, str]:
    """The environment of ranks that bring their agents."""
    return {"GRADLANE_JOB": str(job), "GRADLANE_SOCKET": "process"}
