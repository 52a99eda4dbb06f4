# SPDX-License-Identifier: Apache-2.0
"""What the jobs of all studies have in common: how tensors are cut, and when workers begin."""

import random
from collections.abc import Sequence

from gradlane_sim.carriers import Carrier, Gradlane
from gradlane_sim.specification import Tensor

PIECES = 8
# Hosts do not begin in the same microsecond: that is what seeds change in every workload. ns.
START_WITHIN = 20_000


def jitter(workers: int, steps: int, seed: int, rows: Sequence[Sequence[int]] = ()) -> tuple[tuple[int, ...], ...]:
    """When workers begin, later by chance; beside other delays."""
    chance = random.Random(f"start {seed}")
    added = rows or [[0] * workers] * steps
    return tuple(tuple(it + chance.randrange(START_WITHIN) for it in row) for row in added)


def pieces(size: int, ready: int = 0) -> tuple[Tensor, ...]:
    """A tensor, cut as parameter servers and rings cut theirs, so that results travel while contributions still do.
    Gradlane does so by itself, slice by slice; carriers of whole messages would not."""
    each = size // (4 * PIECES) * 4
    return tuple(Tensor(ready, each, 1) for _ in range(PIECES))


def whole(carrier: Carrier, size: int, ready: int = 0) -> tuple[Tensor, ...]:
    """A tensor as who carries it has it: Gradlane's agent in one, as its slices come back while others go."""
    return (Tensor(ready, size, 1),) if isinstance(carrier, Gradlane) else pieces(size, ready)
