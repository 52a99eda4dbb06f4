# SPDX-License-Identifier: Apache-2.0
"""A flow whose whole window is lost, and of which nothing is heard, asks what has come instead of waiting for long."""

import itertools

import numpy as np
import pytest

from gradlane.wire import Header, Kind
from tests.gradlane.core.protocol.network import Cluster, mean_in_rank_order, values_of

SIZE = 6400  # elements: 200 slices to each of the two ranks
STALL = 25_000  # us after which what is in flight counts as lost, whatever the path is like


def pauses(first: int, last: int, unheard: int = 0) -> tuple[Cluster, list[int], list[np.ndarray]]:
    """A step whose slices `first` to `last` from rank 0 to rank 1 are lost when they are first sent, and so many of its
    questions: the pauses (us) in what rank 0 sends."""
    cluster = Cluster(2, rate=10_000_000, buffer=2_000)
    sent: list[int] = []
    asked = itertools.count()

    def lose(source: int, to: int, header: Header) -> bool:
        if source == 0 and header.kind in (Kind.DATA, Kind.REPAIR):
            sent.append(cluster.now)
            return header.kind == Kind.REPAIR or not first <= header.slice <= last
        return source != 0 or header.kind != Kind.PROBE or next(asked) >= unheard

    cluster.filter = lose
    results = [cluster.submit(rank, 1, 1, values_of(rank, 1, 1, SIZE)) for rank in range(2)]
    cluster.run(until=lambda: cluster.all_completed(1))
    return cluster, [b - a for a, b in itertools.pairwise(sent)], results


@pytest.mark.parametrize(("first", "last", "unheard"), [(40, 120, 0), (3, 120, 0), (60, 110, 0), (40, 120, 1)])
def test_a_lost_window_is_repaired_within_a_few_round_trips(first: int, last: int, unheard: int) -> None:
    cluster, gaps, results = pauses(first, last, unheard)
    assert max(gaps) < STALL / 3
    assert cluster.statistics(0).probes_sent
    for result in results:
        np.testing.assert_array_equal(result, mean_in_rank_order([values_of(rank, 1, 1, SIZE) for rank in range(2)]))


def test_where_answers_come_nobody_asks() -> None:
    cluster, _, _ = pauses(1, 0)
    assert cluster.statistics(0).probes_sent == 0
