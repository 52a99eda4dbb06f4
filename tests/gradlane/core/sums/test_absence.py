# SPDX-License-Identifier: Apache-2.0
"""A host whose processes are late with a step that a switch sums: it takes part with zeros, and owes what they have."""

import random
import time
from collections.abc import Callable

import numpy as np
import pytest
from gradlane._core import ffi, lib

from gradlane.wire import ElementType
from tests.gradlane.core.sums.hosts import GENERATION, Job, SummedHost, job
from tests.gradlane.core.sums.summing import Oracle, Tensor
from tests.gradlane.core.sums.test_summed_exchange import PARTS, halted, of_hosts, overdue, values_of
from tests.support.agents import until

LATE = 2  # the rank
STEPS, WINDOW = 2, 5


class Trial:
    """A job with one tensor, the steps of which end as the oracle says."""

    def __init__(self, its: Job) -> None:
        self.job, self.oracle = its, Oracle(its, Tensor(0, PARTS, True))
        self.step = 0
        self.expected: dict[int, np.ndarray] = {}
        for host in its.hosts:
            host.tensor(0, PARTS)
        self.late = its.hosts[LATE]
        self.taken = 0  # steps of the late host
        self.pending: list[int] = []

    def begin(self, *, without: bool = False, reduce: Callable[..., np.ndarray] | None = None) -> Callable[[], None]:
        """The others begin a step. Returns what waits for it."""
        self.step += 1
        values = of_hosts(values_of(self.job, self.step), True)
        # Who is late is in no slice, as far as the oracle is concerned.
        members = dict.fromkeys(range(sum(-(-n // self.job.per_slice) for n in PARTS)), 0b011) if without else {}
        by_hosts = self.step == 1
        self.expected[self.step] = self.oracle.by_hosts(values) if by_hosts else self.oracle.by_switch(values, members)
        others = [host for host in self.job.hosts if host is not self.late]
        slots = [host.submit(0, values_of(self.job, self.step)[host.rank]) for host in others]
        step = self.step

        def wait() -> None:
            for host, its in zip(others, slots, strict=True):
                host.wait(its)
                np.testing.assert_array_equal(host.results[0], self.expected[step])

        return wait

    def go_on(self, step: int) -> None:
        with self.late.locked() as exchange:
            lib.gl_exchange_go_on(exchange, 0, step)

    def come(self) -> None:
        """The late host's processes begin their next step."""
        self.taken += 1
        self.pending = self.late.submit(0, values_of(self.job, self.taken)[LATE])

    def catch_up(self) -> None:
        """They have its result."""
        self.late.wait(self.pending)
        np.testing.assert_array_equal(self.late.results[0], self.expected[self.taken])

    def all(self) -> None:
        wait = self.begin()
        self.come()
        wait()
        self.catch_up()

    def check_owed(self) -> None:
        assert self.taken == self.step
        for host, owed in zip(self.job.hosts, self.oracle.owed, strict=True):
            np.testing.assert_array_equal(host.owed(0, len(PARTS)), owed)


def since(host: SummedHost) -> int:
    states = ffi.new("gl_sum_state[4]")
    with host.locked() as exchange:
        assert lib.gl_exchange_sums_state(exchange, states, 4) == 1
    return int(states[0].since)


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


def test_what_follows_a_tensor_goes_on_with_it() -> None:
    with job(2, late=(STEPS, WINDOW)) as its:
        flags = [np.zeros(1, np.uint8) for _ in its.hosts]
        for host, flag in zip(its.hosts, flags, strict=True):
            host.tensor(0, PARTS)
            follow(host, flag)

        def step(*ranks: int) -> list[tuple[SummedHost, list[int]]]:
            values = [[np.ones(sum(PARTS), np.float32)]] * 2
            for rank in ranks:
                flags[rank][0] = rank
            return [
                (its.hosts[rank], slots)
                for rank in ranks
                for slots in (its.hosts[rank].submit(0, values[rank]), command(its.hosts[rank], 9))
            ]

        for number in (1, 2, 3):
            late = number == 3
            begun = step(0) if late else step(0, 1)
            if late:
                with its.hosts[1].locked() as exchange:
                    lib.gl_exchange_go_on(exchange, 0, 3)
            for host, slots in begun:
                host.wait(slots)
            assert flags[0][0] == (0 if late else 1)
        for host, slots in step(1):
            host.wait(slots)
        assert flags[1][0] == 0  # as at the others


def follow(host: SummedHost, flag: np.ndarray) -> None:
    """Registers tensor 9: one byte, the greatest of all; it follows tensor 0."""
    memory = ffi.from_buffer("uint8_t[]", flag, require_writable=True)
    fields = {
        "id": 9, "element_type": ElementType.UINT8, "reduction": lib.GL_MAX, "elements": 1, "partition_count": 1,
        "partitions": ffi.new("gl_partition[]", [(0, 1, 0, 0, lib.GL_DIRECT, 0)]), "follows": 1, "followed": 0,
        "contributions": ffi.new("uint8_t *[]", [memory]), "result": memory, "layers": ffi.new("uint16_t[]", 1),
    }  # fmt: skip
    host.kept += [fields, memory]
    with host.locked() as exchange:
        assert lib.gl_exchange_tensor(exchange, ffi.new("gl_tensor *", fields)) == 0


def command(host: SummedHost, number: int) -> list[int]:
    described = ffi.new("gl_command *", {"kind": lib.GL_COMMAND_TENSOR, "target": number})
    return [lib.gl_client_submit(client, described) for client in host.clients]
