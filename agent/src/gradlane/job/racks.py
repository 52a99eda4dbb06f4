# SPDX-License-Identifier: Apache-2.0
"""Racks: which workers are near one another, how thin the core between them is, and the rows of grids that follow."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

MOST_OVERSUBSCRIPTION = 1000.0


@dataclass(frozen=True)
class Racks:
    """`of`: the number of each worker's rack. `oversubscription`: how many times what a rack's links to others carry
    its hosts can send; up to 1 the core is no limit."""

    of: tuple[int, ...]
    oversubscription: float = 1.0

    def among(self, ranks: Sequence[int]) -> "Racks":
        """The same of some of the workers."""
        return replace(self, of=tuple(self.of[rank] for rank in ranks))

    @property
    def across(self) -> float:
        """The part of what each worker sends all others that leaves its rack."""
        count = len(self.of)
        return 1 - sum(members**2 for members in Counter(self.of).values()) / count**2


def rows(workers: int, racks: Racks | None = None) -> list[int]:
    """The lengths of a grid's rows, in the order of racks: gl_grid_rows of core/plan/grid.h. None: all are in one."""
    found: list[int] = []
    for members in [workers] if racks is None else [count for _, count in sorted(Counter(racks.of).items())]:
        most = members * math.isqrt(workers) // workers
        even = (count for count in range(most, 1, -1) if 2 * count >= most and members % count == 0)
        count = next(even, max(1, most))
        found += [end - start for start, end in itertools.pairwise(k * members // count for k in range(count + 1))]
    return found
