# SPDX-License-Identifier: Apache-2.0
"""What jobs of one fabric must not share: ids, budget slots, multicast addresses. A new one gets what is free.

Nothing is noted down: what is taken is what the jobs say that are there, so what a job had is free when it is gone.
"""

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gradlane import GradlaneError
from gradlane.job import Job
from gradlane.job.file import BUDGET_SLOTS, Slots
from gradlane.toml_file import Address
from gradlane_controller.data_plane import BUCKETS
from gradlane_controller.policy.checks import MAX_JOBS

MAX_ID = 65535
MOST_SLOTS = 4096  # of a job: more than any window of messages needs
LEAST_SLOTS = 16  # that a job gets, but for one that needs more: four messages of each of four ranks at a time
SHARE = 16  # a job gets no more than this part of what is free, and leaves the least to all that may follow


class FullError(GradlaneError):
    """The fabric has nothing left for another job."""


@dataclass(frozen=True)
class Allocation:
    """What a new job gets; `multicast`: the first of its addresses, None if it has none."""

    id: int
    slots: Slots
    multicast: Address | None


def allocate(jobs: Collection[Job], wanted: Job) -> Allocation:
    """For a job that is as it will be but for what is allocated here; its multicast address is where to look from.

    Raises FullError that says what is missing.
    """
    if len(jobs) >= MAX_JOBS:
        raise FullError(f"the fabric carries {MAX_JOBS} jobs, and has them all: wait until one of them has ended")
    taken = {it.id for it in jobs}
    number = random.randint(1, MAX_ID)  # rarely one that has just been used
    while number in taken:
        number = random.randint(1, MAX_ID)
    # Half of the slots' numbers are those of multicast groups; sums may go down by other links in each bucket.
    groups = wanted.multicast_addresses + (BUCKETS - 1 if wanted.sum_lanes is not None else 0)
    least = max(LEAST_SLOTS, _power(len(wanted.members)), _power(2 * groups + 1))
    first = wanted.transport.multicast
    multicast = None if first is None else _addresses(jobs, first, wanted.multicast_addresses)
    return Allocation(number, _slots(jobs, least), multicast)


def _slots(jobs: Collection[Job], least: int) -> Slots:
    """The lowest gap of the largest size that may be given away; a smaller one where there are only smaller gaps."""
    gaps = list(_gaps(sorted((it.slots.base, it.slots.last) for it in jobs)))
    free = sum(size for _, size in gaps)
    spare = free - LEAST_SLOTS * (MAX_JOBS - len(jobs) - 1)
    size = max(least, _power(max(0, min(MOST_SLOTS, free // SHARE, spare)) + 1) // 2)
    while size >= least:
        for base, room in gaps:
            if room >= size:
                return Slots(base, size - 1)
        size //= 2
    raise FullError(
        f"no {least} budget slots in a row are free, of the switches' {BUDGET_SLOTS}: jobs have the others; wait until "
        "one has ended, or give smaller [slots] to those of job files"
    )


def _gaps(taken: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """The first slot and the size of each gap between ranges (first, last), which are sorted."""
    start = 0
    for base, last in taken:
        if base > start:
            yield start, base - start
        start = max(start, last + 1)
    if start < BUDGET_SLOTS:
        yield start, BUDGET_SLOTS - start


def _addresses(jobs: Iterable[Job], first: Address, count: int) -> Address:
    """The lowest address from `first` on, from which that many are free."""
    ranges = sorted(
        (int(it.transport.multicast), it.multicast_addresses)
        for it in jobs
        if it.transport.multicast is not None and it.transport.multicast.version == first.version
    )
    found = int(first)
    for base, size in ranges:
        if found < base + size and base < found + count:
            found = base + size
    if found + count > 1 << first.max_prefixlen or not type(first)(found + count - 1).is_multicast:
        raise FullError(f"no {count} multicast addresses in a row are free from {first} on")
    return type(first)(found)


def _power(least: int) -> int:
    """The smallest power of two that is no less."""
    return 1 << max(0, least - 1).bit_length()
