# SPDX-License-Identifier: Apache-2.0
"""What the pages say to type for a first try does something, without anything else."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGES = ("README.md", "examples/README.md")


@pytest.mark.parametrize("page", PAGES)
def test_a_job_without_a_daemon_learns_as_it_is_typed(page: str) -> None:
    [line] = re.findall(r"^    (GRADLANE_SOCKET=process .*)$", (ROOT / page).read_text(), re.MULTILINE)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        line, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", done.stdout)]
    assert len(losses) >= 4
    assert losses[-1] < losses[0]
