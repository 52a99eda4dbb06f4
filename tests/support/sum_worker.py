# SPDX-License-Identifier: Apache-2.0
"""A worker of a job whose gradients a switch sums, as the rules say it: small, exact, and without a clock.

Its numbers are fractions, so nothing is rounded but where an exponent says so. Who drives it decides when it sends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gradlane import wire
from tests.support.fixed_point import FIRST_EXPONENT, FixedPoint, power_of_two
from tests.support.sum_switch import SumHeader

Slices = list[list[Fraction]]  # by slice and element


@dataclass
class Step:
    """A step of a tensor at one worker."""

    number: int
    values: Slices  # what it contributes, with what it owed
    generation: int  # in which it goes by the switch; 0: by hosts
    integers: list[list[int]] = field(default_factory=list)  # its own
    sums: dict[int, list[int]] = field(default_factory=dict)  # results by slice
    sent: int = 0  # slices that have been sent, in their order
    again: bool = False  # all workers do it again, by hosts


@dataclass
class Stream:
    """A tensor's slices through all steps. `partitions`: slices of each; `owed`: at first a zero for each element."""

    tensor: int
    partitions: tuple[int, ...]
    owed: Slices
    begun: int = 0
    exponents: list[int] = field(default_factory=list)  # of the next step; none before the first
    now: Step | None = None  # in flight
    last: Step | None = None  # the completed one, if a switch summed it

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


