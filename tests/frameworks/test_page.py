# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/tensorflow.md do what the page says, as they are pasted, by the command that it names."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.ranks import PATIENCE, needs
from tests.support.agents import NETWORK
from tests.support.paths import DOCS, EXAMPLES

PAGE = (DOCS / "tensorflow.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
[COMMAND] = re.findall(r"^    (for rank in .*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(
    ("program", "backend"),
    [
        pytest.param(program, backend, marks=needs("keras", backend))
        for program, backend in [(0, "tensorflow"), *((1, name) for name in ("tensorflow", "jax", "torch"))]
    ],
)
def test_a_program_of_the_page_learns(program: int, backend: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAMS[program])
    (tmp_path / "examples").mkdir()
    job = (EXAMPLES / "job.toml").read_text().replace("127.0.0", NETWORK)  # other tests run beside this one
    (tmp_path / "examples/job.toml").write_text(job)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        COMMAND,
        shell=True,
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    losses = [float(loss) for loss in re.findall(r"loss:? ([0-9.]+)", done.stdout)]
    assert len(losses) == (1, 5)[program], done.stderr[-5000:]  # of rank 0 alone
    assert losses[-1] < (3.0, 0.9 * losses[0])[program]
