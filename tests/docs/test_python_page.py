# SPDX-License-Identifier: Apache-2.0
"""The examples with numpy of docs/python.md and docs/sync/README.md, each as a program of two processes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agents import agents, loopback
from tests.support.members import job_file
from tests.support.paths import DOCS

EXAMPLES = [
    example
    for page in ("python.md", "sync/README.md")
    for example in re.findall(r"^```python\n(import numpy.*?)^```", (DOCS / page).read_text(), flags=re.M | re.S)
]


@pytest.mark.parametrize("daemons", [True, False])
def test_every_example_of_the_pages_runs(tmp_path: Path, daemons: bool) -> None:
    assert len(EXAMPLES) >= 7
    addresses = loopback(2)
    job_file(tmp_path, addresses, lines="[loss]\npush = 0.05\n")
    with agents(tmp_path, addresses if daemons else []) as running:
        sockets = [str(agent.socket) for agent in running] or ["process"] * 2
        for example in EXAMPLES:
            processes = [
                subprocess.Popen(
                    [sys.executable, "-c", example],
                    cwd=tmp_path,
                    env={**os.environ, "RANK": str(rank), "GRADLANE_SOCKET": socket},
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for rank, socket in enumerate(sockets)
            ]
            for process in processes:
                _, errors = process.communicate(timeout=60)
                if process.returncode:
                    pytest.fail(f"{example}\n{errors}")
