# SPDX-License-Identifier: Apache-2.0
"""How long each step of each worker takes to compute: the same in all arms, so that these can be compared in pairs."""

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from bench.sync.cases import Case

_Z99 = NormalDist().inv_cdf(0.99)


def factors(case: Case, seed: int, worker: int, workers: int, steps: int) -> npt.NDArray[np.float64]:
    """Of each step of a worker, relative to the median of a usual one, (steps,).

    Log-normal, as OptiReduce emulates tails: the quantile 0.99 is `case.tail` times the median. A pure function.
    """
    sigma = math.log(case.tail) / _Z99
    random = np.random.default_rng([seed, worker])
    slow = case.slow if worker == workers - 1 else 1.0
    return slow * np.exp(sigma * random.standard_normal(steps))
