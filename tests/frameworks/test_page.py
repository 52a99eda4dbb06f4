# SPDX-License-Identifier: Apache-2.0
"""The programs of the frameworks' pages do what these say, as they are pasted, by the command that they name."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.ranks import PATIENCE, needs
from tests.support.agents import NETWORK
from tests.support.paths import DOCS, EXAMPLES

# Of each program: its page and number there, how many losses it tells, and the backends that it runs on.
PROGRAMS = [("tensorflow", 0, 1, ["tensorflow"]), ("tensorflow", 1, 5, ["tensorflow", "jax", "torch"])]
TRAINERS = {"accelerate": 1, "transformers": 2, "lightning": 3}  # numbers of their programs


def text_of(page: str) -> str:
    """That page of docs/."""
    return (DOCS / f"{page}.md").read_text()


def programs_of(page: str) -> list[str]:
    """The programs in Python of that page, in their order."""
    return re.findall(r"^```python\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("page", "program", "count", "backend"),
    [
        *(
            pytest.param(page, program, count, backend, marks=needs("keras", backend))
            for page, program, count, backends in PROGRAMS
            for backend in backends
        ),
        pytest.param("jax", 0, 1, "jax", marks=needs("jax", "optax")),
        pytest.param("mxnet", 0, 1, "", marks=needs("mxnet")),
        *(pytest.param("trainers", number, 5, "torch", marks=needs(name)) for name, number in TRAINERS.items()),
    ],
)
def test_a_program_of_the_page_learns(page: str, program: int, count: int, backend: str, tmp_path: Path) -> None:
    [command] = re.findall(r"^    (for rank in .*|GRADLANE_.* torchrun .*)$", text_of(page), re.MULTILINE)
    (tmp_path / "train.py").write_text(programs_of(page)[program])
    (tmp_path / "examples").mkdir()
    for name in ("job.toml", "template.toml"):
        job = (EXAMPLES / name).read_text().replace("127.0.0", NETWORK)  # other tests run beside this one
        (tmp_path / "examples" / name).write_text(job)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    losses = [float(loss) for loss in re.findall(r"loss:? ([0-9.]+)", done.stdout)]
    assert len(losses) == count, done.stderr[-5000:]  # of rank 0 alone
    assert losses[-1] < (3.0 if count == 1 else 0.9 * losses[0])
