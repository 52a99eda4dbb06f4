# SPDX-License-Identifier: Apache-2.0
"""A whole job on a switch that sums: workers, the network between, and the leader who has them halt and go on.

There is no clock: whoever plays a schedule decides what happens next, so any delay and any order can happen. What comes
out is compared with what all gave, counted apart from the workers.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from gradlane import wire
from tests.support.fixed_point import FIRST_EXPONENT, FixedPoint, power_of_two
from tests.support.sum_switch import Contributor, Slot, SumHeader, SumSwitch
from tests.support.sum_worker import Slices, Step, Stream, Worker, added, zeros

JOB, TENANT = 1, 2


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

    @property
    def slots(self) -> int:
        """Of the job: a power of two."""
        return 1 << (2 * self.window * len(self.partitions) - 1).bit_length()


@dataclass(frozen=True)
class Packet:
    """On its way: to a worker, or from one (or from a stranger: None) to the switch."""

    to: int | None
    row: Contributor | None
    datagram: bytes


@dataclass
class Agreed:
    """What is known of a step of a tensor: what each gave, and what those who are through have got."""

    given: dict[int, Slices] = field(default_factory=dict)
    way: str = ""
    total: list[list[Fraction]] = field(default_factory=list)
    sums: list[list[int]] | None = None  # by the switch


class Wrong(AssertionError):
    """A promise of the protocol is broken."""


class SummingJob:
    """The moves that can happen, and what must hold after each."""

    def __init__(
        self, layout: Layout, switch: SumSwitch | None = None, worker: Callable[..., Worker] = Worker, seed: int = 0
    ) -> None:
        self.layout, self.switch, self.random = layout, switch or SumSwitch(), random.Random(seed)
        self.point = FixedPoint(layout.lanes, layout.workers)
        ranks = range(layout.workers)
        base, everyone = layout.slots, (1 << layout.workers) - 1
        self.rows = [Contributor(1 << rank, everyone, base, layout.slots - 1) for rank in ranks]
        self.workers = [worker(rank, self.point, layout.window, self._streams(), layout.generation) for rank in ranks]
        self.network: list[Packet] = []
        self.restarts = self.by_switch = 0
        # The leader: who is halted, and what each still has to be told.
        self.generation, self.halting = layout.generation, False
        self.orders: dict[int, tuple[int, dict[int, int]]] = {}
        # Sums by hosts: by tensor, step and whether it is a re-run, of each who has come.
        self.meetings: dict[tuple[int, int, bool], dict[int, list[list[Fraction]]]] = {}
        self.steps: dict[tuple[int, int], Agreed] = {}
        # Counted apart from the workers: what each owes, and each tensor's exponents.
        self.owed = [[s.owed for s in self._streams()] for _ in ranks]
        self.exponents: list[list[int] | None] = [None for _ in layout.partitions]

    def _streams(self) -> list[Stream]:
        streams: list[Stream] = []
        for tensor, partitions in enumerate(self.layout.partitions):
            owed = [[Fraction(0)] * self.layout.elements for _ in range(sum(partitions))]
            streams.append(Stream(tensor, partitions, owed, begun=self.layout.done))
        return streams

    # Moves. Each says whether anything happened.

    def begin(self, rank: int, tensor: int, most: int) -> bool:
        """A worker submits its next step, if the last one is through; no step after `most`."""
        worker = self.workers[rank]
        stream = worker.streams[tensor]
        if worker.halted or stream.now or stream.begun - self.layout.done >= most:
            return False
        given = self._gradients(stream)
        step = worker.begin(tensor, given)
        self.steps.setdefault((tensor, step.number), Agreed()).given[rank] = given
        if not step.generation:
            self._meet(rank, tensor, step.number, step.values)
        return True

    def _gradients(self, stream: Stream) -> Slices:
        scale = Fraction(2) ** self.random.choice((-20, -12, -10, -10, -10, 0))
        return [[self.random.randint(-40, 40) * scale for _ in row] for row in stream.owed]

    def send(self, rank: int, tensor: int) -> bool:
        """The next slice."""
        datagram = self.workers[rank].next_slice(tensor)
        return self._to_switch(rank, datagram) if datagram else False

    def repair(self, rank: int, tensor: int, s: int | None = None) -> bool:
        """A slice without a result once more: any, or the one said."""
        missing = self.workers[rank].missing(tensor)
        if not missing:
            return False
        chosen = self.random.choice(missing) if s is None else s
        return self._to_switch(rank, self.workers[rank].repair(tensor, chosen))

    def _to_switch(self, rank: int, datagram: bytes) -> bool:
        self.network.append(Packet(None, self.rows[rank], datagram))
        return True

    def deliver(self, index: int, *, lost: bool = False, again: bool = False) -> bool:
        """A packet arrives or is lost; one that is duplicated comes later, too."""
        if not self.network:
            return False
        packet = self.network[index] if again else self.network.pop(index)
        if lost:
            return True
        if packet.to is None:
            self._at_switch(packet)
        else:
            self._at_worker(packet.to, packet.datagram)
        return True

    def _at_switch(self, packet: Packet) -> None:
        outcome = self.switch.take(packet.row, packet.datagram)
        if outcome.datagram is None:
            return
        assert packet.row is not None
        if wire.Header.unpack(packet.datagram).job != JOB:
            return
        ranks = range(self.layout.workers) if outcome.to_all else [packet.row.member.bit_length() - 1]
        self.network += [Packet(rank, None, outcome.datagram) for rank in ranks]

    def _at_worker(self, rank: int, datagram: bytes) -> None:
        worker = self.workers[rank]
        before = {tensor: stream.now for tensor, stream in worker.streams.items()}
        if not worker.receive(datagram):
            return
        tensor = wire.Header.unpack(datagram).tensor // 16
        step = before[tensor]
        if step and not worker.streams[tensor].now:
            self.by_switch += 1
            self._through(rank, tensor, step, "sums", [step.sums[s] for s in range(len(step.sums))])

    def restart(self) -> None:
        """The switch forgets its slots."""
        self.switch.restart()
        self.restarts += 1

    # The leader.

    def halt(self) -> bool:
        """The leader asks all to halt, unless they still do what it said last."""
        if self.halting or self.orders:
            return False
        self.halting = True
        return True

    def heed(self, rank: int, *, suspects: bool = True) -> bool:
        """One worker does what the leader said: it halts, and when all have, it goes on as the leader decides.

        `suspects`: whether workers have waited so long that the leader believes that the switch has failed them.
        """
        worker = self.workers[rank]
        if self.halting:
            worker.halted = True
            if all(other.halted for other in self.workers):
                self.halting = False
                self._decide(suspects)
            return True
        if rank not in self.orders:
            return False
        generation, reruns = self.orders.pop(rank)
        before = {tensor: stream.now for tensor, stream in worker.streams.items()}
        waited = {tensor: step for tensor, step in before.items() if step and step.generation}
        worker.resume(generation, reruns)
        for tensor, step in reruns.items():
            try:
                self._meet(rank, tensor, step, worker.of_rerun(tensor, step), rerun=True)
            except LookupError as error:
                raise Wrong(f"rank {rank} can't do a step again: {error}") from error
        for tensor, step in waited.items():
            if not step.generation:
                self._meet(rank, tensor, step.number, step.values)
        return True

    def _decide(self, suspects: bool) -> None:
        reruns: dict[int, int] = {}
        for tensor in range(len(self.layout.partitions)):
            states = [worker.state(tensor) for worker in self.workers]
            step = min(completed for completed, _ in states) + 1
            if all(begun >= step for _, begun in states):
                reruns[tensor] = step
        if reruns and suspects:
            self.generation = max(self.generation + 1 & 0xFFFFFFFF, 1)  # 0 says: by hosts
            self.orders = dict.fromkeys(range(self.layout.workers), (self.generation, reruns))
        else:
            self.orders = {rank: (worker.generation, {}) for rank, worker in enumerate(self.workers)}

    def plan(self) -> bool:
        """All agree to use the switch again."""
        if self.halting or self.orders or any(worker.generation for worker in self.workers):
            return False
        self.generation = max(self.generation + 1 & 0xFFFFFFFF, 1)  # 0 says: by hosts
        start = 1 + max(stream.begun for worker in self.workers for stream in worker.streams.values())
        for worker in self.workers:
            worker.use_switch(self.generation, start)
        return True

    # Sums by hosts.

    def _meet(
        self, rank: int, tensor: int, step: int, values: Sequence[Sequence[Fraction | int]], *, rerun: bool = False
    ) -> None:
        meeting = self.meetings.setdefault((tensor, step, rerun), {})
        if rank in meeting:
            raise Wrong(f"rank {rank} gives step {step} of tensor {tensor} to the hosts twice")
        meeting[rank] = [[Fraction(value) for value in row] for row in values]

    def by_hosts(self, rank: int, tensor: int) -> bool:
        """A worker gets what hosts have reduced, once all have come."""
        worker = self.workers[rank]
        step = worker.streams[tensor].now
        if worker.halted or not step or (step.generation and not step.again):
            return False
        meeting = self.meetings.get((tensor, step.number, step.again), {})
        if len(meeting) < self.layout.workers:
            return False
        total = _total(list(meeting.values()))
        if step.again:
            sums = [[int(value) for value in row] for row in total]
            worker.rerun(tensor, sums)
            self._through(rank, tensor, step, "sums", sums)
        else:
            worker.reduced(tensor, total)
            self._through(rank, tensor, step, "hosts", total)
        return True

    # What must hold.

    def _through(self, rank: int, tensor: int, step: Step, way: str, got: Sequence[Sequence[Fraction | int]]) -> None:
        """A worker has the result of a step: it is that of all others, and what their contributions say."""
        agreed = self.steps[tensor, step.number]
        if not agreed.way:
            agreed.way = way
            self._expect(tensor, agreed)
        if agreed.way != way:
            raise Wrong(f"step {step.number} of tensor {tensor} is reduced by {way} at rank {rank}, not at another")
        expected = agreed.total if agreed.sums is None else agreed.sums
        if [list(row) for row in got] != expected:
            raise Wrong(f"rank {rank} got {got} of step {step.number} of tensor {tensor}, not {expected}")

    def _expect(self, tensor: int, agreed: Agreed) -> None:
        """What a step's result is; steps of a tensor come in order."""
        ranks = range(self.layout.workers)
        if len(agreed.given) < self.layout.workers:
            raise Wrong("a step is through that not all have begun")
        values = [added(agreed.given[rank], self.owed[rank][tensor]) for rank in ranks]
        exponents = self.exponents[tensor] or [FIRST_EXPONENT] * len(values[0])
        if agreed.way == "hosts":
            agreed.total = _total(values)
            for rank in ranks:
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
            self.owed[rank][tensor] = [
                [x - q * scale for x, q in zip(row, own, strict=True)]
                for row, own, scale in zip(values[rank], integers[rank], scales, strict=True)
            ]
        agreed.sums = [[sum(lane) for lane in zip(*rows, strict=True)] for rows in zip(*integers, strict=True)]
        agreed.total = [[q * scale for q in row] for row, scale in zip(agreed.sums, scales, strict=True)]
        self.exponents[tensor] = [self.point.next_exponent(e, s) for e, s in zip(exponents, agreed.sums, strict=True)]

    def settle(self, most: int) -> None:
        """Nothing is lost any more: every step up to `most` ends, by hosts where the switch has failed; then checks.

        A switch that never restarted fails nobody.
        """
        tensors, ranks = range(len(self.layout.partitions)), range(self.layout.workers)
        while True:
            moved = False
            for rank in ranks:
                moved |= self.heed(rank)
                for tensor in tensors:
                    moved |= self.begin(rank, tensor, most) | self.by_hosts(rank, tensor)
                    while self.send(rank, tensor):
                        moved = True
            before = self._progress()
            for rank in ranks:
                for tensor in tensors:
                    for s in self.workers[rank].missing(tensor):
                        self.repair(rank, tensor, s)
            while self.network:
                self.deliver(0)
            if moved or before != self._progress():
                continue
            if all(not stream.now for worker in self.workers for stream in worker.streams.values()):
                break
            if not self.restarts:
                raise Wrong("workers wait for ever, though the switch has never restarted")
            if all(not worker.generation for worker in self.workers):
                raise Wrong("workers wait for ever, by hosts")
            self.halt()
        self._nothing_is_lost(most)

    def _progress(self) -> tuple[int, int]:
        steps = [stream.now for worker in self.workers for stream in worker.streams.values()]
        return self.by_switch, sum(len(step.sums) for step in steps if step)

    def _nothing_is_lost(self, most: int) -> None:
        """What is applied, and what each owes, are to the last bit what was given."""
        done = self.layout.done
        for tensor in range(len(self.layout.partitions)):
            steps = [self.steps[tensor, step] for step in range(done + 1, done + most + 1)]
            given = _total([values for step in steps for values in step.given.values()])
            owed = _total([worker.streams[tensor].owed for worker in self.workers])
            if given != added(_total([step.total for step in steps]), owed):
                raise Wrong(f"of tensor {tensor} something is lost, or counted twice")

    # What does not belong.

    def leave_behind(self, job: int, generation: int, number: int) -> None:
        """A slot holds what was there before this job came, or before it started again."""
        index = self.layout.slots + number % self.layout.slots
        members = self.random.choice([row.member for row in self.rows] + [self.rows[0].all])
        self.switch.slots[index] = Slot(job, generation, number, members, members, (self.random.getrandbits(900),), 0)

    def forge(self) -> bool:
        """Another tenant of the switch, or a stranger, sends what a worker might; or a result comes changed."""
        if not self.network:
            return False
        packet = self.random.choice(self.network)
        header = wire.Header.unpack(packet.datagram)
        summed = SumHeader.unpack(packet.datagram[wire.HEADER_BYTES :])
        lanes = self.random.randbytes(len(packet.datagram) - wire.HEADER_BYTES - wire.SUM_BYTES)
        if packet.to is None:
            own = Contributor(1, 3, 0, self.layout.slots - 1)
            row, job = self.random.choice([(None, JOB), (own, TENANT)])
            number = header.message + self.random.randint(-9, 9) & 0xFFFFFFFF
            self._at_switch(Packet(None, row, replace(header, job=job, message=number).pack() + summed.pack() + lanes))
            return True
        name, fields = self.random.choice(
            [
                (name, header)
                for name in ("job", "token", "message", "step", "tensor", "slice", "element_type", "length")
            ]
            + [(name, summed) for name in ("generation", "members", "slot", "exponent")]
        )
        changed = replace(fields, **{name: getattr(fields, name) ^ 1 << self.random.randrange(7)})
        head, middle = (changed, summed) if fields is header else (header, changed)
        if self.workers[packet.to].receive(head.pack() + middle.pack() + lanes):
            raise Wrong(f"a result with another {name} is taken")
        return True


def _total(rows: list[list[list[Fraction]]]) -> list[list[Fraction]]:
    return [[sum(lane, Fraction(0)) for lane in zip(*slices, strict=True)] for slices in zip(*rows, strict=True)]
