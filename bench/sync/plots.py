# SPDX-License-Identifier: Apache-2.0
"""The plots of bench.sync: accuracy over time, time to the target, and who waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.harness.figure import panels
from bench.sync.cases import ARMS, CASES, TARGET
from bench.sync.evaluation import Run
from bench.sync.tables import best_bsp, compared, groups
from lab.report.style import INK, MUTED

if TYPE_CHECKING:  # matplotlib takes a second to import, and --help is not to wait for it
    from matplotlib.axes import Axes

_WARM = ("#d1495b", "#edae49", "#a45a8c", "#8d6e63")
_COLD = (
    *("#0b6e99", "#2a9d8f", "#5aa9e6", "#8ab17d", "#264653", "#7f7fd5", "#b08d57", "#4c956c", "#1d3557", "#9d4edd"),
    *("#e07be0", "#00b4d8", "#6a994e", "#577590", "#90be6d", "#b5838d"),
)
_COLORS = {
    arm: palette[index % len(palette)]
    for palette, own in ((_WARM, True), (_COLD, False))
    for index, arm in enumerate(name for name, arm in ARMS.items() if (arm.bsp or arm.method == "post-local") == own)
}
_POINTS = 200  # of a curve


def save(runs: Sequence[Run], out: Path) -> dict[str, Path]:
    """Writes them as PNG; by what they show."""
    found = groups(runs)
    files = {"plot": out / "sync.png", "waiting": out / "sync-waiting.png"}
    with panels(files["plot"], len(found), 2, (6, 3.4)) as rows:
        for (key, arms), (curves, bars) in zip(found.items(), rows, strict=True):
            _curves(curves, key, arms)
            _bars(bars, arms)
    with panels(files["waiting"], len(found), 1, (6, 3.2)) as rows:
        for (key, arms), (axes,) in zip(found.items(), rows, strict=True):
            _waiting(axes, key, arms)
    return files


def _title(key: tuple[int, str]) -> str:
    workers, case = key
    return f"{workers} workers, {CASES[case].title}"


def _curves(axes: Axes, key: tuple[int, str], arms: Mapping[str, Sequence[Run]]) -> None:
    """Medians over the seeds; bands from the least to the greatest. The bars beside are the legend."""
    end = min(run.times[-1] for runs in arms.values() for run in runs)
    times = np.linspace(0, end, _POINTS)
    for arm, runs in arms.items():
        curves = np.array([np.interp(times, run.times, run.accuracies) for run in runs])
        axes.plot(times, np.median(curves, axis=0), color=_COLORS[arm], lw=1.6)
        axes.fill_between(times, curves.min(axis=0), curves.max(axis=0), color=_COLORS[arm], alpha=0.08, lw=0)
    axes.axhline(TARGET, color=MUTED, lw=1, ls=(0, (4, 3)))
    axes.set_ylim(0.7, 1.0)
    axes.set_xlim(0, end)
    axes.set_xlabel("training time, s")
    axes.set_ylabel("accuracy of the mean model")
    axes.set_title(_title(key), loc="left", fontsize=10)


def _bars(axes: Axes, arms: Mapping[str, Sequence[Run]]) -> None:
    """How many times as fast as the best BSP arm, with intervals; paler where some runs did not reach the target."""
    base = best_bsp(arms)
    for place, (arm, runs) in enumerate(arms.items()):
        ratio = compared(base, runs) if base is not None else None
        if ratio is None:
            continue
        all_reached = all(run.to_target is not None for run in runs)
        axes.barh(place, ratio.value, color=_COLORS[arm], height=0.7, alpha=1.0 if all_reached else 0.35)
        if ratio.interval is not None:
            axes.plot(ratio.interval, [place, place], color=INK, lw=1.4)
        axes.annotate(
            f"{'' if all_reached else '<= '}{ratio.value:.2f}",
            (ratio.value if ratio.interval is None else ratio.interval[1], place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.axvline(1, color=MUTED, lw=1, ls=(0, (4, 3)))
    axes.set_yticks(range(len(arms)), [runs[0].title for runs in arms.values()], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"speed to {TARGET:.0%}, of the best BSP arm")


def _waiting(axes: Axes, key: tuple[int, str], arms: Mapping[str, Sequence[Run]]) -> None:
    """The share of the time in which each worker waited for others, or for the network."""
    shares = np.array([np.mean([run.waits for run in runs], axis=0) for runs in arms.values()]).clip(0)
    axes.grid(visible=False)
    image = axes.imshow(100 * shares, aspect="auto", cmap="Blues", vmin=0, vmax=100)
    for (row, column), share in np.ndenumerate(shares):
        color = "white" if share > 0.6 else INK
        axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=color)
    axes.set_yticks(range(len(arms)), [runs[0].title for runs in arms.values()], fontsize=8)
    axes.set_xticks(range(shares.shape[1]))
    axes.set_xlabel("worker")
    axes.set_title(f"{_title(key)}: % of the time spent waiting", loc="left", fontsize=10)
    axes.figure.colorbar(image, ax=axes, pad=0.02)
