# SPDX-License-Identifier: Apache-2.0
"""Slices sprayed over a leaf-spine against flows that keep to one spine by a hash, in simulated time."""

from collections.abc import Callable
from functools import cache
from statistics import fmean

import pytest

from tests.gradlane.core.protocol.leaf_spine import HOSTS, LEAVES, Hash, even_hash, leaf_spine, random_hash
from tests.support.effort import only_thorough

SEEDS = range(1, 5)
STEPS = 3
SLOW = (10_000_000, 32_000)  # bit/s, and bytes of a port: a slice takes 1.2 ms
FAST = (100_000_000, 64_000)


def times(link: tuple[int, int], flow_hash: Hash, *, sprayed: bool) -> int:
    """us of all-reduces of 256 KiB by all hosts; the first counts for nothing."""
    model = leaf_spine(*link, flow_hash, sprayed=sprayed)
    job = model.job(list(range(LEAVES * HOSTS)))
    model.once(job)
    return sum(model.once(job) for _ in range(STEPS))


@cache
def sprayed_time(link: tuple[int, int], seed: int) -> int:
    """The time of spraying, of slices that start where a random hash says."""
    return times(link, random_hash(seed), sprayed=True)


def gains(link: tuple[int, int], make: Callable[[int], Hash]) -> list[float]:
    """By seed: the time with a hash, divided by that of spraying from where another one says."""
    return [times(link, make(seed), sprayed=False) / sprayed_time(link, seed) for seed in SEEDS]


@pytest.mark.parametrize(("link", "least"), [(SLOW, 1.02), (FAST, 0.97)])
def test_spraying_is_not_slower_than_the_luckiest_hash(link: tuple[int, int], least: float) -> None:
    """At a low rate many flows' slices happen to meet at a port all the time, which must not slow all of them down."""
    found = gains(link, even_hash)
    assert fmean(found) > least, found


@pytest.mark.parametrize("link", [SLOW, pytest.param(FAST, marks=only_thorough("a hash is as unlucky at any rate"))])
def test_spraying_is_faster_than_a_hash_that_puts_flows_together_by_chance(link: tuple[int, int]) -> None:
    found = gains(link, random_hash)
    assert fmean(found) > 1.5, found
    assert min(found) > 1.4, found
