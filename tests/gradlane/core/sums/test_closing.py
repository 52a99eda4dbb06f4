# SPDX-License-Identifier: Apache-2.0
"""Slices that are summed without some workers: within each one's budget, and what is left out is owed as a whole."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.wire import Header, Kind, Lanes
from tests.gradlane.core.protocol.network import Impairment
from tests.gradlane.core.sums.summing import Oracle, Summed, Tensor
from tests.gradlane.core.sums.test_sums import gradients, step_by_hosts
from tests.support.effort import tries
from tests.support.sum_switch import Event


def follow(cluster: Summed, tensor: Tensor, steps: int) -> None:
    """Steps by the switch, the first by hosts; results and what is owed are those of the sums' members."""
    oracle = Oracle(cluster, tensor)
    starts = np.cumsum([0, *tensor.parts])
    for step in range(1, steps + 1):
        values = gradients(cluster.workers, step, tensor)
        for rank in range(cluster.workers):
            cluster.contribute(rank, step, tensor, values[rank])
        cluster.run(lambda step=step: cluster.complete(step, tensor))
        expected = oracle.by_hosts(values) if step == 1 else oracle.by_switch(values, cluster.members_of(step, tensor))
        for rank in range(cluster.workers):
            np.testing.assert_array_equal(cluster.results[rank, step, tensor.number], expected)
            for k in range(len(tensor.parts)):
                owed = oracle.owed[rank][starts[k] : starts[k + 1]]
                np.testing.assert_array_equal(cluster.owed(rank, tensor, k), owed)
    cluster.check_budgets()


def losing(cluster: Summed, rank: int, lost: set[int], step: int = 2) -> None:
    """The network loses these slices of a worker when they are sent first."""
    cluster.passes = lambda source, header: (
        not ((source, header.step, header.kind) == (rank, step, Kind.DATA) and header.slice in lost)
    )


SLICES = 40


def closing(loss: float, window: int = 16, **settings: Any) -> tuple[Summed, Tensor]:
    """Three workers with a tensor of SLICES slices; the closer of its step 2 is rank 2."""
    cluster = Summed(3, window=window, slots=2 * window, slice_bytes=144, loss=loss, **settings)
    tensor = Tensor(0, [SLICES * cluster.per_slice - 5])
    assert cluster.open(tensor) == [0] * 3
    return cluster, tensor


@pytest.mark.parametrize("lanes", Lanes)
def test_a_lost_contribution_is_left_out_within_the_budget(lanes: Lanes) -> None:
    cluster, tensor = closing(0.08, lanes=lanes)
    lost = {20, 25, SLICES - 1}
    losing(cluster, 1, lost)
    follow(cluster, tensor, 3)
    assert {s for s, its in cluster.members_of(2, tensor).items() if its == 0b101} == lost
    counts = [cluster.statistics(rank) for rank in range(3)]
    assert [c.sums_closed for c in counts] == [0, 0, 3]
    assert [c.sums_left_out for c in counts] == [0, 3, 0]
    assert [c.sums_repaired for c in counts] == [0, 0, 3]  # nobody else has asked
    assert cluster.seen[Event.ANSWER] + cluster.seen[Event.LATE] == 0


def test_nobody_is_left_out_of_more_than_the_budget() -> None:
    cluster, tensor = closing(0.08)
    losing(cluster, 1, {20, 22, 24, 26, 28, 30})
    follow(cluster, tensor, 3)
    assert cluster.statistics(1).sums_left_out == 3
    assert cluster.statistics(1).sums_repaired >= 3


@pytest.mark.parametrize("loss", [0.0, 0.99 / SLICES])
def test_without_a_budget_nobody_is(loss: float) -> None:
    cluster, tensor = closing(loss)
    losing(cluster, 1, {20, 30})
    follow(cluster, tensor, 3)
    assert cluster.statistics(1).sums_left_out == 0
    assert not any(summed.members for _, _, summed in cluster.sent)


def test_the_closer_is_never_left_out() -> None:
    cluster, tensor = closing(0.1)
    losing(cluster, 2, {20, 30})
    follow(cluster, tensor, 2)
    assert all(its == 0b111 for its in cluster.members_of(2, tensor).values())


def test_who_has_not_come_to_the_step_is_waited_for() -> None:
    cluster, tensor = closing(0.5)
    step_by_hosts(cluster, tensor)
    for rank in (0, 2):
        cluster.contribute(rank, 2, tensor, gradients(3, 2, tensor)[rank])
    assert not cluster.run_for(1_000_000, lambda: bool(cluster.sums))
    cluster.contribute(1, 2, tensor, gradients(3, 2, tensor)[1])
    cluster.run(lambda: cluster.complete(2, tensor))
    assert cluster.statistics(1).sums_left_out == 0


def test_more_in_a_row_than_the_window_has_are_lost_and_all_go_on() -> None:
    cluster, tensor = closing(0.5, window=4)
    losing(cluster, 1, set(range(10, 30)))
    follow(cluster, tensor, 3)
    assert cluster.statistics(1).sums_left_out >= 4


def test_what_comes_after_the_sum_without_it_is_answered() -> None:
    cluster, tensor = closing(0.1)
    push = cluster.push

    def slowly(at: int, to: int, datagram: bytes) -> None:
        header = Header.unpack(datagram) if datagram else None
        late = header and to == cluster.ranks + 2 and header.step == 2 and header.slice in (20, 30)
        push(at + 600 if late else at, to, datagram)

    cluster.push = slowly
    follow(cluster, tensor, 3)
    assert cluster.statistics(1).sums_left_out == 2
    assert cluster.seen[Event.LATE] == 2
    assert cluster.statistics(1).sums_duplicate == 2


def test_a_restarted_switch_closes_nothing_that_was_sent_before() -> None:
    """It has forgotten what it has finished: what closes a slice is of its own epoch, or is dropped."""
    cluster, tensor = closing(0.1)
    step_by_hosts(cluster, tensor)
    for rank in range(3):
        cluster.contribute(rank, 2, tensor, gradients(3, 2, tensor)[rank])
    cluster.run(lambda: bool(cluster.statistics(2).sums_received >= 10))
    cluster.restart()
    assert not cluster.run_for(1_000_000, lambda: cluster.complete(2, tensor))
    assert min(cluster.overdue(rank) for rank in range(3)) > 500_000
    assert cluster.seen[Event.STALE] > 0


@settings(max_examples=tries(8), deadline=None)
@given(
    st.integers(2, 4),
    st.lists(st.integers(1, 600), min_size=1, max_size=3),
    st.sampled_from([4, 8, 16]),
    st.sampled_from([0.05, 0.3, 0.9, 0.999999]),
    st.sampled_from([0.02, 0.2]),
    st.sampled_from([0, 400, 5_000]),
    st.integers(0, 2**32),
)
def test_what_is_not_applied_is_owed(
    workers: int, parts: list[int], window: int, budget: float, lost: float, jitter: int, seed: int
) -> None:
    """Of what goes to the switch and comes from it so much is lost; between hosts nothing is."""
    cluster = Summed(workers, window=window, loss=budget, seed=seed)
    tensor = Tensor(0, parts)
    cluster.open(tensor)
    rough = Impairment(loss=lost, duplicate=0.1, delay=100, jitter=jitter)
    copies = cluster.copies

    def rougher() -> list[int]:
        smooth, cluster.impairment = cluster.impairment, rough
        ats = copies()
        cluster.impairment = smooth
        return ats

    cluster.copies = rougher
    follow(cluster, tensor, 4)
    assert all(cluster.statistics(rank).sums_over_budget == 0 for rank in range(workers))
