# SPDX-License-Identifier: Apache-2.0
"""Where the switch fails, hosts complete what it has begun: all have the same, and nothing is lost or counts twice."""

from collections.abc import Sequence

import numpy as np
import pytest
from gradlane._core import ffi, lib
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.wire import HEADER_BYTES, Header, Kind, Lanes
from tests.gradlane.core.protocol.network import Impairment
from tests.gradlane.core.sums.summing import GENERATION, Oracle, Summed, Tensor
from tests.gradlane.core.sums.test_sums import gradients

NEXT = (GENERATION + 20) & 0xFFFFFFFF  # it has wrapped
ROUGH = Impairment(loss=0.1, duplicate=0.1, delay=100, jitter=300)


class Training:
    """Workers that go from step to step by themselves, each as soon as it has a result of the step before."""

    def __init__(self, cluster: Summed, tensors: Sequence[Tensor], steps: int) -> None:
        self.cluster, self.tensors, self.steps = cluster, tensors, steps
        self.step = [[0] * len(tensors) for _ in range(cluster.workers)]  # by worker and tensor: the latest
        self.generation = [cluster.generation] * (steps + 1)  # of a step's plan
        self.last = [steps] * cluster.workers  # that a worker begins
        for tensor in tensors:
            assert cluster.open(tensor) == [0] * cluster.workers

    def go_on(self) -> bool:
        """Who can begins the next step. Whether all are done."""
        c = self.cluster
        for rank in range(c.workers):
            for k, tensor in enumerate(self.tensors):
                step = self.step[rank][k]
                if step < self.last[rank] and (not step or c.has(rank, step, tensor)):
                    self.step[rank][k] = step + 1
                    values = gradients(c.workers, step + 1, tensor)[rank]
                    c.contribute(rank, step + 1, tensor, values, self.generation[step + 1])
        return all(c.complete(self.steps, tensor) for tensor in self.tensors)

    def until_step(self, step: int) -> None:
        """Runs until all have begun it."""
        self.cluster.run(lambda: self.go_on() or all(begun >= step for row in self.step for begun in row))

    def give_up(self, generation: int, by_switch: bool = False) -> list[tuple[int, int]]:
        """All halt, the steps that can't be begun anew are found from what they say, and all go on, one after the
        other. Returns these steps, which `by_switch` they only remind the switch of."""
        c = self.cluster
        for rank in range(c.workers):
            c.halt(rank)
            c.run_for(c.random.randrange(500), self.go_on)
        states = [{tensor: (done, begun) for tensor, done, begun in c.state(rank)} for rank in range(c.workers)]
        least = {tensor: min(state[tensor][0] for state in states) for tensor in states[0]}
        again = [(t, done + 1) for t, done in least.items() if all(state[t][1] > done for state in states)]
        for rank in c.random.sample(range(c.workers), c.workers):
            assert c.resume(rank, generation, by_switch, again) == 0
            c.run_for(c.random.randrange(500), self.go_on)
        return again

    def check(self, by_switch: Sequence[int]) -> None:
        """`by_switch`: the steps that were summed in integers. All is compared bit by bit."""
        c = self.cluster
        for tensor in self.tensors:
            oracle = Oracle(c, tensor)
            for step in range(1, self.steps + 1):
                values = gradients(c.workers, step, tensor)
                expected = oracle.by_switch(values) if step in by_switch else oracle.by_hosts(values)
                for rank in range(c.workers):
                    np.testing.assert_array_equal(c.results[rank, step, tensor.number], expected, f"step {step}")
            for rank in range(c.workers):
                np.testing.assert_array_equal(self.owed(rank, tensor), oracle.owed[rank])

    def owed(self, rank: int, tensor: Tensor) -> np.ndarray:
        return np.concatenate([self.cluster.owed(rank, tensor, k) for k in range(len(tensor.parts))])

    def check_sums(self) -> None:
        """All have the same results; these and what is owed are all contributions, as far as floats can tell."""
        c = self.cluster
        for tensor in self.tensors:
            total = np.zeros(tensor.elements)
            for step in range(1, self.steps + 1):
                result = c.results[0, step, tensor.number]
                for rank in range(c.workers):
                    np.testing.assert_array_equal(c.results[rank, step, tensor.number], result)
                    total += gradients(c.workers, step, tensor)[rank]
                total -= result.astype(np.float64) * c.workers
            owed = sum(self.owed(rank, tensor).astype(np.float64) for rank in range(c.workers))
            added = max(1, c.workers / 4)  # each addition rounds
            np.testing.assert_allclose(total, owed, atol=2e-6 * self.steps * added)


