# SPDX-License-Identifier: Apache-2.0
"""The tables of bench.sync: a case in each, a row for each arm."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median

from bench.sync.bootstrap import Ratio, speed_up
from bench.sync.cases import CASES, TARGET
from bench.sync.evaluation import FIXED_STEPS, Run
from lab.report.tables import TextTable

_FIGURES = (
    "arm",
    f"s to {TARGET:.0%}",
    "reached",
    "as fast as the best BSP",
    "steps to it",
    "steps/s",
    "waits, ms/step",
    "sends, kB/step",
    f"at {FIXED_STEPS} steps",
    "final",
)


def groups(runs: Sequence[Run]) -> dict[tuple[int, str], dict[str, list[Run]]]:
    """By workers and case, and then by arm; each list by seed."""
    found: dict[tuple[int, str], dict[str, list[Run]]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        found.setdefault((run.workers, run.case), {}).setdefault(run.arm, []).append(run)
    order = list(dict.fromkeys(run.arm for run in runs))
    return {key: {arm: arms[arm] for arm in order if arm in arms} for key, arms in found.items()}


def time_or_bound(run: Run) -> float:
    """Seconds to the target, or of the run, which are less than it needs."""
    return run.seconds if run.to_target is None else run.to_target


def best_bsp(arms: Mapping[str, Sequence[Run]]) -> Sequence[Run] | None:
    """The arm with a global step that is fastest to the target; of those with the most seeds."""
    most = max((len(runs) for runs in arms.values() if runs[0].bsp), default=0)
    known = [runs for runs in arms.values() if runs[0].bsp and len(runs) == most]
    return min(known, key=lambda runs: fmean(map(time_or_bound, runs)), default=None)


def compared(base: Sequence[Run], runs: Sequence[Run]) -> Ratio | None:
    """How many times as fast to the target as the base, over the seeds of both."""
    pairs = [(b, r) for b in base for r in runs if b.seed == r.seed]
    if not pairs:
        return None
    return speed_up([time_or_bound(b) for b, _ in pairs], [time_or_bound(r) for _, r in pairs])


def of_runs(runs: Sequence[Run]) -> list[TextTable]:
    """A table for each case: medians over the seeds; ratios are geometric means, of enough seeds with 95 %
    intervals."""
    shown: list[TextTable] = []
    for (workers, case), arms in groups(runs).items():
        base = best_bsp(arms)
        rows = [_row(found, base) for found in arms.values()]
        shown.append(TextTable(f"{workers} workers, {CASES[case].title}: medians over the seeds", _FIGURES, rows))
    return shown


def _row(runs: Sequence[Run], base: Sequence[Run] | None) -> list[str]:
    reached = [run for run in runs if run.to_target is not None]
    least = "> " if 2 * len(reached) <= len(runs) else ""
    steps = [run.steps_to_target for run in reached if run.steps_to_target is not None]
    fixed = [run.at_steps for run in runs if run.at_steps is not None]
    return [
        runs[0].title,
        f"{least}{median(map(time_or_bound, runs)):.1f}",
        f"{len(reached)} of {len(runs)}",
        _ratio(runs, base),
        f"{median(steps):.0f}" if steps else "-",
        f"{median(run.steps / run.seconds for run in runs):.1f}",
        f"{1e3 * max(0.0, median(run.waited for run in runs)):.0f}",
        f"{median(run.sent for run in runs) / 1e3:.0f}",
        f"{median(fixed):.1%}" if fixed else "-",
        f"{median(run.final for run in runs):.1%}",
    ]


def _ratio(runs: Sequence[Run], base: Sequence[Run] | None) -> str:
    ratio = compared(base, runs) if base is not None else None
    if ratio is None:
        return "-"
    bound = "<= " if any(run.to_target is None for run in runs) else ""
    interval = f" ({ratio.interval[0]:.2f} to {ratio.interval[1]:.2f})" if ratio.interval is not None else ""
    return f"{bound}{ratio.value:.2f}{interval}"
