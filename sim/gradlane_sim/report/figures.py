# SPDX-License-Identifier: Apache-2.0
"""The figures of a study: of each scenario and arm, over all seeds."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gradlane_sim.cases import Arm, Scenario
from gradlane_sim.running import Outcome
from gradlane_sim.specification import Json

Found: TypeAlias = Sequence[tuple[Scenario, Sequence[Outcome]]]
COLUMNS = (
    "arm", "runs", "step, mean ms", "of ideal", "iteration, mean ms", "jobs' steps, ms", "operation, mean ms", "p99",
    "message, mean ms", "p99 ", "no room", "by policy", "repaired", "links used", "fairness", "errors",
)  # fmt: skip
NOTHING = "–"


@dataclass(frozen=True)
class Summary:
    """Of an arm in a scenario, over its seeds. Times in s; `mean`, `p99`, `curve`: of operations, from a worker's
    submission to its result; `message_...`: of what a worker sends to whom reduces. `spread`: the least and the
    greatest mean of a seed. `iteration`: a worker's own step; `by_job`: the mean step of each job."""

    arm: Arm
    runs: int
    step: float | None
    ideal: float
    iteration: float | None
    by_job: tuple[float | None, ...]
    p50: float | None
    mean: float | None
    p99: float | None
    spread: tuple[float, float] | None
    message_mean: float | None
    message_p99: float | None
    curve: tuple[float, ...]
    no_room: float
    by_policy: float
    repaired: float | None
    used: float
    fairness: float | None
    slowdown: Json | None
    errors: tuple[str, ...]
    violations: int

    def to_json(self) -> Json:
        """As in the result file."""
        return {
            "arm": self.arm.name,
            **{name: value for name, value in self.__dict__.items() if name not in ("arm", "curve")},
        }


def summaries(scenario: Scenario, outcomes: Iterable[Outcome]) -> list[Summary]:
    """In the order of the scenario's arms; those that did not run are left out."""
    by_arm: dict[str, list[Outcome]] = {}
    for it in outcomes:
        by_arm.setdefault(it.case.arm.name, []).append(it)
    return [_summary(arm, by_arm[arm.name]) for arm in scenario.arms if arm.name in by_arm]


def _summary(arm: Arm, outcomes: Sequence[Outcome]) -> Summary:
    kept = [it.measured for it in outcomes if it.measured is not None]
    jobs = [job for it in kept for job in it["jobs"]]
    steps = [time for job in jobs for time in job["step_times"]]
    complete = [job["operations"] for job in jobs if job["operations"]]
    means = [it["mean"] for it in complete]
    curve = np.mean([_resampled(it["curve"]) for it in complete], axis=0) if complete else np.zeros(0)
    expected = [it["statistics"].get("slices_expected") for it in jobs]
    repaired = [it["statistics"].get("slices_repaired") for it in jobs]
    whole = sum(it for it in expected if it)
    fair = [it["fairness"] for it in kept if it["fairness"] is not None]
    flows = [it["flows"]["slowdowns"] for it in kept if it["flows"]]
    used = [it["links"]["to hosts"]["most_used"] for it in kept]
    return Summary(
        arm=arm,
        runs=len(kept),
        step=_mean(steps),
        ideal=statistics.fmean(job["ideal"] for job in jobs) if jobs else 0.0,
        iteration=_mean([job["iteration"] for job in jobs if job["iteration"] is not None]),
        by_job=_by_job([it["jobs"] for it in kept]),
        p50=_mean([it["p50"] for it in complete]),
        mean=_mean(means),
        p99=_mean([it["p99"] for it in complete]),
        spread=(min(means), max(means)) if means else None,
        message_mean=_mean([it["messages"]["mean"] for it in kept if it["messages"]]),
        message_p99=_mean([it["messages"]["p99"] for it in kept if it["messages"]]),
        curve=tuple(float(it) for it in curve),
        no_room=_mean([sum(it["dropped"] for it in one["links"].values()) for one in kept]) or 0.0,
        by_policy=_mean([one["drops"]["dropped"] + one["drops"]["trimmed"] for one in kept]) or 0.0,
        repaired=sum(it for it in repaired if it) / whole if whole else None,
        used=_mean(used) or 0.0,
        fairness=_mean(fair),
        slowdown=_slowdown(flows),
        errors=tuple([it.error for it in outcomes if it.error] + [job["error"] for job in jobs if job["error"]]),
        violations=sum(len(it["violations"]) for it in kept),
    )


