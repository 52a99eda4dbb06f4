# SPDX-License-Identifier: Apache-2.0
"""The examples for Keras and JAX run as their README says: two agents on one machine, a training process on each."""

import contextlib
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import EXAMPLES

# Of this process alone, so that no agent of the machine itself or of another run of the tests is met.
NETWORK = f"127.{47 + os.getpid() % 200}.{os.getpid() // 200 % 250}"


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)}: pip install -r examples/requirements.txt")


@contextlib.contextmanager
def agents(folder: Path) -> Iterator[list[Path]]:
    """Two agents; gives their sockets."""
    sockets = [folder / f"{number}.sock" for number in (1, 2)]
    started: list[subprocess.Popen[str]] = []
    try:
        for number, path in enumerate(sockets, 1):
            command = [sys.executable, "-m", "gradlane.cli", "agent", "--address", f"{NETWORK}.{number}"]
            agent = subprocess.Popen([*command, "--socket", str(path)], stderr=subprocess.PIPE, text=True)
            started.append(agent)
            assert agent.stderr is not None
            line = agent.stderr.readline()
            assert "ready" in line, line
            threading.Thread(target=agent.stderr.read, daemon=True).start()  # so that it never blocks on its log
        yield sockets
    finally:
        for agent in started:
            agent.terminate()
            agent.wait(60)


def run_both(example: str, options: list[str], backend: str, folder: Path) -> list[str]:
    """What the two ranks print."""
    job = folder / "job.toml"
    job.write_text((EXAMPLES / "job.toml").read_text().replace("127.0.0", NETWORK))
    command = [sys.executable, str(EXAMPLES / example), "--job", str(job), *options]
    environment = {**os.environ, "KERAS_BACKEND": backend}
    with agents(folder) as sockets:
        ranks = [
            subprocess.Popen(
                [*command, "--rank", str(rank), "--socket", str(path)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment,
            )
            for rank, path in enumerate(sockets)
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
    "backend", [pytest.param(name, marks=needs("keras", "sklearn", name)) for name in ("torch", "jax")]
)
def test_keras(backend: str, tmp_path: Path) -> None:
    said = run_both("keras_mnist_like.py", ["--epochs", "1"], backend, tmp_path)
    assert accuracy(said[0]) == accuracy(said[1]) > 0.5
