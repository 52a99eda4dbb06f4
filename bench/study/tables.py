# SPDX-License-Identifier: Apache-2.0
"""The tables of the accuracy study: every arm beside DDP, and whether p = 0 is DDP, bit for bit."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median

from bench.study.cases import WORKERS
from bench.study.runs import Run
from lab.report.tables import TextTable

LAST_STEPS = 10

_FIGURES = (
    "arm",
    "lost",
    "of the budget",
    "train loss",
    "test loss",
    "less DDP's",
    "test accuracy, %",
    "less DDP's",
    "seconds",
)


def train_loss(run: Run) -> float:
    """Mean over the last steps, in nats."""
    return fmean(run["losses"][-LAST_STEPS:])


def lost(run: Run) -> float:
    """The fraction of the pushed slices that finally did not count; 0 for DDP.

    A worker that aggregates its shard receives as many slices of pushes as of results, of which none may be missing.
    """
    counts = run["transport"]
    return 2 * counts["slices_lost"] / counts["slices_expected"] if counts else 0.0


def by_arm(runs: Sequence[Run], model: str) -> dict[str, list[Run]]:
    """The runs of all workers with that model, one per seed."""
    arms: dict[str, list[Run]] = {}
    for run in runs:
        if run["model"] == model and run["workers"] == WORKERS:
            arms.setdefault(run["arm"], []).append(run)
    return arms


def of_models(runs: Sequence[Run]) -> list[TextTable]:
    """A table for each model: medians over the seeds, in brackets the least and the greatest; differences by seed."""
    tables: list[TextTable] = []
    for model in dict.fromkeys(run["model"] for run in runs):
        arms = by_arm(runs, model)
        plain = {run["seed"]: run for run in runs if run["model"] == model and _is(run, "gloo", WORKERS)}
        rows = [_row(arm, found, plain) for arm, found in arms.items()]
        tables.append(TextTable(f"{model}: median over the seeds (least to greatest)", _FIGURES, rows))
    return tables


def _row(arm: str, runs: Sequence[Run], plain: Mapping[int, Run]) -> list[str]:
    budget = sum(run["transport"].get("budget_total", 0) for run in runs)
    gone = sum(run["transport"].get("slices_lost", 0) for run in runs)
    pairs = [(run, plain[run["seed"]]) for run in runs if run["seed"] in plain]
    return [
        arm,
        f"{fmean(lost(run) for run in runs):.2%}" if runs[0]["transport"] else "-",
        f"{gone / budget:.0%}" if budget else "-",
        spread([train_loss(run) for run in runs], "{:.3f}"),
        spread([run["test_loss"] for run in runs], "{:.3f}"),
        spread([run["test_loss"] - other["test_loss"] for run, other in pairs], "{:+.3f}"),
        spread([100 * run["test_accuracy"] for run in runs], "{:.1f}"),
        spread([100 * (run["test_accuracy"] - other["test_accuracy"]) for run, other in pairs], "{:+.1f}"),
        f"{median(run['seconds'] for run in runs):.1f}",
    ]


def spread(values: Sequence[float], form: str) -> str:
    """Median, least and greatest."""
    if not values:
        return "-"
    middle, least, most = (form.format(value) for value in (median(values), min(values), max(values)))
    return f"{middle} ({least} to {most})"


def identity(runs: Sequence[Run]) -> tuple[TextTable, list[str]]:
    """Runs with p = 0 beside DDP, by the model's parameters after the last step; and what is not as it must be.

    Two numbers have one sum, so two workers must agree with stock Gloo bit for bit. Four do with DDP that adds in the
    order of ranks; Gloo's ring adds each part of a bucket in another order.
    """
    rows: list[list[str]] = []
    wrong: list[str] = []
    for exact in (run for run in runs if run["sync"] == "gradlane" and run["tolerance"] == 0):
        for sync in ("gloo", "rank-order"):
            for other in runs:
                same_task = all(exact[name] == other[name] for name in ("model", "seed", "steps", "workers"))
                if not same_task or other["sync"] != sync:
                    continue
                equal = exact["parameters_sha256"] == other["parameters_sha256"]
                apart = max(abs(a - b) for a, b in zip(exact["losses"], other["losses"], strict=True))
                must = sync == "rank-order" or exact["workers"] == 2
                title = f"{exact['model']}, seed {exact['seed']}, {exact['workers']} workers"
                rows.append(
                    [title, other["arm"], "equal" if equal else "differ", f"{apart:.1e}", "yes" if must else ""]
                )
                if must and not (equal and apart == 0):
                    wrong.append(f"{title}: with p = 0 the result is not that of {other['arm']}")
    for run in runs:
        title = f"{run['model']}, seed {run['seed']}, {run['arm']}"
        if not run["replicas_equal"]:
            wrong.append(f"{title}: the workers' parameters differ")
        if run["transport"].get("budget_violations"):
            wrong.append(f"{title}: messages completed with more missing than was tolerated")
    columns = ("p = 0", "against", "parameters", "largest difference of a loss", "must be equal")
    return TextTable("With p = 0, on links that lose 1 %", columns, rows), wrong


def _is(run: Run, sync: str, workers: int) -> bool:
    return run["sync"] == sync and run["workers"] == workers
