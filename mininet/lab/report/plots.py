# SPDX-License-Identifier: Apache-2.0
"""The plots of the report, each as the text of an SVG element."""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter, StrMethodFormatter

from lab.model.results import ArmResult
from lab.report.style import MUTED, STYLE

# Gradlane in blues and greens, the baselines in warm colours: told apart at a glance, and by the colour-blind.
GRADLANE = ("#0b6e99", "#2a9d8f", "#5aa9e6", "#8ab17d", "#264653")
BASELINES = ("#d1495b", "#edae49", "#a45a8c", "#8d6e63", "#c77d4f")
HEAT = LinearSegmentedColormap.from_list("heat", ["#ffffff", "#bfe0ec", "#0b6e99", "#062f45"])


def colors(results: Sequence[ArmResult]) -> dict[str, str]:
    """A colour for each arm."""
    chosen: dict[str, str] = {}
    for is_baseline, palette in ((False, GRADLANE), (True, BASELINES)):
        arms = dict.fromkeys(r.arm for r in results if r.is_baseline == is_baseline)
        chosen |= {arm: palette[index % len(palette)] for index, arm in enumerate(arms)}
    return chosen


def svg(figure: Any) -> str:
    """The figure as the text of an SVG element; closes it."""
    text = io.StringIO()
    figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None}, transparent=True)
    plt.close(figure)
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def metric_over_time(results: Sequence[ArmResult], color: Mapping[str, str]) -> str:
    """The metric on the test set against training time, and the target."""
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8.2, 3.9))
        for result in results:
            times = [point.seconds for point in result.curve]
            axes.plot(times, [p.value for p in result.curve], color=color[result.arm], lw=2, label=result.arm)
            if result.seconds_to_target is not None:
                axes.plot(
                    [result.seconds_to_target],
                    [result.target],
                    "o",
                    ms=7,
                    color=color[result.arm],
                    mec="white",
                    mew=1.5,
                )
        axes.axhline(results[0].target, color=MUTED, lw=1, ls=(0, (4, 3)), zorder=1)
        axes.annotate(
            f"target {_metric_text(results[0].metric, results[0].target)}",
            (1, results[0].target),
            xycoords=("axes fraction", "data"),
            xytext=(0, -4),
            textcoords="offset points",
            ha="right",
            va="top",
            color=MUTED,
            fontsize=9,
        )
        axes.set_xlim(left=0)
        axes.set_xlabel("training time, seconds")
        axes.set_ylabel(f"{results[0].metric} on the test set")
        if results[0].metric == "accuracy":
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.legend(loc="lower right" if results[0].metric == "accuracy" else "upper right")
        return svg(figure)


def step_times(results: Sequence[ArmResult], color: Mapping[str, str]) -> str:
    """The share of steps that took at most so long."""
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(5.2, 3.6))
        for result in results:
            ordered = np.sort(np.array(result.step_seconds)) * 1000
            share = np.arange(1, len(ordered) + 1) / len(ordered)
            axes.step(ordered, share, where="post", color=color[result.arm], lw=2, label=result.arm)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(FuncFormatter(_plain_minor_number))
        axes.tick_params(axis="x", which="minor", labelsize=8)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_xlabel("step time, milliseconds (log scale)")
        axes.set_ylabel("steps that took at most that")
        axes.legend(loc="lower right")
        return svg(figure)


def step_durations(results: Sequence[ArmResult]) -> str:
    """How long each step took, over training time: a panel for each scenario, of its first seed; a line marks when a
    switch failed."""
    scenarios = list(dict.fromkeys(result.scenario for result in results))
    color = colors(results)
    with mpl.rc_context(STYLE):
        figure, panels = plt.subplots(len(scenarios), 1, figsize=(8.2, 2.7 * len(scenarios)), squeeze=False)
        for scenario, axes in zip(scenarios, panels[:, 0], strict=True):
            of_scenario = [result for result in results if result.scenario == scenario]
            shown = [result for result in of_scenario if result.seed == of_scenario[0].seed]
            for result in shown:
                durations = [1000 * seconds for seconds in result.step_seconds]
                label = f"{result.arm}: median {1000 * result.step.p50:.0f} ms"
                axes.plot(result.step_ends, durations, color=color[result.arm], lw=1.6, marker=".", label=label)
                if result.failed_at is not None:
                    axes.axvline(result.failed_at, color=color[result.arm], lw=1, ls=(0, (4, 3)))
            axes.set_title(scenario, loc="left", fontsize=11)
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.yaxis.set_minor_formatter(FuncFormatter(_plain_minor_number))
            axes.tick_params(axis="y", which="minor", labelsize=8)
            axes.set_xlim(left=0)
            axes.set_ylabel("step time, ms")
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)
        panels[-1, 0].set_xlabel("training time, seconds (dashed: a spine fails)")
        figure.tight_layout()
        return svg(figure)


def drop_map(cells: Mapping[tuple[int, int], int]) -> str:
    """What switches took of gradients by policy, in packets: by layer, and by the sixteenth of the magnitudes that the
    hosts had stated."""
    layers = max(layer for layer, _ in cells) + 1
    packets = np.zeros((layers, 16))
    for (layer, sixteenth), count in cells.items():
        packets[layer, sixteenth] = count
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = plt.subplots(figsize=(5.2, 3.6))
        image = axes.imshow(packets, aspect="auto", origin="upper", cmap=HEAT, interpolation="nearest")
        axes.set_xticks(range(0, 16, 4), [f"{sixteenth * 16}" for sixteenth in range(0, 16, 4)])
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes.set_xlabel("magnitude of the slice (quantile in its message, 0 to 255)")
        axes.set_ylabel("layer, from the input")
        bar = figure.colorbar(image, ax=axes, pad=0.02)
        bar.set_label("packets", color=MUTED)
        bar.outline.set_visible(False)
        return svg(figure)


def drops(result: ArmResult) -> Counter[tuple[int, int]]:
    """Of an arm, as `drop_map` takes it."""
    found: Counter[tuple[int, int]] = Counter()
    for cell in result.switch.drop_map:
        found[cell.layer, cell.magnitude // 16] += cell.packets
    return found


def _plain_minor_number(value: float, _position: int) -> str:
    """Labels those of a decade that stay apart."""
    leading = value / 10 ** np.floor(np.log10(value))
    return f"{value:g}" if round(leading) in (2, 3, 4, 6, 8) else ""


def _metric_text(metric: str, value: float) -> str:
    return f"{value:.0%}" if metric == "accuracy" else f"{value:g}"
