# SPDX-License-Identifier: Apache-2.0
"""Which share of a direct all-reduce each owner should have: water-filling over links and late workers.

Each owner i reduces the share w_i of the s bits that n workers contribute (sum of w_i = 1, w_i >= 0). Its full-duplex
link carries r_i bit/s. It comes d_i seconds after the first worker, and D is the longest of these. What crosses its
link grows with its share:

    workers     It sends its contributions, and its results to n - 1 workers: s (1 - w_i) + s (n - 1) w_i. It can't
                begin before it comes, so it is done at d_i + s (1 + (n - 2) w_i) / r_i. No result is there before the
                last worker has come: it is done at D + s (n - 1) w_i / r_i, at the earliest. And what it receives from
                others that come at t or later, of whom there are c, and all results come after t: it is done at
                t + s (c w_i + 1 - w_i) / r_i, whichever of the others' times t is.
    multicast   It sends each result once, s in all, and receives as above. What it receives need not wait for it:
                s (1 + (n - 2) w_i) / r_i, and D + s w_i / r_i. So a late owner costs nothing.
    servers     It receives s n w_i, and sends as much, or s w_i with multicast: D + s n w_i / r_i. Late workers are of
                no account: the shares are as the rates.

Each of these is a line a + b w_i, and the slowest of all owners' lines is when the all-reduce is done. The least L that
this can be is found by water-filling: an owner takes min (L - a) / b over its lines, or nothing if that is negative,
and at L all together take 1. The fill grows with L, so L is bisected; it is never below any a, which is there without a
share, too.

For n equal links of which one is late by more than the others need for each other, its share is 0, that of the others
1 / (n - 1), and L = D + s / r: after it has come, its link carries its own contribution and the result, and no more.
With equal shares it is D + 2 (n - 1) / n s / r.
"""

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

UNITS = 10_000  # the sum of weights, which are whole numbers
_HALVINGS = 64


@dataclass(frozen=True)
class Owner:
    """`rate`: of its link, bit/s; `late`: seconds that it comes after the first worker."""

    rate: float
    late: float = 0.0


@dataclass(frozen=True)
class Case:
    """What is reduced. `nbytes`: of each contribution; `owners`: the workers, or `servers` of them beside the workers.

    `last`: seconds that the last worker comes after the first; `multicast`: owners send each result once.
    """

    nbytes: int
    workers: int
    owners: tuple[Owner, ...]
    last: float = 0.0
    servers: bool = False
    multicast: bool = False

    @functools.cached_property
    def _arrivals(self) -> list[tuple[float, int]]:
        """Each time at which workers come late, and how many come then or later."""
        late = sorted((owner.late for owner in self.owners if owner.late), reverse=True)
        return list({at: count for count, at in enumerate(late, 1)}.items())

    def lines(self, owner: Owner) -> list[tuple[float, float]]:
        """When an owner with the share w is done with each of its tasks: a + b w seconds after the first has come."""
        whole, n = self.nbytes * 8 / owner.rate, self.workers
        if self.servers:
            return [(self.last, whole * n)]
        others = ((at, count - (owner.late >= at)) for at, count in self._arrivals)
        receives = [(at + whole, whole * (count - 1)) for at, count in others if count]
        if self.multicast:
            return [(whole, whole * (n - 2)), (self.last, whole), *receives]
        return [(owner.late + whole, whole * (n - 2)), (self.last, whole * (n - 1)), *receives]


def seconds(case: Case, shares: Sequence[float]) -> float:
    """When the all-reduce is done, by these shares of any sum, after the first worker has come."""
    total = sum(shares)
    most: dict[Owner, float] = {}
    for owner, share in zip(case.owners, shares, strict=True):
        most[owner] = max(share, most.get(owner, 0.0))
    return max(a + b * share / total for owner, share in most.items() for a, b in case.lines(owner))


def best(case: Case) -> list[float]:
    """The shares by which it is done first; their sum is 1."""
    if case.workers == 1:
        return [1 / len(case.owners)] * len(case.owners)
    lines, count = {owner: case.lines(owner) for owner in case.owners}, Counter(case.owners)
    low = max(a for of_one in lines.values() for a, _ in of_one)
    high = max(low, seconds(case, [1.0] * len(case.owners)))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if sum(many * _fill(lines[owner], middle) for owner, many in count.items()) < 1:
            low = middle
        else:
            high = middle
    shares = [_fill(lines[owner], high) for owner in case.owners]
    return [share / sum(shares) for share in shares]  # more than 1 only where one line is above all whatever its share


def weights(shares: Sequence[float]) -> list[int]:
    """The shares in whole numbers: equal ones are 1 each, the sum of others is UNITS."""
    if max(shares) - min(shares) < 1 / UNITS:
        return [1] * len(shares)
    total = sum(shares)
    exact = [share / total * UNITS for share in shares]
    found = [int(share) for share in exact]
    by_remainder = sorted(range(len(found)), key=lambda k: found[k] - exact[k])
    for k in by_remainder[: UNITS - sum(found)]:
        found[k] += 1
    return found


def _fill(lines: Sequence[tuple[float, float]], level: float) -> float:
    """What an owner takes at that level."""
    return max(0.0, min((level - a) / b for a, b in lines if b > 0))
