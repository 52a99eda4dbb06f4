# SPDX-License-Identifier: Apache-2.0
"""The numbers that travel through a switch that sums, in integers and fractions: what the core is compared with.

A worker sends round(x / 2^e) of each element x; e, the exponent, is that of the slice. Nothing here is rounded but
where the rules say so.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gradlane import wire

# Exponents of slices, and that of a slice of which nothing is known; what a slice that summed to zero lowers it by.
LEAST_EXPONENT, GREATEST_EXPONENT, FIRST_EXPONENT, ZERO_STEP = -126, 126, -24, 6

# A number whose exact value counts.
Real = float | Fraction


@dataclass(frozen=True)
class FixedPoint:
    """The lanes of a job with so many workers."""

    lanes: wire.Lanes
    workers: int

    @property
    def bits(self) -> int:
        """Of a lane."""
        return {wire.Lanes.INT16_LANES: 16, wire.Lanes.INT32_LANES: 32}[self.lanes]

    @property
    def limit(self) -> int:
        """The greatest magnitude of a worker's integer, and the bias of its lane: L."""
        return (2**self.bits - 1) // (2 * self.workers)

    @property
    def greatest_sum(self) -> int:
        """The greatest magnitude of a sum: F."""
        return self.workers * self.limit

    @property
    def headroom(self) -> int:
        """Sums should use this fraction of the greatest: F / headroom."""
        return {16: 32, 32: 512}[self.bits]

    @property
    def lanes_of_word(self) -> int:
        """Lanes in SUM_WORD bytes."""
        return wire.SUM_WORD * 8 // self.bits

    def quantised(self, x: Real, exponent: int) -> int:
        """The integer nearest to x / 2^exponent, of two equally near the even one, within the limit. NaN is 0, infinity
        no more than leaves the exponent as it is."""
        if math.isnan(x):
            return 0
        if math.isinf(x):
            return self.limit // self.headroom if x > 0 else -(self.limit // self.headroom)
        return max(-self.limit, min(self.limit, _nearest(x, exponent)))

    def owed(self, x: float, exponent: int) -> float:
        """What the integer does not say, for the next step: exact (a float32) where nothing is cut off at the limit.

        Nothing of what is not finite.
        """
        if not math.isfinite(x):
            return 0.0
        return float32(Fraction(x) - self.quantised(x, exponent) * power_of_two(exponent))

    def total(self, integers: int, exponent: int, *, mean: bool) -> float:
        """The float32 that a sum of integers means: of the contributions' sum or mean. Rounded as the core does."""
        scale = float32(power_of_two(exponent) / (self.workers if mean else 1))
        return float32(Fraction(float32(Fraction(integers))) * Fraction(scale))

    def packed(self, integers: Sequence[int]) -> bytes:
        """A worker's lanes: biased, big-endian, padded with zeros' lanes to whole words."""
        limit, size = self.limit, self.bits // 8
        lanes = [integer + limit for integer in integers] + [limit] * (-len(integers) % self.lanes_of_word)
        return b"".join(lane.to_bytes(size, "big") for lane in lanes)

    def summed(self, payload: bytes, members: int | None = None) -> list[int]:
        """The integers in a result's lanes, of so many workers (None: all). Raises ValueError if one can't be a sum."""
        size, most = self.bits // 8, self.limit * (self.workers if members is None else members)
        lanes = [int.from_bytes(payload[n : n + size], "big") for n in range(0, len(payload), size)]
        if max(lanes, default=0) > 2 * most:
            raise ValueError(f"a lane of {max(lanes)} is no sum: at most {2 * most}")
        return [lane - most for lane in lanes]

    def next_exponent(self, exponent: int, sums: Iterable[int]) -> int:
        """A slice's exponent after a step by the switch, from the sums that came: they should use F / headroom.

        It stays while they use a fourth of that to twice as much. Sums of zero may be what was too small for the
        exponent, so it falls, but no further than to FIRST_EXPONENT.
        """
        most = max(abs(integer) for integer in sums)
        if most == 0:
            return max(exponent - ZERO_STEP, min(exponent, FIRST_EXPONENT))
        used = Fraction(most * self.headroom, self.greatest_sum)
        if Fraction(1, 4) <= used <= 2:
            return exponent
        return _bounded(exponent + least_power(used))

    def exponent_of(self, means: Iterable[Real], exponent: int = FIRST_EXPONENT) -> int:
        """A slice's exponent after a step by hosts, from the means: they should use F / headroom.

        It stays if all are zero. What is not finite says nothing.
        """
        most = max((abs(Fraction(mean)) for mean in means if math.isfinite(mean)), default=Fraction(0))
        if most == 0:
            return exponent
        return _bounded(least_power(self.headroom * self.workers * most / self.greatest_sum))


@functools.cache
def power_of_two(exponent: int) -> Fraction:
    """2^exponent."""
    return Fraction(2) ** exponent


def least_power(x: Fraction) -> int:
    """The least k with x <= 2^k; x > 0."""
    k = x.numerator.bit_length() - x.denominator.bit_length() - 1
    while power_of_two(k) < x:
        k += 1
    return k


def float32(x: Fraction) -> float:
    """The float32 nearest to x, of two equally near the even one (IEEE 754); infinite if x is too large."""
    if x == 0:
        return 0.0
    numerator, denominator = abs(x).as_integer_ratio()
    power = numerator.bit_length() - denominator.bit_length()  # that or the one below is the greatest in x
    power -= numerator << max(0, -power) < denominator << max(0, power)
    unit = max(power, -126) - 23
    units = _nearest(x, unit)
    if abs(units).bit_length() + unit > 128:
        return math.copysign(math.inf, x)
    return math.ldexp(units, unit)


def _nearest(x: Real, exponent: int) -> int:
    """The integer nearest to x / 2^exponent, of two equally near the even one; in integers, as that is fast."""
    numerator, denominator = x.as_integer_ratio()
    numerator <<= max(0, -exponent)
    denominator <<= max(0, exponent)
    whole, rest = divmod(numerator, denominator)
    return whole + (2 * rest > denominator or (2 * rest == denominator and whole % 2))


def _bounded(exponent: int) -> int:
    return max(LEAST_EXPONENT, min(GREATEST_EXPONENT, exponent))
