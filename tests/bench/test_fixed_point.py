# SPDX-License-Identifier: Apache-2.0
"""The study's sums are those of the rules: every step of random trainings against the oracle, bit for bit."""

from fractions import Fraction

import numpy as np
import pytest

from bench.study.fixed_point import FixedPoint, Flags, Floats, SummedTensor, mean_in_order
from gradlane.wire import SUM_WORD, Lanes
from tests.support import fixed_point as oracle

LANES = {16: Lanes.INT16_LANES, 32: Lanes.INT32_LANES}


class Reference:
    """All workers of a tensor, by the oracle, element by element."""

    def __init__(self, bits: int, workers: int, elements: int) -> None:
        self.numbers = oracle.FixedPoint(LANES[bits], workers)
        self.size = SUM_WORD * 8 // bits
        self.bounds = [slice(at, min(at + self.size, elements)) for at in range(0, elements, self.size)]
        self.exponents: list[int] = []
        self.owed = [[0.0] * elements for _ in range(workers)]

    def by_hosts(self, means: list[float]) -> None:
        self.exponents = [self.numbers.exponent_of(means[part]) for part in self.bounds]

    def step(self, gradients: Floats, missing: Flags, lowered: int) -> tuple[list[float], int]:
        """What is applied, and how many elements were clipped."""
        numbers, applied, clipped = self.numbers, [0.0] * gradients.shape[1], 0
        for s, part in enumerate(self.bounds):
            exponent, sums = self.exponents[s] - lowered, [0] * (part.stop - part.start)
            for worker, row in enumerate(gradients):
                for at in range(part.start, part.stop):
                    x = oracle.float32(Fraction(float(row[at])) + Fraction(self.owed[worker][at]))
                    integer = numbers.quantised(x, exponent)
                    clipped += abs(round(Fraction(x) / Fraction(2) ** exponent)) > numbers.limit
                    if missing[worker, s]:
                        self.owed[worker][at] = x
                    else:
                        self.owed[worker][at] = numbers.owed(x, exponent)
                        sums[at - part.start] += integer
            applied[part] = [numbers.total(total, exponent, mean=True) for total in sums]
            self.exponents[s] = numbers.next_exponent(exponent, sums)
        return applied, clipped


@pytest.mark.parametrize("bits", LANES)
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_every_step_is_that_of_the_oracle(bits: int, workers: int) -> None:
    random = np.random.default_rng([bits, workers])
    numbers = FixedPoint(bits, workers, words=1)
    elements = 2 * numbers.per_slice + 5
    tensor, reference = SummedTensor(numbers, elements), Reference(bits, workers, elements)
    assert tensor.slices == 3
    clipped = left_out = 0
    for step in range(6):
        # Zeros, numbers that no exponent reaches, and steps that differ by much.
        spread = np.ldexp(1.0, random.integers(-30, 3, (workers, elements)))
        gradients = random.normal(size=(workers, elements)) * spread * 2.0 ** random.integers(-9, 9)
        gradients = gradients.astype(np.float32)
        gradients[:, : elements // 2] *= step != 3
        gradients[random.random(gradients.shape) < 0.01] = 2.0 ** (120 * (-1) ** step)
        if step == 0:
            first = tensor.mean(gradients)
            assert first.tobytes() == mean_in_order(gradients).tobytes()
            reference.by_hosts(first.tolist())
            continue
        missing, lowered = random.random((workers, 3)) < 0.2, {16: 7, 32: 11}[bits] * (step == 2)
        applied, cut = reference.step(gradients, missing, lowered)
        assert tensor.mean(gradients, missing, 4 * (step == 2)).tolist() == applied
        assert tensor.owed.tolist() == reference.owed
        clipped, left_out = clipped + cut, left_out + int(missing.sum())
        assert (tensor.clipped, tensor.left_out) == (clipped, left_out)
    assert clipped > 0
    assert left_out > 0


@pytest.mark.parametrize("bits", LANES)
def test_what_is_not_finite_is_owed_to_nobody(bits: int) -> None:
    numbers, oracles = FixedPoint(bits, 2), oracle.FixedPoint(LANES[bits], 2)
    # What is owed of the last one is not half way between two float32, but nearly.
    values = np.array([[[np.nan, np.inf, -np.inf, 0.5, 1.5, 4.15424312204329e16]]], np.float32)
    integers, owed, beyond = numbers.quantised(values, np.array([1]))
    assert integers.reshape(-1).tolist() == [oracles.quantised(float(x), 1) for x in values.reshape(-1)]
    assert owed.reshape(-1).tolist() == [oracles.owed(float(x), 1) for x in values.reshape(-1)]
    assert beyond == 3
