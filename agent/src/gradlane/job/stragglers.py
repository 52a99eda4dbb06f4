# SPDX-License-Identifier: Apache-2.0
"""Who is late, by which evidence, and which shares follow from that.

Each owner of parts knows how much later than the median worker each worker's contribution began to come in its latest
steps. A worker is a straggler if it is noticeably late in at least half of them: one slow step makes nobody one. For
the shares it counts as late by the lower quartile, what it is late by in three of four steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradlane.job import ownership
from gradlane.job.ownership import Case

LEAST_STEPS = 8  # before anybody is called a straggler
NOTICEABLE = 0.005  # s; less is what queues and schedulers do
OFTEN = 1 / 2
REMEMBERED = 32  # steps, GL_LATE_STEPS of core/operation/lateness.h
GAIN = 0.05  # what other shares must save of the time after the last worker has come


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
    """What an owner knows: of which steps, up to `step`, and of whom there is something to say."""

    step: int
    steps: int
    late: Mapping[int, Lateness]


def merged(reports: Sequence[Report]) -> dict[int, Lateness]:
    """What the owners know together: of each worker the median of their judgements. One that has not owned anything for
    long knows nothing any more."""
    newest = max((report.step for report in reports), default=0)
    fresh = [report for report in reports if report.steps and report.step > newest - REMEMBERED]
    found: dict[int, Lateness] = {}
    for rank in sorted({rank for report in fresh for rank in report.late}):
        on_time = [Lateness(report.steps, 0, 0.0, 0.0, 0.0) for report in fresh if rank not in report.late]
        judged = on_time + [report.late[rank] for report in fresh if rank in report.late]
        found[rank] = sorted(judged, key=lambda it: (it.median, it.late))[(len(judged) - 1) // 2]
    return {rank: it for rank, it in found.items() if it.late}


@dataclass(frozen=True)
class Better:
    """Weights of owners, and how many times as fast the all-reduce is with them, once the last worker has come."""

    weights: list[int]
    times: float


def better(case: Case, current: Sequence[int]) -> Better | None:
    """Shares that save at least GAIN against the current ones, if there are any."""
    found = ownership.weights(ownership.best(case))
    now, then = (ownership.seconds(case, weights) - case.last for weights in (current, found))
    return Better(found, now / then) if now > then * (1 + GAIN) else None
