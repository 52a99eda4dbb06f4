# SPDX-License-Identifier: Apache-2.0
"""What is decided of a job's tuning: within the limits whatever is seen, one step at a time, and it comes to rest."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane_controller.adaptive.decision import Observation, State, decide, resumed, undone
from gradlane_controller.policy.tuning import Limits, Tuning
from tests.support.effort import tries

LIMITS = Limits(threshold=(-3, 3), protection=(0, 4), tolerance=(0, 2))
KNOBS = ("threshold", "protection", "tolerance")

# As hostile as a switch or an agent may be, and more than the shapes of reports let through.
numbers = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, -0.0, 1e-300, 1e300, 0.5, 1.0])
counts = st.integers(-(2**70), 2**70)
observations = st.builds(
    Observation,
    packets=counts,
    dropped=st.integers(0, 2**70),
    spent=st.integers(0, 2**70),
    busiest=st.none() | numbers,
    step_seconds=st.none() | numbers,
    used=st.none() | numbers,
    allowed=st.none() | numbers,
    lost=st.none() | counts,
)
ranges = st.tuples(st.integers(-4, 0), st.integers(0, 4))
spans = st.tuples(st.just(0), st.integers(0, 4))
limits = st.builds(Limits, threshold=ranges, protection=spans, tolerance=spans)


def within(tuning: Tuning, some: Limits) -> bool:
    """Not by `Limits` itself."""
    return all(getattr(some, knob)[0] <= getattr(tuning, knob) <= getattr(some, knob)[1] for knob in KNOBS)


def distance(a: Tuning, b: Tuning) -> int:
    return sum(abs(getattr(a, knob) - getattr(b, knob)) for knob in KNOBS)


@settings(max_examples=tries(300), deadline=None)
@given(st.lists(observations, max_size=25), limits)
def test_whatever_is_seen_a_tuning_is_within_its_limits_and_moves_by_one_step(
    seen: list[Observation], some: Limits
) -> None:
    state = State()
    for each in seen:
        before = state
        state, reason = decide(state, each, some)
        assert within(state.tuning, some)
        assert state.tuning.tolerated <= 1, "a job's tolerance is never more than that of its file"
        assert distance(before.tuning, state.tuning) <= 1
        assert bool(reason) == (before.tuning != state.tuning), "every change has a reason, and nothing else has one"
        assert State.of(json.loads(json.dumps(state.to_json()))) == state, "the next leader goes on from it"


@settings(max_examples=tries(300), deadline=None)
@given(observations, limits, st.lists(observations, max_size=8))
def test_under_constant_conditions_it_comes_to_rest(
    seen: Observation, some: Limits, earlier: list[Observation]
) -> None:
    state = State()
    for each in earlier:  # from wherever that leads
        state, _ = decide(state, each, some)
    sizes = [high - low for low, high in (some.threshold, some.protection, some.tolerance)]
    most = sum(sizes) + 2 * 2 * len(KNOBS)  # a step each, and one trial of each direction that fails, with its way back
    changes = 0
    for _ in range(2 * most + 4):
        state, reason = decide(state, seen, some)
        changes += bool(reason)
    assert changes <= most
    rest = state
    for _ in range(5):
        state, reason = decide(state, seen, some)
        assert not reason
    assert state == rest


@settings(max_examples=tries(100), deadline=None)
@given(st.lists(observations, max_size=15), limits, limits)
def test_narrower_bounds_are_kept_at_once(seen: list[Observation], some: Limits, narrower: Limits) -> None:
    state = State()
    for each in seen:
        state, _ = decide(state, each, some)
    was_within = within(state.tuning, narrower)
    state, reason = decide(state, Observation(packets=0), narrower)
    assert within(state.tuning, narrower)
    assert was_within or reason == "the bounds leave no more"


@settings(max_examples=tries(100), deadline=None)
@given(st.lists(observations, min_size=1, max_size=15), st.lists(observations, max_size=5))
def test_undone_it_is_as_before_and_nothing_moves_until_it_may_again(
    seen: list[Observation], later: list[Observation]
) -> None:
    state, tunings = State(), [Tuning()]
    for each in seen:
        state, reason = decide(state, each, LIMITS)
        if reason:  # what is taken back is no change any more
            tunings = tunings[:-1] if "is taken back" in reason else [*tunings, state.tuning]
    for wanted in tunings[-2::-1]:
        found = undone(state)
        assert found is not None
        state = found
        assert state.tuning == wanted
        for each in later:
            assert decide(state, each, LIMITS) == (state, "")
    assert undone(state) is None
    assert not resumed(state).held


def steps(state: State, see: Callable[[Tuning], Observation], some: Limits = LIMITS) -> Iterator[tuple[State, str]]:
    """What is decided in each interval, where what is seen follows from how the job is treated."""
    while True:
        state, reason = decide(state, see(state.tuning), some)
        yield state, reason


def settle(see: Callable[[Tuning], Observation], some: Limits = LIMITS) -> tuple[Tuning, int]:
    """Where it comes to rest, and after how many changes."""
    changes, quiet = 0, 0
    for state, reason in steps(State(), see, some):
        changes += bool(reason)
        quiet = 0 if reason or state.trial else quiet + 1
        if quiet == 3:
            return state.tuning, changes
        assert changes < 60
    raise AssertionError


@pytest.mark.parametrize("best", range(-3, 4))
def test_thresholds_go_where_steps_are_shortest_and_no_further(best: int) -> None:
    def see(tuning: Tuning) -> Observation:
        seconds = 0.5 * (1 + 0.08 * abs(tuning.threshold - best))
        return Observation(10_000, dropped=500, step_seconds=seconds, used=0.07, allowed=0.1, lost=50)

    tuning, changes = settle(see)
    assert tuning == Tuning(threshold=best)
    assert changes <= abs(best) + 2 * 2


def test_what_gains_less_than_it_must_is_taken_back() -> None:
    def see(tuning: Tuning) -> Observation:
        return Observation(10_000, dropped=500, step_seconds=0.5 * 0.98**tuning.threshold, used=0.07, allowed=0.1)

    found = steps(State(), see)
    state, reason = next(found)
    assert state.tuning == Tuning(threshold=1)
    assert "5.0% of its packets were dropped" in reason
    state, reason = next(found)
    assert state.tuning == Tuning()
    assert "taken back" in reason
    assert "steps took 0.490 s, and 0.500 s before" in reason
    assert state.earlier == ()


def test_of_equal_times_that_with_fewer_drops_is_better_and_times_do_not_creep_up() -> None:
    def see(growth: float) -> Callable[[Tuning], Observation]:
        def found(tuning: Tuning) -> Observation:
            drops, seconds = 0.06 * 0.6**tuning.threshold, 0.5 * growth**tuning.threshold
            return Observation(10_000, dropped=round(10_000 * drops), step_seconds=seconds, used=0.07, allowed=0.1)

        return found

    assert settle(see(1.0))[0] == Tuning(threshold=3)
    assert settle(see(1.02))[0] == Tuning(threshold=1), "two of them are 4 % more than at first"
    assert settle(see(1.04))[0] == Tuning(threshold=-3), "time comes first"


def test_without_drops_it_is_full_buffers_and_thresholds_are_lowered_first() -> None:
    state, _ = decide(State(), Observation(10_000, dropped=0, step_seconds=0.5, lost=900), LIMITS)
    assert state.tuning == Tuning(threshold=-1)
    state, _ = decide(State(), Observation(10_000, dropped=0, step_seconds=0.5, lost=0), LIMITS)
    assert state.tuning == Tuning(), "nothing is lost: there is nothing to mend"


def test_without_agents_thresholds_rise_only_if_ports_are_idle_and_drops_become_fewer() -> None:
    busy = Observation(10_000, dropped=500, busiest=0.95)
    assert decide(State(), busy, LIMITS) == decide(State(), replace(busy, busiest=None), LIMITS)
    assert decide(State(), busy, LIMITS)[0].tuning == Tuning()

    def fewer(tuning: Tuning) -> Observation:
        return Observation(10_000, dropped=int(500 * 0.5**tuning.threshold), busiest=0.4)

    assert settle(fewer)[0] == Tuning(threshold=3)  # then no more than 1 % is dropped
    assert settle(lambda _: Observation(10_000, dropped=500, busiest=0.4))[0] == Tuning()


def test_a_budget_that_is_spent_goes_for_the_least() -> None:
    by_counters = Observation(10_000, dropped=300, spent=2000, busiest=0.95)
    assert settle(lambda _: by_counters)[0] == Tuning(protection=4)

    def by_agents(tuning: Tuning) -> Observation:
        """Until two steps are protected."""
        used = 0.1 if tuning.protection < 2 else 0.07
        return Observation(10_000, dropped=90, step_seconds=0.5, used=used, allowed=0.1)

    assert settle(by_agents)[0] == Tuning(protection=2)


def test_protection_that_costs_time_is_taken_back() -> None:
    def see(tuning: Tuning) -> Observation:
        return Observation(10_000, dropped=90, step_seconds=0.5 * 1.05**tuning.protection, used=0.1, allowed=0.1)

    assert settle(see)[0] == Tuning()


def test_a_tolerance_that_is_not_used_is_given_up_and_comes_back_when_it_is() -> None:
    used = 0.02

    def see(tuning: Tuning) -> Observation:
        return Observation(10_000, dropped=90, step_seconds=0.5, used=used, allowed=0.1 * tuning.tolerated)

    assert settle(see)[0] == Tuning(tolerance=2)  # 0.025 may be lost then
    state = State(tuning=Tuning(tolerance=2), earlier=(Tuning(),))
    used = 0.025
    state, reason = decide(state, see(state.tuning), LIMITS)
    assert state.tuning == Tuning(tolerance=1)
    assert "of 2.50% that may be lost 2.50% are" in reason


def test_what_was_taken_back_is_tried_again_when_conditions_have_changed() -> None:
    def see(seconds: float) -> Observation:
        return Observation(10_000, dropped=500, step_seconds=seconds, used=0.07, allowed=0.1)

    state = State()
    for _ in range(8):
        state, _ = decide(state, see(0.5), LIMITS)
    assert state.refused == {"threshold+1", "threshold-1"}
    assert decide(state, see(0.6), LIMITS) == (state, ""), "that is a fifth"
    state, reason = decide(state, see(0.7), LIMITS)
    assert reason.startswith("threshold+1")


def test_a_trial_whose_judge_is_gone_is_taken_back() -> None:
    state, _ = decide(State(), Observation(10_000, dropped=500, step_seconds=0.5), LIMITS)
    assert state.tuning == Tuning(threshold=1)
    waits, reason = decide(state, Observation(0, step_seconds=0.1), LIMITS)
    assert (waits, reason) == (state, ""), "a job that sends nothing says nothing"
    state, reason = decide(state, Observation(10_000, dropped=500, step_seconds=math.nan), LIMITS)
    assert state.tuning == Tuning()
    assert "it is not known any more" in reason


def test_what_was_kept_is_not_undone_while_times_are_the_same() -> None:
    def see(used: float) -> Observation:
        return Observation(10_000, dropped=90, step_seconds=0.5, used=used, allowed=0.1)

    state, _ = decide(State(), see(0.02), Limits(tolerance=(0, 1)))
    state, _ = decide(state, see(0.02), Limits(tolerance=(0, 1)))
    assert (state.tuning, state.trial) == (Tuning(tolerance=1), None)
    assert decide(state, see(0.1), Limits(tolerance=(0, 1))) == (state, "")
