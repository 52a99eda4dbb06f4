# SPDX-License-Identifier: Apache-2.0
"""Intervals for ratios of paired times."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_RESAMPLES = 20_000
_LEAST = 5  # pairs, below which an interval would say no more than what the least and the greatest are


@dataclass(frozen=True)
class Ratio:
    """A ratio, and the ends of its 95 % interval; None of too few pairs."""

    value: float
    interval: tuple[float, float] | None


def speed_up(base: Sequence[float], times: Sequence[float]) -> Ratio:
    """How many times as fast: the geometric mean of base/times, where the k-th ones are of the same seed.

    The interval is that of the percentile bootstrap over the pairs (Efron and Tibshirani 1993, chapter 13). With few
    pairs it is too narrow: of 5 it holds the truth in about 4 of 5 cases. Always the same for the same times. Raises
    ValueError unless there are equally many of both, at least one.
    """
    if not base or len(base) != len(times):
        raise ValueError(f"{len(base)} and {len(times)} times are no pairs")
    logs = np.log(np.asarray(base) / np.asarray(times))
    value = float(np.exp(logs.mean()))
    if len(logs) < _LEAST:
        return Ratio(value, None)
    drawn = np.random.default_rng(0).integers(len(logs), size=(_RESAMPLES, len(logs)))
    low, high = np.quantile(logs[drawn].mean(axis=1), (0.025, 0.975))
    return Ratio(value, (float(np.exp(low)), float(np.exp(high))))
