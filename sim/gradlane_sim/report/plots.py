# SPDX-License-Identifier: Apache-2.0
"""The plots of the page, each as the text of an SVG element."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter, StrMethodFormatter

from gradlane_sim.cases import Arm, Scenario
from gradlane_sim.report.figures import Summary
from lab.report.plots import BASELINES, GRADLANE, svg
from lab.report.style import MUTED, STYLE

# Times that differ by more than that are shown on a logarithmic scale.
WIDE = 6
# Of arms that have to share a colour; more arms than that have smaller names.
DASHES, MANY = ("-", "--", ":"), 8


def colors(arms: Sequence[Arm]) -> dict[str, str]:
    """A colour for each arm."""
    chosen: dict[str, str] = {}
    for subject, palette in ((True, GRADLANE), (False, BASELINES)):
        names = dict.fromkeys(arm.name for arm in arms if arm.subject == subject)
        chosen |= {name: palette[index % len(palette)] for index, name in enumerate(names)}
    return chosen


def completions(rows: Sequence[Summary], color: Mapping[str, str]) -> str:
    """The share of operations that took at most so long. One arm at least has completed some."""
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(5.2, 3.4))
        used: list[str] = []
        for it in rows:
            if it.curve:
                part, name = np.linspace(0, 1, len(it.curve)), it.arm.name
                style = DASHES[min(used.count(color[name]), len(DASHES) - 1)]
                used.append(color[name])
                axes.plot([1000 * time for time in it.curve], part, color=color[name], ls=style, lw=2, label=name)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        times = [time for it in rows for time in it.curve]
        scale = ""
        if max(times) > WIDE * min(times):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(FuncFormatter(_plain_minor))
            axes.tick_params(axis="x", which="minor", labelsize=8)
            scale = " (log scale)"
        axes.set_xlabel(f"completion time of an operation, ms{scale}")
        axes.set_ylabel("operations that took at most that")
        axes.legend(loc="lower right", fontsize=9 if len(rows) <= MANY else 6)
        return svg(figure)


def against_ideal(rows: Sequence[Summary], color: Mapping[str, str]) -> str:
    """Mean and p99 of each arm, and the ideal time of a step."""
    shown = [it for it in rows if it.mean is not None and it.p99 is not None]
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(5.2, 0.9 + 0.42 * max(2, len(shown))))
        for place, it in enumerate(reversed(shown)):
            mean, p99 = 1000 * (it.mean or 0), 1000 * (it.p99 or 0)
            axes.barh(place, mean, height=0.55, color=color[it.arm.name])
            axes.plot([mean, p99], [place, place], color=color[it.arm.name], lw=1.5)
            axes.plot([p99], [place], "|", ms=14, mew=2, color=color[it.arm.name])
            axes.vlines(1000 * it.ideal, place - 0.5, place + 0.5, color=MUTED, lw=1, ls=(0, (4, 3)))
        axes.set_yticks(range(len(shown)), [it.arm.name for it in reversed(shown)])
        axes.grid(axis="y", visible=False)
        axes.set_axisbelow(True)
        axes.set_xlabel("ms: mean (bar), 99th percentile (tick), ideal step (dashed)")
        return svg(figure)


def growth(found: Sequence[tuple[Scenario, Sequence[Summary]]], color: Mapping[str, str]) -> str:
    """The mean step against its ideal, by the number of hosts."""
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8.2, 3.4))
        for name in dict.fromkeys(it.arm.name for _, rows in found for it in rows):
            points = [
                (scenario.hosts, it.step / it.ideal)
                for scenario, rows in found
                for it in rows
                if it.arm.name == name and it.step and it.ideal
            ]
            axes.plot(*zip(*sorted(points), strict=True), color=color[name], lw=2, marker="o", label=name)
        axes.axhline(1, color=MUTED, lw=1, ls=(0, (4, 3)))
        axes.set_xlabel("hosts")
        axes.set_ylabel("step time over the ideal one")
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="upper left")
        return svg(figure)


def _plain_minor(value: float, _position: int) -> str:
    leading = value / 10 ** np.floor(np.log10(value))
    return f"{value:g}" if round(leading) in (2, 3, 5) else ""
