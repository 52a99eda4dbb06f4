# SPDX-License-Identifier: Apache-2.0
"""What must come out of a job whose gradients switches sum: counted from what all gave, without asking the workers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gradlane import wire
from tests.support.fixed_point import FIRST_EXPONENT, FixedPoint, power_of_two
from tests.support.sum_stream import Slices, added, zeros


@dataclass(frozen=True)
class Layout:
    """What the job is. `partitions`: of each tensor, slices of each partition; `done`: steps before the first one."""

    workers: int = 2
    lanes: wire.Lanes = wire.Lanes.INT16_LANES
    window: int = 2
    partitions: tuple[tuple[int, ...], ...] = ((3,),)
    elements: int = 2
    done: int = 0
    generation: int = 5
    shape: str = "one switch"
    push: Fraction = Fraction(0)
    by_children: bool = False  # bits of sums are of each switch's children; else of workers
    late: tuple[int, int] = (0, 1)  # of a tensor's steps a worker may miss so many, of so many consecutive ones

    @property
    def slots(self) -> int:
        """Of the job: a power of two."""
        return 1 << (2 * self.window * len(self.partitions) - 1).bit_length()


@dataclass
class Agreed:
    """What is known of a step of a tensor: what each gave, and what those who are through have got."""

    given: dict[int, Slices] = field(default_factory=dict)
    absent: set[int] = field(default_factory=set)  # who takes part with zeros, whatever is given
    way: str = ""
    total: list[list[Fraction]] = field(default_factory=list)
    sums: list[list[int]] | None = None  # by the switch
    missing: list[int] = field(default_factory=list)  # in them, by slice: bits of workers


class Wrong(AssertionError):
    """A promise of the protocol is broken."""


class Oracle:
    """All steps of all tensors: what each worker gave and owes, and each slice's exponent."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.point = layout, FixedPoint(layout.lanes, layout.workers)
        self.steps: dict[tuple[int, int], Agreed] = {}
        self.left_out = 0  # slices that somebody is missing in
        # Results, by generation, tensor and number: who is missing, and the sums.
        self.results: dict[tuple[int, int, int], tuple[int, list[int]]] = {}
        self.owed = [
            [[[Fraction(0)] * layout.elements for _ in range(sum(parts))] for parts in layout.partitions]
            for _ in range(layout.workers)
        ]
        self.exponents: list[list[int] | None] = [None for _ in layout.partitions]

    def gives(self, rank: int, tensor: int, step: int, values: Slices) -> None:
        """A worker's process comes to a step. If that began without it, all of this is owed."""
        agreed = self.steps.setdefault((tensor, step), Agreed())
        agreed.given[rank] = values
        if rank in agreed.absent:
            self.owed[rank][tensor] = added(self.owed[rank][tensor], values)

    def absent(self, rank: int, tensor: int, step: int) -> None:
        """A worker's agent begins a step without the process."""
        agreed = self.steps.setdefault((tensor, step), Agreed())
        if rank in agreed.given:
            raise Wrong(f"rank {rank} has come to step {step} of tensor {tensor}, and its agent stands in for it")
        agreed.absent.add(rank)
        most, window = self.layout.late
        last = [self.steps.get((tensor, before)) for before in range(step - window + 1, step + 1)]
        if sum(it is not None and rank in it.absent for it in last) > most:
            raise Wrong(f"rank {rank} is absent in more than {most} of {window} steps of tensor {tensor}, up to {step}")

    def result(self, generation: int, tensor: int, number: int, missing: int, sums: list[int]) -> None:
        """A worker takes a result of a switch: there is only one of each slice."""
        if self.results.setdefault((generation, tensor, number), (missing, sums)) != (missing, sums):
            raise Wrong(f"slice {number} of tensor {tensor} has two results in generation {generation}")

    def through(
        self,
        rank: int,
        tensor: int,
        step: int,
        way: str,
        got: Sequence[Sequence[Fraction | int]],
        missing: Sequence[int] = (),
    ) -> None:
        """A worker has the result of a step: it is that of all others, and what their contributions say.

        `missing`: by slice, bits of who is not in it.
        """
        agreed = self.steps[tensor, step]
        if not agreed.way:
            agreed.way, agreed.missing = way, list(missing)
            self._within_budget(tensor, agreed.missing)
            self._expect(tensor, agreed)
        if agreed.way != way:
            raise Wrong(f"step {step} of tensor {tensor} is reduced by {way} at rank {rank}, not at another")
        expected = agreed.total if agreed.sums is None else agreed.sums
        if list(missing) != agreed.missing:
            raise Wrong(f"others are missing at rank {rank} in step {step} of tensor {tensor}")
        if [list(row) for row in got] != expected:
            raise Wrong(f"rank {rank} got {got} of step {step} of tensor {tensor}, not {expected}")

    def _within_budget(self, tensor: int, missing: list[int]) -> None:
        first = 0
        for slices in self.layout.partitions[tensor] if missing else ():
            message = missing[first : first + slices]
            for rank in range(self.layout.workers):
                absent = sum(mask >> rank & 1 for mask in message)
                self.left_out += absent
                if absent > self.layout.push * slices:
                    raise Wrong(f"rank {rank} is missing in {absent} of {slices} slices")
            first += slices

    def _expect(self, tensor: int, agreed: Agreed) -> None:
        """What a step's result is; steps of a tensor come in order."""
        ranks = range(self.layout.workers)
        if len(agreed.given.keys() | agreed.absent) < self.layout.workers:
            raise Wrong("a step is through that not all have begun")
        values = [
            zeros(self.owed[rank][tensor])
            if rank in agreed.absent
            else added(agreed.given[rank], self.owed[rank][tensor])
            for rank in ranks
        ]
        present = [rank for rank in ranks if rank not in agreed.absent]
        exponents = self.exponents[tensor] or [FIRST_EXPONENT] * len(values[0])
        if agreed.way == "hosts":
            agreed.total = total(values)
            for rank in present:
                self.owed[rank][tensor] = zeros(values[rank])
            means = [[value / self.layout.workers for value in row] for row in agreed.total]
            self.exponents[tensor] = [self.point.exponent_of(m, e) for m, e in zip(means, exponents, strict=True)]
            return
        integers = [
            [[self.point.quantised(x, e) for x in row] for row, e in zip(values[rank], exponents, strict=True)]
            for rank in ranks
        ]
        scales = [power_of_two(e) for e in exponents]
        for rank in ranks:
            integers[rank] = [
                [0] * len(row) if mask >> rank & 1 else row
                for row, mask in zip(integers[rank], agreed.missing, strict=True)
            ]
        for rank in present:
            self.owed[rank][tensor] = [
                [x - q * scale for x, q in zip(row, own, strict=True)]
                for row, own, scale in zip(values[rank], integers[rank], scales, strict=True)
            ]
        agreed.sums = [[sum(lane) for lane in zip(*rows, strict=True)] for rows in zip(*integers, strict=True)]
        agreed.total = [[q * scale for q in row] for row, scale in zip(agreed.sums, scales, strict=True)]
        self.exponents[tensor] = [self.point.next_exponent(e, s) for e, s in zip(exponents, agreed.sums, strict=True)]

    def nothing_is_lost(self, owed: Sequence[Sequence[Slices]], most: int) -> None:
        """What is applied, and what each owes (by worker and tensor), are to the last bit what was given."""
        done = self.layout.done
        for tensor in range(len(self.layout.partitions)):
            steps = [self.steps[tensor, step] for step in range(done + 1, done + most + 1)]
            given = total([values for step in steps for values in step.given.values()])
            left = total([its[tensor] for its in owed])
            if given != added(total([step.total for step in steps]), left):
                raise Wrong(f"of tensor {tensor} something is lost, or counted twice")


def total(rows: Sequence[Slices]) -> Slices:
    """Of as many slices, element by element."""
    return [[sum(lane, Fraction(0)) for lane in zip(*slices, strict=True)] for slices in zip(*rows, strict=True)]
