# SPDX-License-Identifier: Apache-2.0
"""The plot of the study of sums in the switch: where each arm's trainings end, less where DDP's do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.harness.figure import panels
from bench.study.runs import Run
from bench.study.sum_cases import ARMS, Arm
from lab.report.style import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS = {4: "#0b6e99", 8: "#d1495b"}  # by the number of workers
_COMPARED = tuple(arm for arm in ARMS if arm.name != arm.against)


def pairs(finished: Sequence[Run], arm: Arm, workers: int) -> list[tuple[Run, Run]]:
    """The runs of that arm, each with DDP's of the same model and seed."""
    plain = {
        (run["model"], run["seed"]): run for run in finished if (run["arm"], run["workers"]) == (arm.against, workers)
    }
    return [
        (run, plain[run["model"], run["seed"]])
        for run in finished
        if (run["arm"], run["workers"]) == (arm.name, workers)
    ]


def save(finished: Sequence[Run], path: Path) -> None:
    """Writes the plot as PNG. Points are seeds, bars medians."""
    models = list(dict.fromkeys(run["model"] for run in finished))
    with panels(path, len(models), 2, (5.4, 4.2), share_y=True) as rows:
        for model, (loss, accuracy) in zip(models, rows, strict=True):
            of_model = [run for run in finished if run["model"] == model]
            _plot(loss, of_model, "test_loss", 1.0, "test loss less DDP's, nats")
            _plot(accuracy, of_model, "test_accuracy", 100.0, "test accuracy less DDP's, points")
            loss.set_title(model, loc="left", fontsize=10)
            loss.set_yticks(range(len(_COMPARED)), [arm.name for arm in _COMPARED])
            loss.invert_yaxis()
            loss.legend(fontsize=8)


def _plot(axes: Axes, of_model: Sequence[Run], figure: str, scale: float, label: str) -> None:
    axes.axvline(0.0, color=INK, alpha=0.5, lw=1)
    for shift, (workers, color) in zip((-0.15, 0.15), _COLORS.items(), strict=True):
        for place, arm in enumerate(_COMPARED):
            values = [scale * (run[figure] - plain[figure]) for run, plain in pairs(of_model, arm, workers)]
            name = f"{workers} workers" if place == 0 else None
            axes.plot(values, [place + shift] * len(values), "o", ms=4, mew=0, alpha=0.6, color=color, label=name)
            if values:
                axes.plot([float(np.median(values))], [place + shift], "|", ms=11, mew=2, color=color)
    axes.set_xlabel(label)
