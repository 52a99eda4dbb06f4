# SPDX-License-Identifier: Apache-2.0
"""Little memory and slow links: what is asked for is sent all the same."""

import pytest

from gradlane.wire import Kind
from tests.gradlane.core.protocol.network import Cluster, Impairment, values_of


@pytest.mark.parametrize("seed", range(3))
def test_what_there_is_no_memory_to_ask_for_uses_up_the_budget(seed: int) -> None:
    # A BITMAP names few slices then, and the budget covers more than these: none of them may be left out for that.
    cluster = Cluster(
        3, push_loss=0.5, memory=1024, impairment=Impairment(loss=0.6, kinds=frozenset([Kind.DATA])), seed=seed
    )
    for tensor in range(2):
        for rank in range(3):
            cluster.submit(rank, 0, tensor, values_of(rank, 0, tensor, 3000))
    cluster.run(until=lambda: cluster.all_completed(2), limit=2_000_000)
    assert all(cluster.statistics(rank).budget_violations == 0 for rank in range(3))


def test_what_is_asked_for_is_sent_though_asking_fills_the_link() -> None:
    # On a link of 1 Mbit/s a BITMAP takes longer than the time after which it is repeated.
    cluster = Cluster(2, rate=1_000_000, slice_bytes=256, buffer=2000, impairment=Impairment(delay=10))
    cluster.filter = lambda source, to, header: header.kind != Kind.DATA
    for tensor in range(4):
        for rank in range(2):
            cluster.submit(rank, 0, tensor, values_of(rank, 0, tensor, 256))
    cluster.run(until=lambda: cluster.all_completed(4), limit=1_000_000)


def test_what_waits_for_the_window_is_sent_though_what_is_in_it_waits_for_that() -> None:
    # Each rank pushes to the next one first, which has no memory for all of it
    # until the one after that has pushed, too.
    cluster = Cluster(3, push_loss=0.1, window=1, memory=0)
    for rank in range(3):
        cluster.submit(rank, 0, 0, values_of(rank, 0, 0, 1600))
    cluster.run(until=lambda: cluster.all_completed(1), limit=1_000_000)
    assert all(cluster.statistics(rank).budget_violations == 0 for rank in range(3))
