# SPDX-License-Identifier: Apache-2.0
"""Jobs of more workers than a sum's members have bits: each switch's bits are of its own children."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gradlane.wire import Lanes
from tests.gradlane.sums.oracle import Wrong
from tests.gradlane.sums.schedules import FORGE, Layout, Weather, calm, large, play, schedules, weathers
from tests.support.effort import tries
from tests.support.sum_switch import SumSwitch
from tests.support.sum_worker import Worker


@settings(max_examples=tries(40), deadline=None)
@given(large, schedules)
def test_whatever_happens_all_steps_end_alike_at_all_workers_and_nothing_is_lost(
    layout: Layout, schedule: list[Weather | str]
) -> None:
    play(layout, schedule)


@settings(max_examples=tries(10), deadline=None)
@given(large, calm)
def test_while_no_switch_fails_they_sum_all_but_the_first_step(layout: Layout, schedule: list[Weather | str]) -> None:
    job = play(layout, schedule)
    assert {agreed.way for (_, step), agreed in job.oracle.steps.items() if step > layout.done + 1} == {"sums"}


@pytest.mark.parametrize("shape", ["leaf-spine", "three tiers"])
def test_forty_workers(shape: str) -> None:
    layout = Layout(40, Lanes.INT32_LANES, window=2, partitions=((3,), (2, 1)), shape=shape, by_children=True)
    weather = [Weather(800, lost, 0.05, 0.1, None, None, seed) for seed, lost in enumerate((0.0, 0.05, 0.2))]
    job = play(layout, [*weather, "restart", *weather, "echo", "move", *weather])
    assert {agreed.way for (_, step), agreed in job.oracle.steps.items()} == {"hosts", "sums"}


class CountsBits(Worker):
    def how_many(self, members: int) -> int:
        return members.bit_count()


class TakesParts(Worker):
    def are_members(self, members: int, closer: int) -> bool:
        return members != 0


class RemindsAsItself(Worker):
    @property
    def everyone(self) -> int:
        return (1 << self.point.workers) - 1


def breaks(schedule: st.SearchStrategy[list[Weather | str]], switch: type[SumSwitch], worker: type[Worker]) -> None:
    @settings(max_examples=2000, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(large, schedule)
    def played(layout: Layout, happenings: list[Weather | str]) -> None:
        play(layout, happenings, switch, worker)

    played()


@pytest.mark.parametrize("worker", [CountsBits, RemindsAsItself])
def test_every_rule_of_the_workers_is_needed(worker: type[Worker]) -> None:
    with pytest.raises(Wrong):
        breaks(calm, SumSwitch, worker)


def test_results_of_some_are_to_be_refused() -> None:
    forging = st.lists(weathers | st.just(FORGE), min_size=6, max_size=14)
    with pytest.raises(Wrong, match="is taken"):
        breaks(forging, SumSwitch, TakesParts)
