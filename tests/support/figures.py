# SPDX-License-Identifier: Apache-2.0
"""Made-up results for the tests of what is done with results."""

from collections.abc import Sequence

from lab.model.results import ArmResult, Decision, Distribution, MapCell, Point, SwitchFigures, TailDrops, Transport
from lab.model.waiting import Exchange


def arm_result(
    arm: str,
    *,
    scenario: str = "burst",
    seed: int = 1,
    to_target: float | None = 10.0,
    final: float = 0.97,
    violations: int = 0,
    policy_drops: int = 0,
    budget: int = 5000,
    step_seconds: Sequence[float] = (0.1, 0.1, 0.2, 0.4),
    exchanges: tuple[Exchange, ...] = (),
) -> ArmResult:
    """A plausible result; Gradlane's arms have a transport, baselines do not."""
    sums = (800_000, 600_000, 25, 7) if "switch-sum" in arm else (800_000, 0, 0, 0)
    gradlane = not arm.startswith(("ddp", "ps-"))
    seconds = 20.0 if to_target is None else 1.5 * to_target
    curve = [Point(seconds * i / 10, 12 * i, 0.1 + (final - 0.1) * (1 - 0.5**i) / (1 - 0.5**10)) for i in range(11)]
    step = Distribution.of(step_seconds)
    assert step is not None
    drops = [Decision("dropped_yellow", 6, 3, policy_drops, policy_drops * 1482)] if policy_drops else []
    return ArmResult(
        scenario=scenario,
        arm=arm,
        seed=seed,
        seconds=seconds,
        metric="accuracy",
        target=0.95,
        curve=tuple(curve),
        seconds_to_target=to_target,
        step_seconds=tuple(step_seconds),
        step=step,
        allreduce=step,
        batches=(len(step_seconds),) * 2,
        exchanges=exchanges,
        step_ends=tuple(sum(step_seconds[: n + 1]) for n in range(len(step_seconds))),
        transport=Transport(100_000, 100_000, 98_000, 2000, 600, 3, 0, budget, violations, *sums) if gradlane else None,
        switch=SwitchFigures(
            decisions=(Decision("forwarded", 6, 3, 60_000, 60_000 * 1482), *drops),
            drop_map=tuple(MapCell(layer, 16 * (layer % 4), policy_drops // 8, 0) for layer in range(8 * bool(drops))),
            tail_drops=(TailDrops("s1", 1, 0, 12, 18000),),
        ),
    )
