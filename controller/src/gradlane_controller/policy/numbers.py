# SPDX-License-Identifier: Apache-2.0
"""The numbers that the data plane knows jobs by, and that stay while a job is there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gradlane.job import Job
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.policy.checks import MAX_JOBS
from gradlane_controller.policy.sums import Sums, assign_slots


@dataclass(frozen=True)
class Numbers:
    """By job id: each job's index, from 1, and where it is summed, of those that are. `epochs`: by switch, see
    SummedJob. `withheld`: ids of jobs that are not summed until they have been taken out, as they BECAME_OTHERS."""

    indices: Mapping[int, int] = field(default_factory=dict[int, int])
    sums: Mapping[int, Sums] = field(default_factory=dict[int, Sums])
    epochs: Mapping[str, int] = field(default_factory=dict[str, int])
    withheld: frozenset[int] = frozenset()


def assign(fabric: Fabric, jobs: Iterable[Job], known: Numbers | None = None) -> Numbers:
    """The jobs' numbers: the known ones where they can stay. Raises JobError for a job that gets no slots for sums."""
    jobs, known = tuple(jobs), known or Numbers()
    sums, withheld = assign_slots(fabric, jobs, known.sums, known.withheld)
    return Numbers(_assign_indices(jobs, known.indices), sums, known.epochs, withheld)


def _assign_indices(jobs: Iterable[Job], known: Mapping[int, int]) -> dict[int, int]:
    """The small number by which the data plane knows a job, by job id: the known one, else the lowest free one."""
    jobs = tuple(jobs)
    kept: dict[int, int] = {}
    for job in jobs:
        number = known.get(job.id, 0)
        if 0 < number <= MAX_JOBS and number not in kept.values():
            kept[job.id] = number
    free = iter(sorted(set(range(1, MAX_JOBS + 1)) - set(kept.values())))
    return {job.id: kept[job.id] if job.id in kept else next(free) for job in jobs}
