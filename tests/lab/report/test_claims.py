# SPDX-License-Identifier: Apache-2.0
"""Whether the goals are met is decided by the figures, and can go either way."""

import dataclasses

import pytest

from lab.model.results import ArmResult, Claim, Distribution, speed_up
from lab.report.claims import evaluate
from tests.support.figures import arm_result


def claim(results: list[ArmResult], words: str) -> Claim:
    (found,) = [claim for claim in evaluate(results) if words in claim.name]
    return found


@pytest.mark.parametrize(("gradlane", "met"), [(10.0, True), (10.8, True), (11.0, False)])
def test_incast_needs_84_percent(gradlane: float, met: bool) -> None:
    results = [
        arm_result("gradlane-ps", scenario="incast", to_target=gradlane),
        arm_result("ps-tcp", scenario="incast", to_target=20.0),
    ]
    it = claim(results, "incast")
    assert it.met == met
    assert it.value == pytest.approx(20 / gradlane)


def test_a_speed_up_is_over_the_best_of_the_baselines_and_all_seeds() -> None:
    results = [
        arm_result(arm, seed=seed, to_target=seconds)
        for seed, times in ((1, (10, 40, 20)), (2, (10, 20, 20)))
        for arm, seconds in zip(("gradlane", "ddp-gloo", "ddp-gloo-fp16"), times, strict=True)
    ]
    assert claim(results, "over ddp-gloo, ddp-gloo-fp16").value == pytest.approx(2.0)


def test_a_target_that_was_not_reached_is_no_speed_up() -> None:
    results = [arm_result("gradlane", to_target=None), arm_result("ddp-gloo", to_target=30.0)]
    it = claim(results, "speed-up")
    assert (it.value, it.met) == (None, False)
    assert speed_up(results, results[0]) is None


def test_a_baseline_that_did_not_reach_the_target_counts_with_what_it_ran() -> None:
    results = [arm_result("gradlane", to_target=10.0), arm_result("ddp-gloo", to_target=None)]
    assert speed_up(results, results[0]) == pytest.approx(2.0)


@pytest.mark.parametrize(("gray", "met"), [(10.4, True), (10.6, False)])
def test_gray_is_compared_with_its_own_clean_time(gray: float, met: bool) -> None:
    results = [
        arm_result("gradlane", scenario="clean", to_target=10.0),
        arm_result("gradlane", scenario="gray", to_target=gray),
    ]
    assert claim(results, "own under clean").met == met


@pytest.mark.parametrize(
    ("seconds", "met"), [(4.9, [True, True, True]), (5.1, [True, True, False]), (11.0, [False, True, False])]
)
def test_sums_have_to_beat_servers_by_tcp_and_by_gradlane(seconds: float, met: list[bool]) -> None:
    results = [
        arm_result(arm, scenario="incast", to_target=target)
        for arm, target in (
            ("gradlane-ps", 10.0), ("gradlane-switch-sum", seconds), ("ps-tcp", 20.0), ("ps-tcp-tuned", 21.0)
        )
    ]  # fmt: skip
    claims = [
        it for it in evaluate(results) if "incast: gradlane-switch-sum's speed-up in time to the target" in it.name
    ]
    assert [it.name.split(" over ")[1] for it in claims] == ["ps-tcp", "ps-tcp-tuned", "gradlane-ps"]
    assert [it.met for it in claims] == met


def test_sums_have_goals_of_their_own_where_there_are_no_servers() -> None:
    results = [
        arm_result(arm, scenario=scenario, to_target=target)
        for scenario, arm, target in (
            ("clean", "gradlane", 10.0), ("clean", "gradlane-switch-sum", 8.0), ("clean", "ddp-gloo", 9.0),
            ("gray", "gradlane", 10.0), ("gray", "gradlane-switch-sum", 8.8), ("gray", "ddp-gloo", 20.0),
        )
    ]  # fmt: skip
    for words, value in (
        ("clean: gradlane-switch-sum's speed-up in time to the target over ddp-gloo", 9 / 8),
        ("clean: gradlane-switch-sum's speed-up in time to the target over gradlane", 10 / 8),
        ("gray: gradlane-switch-sum's speed-up in time to the target over ddp-gloo", 20 / 8.8),
        ("gray: gradlane-switch-sum's time to the target over its own under clean", 1.1),
    ):
        assert claim(results, words).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("scenario", "baseline", "what", "goal"),
    [
        ("incast", "ps-tcp-fp16", "step", 4.0),
        ("incast", "ps-tcp", "step", 6.0),
        ("clean", "ddp-gloo-fp16", "all-reduce", 1.4),
        ("clean", "ddp-gloo-fp16", "step", 1.0),
        ("racks", "ddp-gloo-fp16", "step", 2.0),
        ("straggler", "gradlane", "step", 1.0),
    ],
)
@pytest.mark.parametrize(("more", "met"), [(1.01, True), (0.99, False)])
def test_sums_are_judged_by_the_median_of_what_they_shorten(
    scenario: str, baseline: str, what: str, goal: float, more: float, met: bool
) -> None:
    """Over both seeds, of which one alone would miss it."""
    results: list[ArmResult] = []
    for seed, part in ((1, 0.5), (2, 2.0)):
        for arm, seconds in (("gradlane-switch-sum", 0.1), (baseline, 0.1 * goal * more * part)):
            made = arm_result(arm, scenario=scenario, seed=seed, step_seconds=(seconds, seconds, 9.0))
            other = Distribution(3, 1.0, 1.0, 1.0)
            results.append(dataclasses.replace(made, **{"allreduce" if what == "step" else "step": other}))
    it = claim(results, f"median {what} over {baseline}")
    assert it.value == pytest.approx(goal * more)
    assert it.met == met


@pytest.mark.parametrize(("ripples", "met"), [(8.3, True), (8.4, False)])
def test_a_straggler_is_judged_by_the_time_for_the_same_work(ripples: float, met: bool) -> None:
    results = [
        dataclasses.replace(arm_result(arm, scenario="straggler", to_target=target), seconds=seconds)
        for arm, target, seconds in (("ripples", 14.0, ripples), ("gradlane", 1.0, 14.0), ("ddp-gloo-fp16", 14.0, 15.0))
    ]
    it = claim(results, "ripples's speed-up")
    assert it.value == pytest.approx(15 / ripples)
    assert it.met == met


def test_one_violation_misses_the_goal() -> None:
    assert claim([arm_result("gradlane")], "budget violations").met
    assert not claim([arm_result("gradlane", violations=1)], "budget violations").met


def test_more_policy_drops_than_budgets_are_violations() -> None:
    assert claim([arm_result("gradlane", policy_drops=800, budget=800)], "budget violations").value == 0
    assert claim([arm_result("gradlane", policy_drops=800, budget=700)], "budget violations").value == 100


def test_final_accuracy_is_judged_only_over_enough_seeds() -> None:
    two = [arm_result(arm, seed=seed) for seed in (1, 2) for arm in ("gradlane", "ddp-gloo")]
    assert not [claim for claim in evaluate(two) if "final accuracy" in claim.name]
    worse = [arm_result("gradlane", seed=seed, final=0.96) for seed in (1, 2, 3)]
    three = [*worse, *(arm_result("ddp-gloo", seed=seed, final=0.966) for seed in (1, 2, 3))]
    it = claim(three, "final accuracy")
    assert it.value == pytest.approx(0.6)
    assert not it.met
