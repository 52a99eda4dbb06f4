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
from tests.support.paths import DOCS, ROOT

EXAMPLES = [
    example
    for page in ("python.md", "sync/README.md")
    for example in re.findall(r"^```python\n(import numpy.*?)^```", (DOCS / page).read_text(), flags=re.M | re.S)
]


def test_diloco_of_torchft_is_as_its_worker_has_it() -> None:
    """The worker of `frameworks/test_torchft_groups.py`, which runs where torchft is."""
    worker = (ROOT / "tests" / "frameworks" / "worker_torchft.py").read_text()
    [block] = re.findall(r"^    from torchft.local_sgd .*\n\n(?:    .*\n)+", (DOCS / "trainers.md").read_text(), re.M)
    imported, outer, scheme = block.strip().splitlines()[0], *(line.strip() for line in block.splitlines()[2:])
    assert imported in worker.replace("DiLoCo, LocalSGD", "DiLoCo")
    assert outer in worker
    assert scheme.removeprefix("with ").removesuffix("):") in worker.replace("fragments, adamw", "[model], adamw")


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
