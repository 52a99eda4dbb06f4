# SPDX-License-Identifier: Apache-2.0
"""What a run brought: the accuracy over time of the mean of all workers' models, which is what a job would save."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from bench.sync import emulated
from bench.sync.cases import ARMS, TARGET, Order

FIXED_STEPS = 50
_TICKS = 150  # of a run
_LAST = 0.1  # of a run, over which the final accuracy is a mean


@dataclass(frozen=True)
class Run:
    """One run. Seconds; per step: means over workers and steps; accuracies: fractions of the test examples.

    seconds: until the last worker ended. steps: of a worker, the mean. to_target, steps_to_target: None if it was not
    reached. at_steps: after FIXED_STEPS; None if they were not reached. final: mean over the last tenth of the run.
    waited: per step, neither pause nor computation. waits: by worker, as a share of the run. sent: bytes per step.
    times, accuracies: the curve.
    """

    workers: int
    case: str
    arm: str
    title: str
    bsp: bool
    seed: int
    learning_rate: float
    seconds: float
    steps: float
    to_target: float | None
    steps_to_target: float | None
    at_steps: float | None
    final: float
    waited: float
    waits: list[float]
    sent: float
    overslept: float
    times: list[float]
    accuracies: list[float]


def evaluate(order: Order, folder: Path, traces: Sequence[Mapping[str, Any]]) -> Run:
    """`traces`: of the workers, by rank; the folder has their snapshots."""
    snapshots = [np.load(folder / f"{rank}.npy", mmap_mode="r") for rank in range(len(traces))]
    times: list[float] = []
    steps: list[float] = []
    accuracies: list[float] = []
    test = _Test(order.settings.width)
    end = min(trace["times"][-1] for trace in traces)
    for tick in np.linspace(0.0, end, _TICKS + 1).tolist():
        indices = [bisect_right(trace["times"], tick) - 1 for trace in traces]
        if min(indices) < 0:  # somebody's first forward pass
            continue
        mean = np.mean([kept[index] for kept, index in zip(snapshots, indices, strict=True)], axis=0)
        times.append(tick)
        steps.append(fmean(trace["steps"][index] for trace, index in zip(traces, indices, strict=True)))
        accuracies.append(test.accuracy(mean))
    reached = next((k for k, value in enumerate(accuracies) if value >= TARGET), None)
    fixed = next((k for k, value in enumerate(steps) if value >= FIXED_STEPS), None)
    taken = [len(trace["ends"]) for trace in traces]
    last = [value for time, value in zip(times, accuracies, strict=True) if time >= (1 - _LAST) * end]
    arm = ARMS[order.arm]
    return Run(
        workers=order.settings.workers,
        case=order.case,
        arm=order.arm,
        title=arm.title,
        bsp=arm.bsp,
        seed=order.seed,
        learning_rate=order.learning_rate,
        seconds=max(trace["seconds"] for trace in traces),
        steps=fmean(taken),
        to_target=None if reached is None else times[reached],
        steps_to_target=None if reached is None else steps[reached],
        at_steps=None if fixed is None else accuracies[fixed],
        final=fmean(last),
        waited=sum(trace["waited"] for trace in traces) / sum(taken),
        waits=[trace["waited"] / trace["seconds"] for trace in traces],
        sent=sum(trace["sent"] for trace in traces) / sum(taken),
        overslept=sum(trace["slept"] for trace in traces) / sum(trace["told"] for trace in traces) - 1,
        times=times,
        accuracies=accuracies,
    )


class _Test:
    """The model on the test examples."""

    def __init__(self, width: int) -> None:
        # Imported only now: torch takes seconds, and neither --help nor a mistyped option is to wait for it.
        import torch

        from lab.training.models import TASKS

        self._task = TASKS["cnn"]
        data = self._task.load()
        self._examples = torch.from_numpy(data.test_inputs), torch.from_numpy(data.test_targets)
        self._model, _ = emulated.perceptron(emulated.widths(width))
        self._flat = torch.from_numpy

    def accuracy(self, parameters: np.ndarray[Any, Any]) -> float:
        """Of these."""
        from torch.nn.utils import vector_to_parameters

        vector_to_parameters(self._flat(parameters), self._model.parameters())
        return self._task.evaluate(self._model, *self._examples)
