# SPDX-License-Identifier: Apache-2.0
"""Hosts that look at their sockets only now and then: what waits there is late, and not lost."""

import heapq

import numpy as np
import pytest

from gradlane.wire import Header, Kind
from tests.gradlane.core.protocol.network import Cluster, mean_in_rank_order, values_of

SIZE = 12_800  # elements


class BusyCluster(Cluster):
    """What comes to a rank waits until that next looks, each `pause` us, at another time than the others."""

    def __init__(self, ranks: int, pause: int, **options: object) -> None:
        super().__init__(ranks, **options)  # pyright: ignore[reportArgumentType]
        self.pause = pause

    def _deliver(self, source: int, to: int, datagram: bytes) -> None:
        if not self.filter(source, to, Header.unpack(datagram)):
            return
        phase = to * self.pause // self.ranks
        looks = -(-(self.now + self.impairment.delay - phase) // self.pause) * self.pause + phase
        self.counter += 1
        heapq.heappush(self.queue, (looks, self.counter, to, datagram))


def reduce_on(cluster: Cluster, steps: int = 3, size: int = SIZE) -> None:
    """All-reduces one after the other, whose results are exact."""
    for step in range(1, steps + 1):
        values = [values_of(rank, step, 1, size) for rank in range(cluster.ranks)]
        results = [cluster.submit(rank, step, 1, values[rank]) for rank in range(cluster.ranks)]
        cluster.run(until=lambda step=step: cluster.all_completed(step))
        for result in results:
            np.testing.assert_array_equal(result, mean_in_rank_order(values))


@pytest.mark.parametrize("pause", [2_000, 7_000, 20_000])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_what_only_waits_to_be_read_is_not_repaired(ranks: int, pause: int) -> None:
    """But for a few that an answer under way does not yet tell of."""
    cluster = BusyCluster(ranks, pause, rate=50_000_000, buffer=20_000)
    reduce_on(cluster)
    for rank in range(ranks):
        counts = cluster.statistics(rank)
        assert counts.slices_repaired * 100 < counts.slices_sent


def test_what_is_lost_on_the_way_to_a_busy_host_is_repaired() -> None:
    cluster = BusyCluster(3, 7_000, rate=50_000_000, buffer=20_000)
    lost: set[tuple[int, int]] = set()

    def lose(source: int, to: int, header: Header) -> bool:
        """One of 20 slices, when it is first sent."""
        if header.kind != Kind.DATA or header.slice % 20:
            return True
        lost.add((header.message, header.slice))
        return False

    cluster.filter = lose
    reduce_on(cluster)
    repaired = sum(cluster.statistics(rank).slices_repaired for rank in range(3))
    assert len(lost) <= repaired < 2.5 * len(lost)


def test_what_is_sent_last_and_lost_is_asked_for_however_often_its_receiver_tells_of_the_hole() -> None:
    """What is reduced last is the last of a result to be sent, though its number is not the highest. Where
    ports hold much a sender waits for long until it asks, and BITMAPs come more often than that."""
    cluster = Cluster(2, rate=10_000_000, buffer=256_000)
    cluster.filter = lambda source, to, header: header.kind != Kind.DATA or header.slice != 3
    reduce_on(cluster, size=2 * 6 * 16)
    for rank in range(2):
        counts = cluster.statistics(rank)
        assert counts.probes_sent
        assert counts.slices_repaired == 6  # a contribution's and a result's, in each step
