# SPDX-License-Identifier: Apache-2.0
"""What is lost on a fast path is repaired within a few of its round trips; what is only late is not sent again."""

import numpy as np
import pytest

from gradlane.wire import Header, Kind
from tests.gradlane.core.protocol.network import Cluster, Impairment, mean_in_rank_order, values_of

DELAY = 20  # us of the path, each way
ROUND_TRIP = 2 * DELAY
SLICES, SLICE = 64, 1024  # of a message, and bytes


def fast(impairment: Impairment, seed: int = 0) -> Cluster:
    """Two ranks with links of 10 Gbit/s."""
    return Cluster(2, rate=10_000_000_000, buffer=200_000, slice_bytes=SLICE, impairment=impairment, seed=seed)


def reduce_on(cluster: Cluster, steps: int = 1) -> int:
    """us of steps, whose results are exact."""
    began = cluster.now
    for step in range(1, steps + 1):
        values = [values_of(rank, step, 1, 2 * SLICES * SLICE // 4) for rank in range(2)]
        results = [cluster.submit(rank, step, 1, values[rank]) for rank in range(2)]
        cluster.run(until=lambda step=step: cluster.all_completed(step))
        for result in results:
            np.testing.assert_array_equal(result, mean_in_rank_order(values))
    return cluster.now - began


def waited(number: int, times: int) -> int:
    """us from when a slice of the first message of rank 0 is first sent until it comes, if it is lost so many times."""
    cluster = fast(Impairment(delay=DELAY))
    sent: list[int] = []

    def lose(source: int, to: int, header: Header) -> bool:
        if source or header.kind not in (Kind.DATA, Kind.REPAIR) or header.slice != number or header.flags & 1:
            return True
        sent.append(cluster.now)
        return len(sent) > times

    cluster.filter = lose
    reduce_on(cluster)
    assert len(sent) == times + 1
    return sent[-1] - sent[0]


@pytest.mark.parametrize(
    ("number", "times", "round_trips"),
    [(SLICES // 2, 1, 6), (SLICES // 2, 2, 10), (SLICES - 1, 1, 6), (SLICES - 1, 2, 10)],
)
def test_a_slice_is_repaired_within_a_few_round_trips_in_the_first_step(
    number: int, times: int, round_trips: int
) -> None:
    """One in the middle is missed as later ones come, and the last one when it is asked for."""
    assert waited(number, times) < round_trips * ROUND_TRIP


@pytest.mark.parametrize(("loss", "most"), [(0.1, 25), (0.3, 80)])
def test_steps_over_a_path_that_loses_by_chance_take_some_round_trips(loss: float, most: int) -> None:
    """Whatever the datagrams are."""
    times = [reduce_on(fast(Impairment(loss=loss, delay=DELAY), seed)) for seed in range(8)]
    assert sum(times) / len(times) < most * ROUND_TRIP


@pytest.mark.parametrize("jitter", [0, 50, 200])
def test_what_comes_late_is_not_repaired(jitter: int) -> None:
    """Paths of which one is up to ten times as long as another."""
    sent = repaired = late = 0
    for seed in range(4):
        cluster = fast(Impairment(delay=DELAY, jitter=jitter), seed)
        reduce_on(cluster, 5)
        for rank in range(2):
            counts = cluster.statistics(rank)
            sent, repaired = sent + counts.slices_sent, repaired + counts.slices_repaired
            late += counts.slices_duplicate + counts.slices_late
    assert repaired * 200 < sent
    assert late * 1000 < sent
