# SPDX-License-Identifier: Apache-2.0
"""What a host contributes: its processes' sum, with what is owed, and what each slice is worth. Against numpy."""

import numpy as np
import pytest
from gradlane._core import ffi, lib
from hypothesis import given
from hypothesis import strategies as st

from gradlane.job import elements

FLOATS = st.sampled_from(elements.FLOATS)


def bits_of(values: np.ndarray, dtype: str) -> np.ndarray:
    """float32 values as an array of that type; bfloat16 by its definition, rounded to nearest even."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def floats_of(values: np.ndarray, dtype: str) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else values.astype(np.float32)


def pointer(array: np.ndarray):
    return ffi.from_buffer("uint8_t[]", array, require_writable=True)


def convert(values: np.ndarray, from_type: str, to_type: str) -> np.ndarray:
    result = np.empty(values.size, elements.NUMPY[to_type])
    lib.gl_convert(pointer(result), elements.CODES[to_type], pointer(values), elements.CODES[from_type], values.size)
    return result


@given(FLOATS, st.integers(1, 2000), st.integers(1, 4), st.booleans(), st.booleans(), st.integers(0, 1 << 30))
def test_a_slice_is_the_mean_of_the_processes_and_what_is_owed(dtype, count, processes, owes, in_place, seed) -> None:
    random = np.random.default_rng(seed)
    sources = [bits_of(random.standard_normal(count, np.float32), dtype) for _ in range(processes)]
    owed = bits_of(random.standard_normal(count, np.float32), dtype)
    expected = floats_of(sources[0], dtype).copy()
    for source in sources[1:]:
        expected += floats_of(source, dtype)
    if processes > 1:
        expected /= np.float32(processes)
    if owes:
        expected += floats_of(owed, dtype)
    out = sources[0] if in_place else np.empty_like(sources[0])
    pointers = ffi.new("uint8_t *[]", [pointer(source) for source in sources])
    worth = lib.gl_contribute(
        pointer(out), pointers, processes, processes, pointer(owed) if owes else ffi.NULL, count, elements.CODES[dtype]
    )
    np.testing.assert_array_equal(out, bits_of(expected, dtype))
    assert worth.mean == pytest.approx(np.abs(expected).mean(dtype=np.float64), rel=1e-4)
    assert worth.squares == pytest.approx(np.square(expected, dtype=np.float64).sum(), rel=1e-4)


@given(st.lists(st.floats(width=32, min_value=0, allow_nan=False), min_size=1, max_size=300))
def test_a_larger_slice_never_ranks_below_a_smaller_one(values) -> None:
    means = np.array(values, np.float32)
    ranks = quantiles(means)
    assert np.all(np.diff(ranks[np.argsort(means, kind="stable")].astype(int)) >= 0)
    for value in set(values):
        assert np.ptp(ranks[means == np.float32(value)]) == 0, "equal slices are worth the same"


@given(st.integers(2, 2000), st.integers(0, 1 << 30))
def test_quantiles_are_spread_over_the_whole_range_whatever_the_scale(count, seed) -> None:
    means = np.random.default_rng(seed).permutation(np.linspace(1, 2, count)).astype(np.float32)
    exact = np.argsort(np.argsort(means)) * 256 // count
    assert np.abs(quantiles(means).astype(int) - exact).max() <= 1 + 256 * 8 / count
    # By a power of two: the same mantissas.
    np.testing.assert_array_equal(quantiles(means), quantiles(means * np.float32(2.0**-40)))


def quantiles(means: np.ndarray) -> np.ndarray:
    result = np.empty(means.size, np.uint8)
    lib.gl_quantiles(ffi.from_buffer("float[]", means), means.size, pointer(result))
    return result


def test_what_is_not_finite_ranks_highest() -> None:
    assert quantiles(np.array([1, 2, np.nan, 3], np.float32)).argmax() == 2
    assert quantiles(np.array([1, np.inf, 2, 3], np.float32)).argmax() == 1


@given(FLOATS, FLOATS, st.integers(1, 1500), st.integers(0, 1 << 30))
def test_conversion_rounds_to_nearest(from_type, to_type, count, seed) -> None:
    values = bits_of(np.random.default_rng(seed).standard_normal(count).astype(np.float32) * 1e-3, from_type)
    np.testing.assert_array_equal(convert(values, from_type, to_type), bits_of(floats_of(values, from_type), to_type))


def test_conversion_keeps_infinities_and_nan() -> None:
    values = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)
    for to_type in ("bfloat16", "float16"):
        back = convert(convert(values, "float32", to_type), to_type, "float32")
        np.testing.assert_array_equal(back, [np.inf, -np.inf, np.nan, 0.0, 0.0])
    # The bits above which a NaN would round to infinity.
    odd = np.array([0x7F800001, 0xFF80FFFF], np.uint32).view(np.float32)
    assert np.isnan(convert(convert(odd, "float32", "bfloat16"), "bfloat16", "float32")).all()