def slices_of(cluster: Summed, tensor: Tensor) -> int:
    return sum(-(-part // cluster.per_slice) for part in tensor.parts)


@pytest.mark.parametrize("lanes", Lanes)
@pytest.mark.parametrize("servers", [0, 2])
def test_a_step_that_some_have_whole_and_others_in_part_is_completed_by_hosts(lanes: Lanes, servers: int) -> None:
    cluster = Summed(3, lanes=lanes, servers=servers)
    tensor = Tensor(0, [400, 300])
    training = Training(cluster, [tensor], 5)
    # Rank 0 gets all of step 3, the others not; then the switch sums nothing any more.
    slices = slices_of(cluster, tensor)
    numbers = range(2 * slices, 3 * slices)
    cluster.lost_results = {(1, number) for number in numbers[-3:]} | {(2, numbers[-1])}
    assert not cluster.run_for(300_000, training.go_on)
    assert [row[0] for row in training.step] == [4, 3, 3]
    assert cluster.overdue(1) > 100_000
    cluster.broken = True
    assert training.give_up(NEXT) == [(0, 3)]
    sent = len(cluster.sent)
    cluster.run(training.go_on)
    assert len(cluster.sent) == sent  # the rest by hosts
    training.check([2, 3])
    assert all(cluster.statistics(rank).sum_reruns > 0 for rank in (1, 2))
    assert cluster.statistics(0).sum_reruns == 0
    lateness = ffi.new("gl_lateness *")
    for rank in range(3):  # nobody is late with what is done again
        lib.gl_engine_lateness(cluster.engines[rank], 0, lateness)
        assert lateness.step <= 5


def test_what_not_all_have_begun_is_begun_anew_by_hosts() -> None:
    cluster = Summed(3)
    tensor = Tensor(0, [500, 100])
    training = Training(cluster, [tensor], 2)
    training.last[2] = 1
    assert not cluster.run_for(300_000, training.go_on)
    assert [cluster.state(rank) for rank in range(3)] == [[(0, 1, 2)], [(0, 1, 2)], [(0, 1, 1)]]
    for rank in range(3):
        cluster.halt(rank)
        assert cluster.overdue(rank) == 0
    # What is submitted now has not begun.
    training.last[2] = 2
    assert not cluster.run_for(300_000, training.go_on)
    assert cluster.state(2) == [(0, 1, 1)]
    for rank in range(3):
        assert cluster.resume(rank, NEXT, False) == 0
        assert cluster.state(rank) == [(0, 2, 2)]
    cluster.run(training.go_on)
    training.check([])


def test_halted_streams_send_nothing_take_nothing_and_go_on_where_they_were() -> None:
    cluster = Summed(2)
    training = Training(cluster, [Tensor(0, [2000])], 3)
    cluster.run(lambda: training.go_on() or bool(cluster.statistics(0).sums_received >= 3))
    for rank in range(2):
        cluster.halt(rank)
    sent, received = len(cluster.sent), cluster.statistics(0).sums_received
    assert cluster.statistics(0).sums_refused == 0
    assert not cluster.run_for(300_000, training.go_on)
    assert len(cluster.sent) == sent
    assert cluster.statistics(0).sums_received == received
    refused = cluster.statistics(0).sums_refused
    assert refused > 0, "they were on their way"
    for rank in range(2):
        assert cluster.resume(rank, GENERATION, True) == 0
        assert cluster.resume(rank, GENERATION, True) == 0
    cluster.run(training.go_on)
    training.check([2, 3])
    assert cluster.statistics(0).sums_refused == refused


def test_a_step_that_makes_no_sense_is_refused_and_changes_nothing() -> None:
    cluster = Summed(2)
    training = Training(cluster, [Tensor(0, [500])], 3)
    training.until_step(3)
    for rank in range(2):
        cluster.halt(rank)
    for again in ([(1, 2)], [(0, 0)], [(0, 1)], [(0, 7)], [(9999, 2)], [(0, 3), (1, 1)]):
        assert cluster.resume(0, NEXT, False, again) == -1
    for rank in range(2):
        assert cluster.resume(rank, GENERATION, True) == 0
    cluster.run(training.go_on)
    training.check([2, 3])


def test_a_step_that_was_given_up_is_not_done_again() -> None:
    """Even if some have had sums of it: what they contributed may be gone."""
    cluster = Summed(2)
    training = Training(cluster, [Tensor(0, [500])], 2)
    slices = slices_of(cluster, training.tensors[0])
    cluster.lost_results = {(rank, 2 * slices - 1) for rank in range(2)}  # the last one
    assert not cluster.run_for(300_000, training.go_on)
    for generation, again, answer in ((NEXT, [], 0), (NEXT + 1, [(0, 2)], -1)):
        for rank in range(2):
            cluster.halt(rank)
        for rank in range(2):
            assert cluster.resume(rank, generation, False, again) == answer
        cluster.run(training.go_on)
    np.testing.assert_array_equal(cluster.results[0, 2, 0], cluster.results[1, 2, 0])


def test_the_switch_comes_back_with_a_new_generation() -> None:
    cluster = Summed(2)
    training = Training(cluster, [Tensor(0, [500]), Tensor(1, [10, 10])], 8)
    training.generation[6:] = [NEXT + 1] * 3
    training.until_step(3)
    cluster.broken = True
    assert not cluster.run_for(300_000, training.go_on)
    assert training.give_up(NEXT) == [(0, 3), (1, 3)]
    cluster.broken = False
    cluster.run(training.go_on)
    training.check([2, 3, 6, 7, 8])
    assert {summed.generation for _, _, summed in cluster.sent} == {GENERATION, NEXT + 1}


@settings(max_examples=25)
@given(
    st.integers(2, 4),
    st.lists(st.lists(st.integers(1, 400), min_size=1, max_size=3), min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(0, 30_000), st.sampled_from(["nothing", "hosts", "restart"])), max_size=4),
    st.sampled_from([Impairment(), ROUGH]),
    st.integers(0, 2**32),
)
def test_whenever_it_fails(
    workers: int, tensors: list[list[int]], troubles: list[tuple[int, str]], impairment: Impairment, seed: int
) -> None:
    """Whenever all halt, with a switch that has forgotten everything or not; some steps later it sums again."""
    cluster = Summed(workers, impairment=impairment, seed=seed)
    steps = 4 + 5 * len(troubles)
    training = Training(cluster, [Tensor(number, parts) for number, parts in enumerate(tensors)], steps)
    generation = GENERATION
    for us, what in troubles:
        cluster.run_for(us, training.go_on)
        if what == "restart":
            cluster.restart()
        if what == "nothing":
            training.give_up(generation, by_switch=True)
            continue
        training.give_up(generation := (generation + 2) & 0xFFFFFFFF)
        generation = (generation + 1) & 0xFFFFFFFF
        first = max(max(row) for row in training.step) + 2
        training.generation[first:] = [generation] * (steps + 1 - first)
    cluster.run(training.go_on)
    training.check_sums()


class Lying(Summed):
    """Rank 2 may say that everybody is without rank 1."""

    lies = False

    def _deliver(self, source: int, to: int, datagram: bytes) -> None:
        header = Header.unpack(datagram)
        asked = header.step == 1 << 31 | 2 and header.kind in (Kind.DATA, Kind.REPAIR)
        if self.lies and source == 2 and asked:
            datagram = datagram[:HEADER_BYTES] + (np.ones(header.length // 4, "<i4") * 2).tobytes()
        super()._deliver(source, to, datagram)


def closed_at_one() -> tuple[Lying, Training]:
    """Of step 2 the closer, rank 2, has all sums, one of them without rank 1; the others lack the last ones."""
    cluster = Lying(3, window=16, slots=32, slice_bytes=144, loss=0.1)
    training = Training(cluster, [Tensor(0, [24 * cluster.per_slice])], 3)
    without = 24 + 20
    cluster.passes = lambda source, header: not (source == 1 and header.message == without)
    cluster.lost_results = {(rank, number) for rank in (0, 1) for number in range(without, without + 4)}
    cluster.run(lambda: training.go_on() or cluster.has(2, 2, training.tensors[0]))
    assert cluster.members_of(2, training.tensors[0])[20] == 0b101
    cluster.broken = True
    return cluster, training


def test_hosts_leave_out_whom_the_switch_has_left_out() -> None:
    cluster, training = closed_at_one()
    tensor = training.tensors[0]
    members = cluster.members_of(2, tensor)
    assert training.give_up(NEXT) == [(0, 2)]
    cluster.run(training.go_on)
    oracle = Oracle(cluster, tensor)
    for step in (1, 2, 3):
        values = gradients(3, step, tensor)
        expected = oracle.by_switch(values, members) if step == 2 else oracle.by_hosts(values)
        for rank in range(3):
            np.testing.assert_array_equal(cluster.results[rank, step, 0], expected, f"step {step}")
    for rank in range(3):
        np.testing.assert_array_equal(training.owed(rank, tensor), oracle.owed[rank])
    assert [cluster.statistics(rank).sums_left_out for rank in range(3)] == [0, 1, 0]
    assert [cluster.statistics(rank).sum_reruns for rank in range(3)] == [1, 1, 0]


def test_hosts_leave_out_nobody_beyond_its_budget() -> None:
    """Who says that the switch has left out somebody more often ends the job."""
    cluster, training = closed_at_one()
    cluster.lies = True
    training.give_up(NEXT)

    def told(rank: int) -> set[int]:
        return {event.source for event in cluster.events[rank] if event.kind == lib.GL_EVENT_OVER_BUDGET}

    assert cluster.run_for(2_000_000, lambda: told(0) == told(1) == {1})
    assert not cluster.has(0, 2, training.tensors[0])
