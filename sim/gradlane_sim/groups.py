# SPDX-License-Identifier: Apache-2.0
"""Who averages with whom in a job without a global step: job.groups of the program's input."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gradlane_sim.errors import need

Partition: TypeAlias = tuple[tuple[int, ...], ...]  # disjoint groups of ranks, ascending; who is in none is alone


@dataclass(frozen=True)
class Scheduled:
    """After each step the next partition, in turn. `delay`: 1, if an average may take as long as the next step
    computes; 0."""

    partitions: tuple[Partition, ...]
    delay: int = 0

    def check(self, workers: int) -> None:
        """Raises SpecificationError if a job of so many can't have them."""
        need(bool(self.partitions), "a schedule has no partitions; it must have 1 or more")
        need(self.delay in (0, 1), f"a delay is {self.delay}; it must be 0 or 1")
        for partition in self.partitions:
            ranks = [rank for group in partition for rank in group]
            sound = len(set(ranks)) == len(ranks) and all(0 <= rank < workers for rank in ranks)
            need(sound, f"a partition has ranks {ranks[:8]}; it must have each at most once, from 0 to {workers - 1}")

    def transfers(self, worker: int) -> float:
        """How many times a tensor's bytes a worker sends after a step, on average."""
        sizes = [len(group) for partition in self.partitions for group in partition if worker in group]
        return sum(2 * (size - 1) / size for size in sizes) / len(self.partitions)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "schedule", "delay": self.delay, "partitions": self.partitions}


@dataclass(frozen=True)
class Asked:
    """As Ripples' group generator decides while the program runs: groups of at most `members`, and nobody waits for who
    is more than `slack` steps behind."""

    members: int
    slack: int
    delay: int = 0

    def check(self, workers: int) -> None:
        """Raises SpecificationError if a job of so many can't have them."""
        need(self.members >= 2, f"groups have {self.members} members; it must be 2 or more")
        need(self.delay in (0, 1) and self.slack >= 0, f"delay {self.delay}, slack {self.slack}: 0 or 1, and 0 or more")
        need(workers >= 2, f"there are {workers} workers; groups need 2")

    def transfers(self, worker: int) -> float:
        """A worker may have to average with nobody."""
        return 0.0

    def to_json(self) -> dict[str, Any]:
        return {"kind": "asked", "delay": self.delay, "members": self.members, "slack": self.slack}


Groups: TypeAlias = Scheduled | Asked


def everyone(workers: int, delay: int = 0) -> Scheduled:
    """All average with all: what groups are compared with."""
    return Scheduled(((tuple(range(workers)),),), delay)


def sizes(groups: Groups, workers: int) -> Sequence[int]:
    """Of the groups that there are at most."""
    if isinstance(groups, Asked):
        return [groups.members] * (workers // groups.members)
    return [len(group) for partition in groups.partitions for group in partition]
