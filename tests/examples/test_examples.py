# SPDX-License-Identifier: Apache-2.0
"""The examples for Keras and JAX run as their README says: two agents on one machine, a training process on each."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agents import NETWORK, agents, loopback
from tests.support.paths import EXAMPLES


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)}: pip install -r examples/requirements.txt")


def run_both(example: str, options: list[str], backend: str, folder: Path) -> list[str]:
    """What the two ranks print."""
    job = folder / "job.toml"
    job.write_text((EXAMPLES / "job.toml").read_text().replace("127.0.0", NETWORK))
    command = [sys.executable, str(EXAMPLES / example), "--job", str(job), *options]
    environment = {**os.environ, "KERAS_BACKEND": backend}
    with agents(folder, loopback(2)) as hosts:
        ranks = [
            subprocess.Popen(
                [*command, "--rank", str(rank), "--socket", str(host.socket)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment,
            )
            for rank, host in enumerate(hosts)
        ]
        try:
            said = [rank.communicate(timeout=500)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    return said


def accuracy(text: str) -> float:
    return float(text.strip().splitlines()[-1].removeprefix("accuracy "))


@needs("jax", "sklearn")
def test_jax(tmp_path: Path) -> None:
    said = run_both("jax_digits.py", ["--steps", "30"], "jax", tmp_path)
    assert accuracy(said[0]) == accuracy(said[1]) > 0.7  # chance is 0.1; the replicas are the same


@pytest.mark.parametrize(
    "backend", [pytest.param(name, marks=needs("keras", "sklearn", name)) for name in ("torch", "jax", "tensorflow")]
)
def test_keras(backend: str, tmp_path: Path) -> None:
    said = run_both("keras_mnist_like.py", ["--epochs", "1"], backend, tmp_path)
    assert accuracy(said[0]) == accuracy(said[1]) > 0.5
