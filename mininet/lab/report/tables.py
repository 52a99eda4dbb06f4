# SPDX-License-Identifier: Apache-2.0
"""The tables of an experiment as text cells: the terminal and the report show the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from lab.model.arms import ARMS
from lab.model.results import ArmResult, Claim, Distribution, same_work, speed_up

FIGURES = (
    "arm",
    "step p50 / p99, ms",
    "all-reduce p50 / p99, ms",
    "to target",
    "final",
    "slices delivered",
    "policy drops",
    "budget violations",
    "speed-up",
)
DROPS = ("arm", "queue class", "drop precedence", "packets", "kB", "offered", "dropped")
SUMS = ("arm", "of the gradients", "slices sent again", "left out")
WORK = ("arm", "all steps", "final", "speed-up", "batches of each worker", "most waited for")
SUMMARY = ("scenario", "arm", "step p50, ms", "to target", "reached", "final", "policy drops", "speed-up")
GOALS = ("goal", "measured", "wanted", "")


@dataclass(frozen=True)
class TextTable:
    """A titled table of text cells; the first column is what the row is about."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def of_runs(results: Sequence[ArmResult], claims: Sequence[Claim]) -> list[TextTable]:
    """The tables of a few runs: their figures, what was dropped, and the goals."""
    shown = [TextTable("Figures", FIGURES, figures(results))]
    if any(result.exchanges for result in results):
        shown.append(TextTable("The same work", WORK, work(results)))
    if summed := sums(results):
        shown.append(TextTable("Summed in the switch", SUMS, summed))
    if dropped := drops(results):
        shown.append(TextTable("Dropped by the gradient policy", DROPS, dropped))
    return [*shown, TextTable("Goals", GOALS, goals(claims))]


def of_benchmark(results: Sequence[ArmResult], claims: Sequence[Claim]) -> list[TextTable]:
    """The tables of many runs: each scenario and arm over its seeds, and the goals."""
    return [TextTable("Means over the seeds", SUMMARY, summary(results)), TextTable("Goals", GOALS, goals(claims))]


def summary(results: Sequence[ArmResult]) -> list[list[str]]:
    """One row per scenario and arm, under the heads of SUMMARY; the speed-up is the geometric mean."""
    rows: list[list[str]] = []
    for scenario, arm in dict.fromkeys((result.scenario, result.arm) for result in results):
        same = [result for result in results if (result.scenario, result.arm) == (scenario, arm)]
        reached = [result for result in same if result.seconds_to_target is not None]
        ratios = [ratio for result in same if (ratio := speed_up(results, result)) is not None]
        least = ">= " if len(reached) < len(same) else ""
        rows.append(
            [
                scenario,
                arm,
                f"{1000 * fmean(result.step.p50 for result in same):.1f}",
                f"{least}{fmean(result.time_or_bound for result in same):.1f} s",
                f"{len(reached)} of {len(same)}",
                metric(same[0].metric, fmean(result.final for result in same)),
                f"{sum(result.switch.policy_drops for result in same):,}" if same[0].transport else "-",
                f"{geometric_mean(ratios):.2f}x" if len(ratios) == len(same) else "-",
            ]
        )
    return rows


def goals(claims: Sequence[Claim]) -> list[list[str]]:
    """One row per claim, under the heads of GOALS."""
    return [
        [claim.name, claim_value(claim), claim.to_json()["goal"], "met" if claim.met else "MISSED"] for claim in claims
    ]


def figures(results: Sequence[ArmResult]) -> list[list[str]]:
    """One row per run, under the heads of FIGURES."""
    rows: list[list[str]] = []
    for result in results:
        ratio = speed_up(results, result)
        rows.append(
            [
                result.arm,
                _milliseconds(result.step),
                _milliseconds(result.allreduce),
                time_to_target(result),
                metric(result.metric, result.final),
                f"{result.transport.delivered_fraction:.2%}" if result.transport else "-",
                f"{result.switch.policy_drops:,}" if result.transport else "-",
                f"{result.budget_violations}" if result.transport else "-",
                f"{ratio:.2f}x" if ratio is not None else "-",
            ]
        )
    return rows


def work(results: Sequence[ArmResult]) -> list[list[str]]:
    """One row per run, under the heads of WORK: how long the same number of batches took, and who was waited for."""
    rows: list[list[str]] = []
    for result in results:
        ratio, worst = same_work(results, result), result.most_awaited
        rows.append(
            [
                result.arm,
                f"{result.seconds:.1f} s",
                metric(result.metric, result.final),
                f"{ratio:.2f}x" if ratio is not None else "-",
                " ".join(map(str, result.batches)),
                f"worker {worst.worker}: {worst.share:.0%} of the others' time" if worst else "-",
            ]
        )
    return rows


def sums(results: Sequence[ArmResult]) -> list[list[str]]:
    """What the switch has summed in arms that want it to, under the heads of SUMS; the hosts reduced the rest."""
    return [
        [result.arm, f"{it.summed_fraction:.1%}", f"{it.sums_repaired:,}", f"{it.sums_left_out:,}"]
        for result in results
        if ARMS[result.arm].by_switch and (it := result.transport) is not None
    ]


def drops(results: Sequence[ArmResult]) -> list[list[str]]:
    """The policy's drops by queue class and drop precedence, under the heads of DROPS."""
    rows: list[list[str]] = []
    for result in results:
        tags = {(d.queue_class, d.drop_precedence) for d in result.switch.decisions if d.is_policy_drop}
        for queue_class, precedence in sorted(tags, reverse=True):
            same = [
                d for d in result.switch.decisions if (d.queue_class, d.drop_precedence) == (queue_class, precedence)
            ]
            offered = sum(decision.packets for decision in same)
            dropped = sum(decision.packets for decision in same if decision.is_policy_drop)
            octets = sum(decision.bytes for decision in same if decision.is_policy_drop)
            if not dropped:
                continue
            rows.append(
                [
                    result.arm,
                    f"{queue_class}",
                    f"{precedence}",
                    f"{dropped:,}",
                    f"{octets / 1000:,.0f}",
                    f"{offered:,}",
                    f"{dropped / offered:.2%}",
                ]
            )
    return rows


def _milliseconds(distribution: Distribution | None) -> str:
    return "-" if distribution is None else f"{1000 * distribution.p50:.1f} / {1000 * distribution.p99:.1f}"


def time_to_target(result: ArmResult) -> str:
    """Seconds to the target, or more than the run took."""
    if result.seconds_to_target is None:
        return f"> {result.seconds:.1f} s"
    return f"{result.seconds_to_target:.1f} s"


def metric(name: str, value: float) -> str:
    """A value of the metric."""
    return f"{value:.2%}" if name == "accuracy" else f"{value:.3f}"


def claim_value(claim: Claim) -> str:
    """What was measured for a claim."""
    if claim.value is None:
        return "not measured"
    return str(claim.value) if isinstance(claim.value, int) else f"{claim.value:.3g}"
