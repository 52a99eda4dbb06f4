# SPDX-License-Identifier: Apache-2.0
"""What is changed of how a job is treated, and why: a pure function of what was seen in an interval.

One knob is moved by one step, and the next interval shows what came of it. Time comes first: a move is kept if steps of
the training got shorter by GAIN; or, if that is what it is for, if less is dropped (FEWER) or may be lost, and steps
are no longer than the shortest so far and GAIN. Else it is taken back. What was taken back, or would undo what was
kept, is not tried again until conditions change by SHIFT. So under constant conditions it comes to rest, after as many
steps as there are within the limits, and one trial each that fails.

The time of a step is what the job's agents say. Where none reports there is only what the gradient policy drops of the
job's packets, and only what counters show by themselves is mended.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gradlane_controller.policy.tuning import KNOBS, MAGNITUDES, NEUTRAL, Limits, Tuning

GAIN = 0.03  # of the time of a step
FEWER = 0.05  # of what is dropped
SHIFT = 0.25  # of either, by which conditions have changed
MANY = 0.01  # of a job's packets
IDLE = 0.7  # of a port's rate
SPENT = 0.9  # of what may be lost
SLACK = 0.5
MOST_EARLIER = 16  # tunings that can be gone back to


@dataclass(frozen=True)
class Observation:
    """Of a job, in an interval. Of its packets, as switches count them: all; `dropped` or trimmed by the gradient
    policy; `spent`: forwarded only because the budget was spent. `busiest`: the load of the fullest port that it sends
    by, as a part of its rate. Of its agents: s of a step, fractions that were lost (`used`) and that may be, slices
    that were `lost` or repaired. None: not known."""

    packets: int
    dropped: int = 0
    spent: int = 0
    busiest: float | None = None
    step_seconds: float | None = None
    used: float | None = None
    allowed: float | None = None
    lost: int | None = None


@dataclass(frozen=True)
class Cost:
    """What should be small: s of a step, None: not known, and the part of the packets that is dropped."""

    seconds: float | None
    dropped: float

    @property
    def main(self) -> float:
        """The time; what is dropped where that is not known."""
        return self.dropped if self.seconds is None else self.seconds


@dataclass(frozen=True)
class Trial:
    """A move that is under way. `wants`: what it is kept for, from what it was `before`."""

    knob: str
    steps: int
    wants: str
    before: Cost


TIME, DROPS, CAUTION = "time", "drops", "caution"  # shorter steps; or fewer drops; or less that may be dropped


@dataclass(frozen=True)
class State:
    """Of a job. `earlier`: from what it was changed, the latest last; `refused`: moves, as `_name` says them;
    `baseline`: under which conditions; `held`: an operator has taken a step back, and nothing is changed until that is
    over."""

    tuning: Tuning = NEUTRAL
    earlier: tuple[Tuning, ...] = ()
    trial: Trial | None = None
    refused: frozenset[str] = frozenset()
    baseline: Cost | None = None
    held: bool = False

    def to_json(self) -> dict[str, Any]:
        """As the store keeps it."""
        trial = self.trial
        return {
            "tuning": self.tuning.to_json(),
            "earlier": [it.to_json() for it in self.earlier],
            "trial": None if trial is None else {**vars(trial), "before": vars(trial.before)},
            "refused": sorted(self.refused),
            "baseline": None if self.baseline is None else vars(self.baseline),
            "held": self.held,
        }

    @staticmethod
    def of(kept: Mapping[str, Any]) -> "State":
        """What `to_json` has made."""
        trial, baseline = kept["trial"], kept["baseline"]
        if trial is not None:
            trial = Trial(trial["knob"], trial["steps"], trial["wants"], Cost(**trial["before"]))
        return State(
            tuning=Tuning(**kept["tuning"]),
            earlier=tuple(Tuning(**it) for it in kept["earlier"]),
            trial=trial,
            refused=frozenset(kept["refused"]),
            baseline=None if baseline is None else Cost(**baseline),
            held=kept["held"],
        )


@dataclass(frozen=True)
class _Move:
    knob: str
    steps: int
    wants: str
    why: str


def decide(state: State, seen: Observation, limits: Limits) -> tuple[State, str]:
    """The next state, and why the tuning has changed; empty: it has not. It is within the limits in any case."""
    clamped = limits.clamp(state.tuning)
    if clamped != state.tuning:
        return _changed(replace(state, trial=None), clamped), "the bounds leave no more"
    if state.held or seen.packets <= 0:
        return state, ""
    cost = _cost(seen)
    if state.trial is not None:
        return _judged(state, state.trial, cost, limits)
    if state.baseline is None or _shifted(state.baseline, cost):
        state = replace(state, refused=frozenset(), baseline=cost)
    for move in _wanted(seen):
        moved = state.tuning.moved(move.knob, move.steps)
        if _name(move.knob, move.steps) not in state.refused and limits.clamp(moved) == moved:
            trial = Trial(move.knob, move.steps, move.wants, cost)
            return _changed(replace(state, trial=trial), moved), f"{_says(move, moved)}: {move.why}"
    return state, ""


def undone(state: State) -> State | None:
    """As it was before the latest change, and held; None: there was none."""
    if not state.earlier:
        return None
    return State(tuning=state.earlier[-1], earlier=state.earlier[:-1], held=True)


def resumed(state: State) -> State:
    """Not held any more."""
    return State(tuning=state.tuning, earlier=state.earlier)


def describe(tuning: Tuning) -> str:
    """For people."""
    return ", ".join(_describe(knob, getattr(tuning, knob)) for knob in KNOBS if getattr(tuning, knob)) or "as its file"


def _judged(state: State, trial: Trial, now: Cost, limits: Limits) -> tuple[State, str]:
    before, name = trial.before, _name(trial.knob, trial.steps)
    best = state.baseline or before
    comparable = (now.seconds is None) == (before.seconds is None) == (best.seconds is None)
    done = replace(state, trial=None)
    if comparable and _is_good(trial, now, best):
        reverse = _name(trial.knob, -trial.steps)
        return replace(done, refused=state.refused | {reverse}, baseline=min(best, now, key=_main)), ""
    back, earlier = limits.clamp(state.earlier[-1]), state.earlier[:-1]
    why = _compare(before, now) if comparable else "it is not known any more what came of it"
    taken_back = replace(done, tuning=back, earlier=earlier, refused=state.refused | {name})
    return taken_back, f"{name} is taken back ({describe(back)}): {why}"


def _is_good(trial: Trial, now: Cost, best: Cost) -> bool:
    before = trial.before
    if before.seconds is not None and now.main <= before.main * (1 - GAIN):
        return True
    bearable = now.main <= min(before.main, best.main) * (1 + GAIN)
    fewer = now.dropped < before.dropped and now.dropped <= before.dropped * (1 - FEWER)
    return bearable and (trial.wants == CAUTION or (trial.wants == DROPS and fewer))


def _wanted(seen: Observation) -> Iterator[_Move]:
    """What could be changed, the most promising first."""
    dropped, spent = seen.dropped / seen.packets, seen.spent / seen.packets
    timed = _seconds(seen) is not None
    yield from _of_threshold(seen, dropped, timed)
    used, allowed = _part(seen.used), _part(seen.allowed)
    if used is not None and allowed:
        exhausted, slack = used >= SPENT * allowed, timed and used < SLACK * allowed
        why = f"of {allowed:.2%} that may be lost {used:.2%} are"
    else:
        exhausted, slack = spent > max(dropped, MANY), False
        why = f"{spent:.1%} of its packets found the budget spent, and {dropped:.1%} were dropped"
    if exhausted:
        yield _Move("tolerance", -1, CAUTION, why)
        yield _Move("protection", 1, CAUTION, f"{why}; it should go for the least")
    if slack:
        if dropped > 0:
            yield _Move("protection", -1, TIME, why)
        yield _Move("tolerance", 1, CAUTION, why)


def _of_threshold(seen: Observation, dropped: float, timed: bool) -> Iterator[_Move]:
    if timed:
        up = _Move("threshold", 1, DROPS, f"{dropped:.1%} of its packets were dropped; perhaps the buffer had room")
        losses = f"{seen.lost} slices were lost or repaired, and {dropped:.1%} of its packets dropped by policy"
        down = _Move("threshold", -1, TIME, f"{losses}; perhaps buffers were full before")
        if dropped > MANY:
            yield from (up, down)
        elif seen.lost:
            yield from (down, up)
    elif dropped > MANY and seen.busiest is not None and seen.busiest < IDLE:
        why = f"{dropped:.1%} of its packets were dropped, and no port of its was fuller than {seen.busiest:.0%}"
        yield _Move("threshold", 1, DROPS, why)


def _cost(seen: Observation) -> Cost:
    return Cost(_seconds(seen), seen.dropped / seen.packets)


def _main(cost: Cost) -> float:
    return cost.main


def _seconds(seen: Observation) -> float | None:
    it = seen.step_seconds
    return it if it is not None and math.isfinite(it) and it > 0 else None


def _part(it: float | None) -> float | None:
    return it if it is not None and 0 <= it <= 1 else None


def _shifted(before: Cost, now: Cost) -> bool:
    if (before.seconds is None) != (now.seconds is None):
        return True
    return abs(now.main - before.main) > SHIFT * before.main


def _changed(state: State, tuning: Tuning) -> State:
    return replace(state, tuning=tuning, earlier=(*state.earlier, state.tuning)[-MOST_EARLIER:])


def _name(knob: str, steps: int) -> str:
    return f"{knob}{steps:+d}"


def _compare(before: Cost, now: Cost) -> str:
    drops = f"{now.dropped:.1%} of its packets were dropped, and {before.dropped:.1%} before"
    if now.seconds is None or before.seconds is None:
        return drops
    return f"steps took {now.seconds:.3f} s, and {before.seconds:.3f} s before; {drops}"


def _says(move: _Move, tuning: Tuning) -> str:
    return f"{_name(move.knob, move.steps)} ({describe(tuning)})"


def _describe(knob: str, steps: int) -> str:
    if knob == "threshold":
        return f"thresholds {'x' if steps > 0 else '/'} {2 ** abs(steps)}"
    if knob == "protection":
        return f"{MAGNITUDES * steps} magnitudes more protected"
    return f"tolerance / {2**steps}"
