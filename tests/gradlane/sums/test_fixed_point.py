# SPDX-License-Identifier: Apache-2.0
"""The oracle of the numbers has the properties that its users rely on."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gradlane import wire
from tests.support.fixed_point import FIRST_EXPONENT, FixedPoint, float32, least_power, power_of_two
from tests.support.sum_switch import WORD_MODULUS

points = st.builds(FixedPoint, st.sampled_from(wire.Lanes), st.integers(2, 32))
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
exponents = st.integers(-126, 126)
# The part of the greatest sum that sums should use.
USE = {wire.Lanes.INT16_LANES: Fraction(1, 32), wire.Lanes.INT32_LANES: Fraction(1, 512)}


@given(points, st.data())
def test_lanes_of_all_workers_add_up_without_carry_in_whichever_width(point: FixedPoint, data: st.DataObject):
    integer = st.one_of(st.integers(-point.limit, point.limit), st.sampled_from([-point.limit, point.limit]))
    rows = [data.draw(st.lists(integer, min_size=9, max_size=9)) for _ in range(point.workers)]
    words = [int.from_bytes(point.packed(row), "big") for row in rows]
    assert sum(words) < WORD_MODULUS
    sums = point.summed(sum(words).to_bytes(wire.SUM_WORD, "big"))
    assert sums == [sum(column) for column in zip(*rows, strict=True)] + [0] * (point.lanes_of_word - 9)


@pytest.mark.parametrize("lanes", wire.Lanes)
@pytest.mark.parametrize("workers", range(2, 33))
def test_one_more_would_overflow_a_lane_and_the_greatest_sum_is_no_least_int32(lanes: wire.Lanes, workers: int):
    point = FixedPoint(lanes, workers)
    assert 2 * workers * point.limit < 2**point.bits <= 2 * workers * (point.limit + 1)
    assert point.greatest_sum < 2**31


def test_what_can_be_no_sum_is_refused():
    point = FixedPoint(wire.Lanes.INT16_LANES, 3)
    assert point.limit == 10922
    with pytest.raises(ValueError, match="65533 is no sum: at most 65532"):
        point.summed((65533).to_bytes(2, "big"))


@given(points, floats, exponents)
def test_what_travels_and_what_is_owed_are_together_what_was_given(point: FixedPoint, x: float, exponent: int):
    integer = point.quantised(x, exponent)
    assume(abs(integer) < point.limit)
    owed = point.owed(x, exponent)
    assert integer * power_of_two(exponent) + Fraction(owed) == Fraction(x)
    assert abs(Fraction(owed)) <= power_of_two(exponent) / 2


@given(points, floats, exponents)
def test_what_is_cut_off_is_owed_to_a_float32(point: FixedPoint, x: float, exponent: int):
    assume(abs(point.quantised(x, exponent)) == point.limit)
    rest = abs(Fraction(x)) - point.limit * power_of_two(exponent)
    assert abs(abs(Fraction(point.owed(x, exponent))) - abs(rest)) <= abs(Fraction(x)) / 2**24


@pytest.mark.parametrize(("x", "integer"), [(math.nan, 0), (math.inf, 127), (-math.inf, -127)])
def test_what_is_not_finite_is_owed_to_nobody(x: float, integer: int):
    point = FixedPoint(wire.Lanes.INT16_LANES, 8)
    assert (point.quantised(x, 0), point.owed(x, 0)) == (integer, 0.0)


@pytest.mark.parametrize(
    ("x", "integer"), [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-1.5, -2), (0.75, 1), (9e9, 4095)]
)
def test_halves_go_to_the_even_integer(x: float, integer: int):
    assert FixedPoint(wire.Lanes.INT16_LANES, 8).quantised(x, 0) == integer


@given(points, st.data(), exponents, st.booleans())
def test_a_total_is_within_three_roundings_of_the_exact_one(
    point: FixedPoint, data: st.DataObject, exponent: int, mean: bool
):
    integers = data.draw(st.integers(-point.greatest_sum, point.greatest_sum))
    exact = integers * power_of_two(exponent) / (point.workers if mean else 1)
    assume(exponent > -100)  # no subnormal numbers
    assume(abs(exact) < power_of_two(127))
    assert abs(Fraction(point.total(integers, exponent, mean=mean)) - exact) <= abs(exact) * 3 / 2**24


@given(points, st.data(), exponents)
def test_an_exponent_makes_sums_use_a_part_of_the_lanes(point: FixedPoint, data: st.DataObject, exponent: int):
    most = data.draw(st.integers(1, point.greatest_sum))
    after = point.next_exponent(exponent, [0, -most, 1])
    use = most * power_of_two(exponent - after) / point.greatest_sum  # of the same values in the next step
    wanted = USE[point.lanes]
    if after not in (-126, 126, exponent):
        assert wanted / 2 < use <= wanted
    if after == exponent and abs(exponent) < 126:
        assert wanted / 4 <= use <= wanted * 2


@given(points, st.lists(floats, min_size=1), exponents)
def test_hosts_and_switch_mean_the_same_by_an_exponent(point: FixedPoint, means: list[float], exponent: int):
    after = point.exponent_of(means, exponent)
    most = max(abs(Fraction(mean)) for mean in means)
    if most == 0:
        assert after == exponent
    elif abs(after) < 126:
        use = point.workers * most / power_of_two(after) / point.greatest_sum
        assert USE[point.lanes] / 2 < use <= USE[point.lanes]


def test_a_slice_of_zeros_comes_back_from_any_exponent():
    """A gradient that was huge once must not hide all later ones below half a unit."""
    point = FixedPoint(wire.Lanes.INT16_LANES, 8)
    exponent = point.exponent_of([3e38])
    steps = 0
    while point.quantised(1e-3, exponent) == 0:
        exponent = point.next_exponent(exponent, [0] * 4)
        steps += 1
    assert steps <= 25
    assert point.next_exponent(FIRST_EXPONENT, [0]) == FIRST_EXPONENT
    assert point.next_exponent(-90, [0]) == -90
    assert point.next_exponent(FIRST_EXPONENT + 1, [0]) == FIRST_EXPONENT


def test_means_that_are_not_finite_say_nothing_about_the_exponent():
    point = FixedPoint(wire.Lanes.INT32_LANES, 2)
    assert point.exponent_of([math.inf, math.nan, 1.0]) == point.exponent_of([1.0])
    assert point.exponent_of([math.nan], 5) == 5


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_float32_rounds_as_the_processor_does(x: float):
    with np.errstate(over="ignore", under="ignore"):
        assert float32(Fraction(x)) == float(np.float32(x))


@pytest.mark.parametrize(("x", "k"), [(Fraction(1), 0), (Fraction(3, 2), 1), (Fraction(2), 1), (Fraction(1, 3), -1)])
def test_the_least_power_of_two(x: Fraction, k: int):
    assert least_power(x) == k


@given(st.fractions(min_value=Fraction(1, 2**200), max_value=2**200))
def test_the_least_power_is_the_least(x: Fraction):
    assert power_of_two(least_power(x) - 1) < x <= power_of_two(least_power(x))
