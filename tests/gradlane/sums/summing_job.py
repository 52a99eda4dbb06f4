# SPDX-License-Identifier: Apache-2.0
"""A whole job on switches that sum: workers, the network between, and the leader who has them halt and go on.

There is no clock: whoever plays a schedule decides what happens next, so any delay and any order can happen. What comes
out an oracle compares with what all gave.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from gradlane import wire
from tests.gradlane.sums.fabric import BUCKETS, SWITCHES, Fabric, Packet, shapes
from tests.gradlane.sums.oracle import Layout, Oracle, Wrong, total
from tests.support.fixed_point import FixedPoint
from tests.support.sum_stream import Slices, Step, Stream
from tests.support.sum_switch import Contributor, Slot, SumHeader, SumSwitch
from tests.support.sum_worker import Worker

JOB, TENANT = 1, 2


class SummingJob:
    """The moves that can happen, and what must hold after each."""

    def __init__(
        self,
        layout: Layout,
        switch: Callable[[], SumSwitch] = SumSwitch,
        worker: Callable[..., Worker] = Worker,
        seed: int = 0,
    ) -> None:
        self.layout, self.random = layout, random.Random(seed)
        self.point = FixedPoint(layout.lanes, layout.workers)
        ranks = range(layout.workers)
        shape = shapes(layout.workers)[layout.shape]
        self.fabric = Fabric(shape, layout.workers, layout.slots, layout.slots, switch, layout.by_children)
        how = (layout.generation, JOB, layout.push, layout.late, layout.by_children)
        self.workers = [worker(rank, self.point, layout.window, self._streams(), *how) for rank in ranks]
        self.network: list[Packet] = []
        self.past: list[Packet] = []  # what has been on its way
        self.oracle = Oracle(layout)
        self.failures = self.by_switch = self.given_up = 0
        self.dead: set[int] = set()
        # The leader: who is halted, and what each still has to be told.
        self.generation, self.halting = layout.generation, False
        self.orders: dict[int, tuple[int, dict[int, int]]] = {}
        # Sums by hosts: by tensor, step and which it is of the three, of each who has come. Re-runs that are under way.
        self.meetings: dict[tuple[int, int, str], dict[int, Slices]] = {}
        self.duties: set[tuple[int, int, int]] = set()

    def _streams(self) -> list[Stream]:
        streams: list[Stream] = []
        for tensor, partitions in enumerate(self.layout.partitions):
            owed = [[Fraction(0)] * self.layout.elements for _ in range(sum(partitions))]
            streams.append(Stream(tensor, partitions, owed, begun=self.layout.done))
        return streams

    # Moves. Each says whether anything happened.

    def begin(self, rank: int, tensor: int, most: int) -> bool:
        """A worker's process comes to its next step, if it has the result of the last; no step after `most`."""
        worker = self.workers[rank]
        stream = worker.streams[tensor]
        if stream.got < stream.come or stream.come - self.layout.done >= most:
            return False
        if worker.halted and stream.come == stream.begun:
            return False
        given = self._gradients(stream)
        self.oracle.gives(rank, tensor, stream.come + 1, given)
        self._begun(rank, tensor, worker.begin(tensor, given))
        self._deliver(rank, tensor)
        return True

    def go_on(self, rank: int, tensor: int) -> None:
        """A worker hears that others wait in a step, in which some are or were a while ago."""
        latest = max(worker.streams[tensor].begun for worker in self.workers)
        self.workers[rank].go_on(tensor, self.random.randint(max(latest - 2, 0), latest))

    def stand_in(self, rank: int, tensor: int) -> bool:
        """A worker's agent begins a step without the process, if it was told to, and may."""
        step = self.workers[rank].stand_in(tensor)
        if step:
            self.oracle.absent(rank, tensor, step.number)
            self._begun(rank, tensor, step)
        return step is not None

    def _begun(self, rank: int, tensor: int, step: Step | None) -> None:
        if step and not step.generation:
            self._meet(rank, tensor, step.number, step.values)

    def _deliver(self, rank: int, tensor: int) -> None:
        """The process gets the result that it waits for, if that is there."""
        result = self.workers[rank].take(tensor)
        if result:
            self.oracle.through(rank, tensor, self.workers[rank].streams[tensor].got, *result)

    def _gradients(self, stream: Stream) -> Slices:
        scale = Fraction(2) ** self.random.choice((-20, -12, -10, -10, -10, 0))
        return [[self.random.randint(-40, 40) * scale for _ in row] for row in stream.owed]

    def send(self, rank: int, tensor: int) -> bool:
        """The next slice."""
        datagram = self.workers[rank].next_slice(tensor)
        return self._to_switch(rank, datagram) if datagram else False

    def repair(self, rank: int, tensor: int, s: int | None = None, leave_out: int = 0) -> bool:
        """A slice without a result once more: any, or the one said; without those of `leave_out` who may be missing."""
        worker = self.workers[rank]
        missing = worker.missing(tensor)
        if not missing:
            return False
        chosen = self.random.choice(missing) if s is None else s
        may_miss = worker.may_leave_out(tensor, chosen) & leave_out
        return self._to_switch(rank, worker.repair(tensor, chosen, may_miss))

    def _to_switch(self, rank: int, datagram: bytes) -> bool:
        self._on_its_way([Packet(self.fabric.homes[rank], rank, datagram)])
        return True

    def _on_its_way(self, packets: list[Packet]) -> None:
        self.network += packets
        self.past += packets

    def echo(self) -> None:
        """Some of what was on its way, however long ago, comes once more."""
        self.network += self.random.choices(self.past, k=min(len(self.past), 20))

    def deliver(self, index: int, *, lost: bool = False, again: bool = False) -> bool:
        """A packet arrives or is lost; one that is duplicated comes later, too."""
        if not self.network:
            return False
        packet = self.network[index] if again else self.network.pop(index)
        if lost:
            return True
        if packet.to >= SWITCHES:
            self._on_its_way(self.fabric.take(packet))
        else:
            self._at_worker(packet.to, packet.datagram)
        return True

    def _at_worker(self, rank: int, datagram: bytes) -> None:
        worker = self.workers[rank]
        before = {tensor: stream.now for tensor, stream in worker.streams.items()}
        if not worker.receive(datagram):
            return
        header = wire.Header.unpack(datagram)
        tensor, generation = header.tensor // 16, SumHeader.unpack(datagram[wire.HEADER_BYTES :]).generation
        step = before[tensor]
        assert step
        s = header.message - worker.number(worker.streams[tensor], step.number, 0) & 0xFFFFFFFF
        self.oracle.result(generation, tensor, header.message, step.missing[s], step.sums[s])
        if not worker.streams[tensor].now:
            self.by_switch += 1
            self._deliver(rank, tensor)

    def restart(self, at: int | None = None) -> None:
        """A switch forgets its slots: any, or the one said."""
        self.fabric.restart(self.random.choice(list(self.fabric.switches)) if at is None else at)
        self.failures += 1

    def move(self) -> None:
        """Some switches send a bucket up another tree."""
        switches = [at for at in self.fabric.switches if self.random.random() < 0.7]
        self.fabric.move(switches, self.random.randrange(BUCKETS), self.random.randrange(4))
        self.failures += 1

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
        if generation == worker.generation:
            worker.resume(generation, {})
            for tensor, step in 2 * list(reruns.items()):
                for datagram in worker.reminders(tensor, step):
                    self._to_switch(rank, datagram)
            return True
        worker.resume(generation, reruns)
        for tensor, step in reruns.items():
            try:
                missing = worker.missing_in(tensor, step)
            except LookupError as error:
                raise Wrong(f"rank {rank} can't do a step again: {error}") from error
            self._meet(rank, tensor, step, [[Fraction(mask)] for mask in missing], "missing")
            self.duties.add((rank, tensor, step))
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
            self.given_up += 1
            self.generation = max(self.generation + 1 & 0xFFFFFFFF, 1)  # 0 says: by hosts
            self.orders = dict.fromkeys(range(self.layout.workers), (self.generation, reruns))
        else:
            self.orders = {rank: (worker.generation, reruns) for rank, worker in enumerate(self.workers)}

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
        self, rank: int, tensor: int, step: int, values: Sequence[Sequence[Fraction | int]], what: str = "values"
    ) -> None:
        meeting = self.meetings.setdefault((tensor, step, what), {})
        if rank in meeting:
            raise Wrong(f"rank {rank} gives step {step} of tensor {tensor} to the hosts twice")
        meeting[rank] = [[Fraction(value) for value in row] for row in values]

    def _met(self, tensor: int, step: int, what: str) -> list[Slices]:
        """What all have given; nothing before they have."""
        meeting = self.meetings.get((tensor, step, what), {})
        return list(meeting.values()) if len(meeting) == self.layout.workers else []

    def _missing(self, tensor: int, step: int) -> list[int]:
        """Of a step that is done again, by slice: who is missing in a result that somebody has."""
        return [max(int(row[0]) for row in rows) for rows in zip(*self._met(tensor, step, "missing"), strict=True)]

    def do_again(self, rank: int) -> bool:
        """A worker gives its integers of a step that is done again, once all know who is missing in what."""
        ready = [it for it in self.duties if it[0] == rank and self._met(it[1], it[2], "missing")]
        for _, tensor, step in ready:
            self.duties.remove((rank, tensor, step))
            try:
                integers = self.workers[rank].of_rerun(tensor, step, self._missing(tensor, step))
            except LookupError as error:
                raise Wrong(f"rank {rank} can't do a step again: {error}") from error
            self._meet(rank, tensor, step, integers, "integers")
        return bool(ready)

    def by_hosts(self, rank: int, tensor: int) -> bool:
        """A worker gets what hosts have reduced, once all have come."""
        worker = self.workers[rank]
        step = worker.streams[tensor].now
        if worker.halted or not step or (step.generation and not step.again):
            return False
        met = self._met(tensor, step.number, "integers" if step.again else "values")
        if not met:
            return False
        reduced = total(met)
        if step.again:
            sums = [[int(value) for value in row] for row in reduced]
            worker.rerun(tensor, sums, self._missing(tensor, step.number))
        else:
            worker.reduced(tensor, reduced)
        self._deliver(rank, tensor)
        return True

    # The end.

    def settle(self, most: int) -> None:
        """Nothing is lost any more: every step up to `most` ends, by hosts where the switch has failed; then checks.

        A switch that never restarted fails nobody; and the first time that nothing comes, all only remind it.
        """
        tensors = range(len(self.layout.partitions))
        ranks = [rank for rank in range(self.layout.workers) if rank not in self.dead]
        suspects = False
        while True:
            moved = False
            for rank in ranks:
                moved |= self.heed(rank) | self.do_again(rank)
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
            progress = before != self._progress()
            suspects &= not progress
            if moved or progress:
                continue
            if self.dead:
                return  # that ends the job
            if all(not stream.now for worker in self.workers for stream in worker.streams.values()):
                break
            if not self.failures:
                raise Wrong("workers wait for ever, though no switch has failed")
            if all(not worker.generation for worker in self.workers):
                raise Wrong("workers wait for ever, by hosts")
            self.halt()
            for rank in 2 * ranks:
                self.heed(rank, suspects=suspects)
            suspects = True
        owed = [[stream.owed for stream in worker.streams.values()] for worker in self.workers]
        self.oracle.nothing_is_lost(owed, most)

    def _progress(self) -> tuple[int, int]:
        steps = [stream.now for worker in self.workers for stream in worker.streams.values()]
        return self.by_switch, sum(len(step.sums) for step in steps if step)

    # What does not belong.

    def leave_behind(self, job: int, generation: int, number: int) -> None:
        """A slot holds what was there before this job came, or before it started again."""
        index = self.layout.slots + number % self.layout.slots
        members = self.random.choice([1, 2, self.fabric.everyone])
        for switch in self.fabric.switches.values():
            switch.slots[index] = Slot(job, generation, number, members, members, (self.random.getrandbits(900),), 0)

    def forge(self) -> bool:
        """Another tenant of the switch, or a stranger, sends what a worker might; or a result comes changed."""
        if not self.network:
            return False
        packet = self.random.choice(self.network)
        header = wire.Header.unpack(packet.datagram)
        summed = SumHeader.unpack(packet.datagram[wire.HEADER_BYTES :])
        lanes = self.random.randbytes(len(packet.datagram) - wire.HEADER_BYTES - wire.SUM_BYTES)
        if packet.to >= SWITCHES:
            own = Contributor(1, 3, 0, self.layout.slots - 1)
            row, job = self.random.choice([(None, JOB), (own, TENANT)])
            number = header.message + self.random.randint(-9, 9) & 0xFFFFFFFF
            forged = replace(header, job=job, message=number).pack() + summed.pack() + lanes
            self.fabric.switches[packet.to].take(row, forged)
            return True
        name, fields = self.random.choice(
            [
                (name, header)
                for name in ("job", "token", "message", "step", "tensor", "slice", "element_type", "length")
            ]
            + [(name, summed) for name in ("generation", "members", "slot", "exponent")]
        )
        flipped = 1 << self.random.randrange(7)
        if name == "members" and not self.layout.by_children:  # a stranger in it, or the closer not
            flipped = 1 << (header.step + header.tensor // 16) % self.layout.workers
            if self.random.random() < 0.5:
                flipped = 1 << self.layout.workers + self.random.randrange(3)
        changed = replace(fields, **{name: getattr(fields, name) ^ flipped})
        head, middle = (changed, summed) if fields is header else (header, changed)
        if self.workers[packet.to].receive(head.pack() + middle.pack() + lanes):
            raise Wrong(f"a result with another {name} is taken")
        return True
