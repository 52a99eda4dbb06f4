# SPDX-License-Identifier: Apache-2.0
"""Whole workers as the experiment runner starts them, on loopback."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.training.config import Config, Node
from lab.training.records import explain
from tests.lab.training import worker_processes
from tests.lab.training.worker_processes import Process
from tests.support.agents import NETWORK

TRAIN = (sys.executable, "-m", "lab.train")


@pytest.fixture
def started() -> Iterator[list[Process]]:
    """Whatever a test puts in does not outlive it."""
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.kill()
        process.join()


def make(arm: str, steps: int, port: int, timeout: int = 60) -> Config:
    # Gloo binds to the first address of the interface, so on loopback all workers have the same.
    workers = tuple(Node(rank, f"w{rank}", "127.0.0.1", "lo") for rank in range(2))
    servers = (Node(2, "s0", f"{NETWORK}.1", "lo"), Node(3, "s1", f"{NETWORK}.2", "lo"))
    return Config(
        arm,
        5,
        "cnn",
        16,
        8,
        steps,
        workers,
        servers,
        timeout=timeout,
        start_delay=0,
        evaluate_every=4,
        server_port=port,
    )


def records(folder: Path, rank: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{rank}.jsonl").read_text().splitlines()]


def of(event: str, lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == event]


def test_arms_train_the_same_model_alike(tmp_path: Path, started: list[Process]) -> None:
    arms = ("ddp-gloo", "ddp-gloo-prio", "ddp-gloo-fp16", "ps-tcp", "ps-tcp-fp16")
    digests: dict[str, str] = {}
    losses: dict[str, list[float]] = {}
    for number, arm in enumerate(arms):
        processes = worker_processes.start(make(arm, 8, 47510 + number), tmp_path / arm)
        started += processes
        for rank, process in enumerate(processes):
            process.join(worker_processes.PATIENCE)
            assert process.exitcode == 0, (tmp_path / arm / f"{rank}.err").read_text()
        lines = [records(tmp_path / arm, rank) for rank in range(2)]
        finals = [of("final", of_rank)[0] for of_rank in lines]
        assert finals[0]["parameters_sha256"] == finals[1]["parameters_sha256"]
        digests[arm] = finals[0]["parameters_sha256"]
        steps = of("step", lines[0])
        losses[arm] = [step["loss"] for step in steps]
        assert [step["step"] for step in steps] == list(range(8))
        exchanges = of("exchange", lines[0])
        assert [exchange["group"] for exchange in exchanges] == [[0, 1]] * 8
        for step, exchange in zip(steps, exchanges, strict=True):
            assert 0 < exchange["seconds"] <= step["step_seconds"]
            assert step["t"] - step["step_seconds"] < exchange["ready"] < exchange["done"] < step["t"]
        assert steps[-1]["t"] == finals[0]["seconds"]
        assert [line["step"] for line in of("evaluation", lines[0])] == [4, 8]
        assert not of("evaluation", lines[1])
        assert of("start", lines[0])[0]["start"] == of("start", lines[1])[0]["start"]
    # With two workers every order of summation gives the same bits, so the exact arms must agree entirely.
    assert digests["ps-tcp"] == digests["ddp-gloo"]
    assert digests["ddp-gloo-prio"] == digests["ddp-gloo-fp16"]
    for exact, rounded in (("ps-tcp", "ps-tcp-fp16"), ("ddp-gloo", "ddp-gloo-fp16")):
        assert digests[exact] != digests[rounded]
        assert losses[exact] == pytest.approx(losses[rounded], abs=0.02)


@pytest.mark.parametrize(
    ("arm", "by"), [("ddp-gloo", signal.SIGKILL), ("ddp-gloo", signal.SIGSTOP), ("ps-tcp", signal.SIGKILL)]
)
def test_a_dead_peer_ends_the_run_with_its_name(
    tmp_path: Path, started: list[Process], arm: str, by: signal.Signals
) -> None:
    started += worker_processes.start(make(arm, 100_000, 47520, timeout=8), tmp_path)
    survivor, victim = started[:2]
    await_step(tmp_path / "0.jsonl", survivor)
    assert victim.pid is not None
    os.kill(victim.pid, by)
    died = time.monotonic()
    survivor.join(worker_processes.PATIENCE)
    assert survivor.exitcode == 1
    (error,) = of("error", records(tmp_path, 0))
    assert died <= error["at"] < died + 8 + 6
    assert (tmp_path / "0.err").read_text().splitlines()[-1] == f"lab.train: rank 0: error: {error['error']}"
    if arm == "ps-tcp":  # here all workers have one address, so only who knows ranks can tell
        assert error["culprit"] == {"rank": 1, "host": "w1", "address": "127.0.0.1"}


GLOO = (
    "Got the following error when running the callback: RuntimeError: [/src/gloo/transport/tcp/pair.cc:553] Connection "
    "closed by peer [10.0.2.2]:45042. This is typically caused by a worker crashing.\n\nAt:\n  hooks.py(31): then"
)


@pytest.mark.parametrize(
    ("message", "rank", "line"),
    [
        (GLOO, 1, "rank 1 (h2, 10.0.2.2) is lost: Connection closed by peer [10.0.2.2]:45042"),
        (
            "closed by peer [::ffff:10.0.3.2]:4",
            2,
            "rank 2 (h3, 10.0.3.2) is lost: closed by peer [::ffff:10.0.3.2]:4",
        ),
        ("rank 2 (h3) has sent nothing\nfor 8 s", 2, "rank 2 (h3) has sent nothing for 8 s"),
        ("10.0.1.2 lost rank 1 (h2)", 1, "10.0.1.2 lost rank 1 (h2)"),  # its own address is no culprit
        ("10.0.2.20 is nobody's address", None, "10.0.2.20 is nobody's address"),
        ("", None, "RuntimeError"),
    ],
)
def test_an_error_becomes_a_line_that_names_the_culprit(message: str, rank: int | None, line: str) -> None:
    nodes = tuple(Node(r, f"h{r + 1}", f"10.0.{r + 1}.2", "eth0") for r in range(3))
    text, found = explain(Config("ddp-gloo", 1, "cnn", 8, 1, 1, nodes), 0, RuntimeError(message))
    assert (None if found is None else found.rank) == rank
    assert text == line


def await_step(path: Path, process: Process) -> None:
    deadline = time.monotonic() + worker_processes.PATIENCE
    while not (path.exists() and '"step"' in path.read_text()):
        assert time.monotonic() < deadline
        assert process.exitcode is None
        process.join(0.05)


def test_a_wrong_run_file_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    argv = [*TRAIN, "worker", "--config", str(tmp_path / "run.json"), "--rank", "0", "--out", "x"]
    result = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=worker_processes.PATIENCE)
    assert result.returncode == 2
    assert result.stderr.startswith("lab.train: error: ")
    assert "run.json: arm: is missing" in result.stderr


def test_bursts_report_what_they_sent(tmp_path: Path) -> None:
    options = ["--to", "127.0.5.9", "--rate", "10mbit", "--period", "0.05", "--duty", "0.5", "--seconds", "0.2"]
    argv = [*TRAIN, "bursts", *options, "--port", "40011"]
    result = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=worker_processes.PATIENCE)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["bursts"] == 4
