# SPDX-License-Identifier: Apache-2.0
"""The plot of the accuracy study: losses over the steps, and where they end by the tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.harness.figure import panels
from bench.study.cases import WORKERS
from bench.study.runs import Run
from bench.study.tables import lost
from lab.report.style import INK, MUTED

if TYPE_CHECKING:  # matplotlib takes a second to import, and the study's own --help is not to wait for it
    from matplotlib.axes import Axes

_SMOOTHED = 5  # steps
_TOLERANCE_COLORS = {0.0: "#264653", 0.01: "#2a9d8f", 0.03: "#8ab17d", 0.1: "#edae49", 0.2: "#d1495b"}
_FEEDBACK = {True: ("feedback", "#0b6e99"), False: ("no feedback", "#d1495b")}


def save(runs: Sequence[Run], path: Path) -> None:
    """Writes the plot as PNG. Lines are medians over the seeds, bands and bars go from the least to the greatest."""
    models = list(dict.fromkeys(run["model"] for run in runs))
    with panels(path, len(models), 3, (4, 3.6)) as rows:
        for model, (steps, loss, accuracy) in zip(models, rows, strict=True):
            of_model = [run for run in runs if run["model"] == model and run["workers"] == WORKERS]
            _plot_steps(steps, model, of_model)
            _plot_tolerances(loss, of_model, "test_loss", 1.0, "test loss less DDP's, nats")
            _plot_tolerances(accuracy, of_model, "test_accuracy", 100.0, "test accuracy less DDP's, points")


def _plot_steps(axes: Axes, model: str, runs: Sequence[Run]) -> None:
    """The training loss: DDP, and Gradlane with feedback at every tolerance."""
    plain = [run for run in runs if run["sync"] == "gloo"]
    _band(axes, plain, "DDP, Gloo", INK, 4.5, 0.35)
    ours = [run for run in runs if run["sync"] == "gradlane" and run["feedback"]]
    for p in sorted({run["tolerance"] for run in ours}):
        these = [run for run in ours if run["tolerance"] == p and run["drops"] == "random"]
        _band(axes, these, f"p = {100 * p:g} %", _TOLERANCE_COLORS.get(p, MUTED), 1.4, 1.0)
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("training loss, nats")
    axes.set_title(f"{model}, with feedback", loc="left", fontsize=10)
    axes.legend(fontsize=8)


def _band(axes: Axes, runs: Sequence[Run], label: str, color: str, width: float, alpha: float) -> None:
    if not runs:
        return
    kernel = np.ones(_SMOOTHED) / _SMOOTHED
    curves = np.array([np.convolve(run["losses"], kernel, "valid") for run in runs])
    steps = np.arange(curves.shape[1]) + _SMOOTHED
    axes.plot(steps, np.median(curves, axis=0), color=color, lw=width, alpha=alpha, label=label)
    axes.fill_between(steps, curves.min(axis=0), curves.max(axis=0), color=color, alpha=0.08, lw=0)


def _plot_tolerances(axes: Axes, runs: Sequence[Run], figure: str, scale: float, label: str) -> None:
    """Where it ended, less where DDP did with the same seed, by the loss that occurred."""
    plain = {run["seed"]: run[figure] for run in runs if run["sync"] == "gloo"}
    axes.axhline(0.0, color=INK, alpha=0.5, lw=1)
    lossy = [dict(run) for run in runs if run["sync"] == "gradlane" and run["tolerance"] > 0]
    lossy = [run | {figure: run[figure] - plain[run["seed"]]} for run in lossy if run["seed"] in plain]
    for number, (feedback, (name, color)) in enumerate(_FEEDBACK.items()):
        these = [run for run in lossy if (run["feedback"], run["drops"]) == (feedback, "random")]
        _points(axes, these, figure, scale, (number - 0.5) * 0.4, name, {"color": color, "ls": "-", "marker": "o"})
        chosen = [run for run in lossy if (run["feedback"], run["drops"]) == (feedback, "policy")]
        style = {"color": color, "ls": "none", "marker": "D", "mec": INK}
        _points(axes, chosen, figure, scale, 1.2 + number * 0.4, f"{name}, by policy", style)
    axes.set_xlabel("pushed slices lost, %")
    axes.set_ylabel(label)
    if lossy:
        axes.margins(y=0.4)  # room for the legend
        axes.legend(fontsize=7, ncol=2, loc="upper left", columnspacing=1.0, handlelength=1.6)


def _points(
    axes: Axes, runs: Sequence[Run], figure: str, scale: float, shift: float, label: str, style: dict[str, Any]
) -> None:
    places: list[float] = []
    values: list[list[float]] = []
    for p in sorted({run["tolerance"] for run in runs}):
        these = [run for run in runs if run["tolerance"] == p]
        places.append(100 * float(np.mean([lost(run) for run in these])) + shift)
        values.append([scale * run[figure] for run in these])
    if not places:
        return
    middle = np.array([np.median(value) for value in values])
    ends = [middle - [min(value) for value in values], [max(value) for value in values] - middle]
    axes.errorbar(places, middle, yerr=ends, label=label, ms=4, lw=1.4, elinewidth=0.8, capsize=2, **style)
