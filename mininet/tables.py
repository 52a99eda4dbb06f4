# SPDX-License-Identifier: Apache-2.0
"""The tables of an experiment as text cells: the terminal and the report show the same."""

from collections.abc import Sequence

from results import ArmResult, Claim, Distribution, speed_up

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
    return "not measured" if claim.value is None else f"{claim.value:.3g}"