class Worker:
    """Rank `rank` of `point.workers`. A rule can be overridden, so that tests can show what breaks without it."""

    def __init__(
        self, rank: int, point: FixedPoint, window: int, streams: Sequence[Stream], generation: int, job: int = 1
    ) -> None:
        """`streams`: those that have slots. `generation`: in which the switch is used, until `resume`; not 0."""
        self.rank, self.point, self.window, self.generation, self.job = rank, point, window, generation, job
        self.streams = {stream.tensor: stream for stream in streams}
        self.start = 0  # the first step that may go by the switch in this generation
        self.halted = False

    # Steps.

    def begin(self, tensor: int, given: Slices) -> Step:
        """The next step of a tensor whose last one is completed."""
        stream = self.streams[tensor]
        assert stream.now is None
        assert not self.halted
        stream.begun += 1
        by_switch = self.generation and stream.begun >= self.start and stream.exponents
        stream.now = step = Step(stream.begun, added(given, stream.owed), self.generation if by_switch else 0)
        if not by_switch:
            stream.owed = zeros(given)
            return step
        scales = [power_of_two(exponent) for exponent in stream.exponents]
        for s, values in enumerate(step.values):
            integers = [self.point.quantised(value, stream.exponents[s]) for value in values]
            step.integers.append(integers)
            stream.owed[s] = [value - q * scales[s] for value, q in zip(values, integers, strict=True)]
        return step

    def reduced(self, tensor: int, total: Slices) -> None:
        """The step in flight is reduced by hosts: the sum over all workers."""
        stream = self.streams[tensor]
        assert stream.now is not None
        exponents = stream.exponents or [FIRST_EXPONENT] * stream.slices
        n = self.point.workers
        stream.exponents = [
            self.point.exponent_of([value / n for value in values], exponent)
            for values, exponent in zip(total, exponents, strict=True)
        ]
        stream.now = stream.last = None

    def summed(self, tensor: int) -> None:
        """All results of the step in flight are there."""
        stream = self.streams[tensor]
        assert stream.now is not None
        stream.exponents = [
            self.point.next_exponent(exponent, stream.now.sums[s]) for s, exponent in enumerate(stream.exponents)
        ]
        stream.now, stream.last = None, stream.now

    # Datagrams.

    def number(self, stream: Stream, step: int, s: int) -> int:
        """Of a slice in its stream, before it wraps."""
        return (step - 1) * stream.slices + s

    def slot(self, stream: Stream, number: int) -> int:
        """In the job's slots."""
        return stream.tensor * 2 * self.window + number % (2 * self.window)

    def may_send(self, stream: Stream, s: int) -> bool:
        """The result of the slice a window before is there, so all have contributed to that."""
        assert stream.now is not None
        before = self.number(stream, stream.now.number, s) - self.window
        here = self.number(stream, stream.now.number, 0)
        return before < here or before - here in stream.now.sums

    def next_slice(self, tensor: int) -> bytes | None:
        """The datagram of the next slice, if one may be sent now."""
        stream = self.streams[tensor]
        step = stream.now
        if self.halted or not step or not step.generation or step.again or step.sent == stream.slices:
            return None
        if not self.may_send(stream, step.sent):
            return None
        step.sent += 1
        return self._datagram(stream, step, step.sent - 1, wire.Kind.DATA)

    def missing(self, tensor: int) -> list[int]:
        """Slices that are sent and have no result."""
        step = self.streams[tensor].now
        if self.halted or not step or step.again:
            return []
        return [s for s in range(step.sent) if s not in step.sums]

    def repair(self, tensor: int, s: int) -> bytes:
        """The datagram of such a slice."""
        stream = self.streams[tensor]
        assert stream.now is not None
        return self._datagram(stream, stream.now, s, wire.Kind.REPAIR)

    def _datagram(self, stream: Stream, step: Step, s: int, kind: wire.Kind) -> bytes:
        number = self.number(stream, step.number, s)
        summed = SumHeader(step.generation, slot=self.slot(stream, number), exponent=stream.exponents[s])
        payload = summed.pack() + self.point.packed(step.integers[s])
        partition, index = stream.place(s)
        return (
            wire.Header(
                kind=kind,
                job=self.job,
                source=self.rank,
                message=number & 0xFFFFFFFF,
                token=0,
                step=step.number,
                tensor=stream.tensor * 16 + partition,
                flags=wire.Flag.SUM,
                element_type=self.point.lanes | 3 << 4,
                slice=index,
                slices=stream.partitions[partition],
                length=len(payload),
            ).pack()
            + payload
        )

    def receive(self, datagram: bytes) -> bool:
        """Takes a result; says whether it is one that was missing. Everything else changes nothing."""
        header = wire.Header.unpack(datagram)
        stream = self.streams.get(header.tensor // 16)
        step = stream and stream.now
        if self.halted or not stream or not step or not step.generation or step.again:
            return False
        s = (header.message - self.number(stream, step.number, 0)) & 0xFFFFFFFF
        if s >= step.sent or s in step.sums or not self.is_result(datagram, stream, step, s):
            return False
        try:
            sums = self.point.summed(datagram[wire.HEADER_BYTES + wire.SUM_BYTES :])
        except ValueError:
            return False
        step.sums[s] = sums[: len(step.values[s])]
        if len(step.sums) == stream.slices:
            self.summed(stream.tensor)
        return True

    def is_result(self, datagram: bytes, stream: Stream, step: Step, s: int) -> bool:
        """Whether every field is what the result of the slice has."""
        own = self._datagram(stream, step, s, wire.Kind.DATA)
        expected, header = wire.Header.unpack(own), wire.Header.unpack(datagram)
        names = ("version", "job", "token", "step", "tensor", "element_type", "slice", "slices", "budget", "length")
        if any(getattr(header, name) != getattr(expected, name) for name in names):
            return False
        if header.kind not in (wire.Kind.DATA, wire.Kind.REPAIR) or header.flags != wire.Flag.SUM | wire.Flag.PULL:
            return False
        wanted, summed = (SumHeader.unpack(data[wire.HEADER_BYTES :]) for data in (own, datagram))
        return len(datagram) == len(own) and (
            (summed.generation, summed.members, summed.slot, summed.exponent)
            == (wanted.generation, (1 << self.point.workers) - 1, wanted.slot, wanted.exponent)
        )

    # When the switch fails.

    def state(self, tensor: int) -> tuple[int, int]:
        """The last step that needs the switch no more, and the last one that has begun."""
        stream = self.streams[tensor]
        waits = stream.now is not None and stream.now.generation != 0 and not stream.now.again
        return stream.begun - waits, stream.begun

    def resume(self, generation: int, reruns: dict[int, int]) -> None:
        """After a halt: in the same generation as if nothing had been, in a new one by hosts.

        `reruns`: steps by tensor that all workers have begun and not all completed; they are done again. What else is
        in flight goes by hosts, with what it would have owed.
        """
        self.halted = False
        if generation == self.generation:
            return
        self.generation = 0
        for stream in self.streams.values():
            if not stream.now or not stream.now.generation or stream.now.again:
                continue
            if reruns.get(stream.tensor) == stream.now.number:
                stream.now.again = True
            else:
                self.withdraw(stream, stream.now)

    def withdraw(self, stream: Stream, step: Step) -> None:
        """A step goes by hosts, who take all of what it contributes."""
        step.generation, step.sent, step.integers, step.sums = 0, 0, [], {}
        stream.owed = zeros(step.values)

    def of_rerun(self, tensor: int, step: int) -> list[list[int]]:
        """What this worker gives to the sum over all, by hosts."""
        stream = self.streams[tensor]
        for kept in (stream.now, stream.last):
            if kept and kept.number == step and kept.integers:
                return kept.integers
        raise LookupError(f"the integers of step {step} of tensor {tensor} are not kept")

    def rerun(self, tensor: int, sums: list[list[int]]) -> None:
        """The step that is done again has these sums."""
        stream = self.streams[tensor]
        assert stream.now is not None
        assert stream.now.again
        stream.now.sums = dict(enumerate(sums))
        self.summed(tensor)

    def use_switch(self, generation: int, start: int) -> None:
        """The workers have agreed on a step from which the switch is used again."""
        self.generation, self.start = generation, start


def added(a: Slices, b: Slices) -> Slices:
    """Element by element."""
    return [[x + y for x, y in zip(p, q, strict=True)] for p, q in zip(a, b, strict=True)]


def zeros(like: Slices) -> Slices:
    """As many."""
    return [[Fraction(0)] * len(row) for row in like]
