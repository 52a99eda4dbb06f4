# SPDX-License-Identifier: Apache-2.0
"""What a slice is said to be worth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlane import magnitude


@given(st.integers(1, 5000), st.integers(1, 64), st.integers(1, 5))
def test_shards_cover_all_slices_once(elements: int, per_slice: int, aggregators: int) -> None:
    slices = magnitude.slice_count(elements, per_slice)
    covered = [i for first, count in magnitude.shards(slices, aggregators) for i in range(first, first + count)]
    assert covered == list(range(slices))


@given(st.integers(1, 3000), st.integers(1, 64), st.integers(1, 4), st.integers(0, 1000))
def test_a_larger_slice_never_ranks_below_a_smaller_one_of_its_message(elements, per_slice, aggregators, seed) -> None:
    values = np.random.default_rng(seed).standard_normal(elements).astype(np.float32)
    ranks = magnitude.magnitudes(values, per_slice, aggregators)
    means = [float(np.abs(values[i : i + per_slice]).mean()) for i in range(0, elements, per_slice)]
    for first, count in magnitude.shards(len(means), aggregators):
        order = np.argsort(means[first : first + count], kind="stable")
        inside = ranks[first : first + count][order].astype(int)
        assert np.all(np.diff(inside) >= 0)


def test_the_quantiles_do_not_depend_on_the_scale() -> None:
    values = np.random.default_rng(1).standard_normal(10_000).astype(np.float32)
    ranks = magnitude.magnitudes(values, 100, 2)
    np.testing.assert_array_equal(ranks, magnitude.magnitudes(values * np.float32(1e-6), 100, 2))
    assert ranks.min() == 0
    assert ranks.max() > 245


def test_a_slice_that_is_not_finite_ranks_highest() -> None:
    values = np.ones(1000, np.float16)
    values[500] = np.nan
    assert magnitude.magnitudes(values, 100, 1)[5] == magnitude.magnitudes(values, 100, 1).max()


def test_a_slice_has_the_layer_of_its_first_element() -> None:
    np.testing.assert_array_equal(magnitude.layers([(0, 4), (25, 5), (26, 9)], 50, 10), [4, 4, 4, 9, 9])


@pytest.mark.parametrize("spans", [[], [(1, 0)], [(0, 0), (0, 1)], [(0, 0), (50, 1)]])
def test_spans_that_do_not_describe_the_tensor_are_refused(spans) -> None:
    with pytest.raises(ValueError, match="layer spans"):
        magnitude.layers(spans, 50, 10)
