# SPDX-License-Identifier: Apache-2.0
"""What an experiment found: the figures of every arm, and the result file that holds them (docs/results.md)."""

import dataclasses
import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.model.arms import ARMS
from lab.model.waiting import Awaited, Exchange, most_awaited, waited

SCHEMA = 2
POLICY_DROPS = ("dropped_yellow", "dropped_red", "trimmed_yellow", "trimmed_red")


@dataclass(frozen=True)
class Distribution:
    """Of durations, in seconds."""

    count: int
    mean: float
    p50: float
    p99: float

    @staticmethod
    def of(samples: Sequence[float]) -> "Distribution | None":
        """None if there is no sample. Percentiles are samples (nearest rank)."""
        if not samples:
            return None
        ordered = sorted(samples)
        rank99 = min(len(ordered) - 1, -(-99 * len(ordered) // 100) - 1)
        return Distribution(len(ordered), statistics.fmean(ordered), statistics.median_low(ordered), ordered[rank99])


@dataclass(frozen=True)
class Transport:
    """Slices (gradient datagrams) of all agents in one arm, as their receivers counted them."""

    sent: int
    expected: int
    delivered: int
    lost: int
    repaired: int
    duplicate: int
    bad_datagrams: int
    budget: int  # the most that the messages' budgets allow to be missing
    budget_violations: int
    reduced_bytes: int  # tensors, once for each worker and step
    summed_bytes: int  # of these, what a switch has summed
    sums_repaired: int  # slices sent to the switch again
    sums_left_out: int  # slices that the switch's sums lack, within the budgets

    @property
    def summed_fraction(self) -> float:
        return self.summed_bytes / self.reduced_bytes if self.reduced_bytes else 0.0

    @property
    def delivered_fraction(self) -> float:
        return self.delivered / self.expected if self.expected else 1.0


@dataclass(frozen=True)
class Decision:
    """Packets that the switches treated alike: one reason, one pair of tags. The names are the controller's. A packet
    counts at every switch of its path."""

    reason: str
    queue_class: int
    drop_precedence: int
    packets: int
    bytes: int

    @property
    def is_policy_drop(self) -> bool:
        return self.reason in POLICY_DROPS


@dataclass(frozen=True)
class MapCell:
    """Policy drops of one layer and the 16 magnitudes from `magnitude` on."""

    layer: int
    magnitude: int
    packets: int
    bytes: int


@dataclass(frozen=True)
class TailDrops:
    """Packets that found the buffer of a port full (or were pushed out of it), by queue."""

    switch: str
    port: int
    queue: int
    packets: int
    bytes: int


@dataclass(frozen=True)
class SwitchFigures:
    """What the switches counted during one arm, together. `tail_drops` is None if none can tell (BMv2 can't)."""

    decisions: tuple[Decision, ...]
    drop_map: tuple[MapCell, ...]
    tail_drops: tuple[TailDrops, ...] | None

    @property
    def policy_drops(self) -> int:
        return sum(decision.packets for decision in self.decisions if decision.is_policy_drop)


@dataclass(frozen=True)
class Point:
    """The state of the training after `step` steps, `seconds` of training time after its start."""

    seconds: float
    step: int
    value: float


@dataclass(frozen=True)
class ArmResult:
    """One run of one arm under one scenario.

    seconds: duration of the training. curve: the metric on the test set over time. seconds_to_target: None if the
    target was not reached in the steps of the run. transport: None for arms that do not use Gradlane. step_ends: when
    each step ended at its slowest worker, in seconds after the start. failed_at: the same for the failure of a switch;
    None without one. links: bytes that each end of each link between switches ("switch:port") has sent. batches: how
    many each worker has taken. exchanges: of all workers, where one of them is slow; else none.

    In lockstep a step is as long as its slowest worker's. Where workers take different numbers of steps, it is the time
    in which the job took one batch for each worker.
    """

    scenario: str
    arm: str
    seed: int
    seconds: float
    metric: str
    target: float
    curve: tuple[Point, ...]
    seconds_to_target: float | None
    step_seconds: tuple[float, ...]
    step: Distribution
    allreduce: Distribution | None
    transport: Transport | None
    switch: SwitchFigures
    step_ends: tuple[float, ...] = ()
    failed_at: float | None = None
    links: Mapping[str, int] = field(default_factory=dict[str, int])
    batches: tuple[int, ...] = ()
    exchanges: tuple[Exchange, ...] = ()

    @property
    def waited(self) -> list[list[float]]:
        """Seconds that each worker (row) has waited for each other one (column)."""
        return waited(self.exchanges, len(self.batches))

    @property
    def most_awaited(self) -> Awaited | None:
        """The worker for which the others waited most."""
        return most_awaited(self.exchanges, len(self.batches), self.seconds)

    @property
    def step_before_failure(self) -> float | None:
        """Median duration of the steps that ended before the failure; None without any."""
        return _median([s for began, s in self._steps() if self.failed_at is not None and began + s <= self.failed_at])

    @property
    def step_after_failure(self) -> float | None:
        """The same of the steps that began after it."""
        return _median([s for began, s in self._steps() if self.failed_at is not None and began > self.failed_at])

    @property
    def recovery_seconds(self) -> float | None:
        """From the failure until a step begins that takes at most half as long again as the median of those after it.

        None without a failure, or if no such step came.
        """
        settled = self.step_after_failure
        if self.failed_at is None or settled is None:
            return None
        normal = [began for began, seconds in self._steps() if began > self.failed_at and seconds <= 1.5 * settled]
        return normal[0] - self.failed_at if normal else None

    def _steps(self) -> list[tuple[float, float]]:
        """(begin, duration) of each step."""
        return [(end - seconds, seconds) for end, seconds in zip(self.step_ends, self.step_seconds, strict=True)]

    @property
    def final(self) -> float:
        """The metric at the end."""
        return self.curve[-1].value

    @property
    def is_baseline(self) -> bool:
        return ARMS[self.arm].kind != "gradlane"

    @property
    def time_or_bound(self) -> float:
        """Seconds to the target; for a run that did not reach it the run's duration, which it would have exceeded."""
        return self.seconds if self.seconds_to_target is None else self.seconds_to_target

    @property
    def budget_violations(self) -> int:
        """Messages that completed with more missing than their budget (by the receivers' count), and what the switch
        dropped beyond all budgets together (by its own count)."""
        if self.transport is None:
            return self.switch.policy_drops
        return self.transport.budget_violations + max(0, self.switch.policy_drops - self.transport.budget)


def _median(durations: Sequence[float]) -> float | None:
    return statistics.median_low(durations) if durations else None


@dataclass(frozen=True)
class Claim:
    """A figure and its goal. `relation` is ">=" or "<="; `value` None: it could not be measured, so it is not met."""

    name: str
    value: float | None
    relation: str
    goal: float

    @property
    def met(self) -> bool:
        if self.value is None:
            return False
        return self.value >= self.goal if self.relation == ">=" else self.value <= self.goal

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "goal": f"{self.relation} {self.goal:g}", "met": self.met}


def best_baseline(results: Sequence[ArmResult], like: ArmResult) -> ArmResult | None:
    """The fastest baseline with the same scenario and seed."""
    same = [r for r in results if r.is_baseline and (r.scenario, r.seed) == (like.scenario, like.seed)]
    return min(same, key=lambda result: result.time_or_bound, default=None)


def speed_up(results: Sequence[ArmResult], of: ArmResult) -> float | None:
    """How many times faster to the target than the best baseline; None if it, or no baseline, got there.

    Against a baseline that did not reach the target it is a lower bound.
    """
    baseline = best_baseline(results, of)
    if baseline is None or of.seconds_to_target is None:
        return None
    return baseline.time_or_bound / of.seconds_to_target


def same_work(results: Sequence[ArmResult], of: ArmResult) -> float | None:
    """How many times as fast as the fastest baseline with the same scenario and seed it did all steps; None without
    one."""
    same = [r.seconds for r in results if r.is_baseline and (r.scenario, r.seed) == (of.scenario, of.seed)]
    return min(same) / of.seconds if same else None


def machine() -> dict[str, Any]:
    """Where the figures were measured."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


def document(settings: Mapping[str, Any], results: Sequence[ArmResult], claims: Sequence[Claim]) -> dict[str, Any]:
    """The result file as a dictionary; docs/results.md explains every key."""
    return {
        "schema": SCHEMA,
        "settings": dict(settings),
        "machine": machine(),
        "claims": [claim.to_json() for claim in claims],
        "runs": [_run(result, results) for result in results],
    }


def _run(result: ArmResult, results: Sequence[ArmResult]) -> dict[str, Any]:
    return dataclasses.asdict(result) | {
        "final": result.final,
        "speed_up": speed_up(results, result),
        "delivered_fraction": result.transport.delivered_fraction if result.transport else None,
        "policy_drops": result.switch.policy_drops,
        "budget_violations": result.budget_violations,
        "recovery_seconds": result.recovery_seconds,
        "waited": result.waited,
    }


def save(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a result file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
