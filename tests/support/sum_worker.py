# SPDX-License-Identifier: Apache-2.0
"""A worker of a job whose gradients a switch sums, as the rules say it: small, exact, and without a clock.

Its numbers are fractions, so nothing is rounded but where an exponent says so. Who drives it decides when it sends, and
whom a closer leaves out of those whom it may.
"""

from collections.abc import Sequence
from fractions import Fraction

from gradlane import wire
from tests.support.fixed_point import FIRST_EXPONENT, FixedPoint, power_of_two
from tests.support.sum_stream import Result, Slices, Step, Stream, added, zeros
from tests.support.sum_switch import EVERYBODY, SumHeader


class Worker:
    """Rank `rank` of `point.workers`. A rule can be overridden, so that tests can show what breaks without it."""

    def __init__(
        self,
        rank: int,
        point: FixedPoint,
        window: int,
        streams: Sequence[Stream],
        generation: int,
        job: int = 1,
        push: Fraction = Fraction(0),
        late: tuple[int, int] = (0, 1),
        by_children: bool = False,
    ) -> None:
        """`streams`: those that have slots. `generation`: in which the switch is used, until `resume`; not 0.

        `push`: of a message's slices, the part of them that each worker may be left out of. `late`: of how many steps
        of a tensor the agent may stand in for its process, in how many consecutive ones. `by_children`: bits of sums
        are not the workers', as there are too many: a sum is of all.
        """
        assert not (by_children and push)
        self.by_children = by_children
        self.rank, self.point, self.window, self.generation, self.job = rank, point, window, generation, job
        self.push, self.late = push, late
        self.epoch = 0  # of the switch in this generation; 0: not known yet
        self.over_budget = 0  # results that were refused
        self.streams = {stream.tensor: stream for stream in streams}
        self.start = 0  # the first step that may go by the switch in this generation
        self.halted = False

    # Steps.

    def begin(self, tensor: int, given: Slices) -> Step | None:
        """The process comes to its next step, with the results of those before. None: that has begun without it."""
        stream = self.streams[tensor]
        stream.come += 1
        if stream.come <= stream.begun:
            stream.owed = added(stream.owed, given)
            return None
        return self.contribute(stream, added(given, stream.owed))

    def contribute(self, stream: Stream, values: Slices, *, absent: bool = False) -> Step:
        """The next step begins, with what this worker contributes to it; that counts as zeros if it is `absent`."""
        assert stream.now is None
        assert not self.halted
        stream.begun += 1
        by_switch = self.generation and stream.begun >= self.start and stream.exponents
        step = Step(stream.begun, values, self.generation if by_switch else 0, absent=absent)
        stream.now = step
        if not stream.last or stream.last.generation != step.generation:
            stream.seen = self.seen_at_first(stream, step)
        step.exponents = stream.exponents
        owed = zeros(values)
        for s, row in enumerate(values) if by_switch else ():
            integers = [self.point.quantised(value, stream.exponents[s]) for value in row]
            step.integers.append(integers)
            scale = power_of_two(stream.exponents[s])
            owed[s] = [value - q * scale for value, q in zip(row, integers, strict=True)]
        if not absent:
            stream.owed = owed
        return step

    def seen_at_first(self, stream: Stream, step: Step) -> list[int]:
        """All have what comes before a generation's first number, or before one that follows a step by hosts."""
        return [self.number(stream, step.number, 0) - 1] * self.point.workers

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
        stream.results.append(("hosts", total, []))
        stream.now = stream.last = None

    def summed(self, tensor: int) -> None:
        """All results of the step in flight are there."""
        stream = self.streams[tensor]
        step = stream.now
        assert step is not None
        for s, missing in step.missing.items():
            if missing >> self.rank & 1:
                self.owe(stream, step, s)
        stream.exponents = [
            self.point.next_exponent(exponent, step.sums[s]) for s, exponent in enumerate(stream.exponents)
        ]
        ordered = range(stream.slices)
        stream.results.append(("sums", [step.sums[s] for s in ordered], [step.missing[s] for s in ordered]))
        stream.now, stream.last = None, step

    def owe(self, stream: Stream, step: Step, s: int) -> None:
        """This worker is not in a slice's sum, so all that it gave is still to come."""
        if not step.absent:
            stream.owed[s] = list(step.values[s])

    def take(self, tensor: int) -> Result | None:
        """What the process gets of the step that it has come to; None: it has that, or it is not there yet."""
        stream = self.streams[tensor]
        if stream.got == stream.come or not stream.results:
            return None
        stream.got += 1
        return stream.results.pop(0)

    # When the process is late.

    def go_on(self, tensor: int, step: int) -> None:
        """Others wait in a step, or did."""
        stream = self.streams[tensor]
        if stream.come < step <= stream.come + self.late[0]:
            stream.asked = max(stream.asked, step)

    def stand_in(self, tensor: int) -> Step | None:
        """The next step begins without the process, if others wait in that or a later one, and it may be left out."""
        stream = self.streams[tensor]
        if self.halted or stream.now or stream.begun >= stream.asked or not self.may_be_absent(stream):
            return None
        stream.absences.append(stream.begun + 1)
        return self.contribute(stream, zeros(stream.owed), absent=True)

    def may_be_absent(self, stream: Stream) -> bool:
        """Whether of the last steps, with the next one, it is absent in no more than may be."""
        steps, window = self.late
        return sum(step > stream.begun + 1 - window for step in stream.absences) < steps

    # Datagrams.

    def number(self, stream: Stream, step: int, s: int) -> int:
        """Of a slice in its stream, before it wraps."""
        return (step - 1) * stream.slices + s

    def slot(self, stream: Stream, number: int) -> int:
        """In the job's slots."""
        return stream.tensor * 2 * self.window + number % (2 * self.window)

    def may_send(self, stream: Stream, s: int) -> bool:
        """The result of the slice a window before is there, and every worker is in that or in a later one.

        Numbers are sent in order. So whoever is in a result has all those of a window before it and earlier ones, and
        nobody needs what was in the slot that this slice takes.
        """
        assert stream.now is not None
        before = self.number(stream, stream.now.number, s) - self.window
        here = self.number(stream, stream.now.number, 0)
        others = [seen for rank, seen in enumerate(stream.seen) if rank != self.rank]
        return (before < here or before - here in stream.now.sums) and min(others) >= before

    def next_slice(self, tensor: int) -> bytes | None:
        """The datagram of the next slice, if one may be sent now."""
        stream = self.streams[tensor]
        step = stream.now
        if self.halted or not step or not step.generation or step.again or step.sent == stream.slices:
            return None
        if not self.may_send(stream, step.sent):
            return None
        step.epochs.append(self.epoch if self.push else 0)
        return self._datagram(stream, step, step.sent - 1, wire.Kind.DATA)

    def missing(self, tensor: int) -> list[int]:
        """Slices that are sent and have no result."""
        step = self.streams[tensor].now
        if self.halted or not step or step.again:
            return []
        return [s for s in range(step.sent) if s not in step.sums]

    def repair(self, tensor: int, s: int, may_miss: int = 0) -> bytes:
        """The datagram of such a slice. `may_miss`: bits of `may_leave_out`."""
        stream = self.streams[tensor]
        step = stream.now
        assert step is not None
        if may_miss:
            step.closing[s] = step.closing.get(s, 0) | may_miss
        return self._datagram(stream, step, s, wire.Kind.REPAIR, may_miss)

    def reminders(self, tensor: int, step: int) -> list[bytes]:
        """What this worker has contributed to slices of whose results others may lack some, if it has them itself.

        Only those whose slots are not others' by now: the last two windows.
        """
        stream = self.streams[tensor]
        for kept in (stream.now, stream.last):
            if kept and kept.number == step and kept.generation and not kept.again:
                within = range(max(0, kept.sent - 2 * self.window), kept.sent)
                own = self.everyone if self.by_children else 1 << self.rank
                return [self._datagram(stream, kept, s, wire.Kind.REPAIR, own) for s in within if s in kept.sums]
        return []

    def _datagram(self, stream: Stream, step: Step, s: int, kind: wire.Kind, may_miss: int = 0) -> bytes:
        number = self.number(stream, step.number, s)
        summed = SumHeader(
            step.generation,
            members=may_miss,
            slot=self.slot(stream, number),
            exponent=step.exponents[s],
            epoch=step.epochs[s],
        )
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

    # Closing.

    def closer(self, stream: Stream, step: Step) -> int:
        """The rank that alone says who may be missing in the step's slices. It is in all of them."""
        return (stream.tensor + step.number) % self.point.workers

    def budget(self, stream: Stream, s: int) -> int:
        """Slices of the message of `s` that each worker may be missing in."""
        return int(self.push * len(stream.message(s)))

    def may_leave_out(self, tensor: int, s: int) -> int:
        """Bits of the workers without whom this one may close a slice that it has sent."""
        stream = self.streams[tensor]
        step = stream.now
        assert step is not None
        if self.closer(stream, step) != self.rank or not self.is_closable(step, s):
            return 0
        ranks = range(self.point.workers)
        return sum(1 << rank for rank in ranks if rank != self.rank and self.is_spared(stream, step, s, rank))

    def is_closable(self, step: Step, s: int) -> bool:
        """What was sent before the switch's epoch was known is summed exactly, also by a switch that has restarted."""
        return step.epochs[s] != 0

    def is_spared(self, stream: Stream, step: Step, s: int, rank: int) -> bool:
        """Whether the slice can do without a worker: that has begun the step, was there lately, and has budget left."""
        return self.was_there(step, s, rank) and self.has_budget(stream, step, s, rank)

    def was_there(self, step: Step, s: int, rank: int) -> bool:
        """Whether it is in one of the results that this worker has of the slices before, fewer than a window.

        So nobody is missing in a whole window, nor in a step that it has not begun.
        """
        before = range(max(0, s - self.window + 1), s)
        return any(other in step.missing and not step.missing[other] >> rank & 1 for other in before)

    def has_budget(self, stream: Stream, step: Step, s: int, rank: int) -> bool:
        """Counting slices in which the worker is missing, and those in which it may be."""
        told = {other: step.closing.get(other, 0) for other in stream.message(s)} | step.missing
        absent = sum(told[other] >> rank & 1 for other in stream.message(s) if other != s)
        return absent < self.budget(stream, s)

    # Results.

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
        summed = SumHeader.unpack(datagram[wire.HEADER_BYTES :])
        try:
            sums = self.point.summed(datagram[wire.HEADER_BYTES + wire.SUM_BYTES :], self.how_many(summed.members))
        except ValueError:
            return False
        missing = self.everyone & ~summed.members
        if self.is_over_budget(stream, step, s, missing):
            self.over_budget += 1
            return False
        step.sums[s], step.missing[s] = sums[: len(step.values[s])], missing
        number = self.number(stream, step.number, s)
        stream.seen = [max(seen, number * (~missing >> rank & 1)) for rank, seen in enumerate(stream.seen)]
        self.epoch = self.epoch or summed.epoch
        if len(step.sums) == stream.slices:
            self.summed(stream.tensor)
        return True

    @property
    def everyone(self) -> int:
        """The bits of all workers."""
        return EVERYBODY if self.by_children else (1 << self.point.workers) - 1

    def how_many(self, members: int) -> int:
        """Workers that are in a result."""
        return self.point.workers if self.by_children else members.bit_count()

    def is_over_budget(self, stream: Stream, step: Step, s: int, missing: int) -> bool:
        """Whether a result lacks somebody who was missing in as many of its message as may be."""
        known = [step.missing.get(other, 0) for other in stream.message(s)]
        ranks = [rank for rank in range(self.point.workers) if missing >> rank & 1]
        return any(sum(mask >> rank & 1 for mask in known) >= self.budget(stream, s) for rank in ranks)

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
        return (
            len(datagram) == len(own)
            and (summed.generation, summed.slot, summed.exponent) == (wanted.generation, wanted.slot, wanted.exponent)
            and self.are_members(summed.members, self.closer(stream, step))
        )

    def are_members(self, members: int, closer: int) -> bool:
        """Whether a result may have these: its closer among them, and of a job without bits for workers all."""
        if self.by_children:
            return members == self.everyone
        return members >> closer & 1 != 0 and members & ~self.everyone == 0

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
        self.generation = self.epoch = 0
        for stream in self.streams.values():
            if not stream.now or not stream.now.generation or stream.now.again:
                continue
            if reruns.get(stream.tensor) == stream.now.number:
                stream.now.again = True
            else:
                self.withdraw(stream, stream.now)

    def withdraw(self, stream: Stream, step: Step) -> None:
        """A step goes by hosts, who take all of what it contributes."""
        step.generation, step.integers, step.sums, step.missing = 0, [], {}, {}
        step.closing, step.epochs = {}, []
        if not step.absent:
            stream.owed = zeros(step.values)

    def kept(self, tensor: int, step: int) -> Step:
        """A step that is done again. Raises LookupError if its integers are not here any more."""
        stream = self.streams[tensor]
        for kept in (stream.now, stream.last):
            if kept and kept.number == step and kept.integers:
                return kept
        raise LookupError(f"the integers of step {step} of tensor {tensor} are not kept")

    def missing_in(self, tensor: int, step: int) -> list[int]:
        """By slice, bits of who is missing in the result that this worker has, if any: hosts agree on these first."""
        kept = self.kept(tensor, step)
        return [kept.missing.get(s, 0) for s in range(len(kept.integers))]

    def of_rerun(self, tensor: int, step: int, missing: Sequence[int]) -> list[list[int]]:
        """What this worker gives to the sum over all, by hosts: nothing to a slice that somebody has without it."""
        integers = self.kept(tensor, step).integers
        return [[0] * len(row) if mask >> self.rank & 1 else row for row, mask in zip(integers, missing, strict=True)]

    def rerun(self, tensor: int, sums: list[list[int]], missing: Sequence[int]) -> None:
        """The step that is done again has these sums."""
        stream = self.streams[tensor]
        assert stream.now is not None
        assert stream.now.again
        stream.now.sums, stream.now.missing = dict(enumerate(sums)), dict(enumerate(missing))
        self.summed(tensor)

    def use_switch(self, generation: int, start: int) -> None:
        """The workers have agreed on a step from which the switch is used again."""
        self.generation, self.start, self.epoch = generation, start, 0
