# SPDX-License-Identifier: Apache-2.0
"""Clients that know nothing of this switch: p4runtime-shell here, finsy and plain gRPC in test_p4runtime."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gradlane_switch.switch_process import Process

SESSION = Path(__file__).parent / "p4runtime_shell_session.py"


@pytest.fixture(scope="module")
def shell() -> str:
    """The Python that has p4runtime-shell: what `make test` installs beside the environment of the tests."""
    python = os.environ.get("P4RUNTIME_SHELL_PYTHON") or str(Path(sys.prefix) / "p4runtime-shell" / "bin" / "python")
    if not Path(python).exists():
        pytest.skip(f"p4runtime-shell is not installed: there is no {python}; `make test` installs it")
    return python


def test_p4runtime_shell_drives_it(
    shell: str, switch: Process, ids: Iterator[int], program_json: Path, program_p4info: Path
) -> None:
    command = [shell, str(SESSION), switch.address, str(next(ids)), str(program_p4info), str(program_json)]
    # Its environment has no compiled protobuf for every version of Python.
    environment = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert "routes" in " ".join(seen["tables"])
    assert "ALREADY_EXISTS" in seen["again"]
    assert len(seen["routes"]) == 1
    assert seen["replicas"] == [1, 2]
    assert seen["pir"] == [2000]
    assert seen["packets"] == [9]
    assert len(seen["default"]) == 1
    assert seen["left"] == 0