def _by_job(runs: Sequence[Sequence[Json]]) -> tuple[float | None, ...]:
    """Of each job the mean of all its steps in all runs."""
    return tuple(_mean([time for job in same for time in job["step_times"]]) for same in zip(*runs, strict=True))


def _slowdown(flows: Sequence[Json]) -> Json | None:
    """By size of flow: the mean over the seeds of how many times as long flows took as alone, and of the p99."""
    if not flows:
        return None
    found: Json = {}
    for name in flows[0]:
        rows = [it[name] for it in flows if it[name]]
        found[name] = {key: _mean([row[key] for row in rows]) for key in ("mean", "p99")} if rows else None
    return found


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _resampled(curve: Sequence[float], points: int = 200) -> Any:
    return np.interp(np.linspace(0, 1, points), np.linspace(0, 1, len(curve)), curve)


def drops(outcomes: Iterable[Outcome]) -> dict[tuple[int, int], int]:
    """Of all runs: what the policy took, by layer and sixteenth of the magnitudes."""
    found: dict[tuple[int, int], int] = {}
    for it in outcomes:
        for layer, magnitude, count in it.measured["drops"]["cells"] if it.measured else ():
            found[layer, magnitude] = found.get((layer, magnitude), 0) + count
    return found


def cells(it: Summary) -> list[str]:
    """A row of COLUMNS."""
    step, iteration = _ms(it.step), _ms(it.iteration)
    jobs = " ".join(_ms(time) for time in it.by_job) if len(it.by_job) > 1 else NOTHING
    ratio = NOTHING if it.step is None or not it.ideal else f"{it.step / it.ideal:.2f}"
    shown = (it.mean, it.p99, it.message_mean, it.message_p99)
    times = [_ms(time) for time in shown]
    repaired = NOTHING if it.repaired is None else f"{100 * it.repaired:.2f} %"
    fair = NOTHING if it.fairness is None else f"{it.fairness:.3f}"
    counts = [f"{it.no_room:,.0f}", f"{it.by_policy:,.0f}"]
    return [
        it.arm.name,
        str(it.runs),
        step,
        ratio,
        iteration,
        jobs,
        *times,
        *counts,
        repaired,
        f"{100 * it.used:.0f} %",
        fair,
        str(len(it.errors)),
    ]


def _ms(seconds: float | None) -> str:
    return NOTHING if seconds is None else f"{1000 * seconds:.2f}"


def document(found: Found) -> Json:
    """The result file."""
    return {
        "scenarios": [
            {
                "name": scenario.name,
                "summary": scenario.summary,
                "hosts": scenario.hosts,
                "arms": [it.to_json() for it in summaries(scenario, outcomes)],
                "runs": [
                    {"arm": it.case.arm.name, "seed": it.case.seed, "error": it.error, "measured": it.measured}
                    for it in outcomes
                ],
            }
            for scenario, outcomes in found
        ]
    }


def table(found: Found) -> str:
    """For the terminal."""
    lines: list[str] = []
    for scenario, outcomes in found:
        rows = [list(COLUMNS), *(cells(it) for it in summaries(scenario, outcomes))]
        widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
        lines.append(f"\n{scenario.name}: {scenario.summary}")
        for row in rows:
            first, *rest = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            lines.append("  ".join((first.strip().ljust(widths[0]), *rest)))
    return "\n".join(lines)
