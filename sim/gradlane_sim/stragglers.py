# SPDX-License-Identifier: Apache-2.0
"""How much longer workers compute in some steps: the tails that OptiReduce (NSDI 2025) has measured in clouds."""

import math
import random

from gradlane_sim.specification import need

# Of the standard normal distribution.
_Z99 = 2.3263478740408408


def delays(workers: int, steps: int, typical: int, tail: float, seed: int) -> tuple[tuple[int, ...], ...]:
    """ns by step and worker, beyond `typical`: the time of a step's computation is log-normal above its median, and its
    99th percentile is `tail` times that."""
    need(tail >= 1, f"the 99th percentile is {tail} of the median; it must be 1 or more")
    sigma = math.log(tail) / _Z99
    chance = random.Random(seed)

    def later() -> int:
        return round(typical * max(0.0, math.exp(chance.gauss(0, sigma)) - 1))

    return tuple(tuple(later() for _ in range(workers)) for _ in range(steps))
