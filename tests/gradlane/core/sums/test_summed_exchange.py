# SPDX-License-Identifier: Apache-2.0
"""The exchange with a switch that sums: processes of a host, plans, what is owed, tensors that come again."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from gradlane._core import ffi, lib

from gradlane.wire import Lanes
from tests.gradlane.core.sums.hosts import GENERATION, Job, SummedHost, job
from tests.gradlane.core.sums.summing import Oracle, Tensor
from tests.support.agents import until

PARTS = [300, 150]


def values_of(job: Job, step: int, size: int = sum(PARTS)) -> list[list[np.ndarray]]:
    """By host and process."""
    return [
        [np.random.default_rng([rank, k, step]).standard_normal(size).astype(np.float32) for k in range(job.processes)]
        for rank in range(job.workers)
    ]


def of_hosts(values: Sequence[Sequence[np.ndarray]], mean: bool) -> list[np.ndarray]:
    """What each host contributes: the mean, or the sum, of what its processes do."""
    sums = [np.sum(its, axis=0, dtype=np.float32) for its in values]
    return [(total / (len(values[0]) if mean else 1)).astype(np.float32) for total in sums]


def oracle_of(job: Any, mean: bool) -> Oracle:
    return Oracle(job, Tensor(0, PARTS, mean))


@pytest.mark.parametrize("lanes", Lanes)
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("mean", [True, False])
def test_all_processes_have_what_the_integers_say(lanes: Lanes, processes: int, mean: bool) -> None:
    with job(2, processes, lanes) as its:
        oracle = oracle_of(its, mean)
        for host in its.hosts:
            host.tensor(0, PARTS, mean=mean)
        for step in (1, 2, 3):
            values = values_of(its, step)
            expected = (oracle.by_hosts if step == 1 else oracle.by_switch)(of_hosts(values, mean))
            for result in its.step(0, values):
                np.testing.assert_array_equal(result, expected)
            for host, owed in zip(its.hosts, oracle.owed, strict=True):
                np.testing.assert_array_equal(host.owed(0, len(PARTS)), owed)
        for host in its.hosts:
            of_engine, of_exchange = host.counts()
            assert of_engine.summed_bytes == 2 * sum(PARTS) * 4
            assert of_exchange.reduced_bytes == 3 * sum(PARTS) * 4
        assert {header.step for header in its.switch.taken} == {2, 3}


@pytest.mark.parametrize("mean", [True, False])
def test_who_is_left_out_of_a_slice_owes_it_as_a_whole(mean: bool) -> None:
    """The mean counts it as zero, so nothing of the result stands for what is owed; nor does it in a step by hosts."""
    with job(loss=500_000) as its:
        oracle = oracle_of(its, mean)
        for host in its.hosts:
            host.tensor(0, PARTS, mean=mean)
        its.switch.loses = lambda header: (header.source, header.step, header.tensor, header.slice) == (0, 3, 0, 2)
        for step in (1, 2, 3, 4):
            values = of_hosts(given := values_of(its, step), mean)
            members = {2: 0b10} if step == 3 else {}
            expected = oracle.by_hosts(values) if step == 1 else oracle.by_switch(values, members)
            for result in its.step(0, given):
                np.testing.assert_array_equal(result, expected)
            for host, owed in zip(its.hosts, oracle.owed, strict=True):
                np.testing.assert_array_equal(host.owed(0, len(PARTS)), owed)
        assert [host.counts()[0].sums_left_out for host in its.hosts] == [1, 0]
        assert [host.counts()[0].sums_closed for host in its.hosts] == [0, 1]


def test_what_is_not_to_be_summed_or_has_no_slots_never_goes_to_the_switch() -> None:
    with job() as its:
        for host in its.hosts:
            host.tensor(0, PARTS, summed=False)
            host.tensor(4, PARTS)
        for step in (1, 2, 3):
            values = values_of(its, step)
            mean = (values[0][0] + values[1][0]) / np.float32(2)
            for number in (0, 4):
                for result in its.step(number, values):
                    np.testing.assert_array_equal(result, mean)
        assert not its.switch.taken


def test_plans_take_the_switch_away_and_give_it_back() -> None:
    with job() as its:
        oracle = oracle_of(its, True)
        for host in its.hosts:
            host.tensor(0, PARTS)
            host.plan(3, 0)
            host.plan(5, GENERATION + 1)
        for step in range(1, 7):
            values = values_of(its, step)
            expected = (oracle.by_switch if step in (2, 5, 6) else oracle.by_hosts)(of_hosts(values, True))
            for result in its.step(0, values):
                np.testing.assert_array_equal(result, expected)
        assert {header.step for header in its.switch.taken} == {2, 5, 6}


def test_a_tensor_that_comes_again_goes_on_by_the_switch() -> None:
    with job() as its:
        for step in (1, 2, 3):
            for host in its.hosts:
                host.tensor(0, PARTS)
            its.step(0, values_of(its, step))
            for host in its.hosts:
                host.release(0)
        assert {header.step for header in its.switch.taken} == {2, 3}


def halted(host: SummedHost) -> tuple[int, int, int]:
    states = ffi.new("gl_sum_state[4]")
    with host.locked() as exchange:
        lib.gl_exchange_sums_halt(exchange)
        assert lib.gl_exchange_sums_state(exchange, states, 4) == 1
    return states[0].tensor, states[0].completed, states[0].begun


def test_what_the_switch_does_not_complete_is_completed_by_hosts() -> None:
    with job() as its:
        oracle = oracle_of(its, True)
        for host in its.hosts:
            host.tensor(0, PARTS)
        values = values_of(its, 1)
        oracle.by_hosts(of_hosts(values, True))
        its.step(0, values)
        its.switch.hosts = [host.socket.getsockname() for host in its.hosts[:1]] * 2  # rank 1 gets nothing
        values = values_of(its, 2)
        expected = oracle.by_switch(of_hosts(values, True))
        slots = [host.submit(0, of_host) for host, of_host in zip(its.hosts, values, strict=True)]
        until(lambda: overdue(its.hosts[1]) > 20_000)
        states = [halted(host) for host in its.hosts]
        assert {begun for _, _, begun in states} == {2}
        assert states[1] == (0, 1, 2)
        for host in its.hosts:
            again = ffi.new("gl_sum_rerun[]", [(0, 2)])
            with host.locked() as exchange:
                assert lib.gl_exchange_sums_resume(exchange, GENERATION + 1, False, again, 1) == 0
        for host, its_slots in zip(its.hosts, slots, strict=True):
            host.wait(its_slots)
            np.testing.assert_array_equal(host.results[0], expected)
            np.testing.assert_array_equal(host.owed(0, len(PARTS)), oracle.owed[host.rank])
        values = values_of(its, 3)
        expected = oracle.by_hosts(of_hosts(values, True))
        for result in its.step(0, values):
            np.testing.assert_array_equal(result, expected)


def overdue(host: SummedHost) -> int:
    with host.locked() as exchange:
        return lib.gl_exchange_sums_overdue(exchange, lib.gl_now())
