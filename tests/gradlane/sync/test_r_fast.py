# SPDX-License-Identifier: Apache-2.0
"""R-FAST's workers on a model of a network that delays, reorders and loses elements: what is lost heals by itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.sync.r_fast import Tracker
from gradlane.sync.schedule import exponential
from tests.support.effort import tries

COUNT = 6


class Network:
    """Workers, and of each edge what the receiver has: each element the latest that came."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.edges = [(place, other) for place, out in enumerate(exponential(size)) for other in out]
        self.mine = [np.zeros(COUNT) for _ in range(size)]
        self.sums = {edge: np.zeros(COUNT) for edge in self.edges}
        self.heard = {edge: np.zeros(COUNT) for edge in self.edges}
        self.given = {edge: np.zeros(COUNT) for edge in self.edges}
        self.values = [np.zeros(COUNT) for _ in range(size)]
        self.changes = [np.zeros(COUNT) for _ in range(size)]  # the latest
        self.workers = [
            Tracker(
                self.mine[place],
                [self.sums[edge] for edge in self.edges if edge[0] == place],
                [self.heard[edge] for edge in self.edges if edge[1] == place],
                [self.given[edge] for edge in self.edges if edge[1] == place],
            )
            for place in range(size)
        ]
        for worker in self.workers:
            worker.begin(np.zeros(COUNT))

    def step(self, place: int, change: np.ndarray) -> None:
        self.changes[place] = change
        self.values[place] -= change
        self.workers[place].step(self.values[place])

    def deliver(self, edge: tuple[int, int], lost: np.ndarray | bool = False) -> None:
        """What the edge has now; elements that are `lost` stay as they were."""
        came = ~np.broadcast_to(lost, COUNT)
        self.heard[edge][came] = self.mine[edge[0]][came]
        self.given[edge][came] = self.sums[edge][came]


@settings(max_examples=tries(60), deadline=None)
@given(st.integers(1, 9), st.floats(0, 0.9), st.integers(0, 2**32 - 1), st.integers(0, 120))
def test_after_healing_the_trackers_are_the_sum_of_the_latest_changes(
    size: int, loss: float, seed: int, events: int
) -> None:
    network = Network(size, seed)
    for _ in range(events):
        if network.edges and network.random.random() < 0.6:
            edge = network.edges[network.random.integers(len(network.edges))]
            network.deliver(edge, network.random.random(COUNT) < loss)
        else:
            network.step(int(network.random.integers(size)), network.random.standard_normal(COUNT))
    # Under way is what was given and not taken yet.
    for edge in network.edges:
        network.deliver(edge)
    for place in range(size):
        network.step(place, network.changes[place])
    total = sum(worker.tracker for worker in network.workers)
    taken = {edge: np.zeros(COUNT) for edge in network.edges}
    for place, worker in enumerate(network.workers):
        ends = [edge for edge in network.edges if edge[1] == place]
        taken |= dict(zip(ends, worker._taken, strict=True))  # pyright: ignore[reportPrivateUsage]
    total = total + sum(network.sums[edge] - taken[edge] for edge in network.edges)
    np.testing.assert_allclose(total, sum(network.changes), atol=1e-9)


@pytest.mark.parametrize("size", [2, 5, 8])
def test_with_unlike_data_loss_and_slow_workers_all_come_to_the_common_optimum(size: int) -> None:
    """Each worker's own optimum is far away; one computes five times as long; 30 % of the elements are lost."""
    network = Network(size, size)
    targets = 3 * network.random.standard_normal((size, COUNT))
    curves = network.random.uniform(0.5, 1.5, (size, COUNT))
    optimum = (curves * targets).sum(axis=0) / curves.sum(axis=0)
    for turn in range(1000 * size):
        place = int(network.random.integers(size))
        if place == 0 and turn % 5:
            continue
        network.step(place, 0.06 * curves[place] * (network.values[place] - targets[place]))
        for edge in network.edges:
            if edge[0] == place and network.random.random() < 0.7:
                network.deliver(edge, network.random.random(COUNT) < 0.3)
    for values in network.values:
        np.testing.assert_allclose(values, optimum, atol=0.1)
    assert np.abs(optimum - targets).mean() > 1
