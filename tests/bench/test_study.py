# SPDX-License-Identifier: Apache-2.0
"""The accuracy study: a short one for real, what it holds against a run, and that it can go on where it ended."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench.study import accuracy
from lab.model.errors import ArmError
from tests.support.effort import only_thorough
from tests.support.isolation import ISOLATED
from tests.support.needs import needs_mininet, needs_root

STUDY = [sys.executable, "-m", "bench.study.accuracy"]
RUN: dict[str, Any] = {"losses": [2.0, 1.0], "test_loss": 1.0, "test_accuracy": 0.5, "parameters_sha256": "a"}
RUN |= {"replicas_equal": True, "transport": {}, "seconds": 1.0, "policy_drops": []}


@only_thorough("trains seven times")
@needs_root
@needs_mininet
def test_without_tolerance_training_is_that_of_ddp_and_with_one_it_loses_gradients(
    study: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--models", "cnn", "--seeds", "1", "--p", "0,20", "--steps", "3", "--out", str(tmp_path)]
    done = subprocess.run([*ISOLATED, *STUDY, *options], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    runs: dict[str, Any] = {run["arm"]: run for run in json.loads((tmp_path / "study.json").read_text())["runs"]}
    assert runs["p = 0 %"]["losses"] == runs["DDP, summed in rank order"]["losses"]
    assert runs["p = 0 %"]["parameters_sha256"] == runs["DDP, summed in rank order"]["parameters_sha256"]
    assert runs["p = 0 % (2 workers)"]["parameters_sha256"] == runs["DDP, Gloo (2 workers)"]["parameters_sha256"]
    assert runs["p = 0 %"]["transport"]["slices_repaired"] > 0
    lossy = runs["p = 20 %, feedback"]
    assert 0.7 < lossy["transport"]["slices_lost"] / lossy["transport"]["budget_total"] <= 1
    assert (tmp_path / "accuracy.png").stat().st_size > 10_000
    assert study.main(options) == 0
    assert "7 runs, 7 of them already" in capsys.readouterr().out


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(accuracy, "ready_machine", lambda plans: contextlib.nullcontext())
    return accuracy


def test_a_result_that_is_not_ddps_is_an_error(study: ModuleType) -> None:
    ddp = RUN | {"model": "cnn", "seed": 1, "steps": 2, "workers": 4, "arm": "ordered", "sync": "rank-order"}
    ours = ddp | {"arm": "p = 0 %", "sync": "gradlane", "tolerance": 0.0}
    assert study.tables.identity([ddp, ours])[1] == []
    for change in ({"parameters_sha256": "b"}, {"losses": [2.0, 1.5]}, {"replicas_equal": False}):
        table, wrong = study.tables.identity([ddp, ours | change])
        assert len(table.rows) == 1
        assert len(wrong) == 1


def test_lost_is_counted_against_what_was_pushed(study: ModuleType) -> None:
    counts = {"slices_expected": 2000, "slices_lost": 100}  # half of them are results
    assert study.tables.lost(RUN | {"transport": counts}) == pytest.approx(0.1)


def test_a_run_that_fails_costs_only_itself_and_is_made_up_for_later(
    study: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[str] = []
    failing = {"DDP, Gloo"}

    class Laboratory:
        def __init__(self, *_: object) -> None:
            made.append("a laboratory")

        def __enter__(self) -> "Laboratory":
            return self

        def __exit__(self, *_: object) -> None: ...

        def run(self, case: Any) -> dict[str, Any]:
            if case.arm in failing:
                raise ArmError("worker 2 died with signal 9")
            made.append(case.arm)
            return {**vars(case), "arm": case.arm, **RUN}

    monkeypatch.setattr("bench.study.laboratory.Laboratory", Laboratory)
    options = ["--models", "cnn", "--seeds", "1", "--p", "0", "--steps", "2", "--out", str(tmp_path)]
    rest = ["DDP, summed in rank order", "p = 0 %", "DDP, Gloo (2 workers)", "p = 0 % (2 workers)"]
    assert study.main(options) == 1
    assert made == ["a laboratory", "a laboratory", *rest]
    assert "error: cnn, seed 1, DDP, Gloo: worker 2 died with signal 9" in capsys.readouterr().err
    (kept,) = json.loads((tmp_path / "study.json").read_text())["failures"]
    assert kept["reason"] == "worker 2 died with signal 9"
    made.clear()
    failing.clear()
    assert study.main(options) == 0
    assert made == ["a laboratory", "DDP, Gloo"]
    assert json.loads((tmp_path / "study.json").read_text())["failures"] == [kept]


def test_a_file_of_something_else_is_refused(study: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("[]")
    assert study.main(["--out", str(tmp_path)]) == 2
    assert (tmp_path / "study.json").read_text() == "[]"
