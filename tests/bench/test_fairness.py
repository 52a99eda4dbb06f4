# SPDX-License-Identifier: Apache-2.0
"""What the benchmark of fairness makes of arrivals."""

import pytest

from bench.transport import fairness


def test_jains_index_is_one_of_equal_shares_and_one_nth_where_one_has_all() -> None:
    assert fairness.jain([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert fairness.jain([0.0, 7.0, 0.0, 0.0]) == pytest.approx(1 / 4)
    assert fairness.jain([1.0, 2.0]) == pytest.approx(9 / 10)
    assert fairness.jain([0.0, 0.0]) == 1


def test_arrivals_count_in_the_window_that_they_come_in_and_outside_of_all_not_at_all() -> None:
    arrivals = [(9.9, 1000), (10.0, 1), (11.9, 2), (12.0, 4), (15.9, 8), (16.0, 1000)]
    assert fairness.in_windows(arrivals, 10.0, 2.0, 3) == [8 * 3 / 2, 8 * 4 / 2, 8 * 8 / 2]
