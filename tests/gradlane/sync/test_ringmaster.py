# SPDX-License-Identifier: Apache-2.0
"""Ringmaster's server: which changes it applies, whatever the order in which they come."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.sync import Ringmaster
from gradlane.sync.ringmaster import Server
from tests.support.effort import tries


@settings(max_examples=tries(100), deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.lists(st.integers(0, 5), max_size=60))
def test_no_change_is_applied_that_is_as_old_as_the_bound_and_no_other_is_left_out(
    size: int, staleness: int, order: list[int]
) -> None:
    """A change of the parameters of version v is a one at place v: so the parameters tell which were applied."""
    server = Server(np.zeros(100), staleness)
    has = [0] * size  # the version that each worker computes from
    applied: list[int] = []
    for worker in (one % size for one in order):
        change = np.zeros(100)
        change[has[worker]] = -1.0
        behind = len(applied) - has[worker]
        if behind < staleness:
            applied.append(has[worker])
        has[worker] = server.take(change, has[worker])
        assert has[worker] == len(applied)
        np.testing.assert_array_equal(change, server.values)
        np.testing.assert_array_equal(server.values, np.bincount(applied, minlength=100))
    assert server.left_out == len(order) - len(applied)
    assert all(number - version < staleness for number, version in enumerate(applied))


def test_a_version_that_there_was_never_is_left_out() -> None:
    server = Server(np.zeros(3), 4)
    for version in (1, 2**62, -(2**62)):
        change = np.ones(3)
        assert server.take(change, version) == 0
        assert not change.any()


def test_other_parameters_are_as_new_as_those_at_the_beginning() -> None:
    server = Server(np.zeros(1), 2)
    for version in range(5):
        server.take(np.ones(1), version)
    server.set(np.full(1, 7.0))
    assert server.take(np.ones(1), 0) == 1
    assert (server.values[0], server.left_out) == (6, 0)


def test_statistics_become_a_running_mean() -> None:
    server = Server(np.zeros(1), 4, workers=4)
    for _ in range(200):
        for value in (1.0, 2.0, 3.0, 6.0):
            server.take(np.array([value]), 0)
    assert 2 < server.values[0] < 5


def test_a_bound_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="staleness is at least 1"):
        Ringmaster(0)
