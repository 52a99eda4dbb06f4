# SPDX-License-Identifier: Apache-2.0
"""A host whose processes are late with a step that a switch sums: it takes part with zeros, and owes what they have."""

import random
import time

import numpy as np
import pytest
from gradlane._core import ffi, lib

from tests.gradlane.core.sums.hosts import GENERATION, job
from tests.gradlane.core.sums.late_trial import LATE, SLICES, STEPS, WINDOW, Trial, left_out, since
from tests.gradlane.core.sums.test_summed_exchange import PARTS, halted, overdue
from tests.support.agents import until


@pytest.mark.parametrize("processes", [1, 2])
def test_the_others_go_on_without_it_as_often_as_its_budget_says_and_it_owes_all(processes: int) -> None:
    with job(3, processes, late=(STEPS, WINDOW)) as its:
        trial = Trial(its)
        trial.all()
        trial.all()
        waits = trial.begin(without=True)
        until(lambda: all(since(host) for host in its.hosts[:LATE]))
        assert not since(trial.late)
        trial.go_on(3)
        waits()
        assert not any(since(host) for host in its.hosts)
        waits = trial.begin(without=True)
        trial.go_on(4)
        waits()
        waits = trial.begin()  # the budget is used up
        trial.go_on(5)
        time.sleep(0.05)
        assert all(since(host) for host in its.hosts[:LATE])
        for _ in range(2):
            trial.come()
            trial.catch_up()
        trial.go_on(5)
        time.sleep(0.05)
        assert all(since(host) for host in its.hosts[:LATE])
        until(lambda: not trial.late.counts()[0].memory_used)
        trial.come()
        waits()
        trial.catch_up()
        trial.check_owed()
        trial.all()
        trial.all()
        waits = trial.begin(without=True)  # steps 3 and 8 are in no window
        trial.go_on(8)
        waits()
        trial.come()
        trial.catch_up()
        trial.check_owed()
        assert [host.counts()[1].left_out for host in its.hosts] == [0, 0, 3]
        assert [host.counts()[1].kept_slices for host in its.hosts] == [0, 0, 3 * SLICES]
        assert left_out(trial.late) == (3, 2)  # step 3 is not recent any more
        assert trial.late.counts()[0].sum_reruns == 0


def test_who_has_come_is_in_the_step_whatever_others_say_and_nobody_goes_far_ahead() -> None:
    with job(3, late=(STEPS, WINDOW)) as its:
        trial = Trial(its)
        trial.all()
        trial.all()
        for step in (0, 1, 2, 2 + STEPS + 1, 2**32 - 1):
            trial.go_on(step)  # none that others can wait in
        trial.all()
        trial.come()
        until(lambda: trial.late.counts()[1].submitted == 4)
        trial.go_on(4)
        waits = trial.begin()
        waits()
        trial.catch_up()
        trial.check_owed()
        assert trial.late.counts()[1].left_out == 0


def test_processes_that_come_in_the_middle_of_such_a_step_wait_for_it_and_owe_theirs() -> None:
    with job(3, late=(STEPS, WINDOW)) as its:
        trial = Trial(its)
        trial.all()
        trial.all()
        trial.go_on(3)  # it is the first to begin it
        trial.go_on(4)  # and will go on with that
        trial.go_on(3)  # an old word takes nothing back
        until(lambda: since(trial.late))
        trial.come()
        trial.begin(without=True)()
        trial.catch_up()
        trial.begin(without=True)()
        trial.come()
        trial.catch_up()
        trial.all()
        trial.check_owed()
        assert trial.late.counts()[1].left_out == 2


def test_a_step_with_zeros_that_the_switch_loses_ends_alike_by_hosts() -> None:
    """Rank 1 gets none of the sums that the others have."""
    with job(3, late=(STEPS, WINDOW)) as its:
        trial = Trial(its)
        trial.all()
        its.switch.hosts[1] = its.switch.hosts[0]
        waits = trial.begin(without=True)
        trial.go_on(2)
        until(lambda: overdue(its.hosts[1]) > 20_000)
        assert {begun for _, _, begun in (halted(host) for host in its.hosts)} == {2}
        for host in its.hosts:
            again = ffi.new("gl_sum_rerun[]", [(0, 2)])
            with host.locked() as exchange:
                assert lib.gl_exchange_sums_resume(exchange, GENERATION + 1, False, again, 1) == 0
        waits()
        trial.come()
        trial.catch_up()
        trial.check_owed()


