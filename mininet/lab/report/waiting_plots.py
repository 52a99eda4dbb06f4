# SPDX-License-Identifier: Apache-2.0
"""The plots of who waited for whom, each as the text of an SVG element."""

import statistics
from collections.abc import Sequence

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Patch

from lab.model.results import ArmResult
from lab.report.plots import svg
from lab.report.style import MUTED, STYLE

_COMPUTES, _WAITS, _EXCHANGES = "#bcd9e8", "#c8324a", "#edae49"
_HEAT = LinearSegmentedColormap.from_list("waiting", ["#ffffff", "#f3c2ca", _WAITS])
_LONGEST_COMPUTATIONS = 5  # that the timeline shows


def timeline(results: Sequence[ArmResult]) -> str:
    """What each worker did in a few seconds of the middle of each arm: computed, waited for whom, exchanged."""
    longest = max(
        statistics.median(it.ready - it.began for it in result.exchanges if it.worker == worker)
        for result in results
        for worker in {it.worker for it in result.exchanges}
    )
    span = _LONGEST_COMPUTATIONS * longest
    start = max(0.0, (min(result.seconds for result in results) - span) / 2)
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        rows = sum(len(result.batches) + 1.2 for result in results)
        heights = [len(result.batches) for result in results]
        figure, panels = plt.subplots(
            len(results), 1, figsize=(8.2, 0.8 + 0.27 * rows), squeeze=False, sharex=True, height_ratios=heights
        )
        for result, axes in zip(results, panels[:, 0], strict=True):
            for it in result.exchanges:
                parts = ((it.began, it.ready, _COMPUTES), (it.ready, it.complete, _WAITS))
                for begin, end, color in (*parts, (it.complete, it.done, _EXCHANGES)):
                    if end > start and begin < start + span:
                        axes.barh(it.worker, end - begin, left=begin - start, height=0.78, color=color, lw=0)
                visible = min(it.complete, start + span) - max(it.ready, start)
                if visible > span / 30:
                    middle = max(it.ready, start) + visible / 2 - start
                    where = {"ha": "center", "va": "center_baseline"}
                    axes.text(middle, it.worker, f"{it.last}", color="white", fontsize=8, weight="bold", **where)
            axes.set_title(result.arm, loc="left", fontsize=11)
            axes.set_yticks(range(len(result.batches)), [f"worker {n}" for n in range(len(result.batches))])
            axes.set_ylim(len(result.batches) - 0.5, -0.5)
            axes.tick_params(axis="y", length=0)
            axes.spines["left"].set_visible(False)
        panels[-1, 0].set_xlim(0, span)
        panels[-1, 0].set_xlabel(f"seconds, from {start:.1f} s after the start of each arm")
        texts = ((_COMPUTES, "computes"), (_WAITS, "waits for the worker of that number"), (_EXCHANGES, "exchanges"))
        figure.legend(handles=[Patch(color=c, label=t) for c, t in texts], loc="upper right", ncols=3, fontsize=9)
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.2 / figure.get_figheight()))
        return svg(figure)


def shares(results: Sequence[ArmResult]) -> str:
    """Of each arm, the share of its time that each worker waited for each other one."""
    tables = [[[100 * s / result.seconds for s in row] for row in result.waited] for result in results]
    most = max((share for table in tables for row in table for share in row), default=0)
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        figure, panels = plt.subplots(1, len(results), figsize=(8.2, 0.9 + 7.0 / len(results)), squeeze=False)
        for result, table, axes in zip(results, tables, panels[0], strict=True):
            axes.imshow(table, cmap=_HEAT, vmin=0, vmax=max(most, 1), aspect="equal")
            for waiter, row in enumerate(table):
                for awaited, share in enumerate(row):
                    if share >= 0.5:
                        color = "white" if share > 0.6 * most else MUTED
                        axes.text(awaited, waiter, f"{share:.0f} %", ha="center", va="center", color=color, fontsize=9)
            workers = range(len(result.batches))
            axes.set_xticks(workers, [f"{n}" for n in workers])
            axes.set_yticks(workers, [f"{n}" for n in workers])
            axes.set_xticks([n - 0.5 for n in workers[1:]], minor=True)
            axes.set_yticks([n - 0.5 for n in workers[1:]], minor=True)
            axes.grid(which="minor", lw=1)
            axes.tick_params(which="both", length=0)
            axes.set_title(result.arm, loc="left", fontsize=11)
            axes.set_xlabel("for worker")
        panels[0, 0].set_ylabel("worker that waited")
        figure.tight_layout()
        return svg(figure)
