# SPDX-License-Identifier: Apache-2.0
"""Who watches whom: a rank has control connections to O(log n) others, its neighbours.

Its *fingers* are the ranks 1, 2, 4, ... after it, of each the first from there on that lives (Chord, Stoica et al.,
SIGCOMM 2001). Neighbours are the two ends of a finger. The first finger is the next rank that lives, so those who live
are connected whoever dies. As long as two ranks live they stay neighbours; deaths only make more.
"""

from bisect import bisect_left
from collections.abc import Collection


def neighbours(rank: int, living: Collection[int], size: int) -> set[int]:
    """Those of a rank that lives, in a job of `size` ranks: up to five are all neighbours."""
    ring = sorted(living)
    place = bisect_left(ring, rank)
    gap = (rank - ring[place - 1]) % size or size  # to the one before it
    found: set[int] = set()
    distance = 1
    while distance < size:
        found.add(ring[bisect_left(ring, (rank + distance) % size) % len(ring)])
        # Those whose finger would lead to one of the dead before this rank, or to this one.
        found.update((rank - distance - back) % size for back in range(gap))
        distance *= 2
    return found.intersection(living) - {rank}


def hops(size: int) -> int:
    """Connections between any two ranks while all live, at most."""
    return (size.bit_length() + 1) // 2
