# SPDX-License-Identifier: Apache-2.0
"""The goals that Gradlane sets itself, and whether the figures of an experiment meet them."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from lab.model.results import ArmResult, Claim, same_work

INCAST_SPEED_UP = 1.84  # what DLCP (arXiv:2008.08445) reports at best: 84.3 % faster
BURST_SPEED_UP = 1.5
GRAY_SLOW_DOWN = 1.05
STRAGGLER_SPEED_UP = 1.8
SUM_SPEED_UP = 2.0  # over parameter servers, by whose ports each worker's gradient goes, not their sum
# The same in the time of a step or of its all-reduce, at the median.
SUM_INCAST = {"ps-tcp-fp16": 4.0, "ps-tcp": 6.0}
SUM_ALL_REDUCE = 1.4
SUM_RACKS = 2.0
ACCURACY_POINTS = 0.5
LOSS_FRACTION = 0.01
SEEDS_FOR_ACCURACY = 3  # one seed's final accuracy is noise of about the goal's size
_WITHOUT_SERVERS = ("gradlane", "gradlane-switch-sum")


def evaluate(results: Sequence[ArmResult]) -> list[Claim]:
    """Every claim that these results can answer."""
    claims: list[Claim] = []
    for scenario in dict.fromkeys(result.scenario for result in results):
        inside = [result for result in results if result.scenario == scenario]
        claims += _CLAIMS.get(scenario, _no_claims)(inside)
        claims += _final_quality(inside)
    for arm in _WITHOUT_SERVERS:
        clean, gray = (_times(results, scenario, arm) for scenario in ("clean", "gray"))
        if clean and gray:
            ratio = None
            if None not in clean.values() and None not in gray.values() and clean.keys() == gray.keys():
                ratio = _mean_ratio([(gray[seed], clean[seed]) for seed in clean])
            claims.append(
                Claim(f"gray: {arm}'s time to the target over its own under clean", ratio, "<=", GRAY_SLOW_DOWN)
            )
    violations = sum(result.budget_violations for result in results)
    return [*claims, Claim("budget violations", violations, "<=", 0)]


def _incast(results: Sequence[ArmResult]) -> Iterator[Claim]:
    for arm in ("gradlane-ps", "gradlane-switch-sum"):
        for baseline in ("ps-tcp", "ps-tcp-tuned"):
            yield from _faster(results, arm, [baseline], INCAST_SPEED_UP)
    yield from _faster(results, "gradlane-switch-sum", ["gradlane-ps", "gradlane-ps-fp16"], SUM_SPEED_UP)
    for baseline, goal in SUM_INCAST.items():
        yield from _shorter(results, "step", baseline, goal)


def _burst(results: Sequence[ArmResult]) -> Iterator[Claim]:
    yield from _faster(results, "gradlane", ["ddp-gloo", "ddp-gloo-fp16"], BURST_SPEED_UP)
    yield from _faster(results, "gradlane", ["ddp-gloo-prio"], 1.0)


def _clean(results: Sequence[ArmResult]) -> Iterator[Claim]:
    yield from _against_all(results)
    yield from _shorter(results, "all-reduce", "ddp-gloo-fp16", SUM_ALL_REDUCE)
    yield from _shorter(results, "step", "ddp-gloo-fp16", 1.0)


def _racks(results: Sequence[ArmResult]) -> Iterator[Claim]:
    yield from _shorter(results, "step", "ddp-gloo-fp16", SUM_RACKS)


def _against_all(results: Sequence[ArmResult]) -> Iterator[Claim]:
    baselines = list(dict.fromkeys(result.arm for result in results if result.is_baseline))
    for arm in _WITHOUT_SERVERS:
        yield from _faster(results, arm, baselines, 1.0)
    yield from _faster(results, "gradlane-switch-sum", ["gradlane"], 1.0)


def _straggler(results: Sequence[ArmResult]) -> Iterator[Claim]:
    """Of the same work: when one run reaches the target depends on its last few steps as much as on the arm."""
    ratios = [ratio for it in results if it.arm == "ripples" and (ratio := same_work(results, it)) is not None]
    if ratios:
        name = "straggler: ripples's speed-up in time for all steps over the best baseline"
        yield Claim(name, statistics.geometric_mean(ratios), ">=", STRAGGLER_SPEED_UP)
    yield from _shorter(results, "step", "gradlane", 1.0)


def _no_claims(results: Sequence[ArmResult]) -> Iterator[Claim]:
    del results
    yield from ()


_CLAIMS: dict[str, Callable[[Sequence[ArmResult]], Iterator[Claim]]] = {
    "incast": _incast,
    "burst": _burst,
    "gray": _against_all,
    "clean": _clean,
    "racks": _racks,
    "straggler": _straggler,
}


def _faster(results: Sequence[ArmResult], arm: str, baselines: Sequence[str], goal: float) -> Iterator[Claim]:
    """The claim that `arm` reaches the target so many times faster than the best of the baselines, over all seeds."""
    scenario = results[0].scenario
    ours = _times(results, scenario, arm)
    theirs = {name: _bounds(results, name) for name in baselines}
    present = {name: times for name, times in theirs.items() if times.keys() == ours.keys()}
    if not ours or not present:
        return
    value = None
    if None not in ours.values():
        value = min(_mean_ratio([(times[seed], ours[seed]) for seed in ours]) for times in present.values())
    yield Claim(f"{scenario}: {arm}'s speed-up in time to the target over {', '.join(present)}", value, ">=", goal)


def _shorter(
    results: Sequence[ArmResult], what: Literal["step", "all-reduce"], baseline: str, goal: float
) -> Iterator[Claim]:
    """The claim that with sums in the switch the median time of that is so many times shorter than the baseline's, over
    all seeds."""
    ours, theirs = (_medians(results, what, arm) for arm in ("gradlane-switch-sum", baseline))
    if ours and ours.keys() == theirs.keys():
        value = _mean_ratio([(theirs[seed], ours[seed]) for seed in ours])
        name = f"{results[0].scenario}: gradlane-switch-sum's speed-up in time of a median {what} over {baseline}"
        yield Claim(name, value, ">=", goal)


def _medians(results: Sequence[ArmResult], what: str, arm: str) -> dict[int, float]:
    """Seconds by seed."""
    measured = {it.seed: it.step if what == "step" else it.allreduce for it in results if it.arm == arm}
    return {seed: it.p50 for seed, it in measured.items() if it is not None}


def _final_quality(results: Sequence[ArmResult]) -> Iterator[Claim]:
    """Gradlane's final metric against the best baseline's mean, over enough seeds to mean something."""
    means: dict[str, float] = {}
    for arm in dict.fromkeys(result.arm for result in results):
        finals = [result.final for result in results if result.arm == arm]
        if len(finals) >= SEEDS_FOR_ACCURACY:
            means[arm] = statistics.fmean(finals)
    by_arm = {result.arm: result for result in results}
    baselines = [value for arm, value in means.items() if by_arm[arm].is_baseline]
    for arm, value in means.items():
        if by_arm[arm].is_baseline or not baselines:
            continue
        name = f"{by_arm[arm].scenario}: {arm}'s final {by_arm[arm].metric} behind the best baseline's"
        if by_arm[arm].metric == "accuracy":
            yield Claim(f"{name}, points", 100 * (max(baselines) - value), "<=", ACCURACY_POINTS)
        else:
            yield Claim(f"{name}, fraction", value / min(baselines) - 1, "<=", LOSS_FRACTION)


def _times(results: Sequence[ArmResult], scenario: str, arm: str) -> dict[int, float | None]:
    """Seconds to the target by seed; None where it was not reached."""
    return {r.seed: r.seconds_to_target for r in results if (r.scenario, r.arm) == (scenario, arm)}


def _bounds(results: Sequence[ArmResult], arm: str) -> dict[int, float]:
    """Seconds to the target by seed; where it was not reached, the duration of the run, in the baseline's favour."""
    return {result.seed: result.time_or_bound for result in results if result.arm == arm}


def _mean_ratio(pairs: Sequence[tuple[float | None, float | None]]) -> float:
    """Geometric mean of the ratios."""
    return statistics.geometric_mean([a / b for a, b in pairs if a is not None and b is not None])
