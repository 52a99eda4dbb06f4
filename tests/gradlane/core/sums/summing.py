# SPDX-License-Identifier: Apache-2.0
"""Engines with a switch between them that sums: its slots are those of tests/support/sum_switch.py."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from gradlane._core import ffi, lib

from gradlane.job.transport import SUM_MEMBERS
from gradlane.wire import HEADER_BYTES, SUM_BYTES, ElementType, Flag, Header, Kind, Lanes
from tests.gradlane.core.protocol.network import Cluster, Impairment
from tests.support.fixed_point import FixedPoint
from tests.support.sum_switch import EVERYBODY, Contributor, Event, SumHeader, SumSwitch, serial_difference

GENERATION = 0xFFFFFFF0  # it wraps soon
TYPES = {ElementType.FLOAT32: np.dtype(np.float32), ElementType.FLOAT16: np.dtype(np.float16)}


@dataclass
class Tensor:
    """What all ranks have of a tensor: the elements of its partitions; `mean` or sum."""

    number: int
    parts: Sequence[int]
    mean: bool = True
    type: ElementType = ElementType.FLOAT32

    @property
    def elements(self) -> int:
        return sum(self.parts)


SMOOTH = Impairment()
NOBODY = -1


class Summed(Cluster):
    """All times are microseconds of simulated time. `window`, `slots`: of gl_config's sums. `broken`: the switch drops
    everything that it should sum. `loss`: of a message's slices, a worker's may be missing in so many."""

    def __init__(
        self,
        workers: int,
        window: int = 4,
        slots: int = 64,
        lanes: Lanes = Lanes.INT16_LANES,
        slice_bytes: int = 272,
        impairment: Impairment = SMOOTH,
        seed: int = 0,
        rate: int = 1_000_000_000,
        generation: int = GENERATION,
        servers: int = 0,
        loss: float = 0.0,
    ) -> None:
        super().__init__(
            workers, servers, push_loss=loss, slice_bytes=slice_bytes, impairment=impairment, seed=seed, rate=rate,
            sums=(lanes, slots, window, generation),
        )  # fmt: skip
        self.switch, self.epoch = SumSwitch(), 1
        self.by_children = workers > SUM_MEMBERS
        self.sum_window, self.slots, self.generation = window, slots, generation
        self.numbers = FixedPoint(lanes, workers)
        self.per_slice = min(11, (slice_bytes - 12) // 128) * self.numbers.lanes_of_word
        self.seen: Counter[Event] = Counter()
        self.broken = False
        self.lost_results: set[tuple[int, int]] = set()  # rank, number: this result never comes there
        self.sent: list[tuple[int, Header, SumHeader]] = []
        # By rank, generation and tensor: who is in the sums that have come, by number.
        self.came: defaultdict[tuple[int, int, int], dict[int, int]] = defaultdict(dict)
        self.latest: dict[tuple[int, int, int], int] = {}  # number that was sent
        # By generation, tensor and number: who is in the sum that the switch has made, and its lanes.
        self.sums: dict[tuple[int, int, int], tuple[int, bytes]] = {}
        # By step and tensor on the wire: the keys of its sums by number; its slices; by worker, what may lack it.
        self.numbers_of: defaultdict[tuple[int, int], dict[int, tuple[int, int, int]]] = defaultdict(dict)
        self.slices_of: dict[tuple[int, int], int] = {}
        self.may_miss: defaultdict[tuple[int, int, int], set[int]] = defaultdict(set)
        self.tensors: dict[int, Tensor] = {}
        self.sources: dict[tuple[int, int, int], np.ndarray] = {}  # rank, step, tensor on the wire: contribution
        self.told = [0] * self.ranks  # events that have been looked at
        self.first: dict[tuple[int, int], int] = {}  # generation, tensor: its first number
        self.residuals: dict[tuple[int, int, int], object] = {}
        self.results: dict[tuple[int, int, int], np.ndarray] = {}  # rank, step, tensor
        self.passes: Callable[[int, Header], bool] = lambda source, header: True  # whether a contribution does
        self.marked = False  # results come with the mark of congestion

    # ---- The network ----

    def _deliver(self, source: int, to: int, datagram: bytes) -> None:
        if to != self.ranks + 1:
            super()._deliver(source, to, datagram)
            return
        header, summed = Header.unpack(datagram), SumHeader.unpack(datagram[HEADER_BYTES:])
        self.sent.append((source, header, summed))
        self._check_rule(source, header, summed)
        self._check_closing(source, header, summed)
        if not self.passes(source, header):
            return
        for at in self.copies():
            self.push(at, self.ranks + 1 + source, datagram)

    def copies(self) -> list[int]:
        """When copies of a datagram come that is sent now."""
        i = self.impairment
        copies = 1 + (self.random.random() < i.duplicate)
        ats = [self.now + i.delay + self.random.randrange(i.jitter + 1) for _ in range(copies)]
        return [at for at in ats if self.random.random() >= i.loss]

    def push(self, at: int, to: int, datagram: bytes) -> None:
        self.counter += 1
        heapq.heappush(self.queue, (at, self.counter, to, datagram))

    def run_for(self, us: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Lets so much time pass, or less if `until()` holds; whether it does."""
        end = self.now + us
        self.push(end, NOBODY, b"")
        self.run(lambda: until() or self.now >= end)
        return until()

    def receive(self, rank: int, datagram: bytes, congested: bool = False) -> None:
        if rank == NOBODY:
            return
        if rank > self.ranks:
            self._take(rank - self.ranks - 1, datagram)
            return
        header = Header.unpack(datagram) if len(datagram) >= HEADER_BYTES else None
        if header is None or not header.flags & Flag.SUM:
            super().receive(rank, datagram, congested)
            return
        if (rank, header.message) in self.lost_results:
            return
        summed = SumHeader.unpack(datagram[HEADER_BYTES:])
        key = rank, summed.generation, header.tensor // 16
        if key in self.latest and serial_difference(header.message, self.latest[key]) <= 0:
            self.came[key][header.message] = summed.members
        lib.gl_receive(self.engines[rank], datagram, len(datagram), self.marked, self.now)

    def _take(self, source: int, datagram: bytes) -> None:
        if self.broken:
            return
        row = Contributor(1 << source, (1 << self.workers) - 1, 0, self.slots - 1, epoch=self.epoch)
        outcome = self.switch.take(row, datagram)
        self.seen.update(outcome.events)
        if outcome.datagram is None:
            return
        header, summed = Header.unpack(outcome.datagram), SumHeader.unpack(outcome.datagram[HEADER_BYTES:])
        key = summed.generation, header.tensor // 16, header.message
        its = summed.members, outcome.datagram[HEADER_BYTES + SUM_BYTES :]
        assert self.sums.setdefault(key, its) == its, "a slice has two sums"
        for to in range(self.workers) if outcome.to_all else [source]:
            for at in self.copies():
                self.push(at, to, outcome.datagram)

    @property
    def everyone(self) -> int:
        """`members` of a sum of all."""
        return EVERYBODY if self.by_children else (1 << self.workers) - 1

    def bit(self, rank: int) -> int:
        """Of a worker in `members`; of more than there are bits, all."""
        return EVERYBODY if self.by_children else 1 << rank

    def restart(self) -> None:
        """The switch forgets everything, and the controller notices."""
        self.switch.restart()
        self.epoch = self.epoch % 255 + 1

    def _check_rule(self, rank: int, header: Header, summed: SumHeader) -> None:
        """A number is sent only when the sum of that a window before has come to its sender, and it has seen everybody
        else in one of the last window."""
        number, tensor = header.message, header.tensor // 16
        key = rank, summed.generation, tensor
        first = self.first.setdefault((summed.generation, tensor), number)
        before = (number - self.sum_window) & 0xFFFFFFFF
        if serial_difference(before, first) >= 0 and serial_difference(number, self.latest[key]) > 0:
            assert before in self.came[key], f"{rank} sent {number} too early"
            seen = self.bit(rank)
            for k in range(self.sum_window):
                seen |= self.came[key].get((before + k) & 0xFFFFFFFF, 0)
            assert seen == self.everyone, f"{rank} sent {number} though somebody may be far behind"
        self.latest[key] = max(self.latest.get(key, number), number, key=lambda n: serial_difference(n, first))
        self.numbers_of[header.step, header.tensor][number] = summed.generation, tensor, number
        self.slices_of[header.step, header.tensor] = header.slices
        size = 2 * self.sum_window
        assert summed.slot == tensor * size + number % size
        assert summed.slot < self.slots
        assert (header.source, header.budget, header.flags) == (rank, 0, Flag.SUM)
        assert header.kind in (Kind.DATA, Kind.REPAIR)

    def _check_closing(self, rank: int, header: Header, summed: SumHeader) -> None:
        """Only the closer lets others be missing, within their budgets, and nobody who may not have begun the step."""
        if not summed.members:
            return
        number = header.message
        assert header.kind == Kind.REPAIR
        if summed.members == self.bit(rank):  # it has the sum, and reminds the switch
            assert number in self.came[rank, summed.generation, header.tensor // 16]
            return
        assert rank == (header.tensor // 16 + header.step) % self.workers
        came = self.came[rank, summed.generation, header.tensor // 16]
        before = [(number - k) & 0xFFFFFFFF for k in range(1, min(self.sum_window, self._of_step(header) + 1))]
        for worker in (w for w in range(self.workers) if summed.members >> w & 1):
            assert worker != rank
            assert any(came.get(i, 0) >> worker & 1 for i in before), f"{worker} may be far behind {number}"
            may_miss = self.may_miss[header.step, header.tensor, worker]
            may_miss.add(number)
            lacks = {i for i in self.numbers_of[header.step, header.tensor] if i in came and not came[i] >> worker & 1}
            lacks |= {i for i in may_miss if i not in came}
            assert len(lacks) <= self.budget(header.slices), f"{worker} is left out too often"

    def budget(self, slices: int) -> int:
        """In how many of a message's sums a worker may be missing."""
        return self.loss[0] * slices // 1_000_000

    def _of_step(self, header: Header) -> int:
        """Which of its step's slices it is."""
        tensor = self.tensors[header.tensor // 16]
        return sum(-(-part // self.per_slice) for part in tensor.parts[: header.tensor % 16]) + header.slice

    def members_of(self, step: int, tensor: Tensor) -> dict[int, int]:
        """Who is in the sums of a step, by its slices, as far as the switch has made them."""
        slices = sum(-(-part // self.per_slice) for part in tensor.parts)
        first = (step - 1) * slices & 0xFFFFFFFF
        found = {key[2]: its for key, (its, _) in self.sums.items() if key[1] == tensor.number}
        return {s: found[n] for s in range(slices) if (n := (first + s) & 0xFFFFFFFF) in found}

    def check_budgets(self) -> None:
        """Nobody is missing in more of a message's sums than its budget."""
        for message, numbers in self.numbers_of.items():
            sums = [self.sums[key][0] for key in numbers.values() if key in self.sums]
            for worker in range(self.workers):
                assert sum(not its & self.bit(worker) for its in sums) <= self.budget(self.slices_of[message])

    # ---- Workers ----

    def open(self, tensor: Tensor, owes: bool = True) -> list[int]:
        """Registers it at all ranks; what each answers."""
        self.tensors[tensor.number] = tensor
        elements = ffi.new("uint64_t[]", list(tensor.parts))
        stream = ffi.new("gl_sum_stream *", (tensor.number, tensor.type, len(tensor.parts), elements))
        for rank in range(self.workers):
            for k, count in enumerate(tensor.parts):
                residual = ffi.new("gl_residual *")
                if owes and (rank, tensor.number, k) not in self.residuals:
                    assert lib.gl_residual_new(residual, count * TYPES[tensor.type].itemsize, self.slice_bytes) == 0
                    self.residuals[rank, tensor.number, k] = ffi.gc(residual, lib.gl_residual_free)
        return [lib.gl_engine_sums_open(self.engines[rank], stream) for rank in range(self.workers)]

    def owed(self, rank: int, tensor: Tensor, part: int, take: bool = False) -> np.ndarray:
        """What is owed of a partition; `take`: no longer."""
        values = np.zeros(tensor.parts[part], TYPES[tensor.type])
        residual = self.residuals.get((rank, tensor.number, part))
        if residual is None:
            return values
        lib.gl_residual_export(residual, ffi.from_buffer("uint8_t[]", values))
        if take:
            lib.gl_residual_import(residual, ffi.from_buffer("uint8_t[]", np.zeros_like(values)))
        return values

    def contribute(
        self,
        rank: int,
        step: int,
        tensor: Tensor,
        values: np.ndarray,
        generation: int | None = None,
        parts: Sequence[int] | None = None,
        layer: int = 0,
    ) -> np.ndarray:
        """Submits partitions (or all) of a tensor's step; the result appears in the returned array."""
        result = self.results.setdefault((rank, step, tensor.number), np.full(tensor.elements, np.nan, values.dtype))
        starts = np.cumsum([0, *tensor.parts])
        for k in range(len(tensor.parts)) if parts is None else parts:
            source = values[starts[k] : starts[k + 1]] + self.owed(rank, tensor, k, take=True)
            out = result[starts[k] : starts[k + 1]]
            layers = np.full(-(-source.nbytes // self.slice_bytes), layer, np.uint16)
            self.kept += [source, out, layers]
            self.sources[rank, step, tensor.number * 16 + k] = source
            residual = self.residuals.get((rank, tensor.number, k))
            submission = {
                "step": step, "tensor": tensor.number * 16 + k, "collective": lib.GL_ALL_REDUCE,
                "algorithm": lib.GL_DIRECT, "element_type": tensor.type,
                "reduction": lib.GL_MEAN if tensor.mean else lib.GL_SUM, "elements": source.size,
                "in": ffi.from_buffer("uint8_t[]", source), "out": ffi.from_buffer("uint8_t[]", out, True),
                "layers": ffi.from_buffer("uint16_t[]", layers),
                "generation": self.generation if generation is None else generation,
                "residual": ffi.NULL if residual is None else residual, "push_loss": self.loss[0],
            }  # fmt: skip
            assert lib.gl_submit(self.engines[rank], ffi.new("gl_submission *", submission), self.now) == 0
        return result

    def _flush(self, rank: int) -> None:
        """What hosts lose of a step is owed."""
        super()._flush(rank)
        for event in self.events[rank][self.told[rank] :]:
            residual = self.residuals.get((rank, event.tensor // 16, event.tensor % 16))
            if event.kind == lib.GL_EVENT_LOST and residual is not None:
                lost = bytearray(event.slices // 8 + 1)
                for i in event.lost:
                    lost[i // 8] |= 1 << i % 8
                source = ffi.from_buffer("uint8_t[]", self.sources[rank, event.step, event.tensor])
                lib.gl_residual_keep(residual, source, event.first_slice, event.slices, bytes(lost))
        self.told[rank] = len(self.events[rank])

    def halt(self, rank: int) -> None:
        lib.gl_engine_sums_halt(self.engines[rank])

    def state(self, rank: int) -> list[tuple[int, int, int]]:
        """Tensor, completed step, begun step, of all streams."""
        states = ffi.new("gl_sum_state[64]")
        count = lib.gl_engine_sums_state(self.engines[rank], states, 64)
        return [(s.tensor, s.completed, s.begun) for s in states[0:count]]

    def resume(self, rank: int, generation: int, by_switch: bool, reruns: Sequence[tuple[int, int]] = ()) -> int:
        array = ffi.new("gl_sum_rerun[]", list(reruns))
        return lib.gl_engine_sums_resume(self.engines[rank], generation, by_switch, array, len(reruns), self.now)

    def overdue(self, rank: int) -> int:
        return lib.gl_engine_sums_overdue(self.engines[rank], self.now)

    def has(self, rank: int, step: int, tensor: Tensor) -> bool:
        """Whether a worker has completed a tensor's step."""
        done = self.completed(rank)
        return all((step, tensor.number * 16 + k) in done for k in range(len(tensor.parts)))

    def complete(self, step: int, tensor: Tensor) -> bool:
        """Whether all workers have."""
        return all(self.has(rank, step, tensor) for rank in range(self.workers))


class Oracle:
    """What every rank must have after each step of a tensor, in integers and fractions."""

    def __init__(self, cluster: Summed, tensor: Tensor) -> None:
        self.numbers, self.tensor = cluster.numbers, tensor
        starts = np.cumsum([0, *tensor.parts])
        self.slices = [
            slice(int(at), int(min(at + cluster.per_slice, starts[k + 1])))
            for k in range(len(tensor.parts))
            for at in range(starts[k], starts[k + 1], cluster.per_slice)
        ]
        self.exponents = [-24] * len(self.slices)
        self.owed = np.zeros((cluster.workers, tensor.elements), TYPES[tensor.type])

    def with_owed(self, contributions: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [values + owed for values, owed in zip(contributions, self.owed, strict=True)]

    def by_hosts(self, contributions: Sequence[np.ndarray]) -> np.ndarray:
        """The exact result of a direct all-reduce, from which the exponents come."""
        values = self.with_owed(contributions)
        total = values[0].astype(np.float32)
        for more in values[1:]:
            total = total + more.astype(np.float32)
        divisor = len(values) if self.tensor.mean else 1
        result = (total / np.float32(divisor)).astype(values[0].dtype)
        self.owed[:] = 0
        for k, part in enumerate(self.slices):
            means = [float(v) / (1 if self.tensor.mean else len(values)) for v in result[part]]
            self.exponents[k] = self.numbers.exponent_of(means, self.exponents[k])
        return result

    def by_switch(self, contributions: Sequence[np.ndarray], members: Mapping[int, int] = {}) -> np.ndarray:
        """The result of a step by the switch; what is owed then is in `owed`. `members`: by slice, if not all."""
        values = self.with_owed(contributions)
        result = np.empty_like(values[0])
        for k, part in enumerate(self.slices):
            e = self.exponents[k]
            there = [members.get(k, -1) >> rank & 1 for rank in range(len(values))]
            integers = [
                [self.numbers.quantised(float(x), e) * its for x in v[part]]
                for v, its in zip(values, there, strict=True)
            ]
            sums = [sum(column) for column in zip(*integers, strict=True)]
            result[part] = [self.numbers.total(s, e, mean=self.tensor.mean) for s in sums]
            for rank, v in enumerate(values):
                self.owed[rank][part] = [self.numbers.owed(float(x), e) for x in v[part]] if there[rank] else v[part]
            self.exponents[k] = self.numbers.next_exponent(e, sums)
        return result
