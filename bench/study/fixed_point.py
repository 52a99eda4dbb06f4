# SPDX-License-Identifier: Apache-2.0
"""Means of gradients by a switch that sums integers: the rules of docs/aggregation.md, for all workers at once."""

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gradlane.wire import MAX_SUM_WORDS, SUM_WORD

Floats: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]
Wholes: TypeAlias = NDArray[np.float64]  # integers below 2^53
Flags: TypeAlias = NDArray[np.bool_]

_FIRST_EXPONENT, _MOST_EXPONENT, _ZERO_STEP = -24, 126, 6
_HEADROOM = {16: 32, 32: 512}


@dataclass(frozen=True)
class FixedPoint:
    """Lanes of so many bits, the workers whose integers are added in them, and the words of lanes in a slice.

    `headroom`: sums should use that part of what they could; 0: as the rules have it. Exponents are of slices, (s,).
    """

    bits: int
    workers: int
    words: int = MAX_SUM_WORDS
    headroom: int = 0

    @property
    def limit(self) -> int:
        """The greatest magnitude of a worker's integer: L."""
        return (2**self.bits - 1) // (2 * self.workers)

    @property
    def use(self) -> int:
        """Sums should use one part in so many of what they could."""
        return self.headroom or _HEADROOM[self.bits]

    @property
    def per_slice(self) -> int:
        """Elements of a slice."""
        return self.words * SUM_WORD * 8 // self.bits

    def quantised(self, values: Floats, exponents: Integers) -> tuple[Wholes, Floats, int]:
        """The integers of (..., s, elements) values, what they do not say of them, and how many were beyond L."""
        # Powers of two, so that all is exact in float64, but for what is owed by much more than L.
        exact = values.astype(np.float64)
        integers = exact * np.ldexp(1.0, -exponents)[:, None]
        np.rint(integers, out=integers)
        most, cut = max(integers.max(), -integers.min()), None
        if not most <= self.limit:  # or it is NaN
            integers[np.isnan(integers)] = 0
            cut = np.abs(integers) > self.limit
            np.clip(integers, -self.limit, self.limit, out=integers)
            infinite = np.isinf(values)
            integers[infinite] = np.sign(values[infinite]) * (self.limit // self.use)
        sent = integers * np.ldexp(1.0, exponents)[:, None]
        exact -= sent
        owed = exact.astype(np.float32)
        if cut is None:
            return integers, owed, 0
        owed[cut] = values[cut].astype(np.longdouble) - sent[cut]  # rounded once
        owed[~np.isfinite(values)] = 0
        return integers, owed, int(np.count_nonzero(cut))

    def means(self, sums: Wholes, exponents: Integers) -> Floats:
        """What (s, elements) sums of all workers' integers mean."""
        scale = (np.ldexp(1.0, exponents) / self.workers).astype(np.float32)
        return sums.astype(np.float32) * scale[:, None]

    def next_exponents(self, exponents: Integers, sums: Wholes) -> Integers:
        """After (s, elements) sums."""
        greatest, used = self.workers * self.limit, self.use * np.abs(sums).max(axis=1)
        stays = (greatest <= 4 * used) & (used <= 2 * greatest)
        moved = _bounded(exponents + _least_powers(used, greatest))
        lowered = np.maximum(exponents - _ZERO_STEP, np.minimum(exponents, _FIRST_EXPONENT))
        return np.where(used == 0, lowered, np.where(stays, exponents, moved))

    def first_exponents(self, means: Floats) -> Integers:
        """After (s, elements) means by hosts."""
        most = np.where(np.isfinite(means), np.abs(means), 0).max(axis=1).astype(np.float64)
        moved = _bounded(_least_powers(self.use * self.workers * most, self.workers * self.limit))
        return np.where(most == 0, _FIRST_EXPONENT, moved)


class SummedTensor:
    """A tensor of `elements` that the workers reduce to its mean, step by step: by hosts at first, then by the switch.

    `owed`: what each worker has to add to its next gradient, (workers, elements). `clipped`: elements so far that were
    beyond the limit; `left_out`: gradients of slices that results came without.
    """

    def __init__(self, numbers: FixedPoint, elements: int) -> None:
        self._numbers = numbers
        self._elements = elements
        self.slices = -(-elements // numbers.per_slice)
        self._owed = np.zeros((numbers.workers, self.slices, numbers.per_slice), np.float32)
        self._exponents: Integers | None = None
        self.clipped = 0
        self.left_out = 0

    @property
    def owed(self) -> Floats:
        return self._owed.reshape(len(self._owed), -1)[:, : self._elements]

    def mean(self, gradients: Floats, missing: Flags | None = None, beyond: int = 0) -> Floats:
        """What all workers apply of their (workers, elements) gradients.

        `missing`: (workers, slices), whom a slice's result comes without. `beyond`, a power of two: exponents are so
        much too small in this step that sums like the last ones are up to so many times what lanes can hold.
        """
        numbers, owed = self._numbers, self._owed
        given = np.zeros_like(owed)
        given.reshape(len(owed), -1)[:, : self._elements] = gradients
        if self._exponents is None:
            means = mean_in_order(given)
            self._exponents = numbers.first_exponents(means)
            return means.reshape(-1)[: self._elements]
        given += owed
        exponents = self._exponents - (round(math.log2(numbers.use * beyond)) if beyond else 0)
        integers, self._owed, clipped = numbers.quantised(given, exponents)
        self.clipped += clipped
        if missing is not None:
            integers[missing] = 0
            self._owed[missing] = given[missing]
            self.left_out += int(missing.sum())
        sums = integers.sum(axis=0)
        self._exponents = numbers.next_exponents(exponents, sums)
        return numbers.means(sums, exponents).reshape(-1)[: self._elements]


def mean_in_order(gradients: Floats) -> Floats:
    """The mean over the first axis: added in float32 and in that order, divided once."""
    total = gradients[0].copy()
    for gradient in gradients[1:]:
        total += gradient
    return (total / np.float32(len(gradients))).astype(np.float32)


def _least_powers(values: Wholes, whole: int) -> Integers:
    """The least k with values <= whole * 2^k, of each value above 0."""
    powers = np.frexp(values)[1].astype(np.int64) - np.frexp(float(whole))[1] - 1
    for _ in range(2):
        powers += values > np.ldexp(float(whole), powers)
    return powers


def _bounded(exponents: Integers) -> Integers:
    return np.clip(exponents, -_MOST_EXPONENT, _MOST_EXPONENT)
