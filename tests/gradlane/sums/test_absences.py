# SPDX-License-Identifier: Apache-2.0
"""Steps go on without late workers, whose agents take part in them with zeros: as rules, each of which is needed."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gradlane.sums.oracle import Wrong
from tests.gradlane.sums.schedules import (
    HALT,
    PLAN,
    Layout,
    Weather,
    away,
    calm,
    layouts,
    leaving,
    play,
    rough,
    schedules,
    tolerant,
    weathers,
)
from tests.gradlane.sums.test_mutants import breaks
from tests.support.effort import tries
from tests.support.sum_stream import Result, Slices, Step, Stream, zeros
from tests.support.sum_switch import SumSwitch
from tests.support.sum_worker import Worker


@settings(max_examples=tries(30), deadline=None)
@given(leaving(layouts), away(schedules))
def test_whatever_happens_and_whoever_is_late_all_steps_end_alike_and_nothing_is_lost(
    layout: Layout, schedule: list[Weather | str]
):
    play(layout, schedule)


@settings(max_examples=tries(12), deadline=None)
@given(leaving(tolerant), away(rough))
def test_slices_are_closed_in_steps_without_late_workers_and_all_ends_by_the_switch(
    layout: Layout, schedule: list[Weather | str]
):
    job = play(layout, schedule)
    assert {agreed.way for (_, step), agreed in job.oracle.steps.items() if step > layout.done + 1} == {"sums"}


class OwesNothing(Worker):
    def begin(self, tensor: int, given: Slices) -> Step | None:
        stream = self.streams[tensor]
        return super().begin(tensor, zeros(given) if stream.come < stream.begun else given)


class ComesInTheMiddle(Worker):
    """What it has is in the slices that have not been sent yet, and owed."""

    def begin(self, tensor: int, given: Slices) -> Step | None:
        step = super().begin(tensor, given)
        now = self.streams[tensor].now
        if not step and now and now.integers:
            stream = self.streams[tensor]
            for s in range(now.sent, stream.slices):
                now.integers[s] = [self.point.quantised(x, stream.exponents[s]) for x in given[s]]
        return step


class ContributesWhatItOwes(Worker):
    def contribute(self, stream: Stream, values: Slices, *, absent: bool = False) -> Step:
        return super().contribute(stream, stream.owed if absent else values, absent=absent)


class SettlesWhatItOwes(Worker):
    """As if the zeros were a gradient to which all has been added that was owed."""

    def contribute(self, stream: Stream, values: Slices, *, absent: bool = False) -> Step:
        return super().contribute(stream, values)


class CountsNothing(Worker):
    def may_be_absent(self, stream: Stream) -> bool:
        return True


class CountsAStepLess(Worker):
    def may_be_absent(self, stream: Stream) -> bool:
        steps, window = self.late
        return sum(step > stream.begun + 2 - window for step in stream.absences) < steps


class CountsSinceItWasThere(Worker):
    def may_be_absent(self, stream: Stream) -> bool:
        return stream.begun - stream.come < self.late[0]


class TakesTheLatest(Worker):
    def take(self, tensor: int) -> Result | None:
        stream = self.streams[tensor]
        if stream.got < stream.come:
            stream.results.reverse()
        return super().take(tensor)


class OwesZeros(Worker):
    """For a slice that was closed without it."""

    def owe(self, stream: Stream, step: Step, s: int) -> None:
        stream.owed[s] = list(step.values[s])


class WithdrawsWhatItOwes(Worker):
    def withdraw(self, stream: Stream, step: Step) -> None:
        super().withdraw(stream, step)
        stream.owed = zeros(stream.owed)


class KeepsNoZeros(Worker):
    """For hosts that do the step again."""

    def summed(self, tensor: int) -> None:
        super().summed(tensor)
        last = self.streams[tensor].last
        if last and last.absent:
            last.integers = []


@pytest.mark.parametrize(
    "worker",
    [
        OwesNothing, ComesInTheMiddle, ContributesWhatItOwes, SettlesWhatItOwes, CountsNothing, CountsAStepLess,
        CountsSinceItWasThere, TakesTheLatest,
    ],
)  # fmt: skip
def test_every_rule_is_needed(worker: type[Worker]):
    with pytest.raises(Wrong):
        breaks(away(calm), SumSwitch, worker, leaving(layouts))


def test_who_was_left_out_of_zeros_still_owes_what_it_owed():
    with pytest.raises(Wrong):
        breaks(away(rough), SumSwitch, OwesZeros, leaving(tolerant))


@pytest.mark.parametrize("worker", [WithdrawsWhatItOwes, KeepsNoZeros])
def test_every_rule_is_needed_when_the_switch_fails(worker: type[Worker]):
    two = st.builds(replace, layouts, partitions=st.just(((2,), (3,))))  # pyright: ignore
    failing = st.lists(weathers | st.sampled_from((HALT, PLAN)), min_size=6, max_size=14)
    with pytest.raises(Wrong):
        breaks(away(failing), SumSwitch, worker, leaving(two))
