# SPDX-License-Identifier: Apache-2.0
"""A tensor's stream of slices at one worker, and its steps (sum_worker.py has the rules)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

Slices = list[list[Fraction]]  # by slice and element
# What came of a step: "sums" by the switch or "hosts", by slice and element, and by slice bits of who is missing.
Result = tuple[str, Sequence[Sequence[Fraction | int]], list[int]]


@dataclass
class Step:
    """A step of a tensor at one worker."""

    number: int
    values: Slices  # what it contributes, with what it owed
    generation: int  # in which it goes by the switch; 0: by hosts
    integers: list[list[int]] = field(default_factory=list)  # its own
    sums: dict[int, list[int]] = field(default_factory=dict)  # results by slice
    missing: dict[int, int] = field(default_factory=dict)  # bits of who is in none of them
    closing: dict[int, int] = field(default_factory=dict)  # bits of who may be, as this worker has said
    exponents: list[int] = field(default_factory=list)  # by slice
    epochs: list[int] = field(default_factory=list)  # with which each slice was sent
    again: bool = False  # all workers do it again, by hosts
    absent: bool = False  # begun by the worker's agent, with zeros

    @property
    def sent(self) -> int:
        """Slices that have been sent, in their order."""
        return len(self.epochs)


@dataclass
class Stream:
    """A tensor's slices through all steps. `partitions`: slices of each; `owed`: at first a zero for each element.

    Of steps, `begun` of the worker are those that its agent stood in for, too; its process has come to `come`, and has
    the results of `got`.
    """

    tensor: int
    partitions: tuple[int, ...]
    owed: Slices
    begun: int = 0
    exponents: list[int] = field(default_factory=list)  # of the next step; none before the first
    now: Step | None = None  # in flight
    last: Step | None = None  # the completed one, if a switch summed it
    # Of each worker: the highest number of a result that it is in.
    seen: list[int] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)  # of the steps after `got`
    asked: int = 0  # the latest step that others wait in
    absences: list[int] = field(default_factory=list)  # steps that the agent stood in for

    def __post_init__(self) -> None:
        self.come = self.got = self.begun

    @property
    def slices(self) -> int:
        """Of a step."""
        return sum(self.partitions)

    def place(self, s: int) -> tuple[int, int]:
        """Partition, and index in it, of a step's slice."""
        for partition, size in enumerate(self.partitions):
            if s < size:
                return partition, s
            s -= size
        raise IndexError(s)

    def message(self, s: int) -> range:
        """A step's slices in the partition of one."""
        partition, index = self.place(s)
        return range(s - index, s - index + self.partitions[partition])


def added(a: Slices, b: Slices) -> Slices:
    """Element by element."""
    return [[x + y for x, y in zip(p, q, strict=True)] for p, q in zip(a, b, strict=True)]


def zeros(like: Slices) -> Slices:
    """As many."""
    return [[Fraction(0)] * len(row) for row in like]
