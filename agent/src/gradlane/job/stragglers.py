# SPDX-License-Identifier: Apache-2.0
"""Who is late, by which evidence.

Each owner of parts knows how much later than the median worker each worker's contribution began to come in its latest
steps; in a grid it knows that of its row, against the row's median. In a ring each rank knows that of one neighbour
alone, against itself: all of them together tell. So they do of what a switch sums: a sum comes to all at once, so who
has waited least for it has come last. A worker is a straggler if it is noticeably late in at least half of the steps:
one slow step makes nobody one. For the plan it counts as late by the lower quartile, what it is late by in three of
four steps.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_STEPS = 8  # before anybody is called a straggler
NOTICEABLE = 0.005  # s; less is what queues and schedulers do
OFTEN = 1 / 2
REMEMBERED = 32  # steps, GL_LATE_STEPS of core/operation/lateness.h


@dataclass(frozen=True)
class Lateness:
    """Of a worker in its latest steps: in how many of them it was noticeably late; quartiles of its lateness, in s."""

    steps: int
    late: int
    low: float
    median: float
    high: float

    @property
    def persistent(self) -> bool:
        """Whether it is a straggler."""
        return self.steps >= LEAST_STEPS and self.late >= OFTEN * self.steps

    @property
    def counted(self) -> float:
        """Seconds that it counts as late."""
        return self.low if self.persistent and self.low >= NOTICEABLE else 0.0

    def __str__(self) -> str:
        low, median, high = (f"{value * 1e3:.0f}" for value in (self.low, self.median, self.high))
        return f"late by {median} ms ({low} to {high}) in {self.late} of the last {self.steps} steps"


def summary(seconds: Sequence[float]) -> Lateness | None:
    """Of how late a worker was in each of some steps; None: never noticeably."""
    late = sum(value >= NOTICEABLE for value in seconds)
    if not late:
        return None
    ordered = sorted(seconds)
    low, median, high = (ordered[(len(ordered) - 1) * k // 4] for k in (1, 2, 3))
    return Lateness(len(ordered), late, low, median, high)


@dataclass(frozen=True)
class Report:
    """What an owner knows: of which steps, up to `step`, and of whom there is something to say. `known`: the workers
    that it can say something of, those of its row if steps are reduced in a grid; None: all."""

    step: int
    steps: int
    late: Mapping[int, Lateness]
    known: frozenset[int] | None = None

    def knows(self, rank: int) -> bool:
        """Whether what it does not say of a worker means that it is on time."""
        return self.known is None or rank in self.known


def merged(reports: Sequence[Report], newest: int) -> dict[int, Lateness]:
    """What the owners know together: of each worker the median of their judgements. One that has not owned anything for
    long knows nothing any more. `newest`: the step that the job has come to."""
    fresh = [report for report in reports if report.steps and report.step > newest - REMEMBERED]
    found: dict[int, Lateness] = {}
    for rank in sorted({rank for report in fresh for rank in report.late}):
        on_time = [
            Lateness(report.steps, 0, 0.0, 0.0, 0.0)
            for report in fresh
            if rank not in report.late and report.knows(rank)
        ]
        judged = on_time + [report.late[rank] for report in fresh if rank in report.late]
        found[rank] = sorted(judged, key=lambda it: (it.median, it.late))[(len(judged) - 1) // 2]
    return {rank: it for rank, it in found.items() if it.late}


def worst(*judgements: Mapping[int, Lateness]) -> dict[int, Lateness]:
    """By rank the one by which it is latest: what direct all-reduces show, rings, and the sums of a switch."""
    ranks = sorted({rank for judgement in judgements for rank in judgement})
    return {
        rank: max((j[rank] for j in judgements if rank in j), key=lambda it: (it.counted, it.median)) for rank in ranks
    }


Moment = tuple[int, int]  # a step, and the tensor of it that was looked at


@dataclass(frozen=True)
class Neighbour:
    """What a rank of a ring knows of the one that sends to it, `rank`: by how many seconds it came `later`, if not
    negative."""

    rank: int
    later: Mapping[Moment, float]


def around(ring: Mapping[int, Neighbour], workers: int, newest: int) -> dict[int, Lateness]:
    """How late workers came to rings, from what all of them know of their neighbours; {} if one is missing.

    What comes from a neighbour has waited behind the same slices at all ranks, so what the differences add up to around
    the ring is none of any worker's doing, and is taken off. `newest`: the step that the job has come to.
    """
    order = [0]
    while (it := ring.get(order[-1])) is not None and it.rank not in order and len(order) < workers:
        order.append(it.rank)
    if len(order) < workers or order[-1] not in ring or ring[order[-1]].rank != 0:
        return {}
    moments = set.intersection(*(set(ring[rank].later) for rank in order))
    arrivals: list[dict[int, float]] = []
    for moment in _recent(moments, newest):
        later = [ring[rank].later[moment] for rank in order]
        mean = sum(later) / workers
        came = itertools.accumulate((it - mean for it in later[:-1]), initial=0.0)
        arrivals.append(dict(zip(order, came, strict=True)))
    return _after_the_median(arrivals)


def before_sums(waits: Mapping[int, Mapping[Moment, float]], workers: int, newest: int) -> dict[int, Lateness]:
    """How late workers came to what a switch sums, from how many seconds each has waited for the first sum; {} if
    somebody says nothing. `newest`: the step that the job has come to."""
    if len(waits) < workers:
        return {}
    moments = set.intersection(*map(set, waits.values()))
    return _after_the_median(
        [{rank: -waited[moment] for rank, waited in waits.items()} for moment in _recent(moments, newest)]
    )


def _recent(moments: set[Moment], newest: int) -> list[Moment]:
    return sorted(moment for moment in moments if moment[0] > newest - REMEMBERED)


def _after_the_median(arrivals: Sequence[Mapping[int, float]]) -> dict[int, Lateness]:
    """`arrivals`: of some steps, when each worker came, in s on any clock."""
    late: dict[int, list[float]] = {}
    for came in arrivals:
        median = sorted(came.values())[(len(came) - 1) // 2]
        for rank, at in came.items():
            late.setdefault(rank, []).append(max(0.0, at - median))
    found = {rank: summary(seconds) for rank, seconds in late.items()}
    return {rank: it for rank, it in sorted(found.items()) if it is not None}
