# SPDX-License-Identifier: Apache-2.0
"""The study of sums in the switch: whom results come without, what DDP in float16 does, and a short run of it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.study import sum_accuracy
from bench.study.fixed_point import FixedPoint, Flags, Floats, SummedTensor
from bench.study.sum_cases import ARMS, Arm, SumCase
from bench.study.sum_training import Reduction

WORKERS, ELEMENTS, STEPS = 4, 40 * FixedPoint(16, 4).per_slice, 12


def reduced(arm: Arm, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Flags | None, int]]:
    """Whom each slice comes without, and by how much exponents are too small, in each step of a run."""
    seen: list[tuple[Flags | None, int]] = []

    def mean(_: SummedTensor, gradients: Floats, missing: Flags | None, beyond: int) -> Floats:
        seen.append((missing, beyond))
        return gradients[0]

    monkeypatch.setattr(SummedTensor, "mean", mean)
    reduction = Reduction(SumCase("cnn", WORKERS, 1, STEPS, arm), ELEMENTS)
    for step in range(STEPS):
        reduction.mean(np.zeros((WORKERS, ELEMENTS), np.float32), step)
    return seen


def test_each_worker_is_left_out_within_its_budget_and_the_closer_never(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[list[int]] = []
    for step, (missing, _) in enumerate(reduced(Arm("a", "int16", push=0.1), monkeypatch)):
        assert missing is not None
        counts.append(missing.sum(axis=1).tolist())
        assert counts[-1][step % WORKERS] == 0
        assert max(counts[-1]) <= 4  # of 40 slices
    assert np.mean(counts) > 0.6 * 4
    assert max(counts[1]) == 4


def test_a_late_worker_misses_its_last_slices_unless_it_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    for step, (missing, _) in enumerate(reduced(Arm("a", "int16", push=0.1, late=True), monkeypatch)):
        assert missing is not None
        late = [] if step % WORKERS == WORKERS - 1 else [(WORKERS - 1, slice_) for slice_ in range(36, 40)]
        assert list(map(tuple, np.argwhere(missing).tolist())) == late


def test_gradients_are_clipped_in_every_tenth_step(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = reduced(Arm("a", "int32", clipped=True), monkeypatch)
    assert [beyond > 0 for _, beyond in seen] == [step == 9 for step in range(STEPS)]
    assert all(missing is None for missing, _ in seen)


def test_float16_is_divided_rounded_and_added_as_pytorch_does() -> None:
    gradients = np.random.default_rng(1).normal(size=(3, 50)).astype(np.float32)
    mean = Reduction(SumCase("cnn", 3, 1, STEPS, Arm("a", "float16")), 50).mean(gradients, 0)
    total = torch.zeros(50, dtype=torch.float16)
    for gradient in gradients:  # what fp16_compress_hook sends, added as a ring or a tree does: in float16
        total = total + torch.from_numpy(gradient).to(torch.float16).div_(3)
    assert mean.tolist() == total.to(torch.float32).tolist()
    assert np.abs(mean - gradients.mean(axis=0)).max() < 2e-3


def test_a_short_study_compares_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = tuple(arm for arm in ARMS if arm.name in ("float32", "int32", "int16, push = 10 %"))
    monkeypatch.setattr(sum_accuracy, "ARMS", few)
    options = ["--models", "cnn", "--seeds", "1", "--steps", "2", "--out", str(tmp_path)]
    assert sum_accuracy.main(options) == 0
    found = {
        (run["arm"], run["workers"]): run for run in json.loads((tmp_path / "sum_accuracy.json").read_text())["runs"]
    }
    assert len(found) == 6
    for workers in (4, 8):
        exact, near, lossy = (found[arm.name, workers] for arm in few)
        assert near["losses"] == exact["losses"]  # the first step is by hosts
        assert abs(near["test_loss"] - exact["test_loss"]) < 1e-4 < abs(lossy["test_loss"] - exact["test_loss"])
        assert 0.02 < lossy["left_out"] < 0.1
        assert exact["left_out"] is None
    assert (tmp_path / "sum_accuracy.png").stat().st_size > 10_000
    capsys.readouterr()
    assert sum_accuracy.main(options) == 0
    assert "6 runs, 6 of them already" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        sum_accuracy.main(["--steps", "1"])
