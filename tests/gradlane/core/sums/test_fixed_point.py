# SPDX-License-Identifier: Apache-2.0
"""Elements as integers in lanes, and back, against integers and fractions."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from gradlane._core import ffi, lib
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gradlane.wire import ElementType, Lanes
from tests.support.fixed_point import FixedPoint

WORKERS = st.integers(2, 32)
EXPONENTS = st.integers(-126, 126)
LANES = st.sampled_from(list(Lanes))
FLOATS = st.lists(st.floats(width=32), min_size=1, max_size=40)
HALVES = st.lists(st.floats(width=16), min_size=1, max_size=40)


def pointer(array: np.ndarray) -> Any:
    return ffi.from_buffer("uint8_t[]", array)


def to_lanes(
    numbers: FixedPoint, values: np.ndarray, exponent: int, type: ElementType = ElementType.FLOAT32
) -> tuple[bytes, list[int], np.ndarray, int]:
    """Lanes, padded to a word; the integers; what is owed; how many were too large."""
    lanes = -(-values.size // numbers.lanes_of_word) * numbers.lanes_of_word
    to, owed = np.full(lanes * numbers.bits // 8, 0xA5, np.uint8), np.full_like(values, 1)
    integers, same = np.zeros(values.size, np.int32), np.full_like(values, 2)
    clipped = lib.gl_to_lanes(
        pointer(to), numbers.lanes, numbers.workers, lanes, pointer(values), type, values.size, exponent, pointer(owed)
    )
    again = lib.gl_to_integers(
        ffi.cast("int32_t *", pointer(integers)), numbers.lanes, numbers.workers, pointer(values), type, values.size,
        exponent, pointer(same),
    )  # fmt: skip
    assert clipped == again
    assert same.tobytes() == owed.tobytes()
    return to.tobytes(), [int(i) for i in integers], owed, clipped


@settings(max_examples=200)
@given(LANES, WORKERS, EXPONENTS, FLOATS)
@example(Lanes.INT32_LANES, 3, 0, [715827882.0, 715827904.0, -715827904.0, 1e30, -1e30])
@example(Lanes.INT16_LANES, 2, 0, [0.5, 1.5, 2.5, -0.5, 16383.4, 16383.5, 16384.0, -16384.0])
@example(Lanes.INT32_LANES, 2, 1, [4.15424312204329e16])  # what is owed is not half way between floats, but nearly
@example(Lanes.INT32_LANES, 2, 126, [3.4028234663852886e38, -3.4028234663852886e38])
@example(Lanes.INT16_LANES, 32, -126, [1e-45, -1e-45, 3.4028234663852886e38, math.inf, -math.inf, math.nan])
def test_integers_lanes_and_what_is_owed(lanes: Lanes, workers: int, exponent: int, values: list[float]) -> None:
    numbers = FixedPoint(lanes, workers)
    array = np.array(values, np.float32)
    values = [float(x) for x in array]
    packed, integers, owed, clipped = to_lanes(numbers, array, exponent)
    expected = [numbers.quantised(x, exponent) for x in values]
    assert integers == expected
    assert packed == numbers.packed(expected)
    assert [float(x) for x in owed] == [numbers.owed(x, exponent) for x in values]
    beyond = [x for x in values if math.isinf(x) or (x == x and abs(round_half(x, exponent)) > numbers.limit)]
    assert clipped == len(beyond)


def round_half(x: float, exponent: int) -> int:
    return round(Fraction(x) / Fraction(2) ** exponent)


@given(LANES, WORKERS, st.integers(-60, 20), HALVES)
def test_of_float16_what_is_owed_is_exact(lanes: Lanes, workers: int, exponent: int, values: list[float]) -> None:
    numbers = FixedPoint(lanes, workers)
    _, integers, owed, _ = to_lanes(numbers, np.array(values, np.float16), exponent, ElementType.FLOAT16)
    assert integers == [numbers.quantised(x, exponent) for x in values]
    for x, q, left in zip(values, integers, owed, strict=True):
        if math.isfinite(x) and abs(q) < numbers.limit:
            assert q * 2.0**exponent + float(left) == x


@given(LANES, WORKERS, st.integers(-100, 20), FLOATS)
def test_of_bfloat16_what_is_owed_is_exact(lanes: Lanes, workers: int, exponent: int, values: list[float]) -> None:
    numbers = FixedPoint(lanes, workers)
    bits = (np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    exact = [float(x) for x in (bits.astype(np.uint32) << 16).view(np.float32)]
    _, integers, owed, _ = to_lanes(numbers, bits, exponent, ElementType.BFLOAT16)
    assert integers == [numbers.quantised(x, exponent) for x in exact]
    for x, q, left in zip(exact, integers, (owed.astype(np.uint32) << 16).view(np.float32), strict=True):
        if math.isfinite(x) and abs(q) < numbers.limit:
            assert q * 2.0**exponent + float(left) == x


@given(LANES, WORKERS, EXPONENTS, st.booleans(), st.data())
def test_sums_of_lanes_become_elements(
    lanes: Lanes, workers: int, exponent: int, mean: bool, data: st.DataObject
) -> None:
    numbers = FixedPoint(lanes, workers)
    most = numbers.greatest_sum
    sums = data.draw(st.lists(st.integers(-most, most), min_size=1, max_size=40))
    size = numbers.bits // 8
    payload = np.frombuffer(b"".join((s + most).to_bytes(size, "big") for s in sums), np.uint8)
    integers, out = np.zeros(len(sums), np.int32), np.zeros(len(sums), np.float32)
    cast = ffi.cast("int32_t *", pointer(integers))
    assert lib.gl_from_lanes(cast, pointer(payload), lanes, most, len(sums)) == max(map(abs, sums))
    assert list(integers) == sums
    lib.gl_from_sums(pointer(out), ElementType.FLOAT32, cast, len(sums), exponent, workers if mean else 1)
    assert [float(x) for x in out] == [numbers.total(s, exponent, mean=mean) for s in sums]
    assert lib.gl_next_exponent(exponent, max(map(abs, sums)), lanes, workers) == numbers.next_exponent(exponent, sums)


@pytest.mark.parametrize("lanes", Lanes)
@pytest.mark.parametrize("workers", [2, 3, 32])
def test_a_lane_above_the_greatest_sum_is_none(lanes: Lanes, workers: int) -> None:
    numbers = FixedPoint(lanes, workers)
    size, integers = numbers.bits // 8, np.zeros(100, np.int32)
    cast = ffi.cast("int32_t *", pointer(integers))
    for lane, good in ((2 * numbers.greatest_sum, True), (2 * numbers.greatest_sum + 1, False)):
        if lane >= 2**numbers.bits:
            continue
        payload = np.frombuffer(bytes(size * 99) + lane.to_bytes(size, "big"), np.uint8)
        found = lib.gl_from_lanes(cast, pointer(payload), lanes, numbers.greatest_sum, 100)
        assert (found == numbers.greatest_sum) if good else (found == -1)


@settings(max_examples=200)
@given(LANES, WORKERS, EXPONENTS, st.booleans(), FLOATS)
@example(Lanes.INT16_LANES, 3, 5, True, [0.0, math.inf, math.nan])
def test_exponents_after_a_step_by_hosts(
    lanes: Lanes, workers: int, exponent: int, mean: bool, values: list[float]
) -> None:
    numbers = FixedPoint(lanes, workers)
    array = np.array(values, np.float32)
    divisor = workers if mean else 1
    found = lib.gl_exponent_of(exponent, pointer(array), ElementType.FLOAT32, array.size, divisor, lanes, workers)
    means = [x if mean or not math.isfinite(x) else Fraction(x) / workers for x in values]
    assert found == numbers.exponent_of(means, exponent)  # type: ignore[arg-type]


@given(LANES, WORKERS, EXPONENTS, st.data())
def test_exponents_after_any_sum(lanes: Lanes, workers: int, exponent: int, data: st.DataObject) -> None:
    numbers = FixedPoint(lanes, workers)
    edges = [
        max(0, numbers.greatest_sum // part + c) for part in (1, 4, 16, 32, 128, 256, 512, 2048) for c in (-1, 0, 1)
    ]
    most = min(data.draw(st.one_of(st.sampled_from(edges), st.integers(0, numbers.greatest_sum))), numbers.greatest_sum)
    assert lib.gl_next_exponent(exponent, most, lanes, workers) == numbers.next_exponent(exponent, [most])
