# SPDX-License-Identifier: Apache-2.0
"""Graphs of workers: connected, with few neighbours, and such that nobody waits in a circle."""

import numpy as np
import pytest

from gradlane.sync.schedule import bipartite, exponential

SIZES = range(1, 65)


def hops(neighbours: list[tuple[int, ...]]) -> int:
    """The most that one needs to reach another; -1: some never do."""
    size = len(neighbours)
    reached, steps = np.eye(size, dtype=bool), 0
    edges = np.eye(size, dtype=bool)
    for place, others in enumerate(neighbours):
        edges[place, list(others)] = True
    while not reached.all():
        if steps > size:
            return -1
        reached = reached @ edges
        steps += 1
    return steps


@pytest.mark.parametrize("size", SIZES)
def test_those_who_ask_and_those_who_answer_are_apart_and_connected(size: int) -> None:
    neighbours = bipartite(size)
    for place, others in enumerate(neighbours):
        assert all((place + other) % 2 == 1 for other in others), "one asks, the other answers"
        assert all(place in neighbours[other] for other in others)
        assert len(others) <= (size // 2).bit_length() + 2
    assert 0 <= hops(neighbours) <= max(1, 2 * size.bit_length())


@pytest.mark.parametrize("size", SIZES)
def test_as_many_come_in_as_go_out_and_news_reaches_everyone_in_log_n_hops(size: int) -> None:
    neighbours = exponential(size)
    weights = np.eye(size)
    for place, others in enumerate(neighbours):
        assert len(set(others)) == len(others)
        assert place not in others
        weights[list(others), place] = 1
    weights /= len(neighbours[0]) + 1
    np.testing.assert_allclose(weights.sum(axis=0), 1)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert hops(neighbours) <= (size - 1).bit_length()