def test_any_pattern_of_late_steps_within_the_budget_keeps_replicas_equal_and_loses_nothing() -> None:
    random.seed(5)
    with job(3, late=(STEPS, WINDOW)) as its:
        trial = Trial(its)
        trial.all()
        left_out: list[int] = []
        for _ in range(12):
            step = trial.step + 1
            free = len(left_out) < STEPS or step - left_out[-STEPS] >= WINDOW
            if random.random() < 0.5 and trial.step - trial.taken < STEPS:
                waits = trial.begin(without=free)
                trial.go_on(step)
                if free:
                    left_out.append(step)
                    waits()
                    continue
            else:
                waits = trial.begin()
            while trial.taken < trial.step - 1:
                trial.come()
                trial.catch_up()
            trial.come()
            waits()
            trial.catch_up()
            trial.check_owed()
        assert trial.late.counts()[1].left_out == len(left_out) > 2


@pytest.mark.parametrize("late", [False, True])
def test_a_step_of_which_a_part_is_complete_ends_before_the_next_begins_without_the_processes(late: bool) -> None:
    """`late`: they are with that step already."""
    with job(3, late=(STEPS, WINDOW)) as its:
        trial = Trial(its)
        trial.all()
        trial.all()
        summed = trial.late.counts()[0].summed_bytes
        its.switch.loses = lambda header: (header.step, header.tensor) == (3, 1)
        wait = trial.begin(without=late)
        trial.go_on(3) if late else trial.come()
        until(lambda: trial.late.counts()[0].summed_bytes == summed + 4 * PARTS[0])
        trial.go_on(4)
        its.switch.loses = lambda header: False
        wait()
        if not late:
            trial.catch_up()
        trial.begin(without=True)()
        while trial.taken < trial.step:
            trial.come()
            trial.catch_up()
        trial.all()
        trial.check_owed()
        assert trial.late.counts()[1].left_out == 1 + late


def test_what_has_begun_without_the_processes_keeps_its_tensor_and_its_plan() -> None:
    with job(3, late=(STEPS, WINDOW)) as its:
        trial = Trial(its)
        trial.all()
        wait = trial.begin(without=True)
        trial.go_on(2)
        wait()
        plan = ffi.new("gl_step_plan *", {"algorithm": lib.GL_DIRECT, "weights": ffi.new("uint32_t[]", [1] * 3)})
        with trial.late.locked() as exchange:
            assert lib.gl_exchange_plan(exchange, 2, plan) == -1
            assert lib.gl_exchange_release_tensor(exchange, 0) == ffi.NULL
        trial.come()
        trial.catch_up()
        trial.check_owed()
        trial.late.release(0)


@pytest.mark.parametrize("short", [0, 1])
def test_what_it_keeps_counts_to_the_jobs_memory_and_the_others_wait_where_that_is_out(short: int) -> None:
    each = 2 * 4 * sum(PARTS)
    with job(3, late=(STEPS, WINDOW), memory=STEPS * each - short) as its:
        trial = Trial(its)
        trial.all()
        trial.all()
        waits = trial.begin(without=True)
        trial.go_on(3)
        waits()
        until(lambda: trial.late.counts()[0].memory_used == each)
        waits = trial.begin(without=True)
        trial.go_on(4)
        if short:
            trial.go_on(4)  # it counts once
            assert [host.counts()[1].late_no_memory for host in its.hosts] == [0, 0, 1]
            assert trial.late.counts()[1].left_out == 1
        else:
            waits()
            assert trial.late.counts()[0].memory_used == STEPS * each
        trial.come()
        trial.catch_up()
        waits()  # there is room, and the process is late for this step, too
        trial.come()
        trial.catch_up()
        trial.all()
        trial.check_owed()
        assert trial.late.counts()[0].memory_used == 0
        assert [trial.late.counts()[1].left_out, trial.late.counts()[1].late_no_memory] == [STEPS, short]


def test_who_is_left_out_of_a_slice_of_zeros_owes_what_it_owed() -> None:
    """The budget of losses lets the switch do without the agent, too."""
    with job(3, loss=500_000, late=(STEPS, WINDOW)) as its:
        trial = Trial(its)
        trial.all()
        trial.all()
        owed = trial.late.owed(0, len(PARTS))
        its.switch.loses = lambda header: (header.source, header.step, header.tensor, header.slice) == (LATE, 3, 0, 2)
        waits = trial.begin(without=True)
        trial.go_on(3)
        waits()
        until(lambda: trial.late.counts()[0].sums_left_out == 1)
        np.testing.assert_array_equal(trial.late.owed(0, len(PARTS)), owed)
        trial.come()
        trial.catch_up()
        trial.all()
        trial.check_owed()
