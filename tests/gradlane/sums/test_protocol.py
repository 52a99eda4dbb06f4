# SPDX-License-Identifier: Apache-2.0
"""The protocol between a switch that sums and its workers, as rules: whatever happens, its promises hold."""

from hypothesis import given, settings

from tests.gradlane.sums.schedules import Layout, Weather, calm, layouts, play, rough, schedules, tolerant
from tests.support.effort import tries


@settings(max_examples=tries(50), deadline=None)
@given(layouts, schedules)
def test_whatever_happens_all_steps_end_alike_at_all_workers_and_nothing_is_lost(
    layout: Layout, schedule: list[Weather | str]
):
    play(layout, schedule)


@settings(max_examples=tries(15), deadline=None)
@given(layouts, calm)
def test_while_the_switch_does_not_fail_the_hosts_reduce_only_the_first_step(
    layout: Layout, schedule: list[Weather | str]
):
    job = play(layout, schedule)
    ways = {step - layout.done: agreed.way for (_, step), agreed in job.oracle.steps.items()}
    assert ways == {1: "hosts", 2: "sums", 3: "sums", 4: "sums", 5: "sums"}


@settings(max_examples=tries(12), deadline=None)
@given(tolerant, rough)
def test_slices_are_closed_within_budgets_and_all_ends_by_the_switch(layout: Layout, schedule: list[Weather | str]):
    job = play(layout, schedule)
    assert {agreed.way for (_, step), agreed in job.oracle.steps.items() if step > layout.done + 1} == {"sums"}
