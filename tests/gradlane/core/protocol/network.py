# SPDX-License-Identifier: Apache-2.0
"""Engines on a simulated network with its own clock: it loses, duplicates, delays, reorders and corrupts, by seed."""

import functools
import heapq
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from gradlane._core import ffi, lib

from gradlane.wire import HEADER_BYTES, HOP_BYTES, HOP_FIELDS, ElementType, Flag, Header, Kind

TOKEN = 0x1122334455667788
JOB = 3
CRITICAL = 500_000  # of what is tolerated, in critical phases: parts per million
# The header's element_type: float32, to be reduced to the mean of what arrived.
MEAN_FLOAT32 = ElementType.FLOAT32 | lib.GL_MEAN_OF_ARRIVED << 4


def values_of(rank: int, step: int, tensor: int, size: int, dtype=np.float32) -> np.ndarray:
    """What a rank contributes: pseudo-random values, the same in every run."""
    return np.random.default_rng([rank, step, tensor]).standard_normal(size).astype(dtype)


def added_up(weights: Sequence[int]) -> list[int]:
    """Shares of owners as gl_submission takes them."""
    return [0, *itertools.accumulate(weights)]


def mean_in_rank_order(contributions: list[np.ndarray]) -> np.ndarray:
    """The exact result of a direct all-reduce."""
    total = functools.reduce(lambda a, b: a + b, [c.astype(np.float32) for c in contributions])
    return (total / np.float32(len(contributions))).astype(contributions[0].dtype)


@dataclass(frozen=True)
class Impairment:
    """Probabilities per datagram; delays in microseconds."""

    loss: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    delay: int = 100
    jitter: int = 0
    # Datagrams of these kinds only, or of every kind.
    kinds: frozenset[Kind] | None = None
    # A switch cuts the payload of DATA: within its message's budget, as a policy may; and whatever the budget says.
    trim: float = 0.0
    overtrim: float = 0.0


def record(**values: int) -> bytes:
    """What a switch adds to a trace; fields that are not given are 0."""
    total = 0
    for name, bits in HOP_FIELDS:
        total = total << bits | values.get(name, 0)
    return total.to_bytes(HOP_BYTES, "big")


def traced(datagram: bytes, way: list[dict[str, int]]) -> bytes:
    """A TRACE after it has passed these switches, the first one first."""
    header, payload = Header.unpack(datagram), datagram[HEADER_BYTES:]
    for hop in way:
        payload = record(**hop) + payload
    return replace(header, length=len(payload)).pack() + payload


@dataclass
class Event:
    """What an engine told: see core/operation/events.h."""

    kind: int
    step: int
    tensor: int
    source: int
    first_slice: int
    slices: int
    lost: list[int] = field(default_factory=list)


@functools.lru_cache(1 << 12)
def header_of(begin: bytes) -> Header:
    """That of a datagram, by its first HEADER_BYTES bytes: on its way each is looked at several times."""
    return Header.unpack(begin)


class Ledger:
    """The guarantee of budgets, counted from the datagrams alone: at every STOP, what its message lacks."""

    def __init__(self, tolerated: Callable[[Header], int], leaves_out: bool = False) -> None:
        """`tolerated`: parts per million of a message that may be lost, by its header; `leaves_out`: or all of a
        push."""
        self._tolerated, self._leaves_out = tolerated, leaves_out
        self._came: defaultdict[tuple[int, int], set[int]] = defaultdict(set)  # by receiver and message
        self.results: dict[tuple[int, int, int], bytes] = {}  # by step, owner and slice: what was sent of them

    def delivered(self, to: int, datagram: bytes) -> None:
        if len(datagram) < HEADER_BYTES:
            return
        header = header_of(datagram[:HEADER_BYTES])
        if header.kind in (Kind.DATA, Kind.REPAIR) and len(datagram) == HEADER_BYTES + header.length:
            self._came[to, header.message].add(header.slice)

    def sent(self, source: int, datagram: bytes) -> None:
        header = header_of(datagram[:HEADER_BYTES])
        if header.kind in (Kind.DATA, Kind.REPAIR) and header.flags & Flag.PULL:
            self.results[header.step, source, header.slice] = datagram[HEADER_BYTES:]
        if header.kind != Kind.STOP:
            return
        bits = np.unpackbits(np.frombuffer(datagram[HEADER_BYTES:], np.uint8), bitorder="little")
        claimed = {int(k) for k in np.flatnonzero(bits[: header.slices])}
        assert claimed <= self._came[source, header.message], f"{header} says that more has come than has"
        if self._leaves_out and not claimed and not header.flags & Flag.PULL:
            return
        most = self._tolerated(header) * header.slices // 1_000_000
        assert header.slices - len(claimed) <= most, f"{header} ends with more than {most} slices missing"


class Cluster:
    """One engine per rank, and the network between them. All times are microseconds of simulated time."""

    def __init__(
        self,
        workers: int,
        servers: int = 0,
        push_loss: float = 0.0,
        pull_loss: float = 0.0,
        multicast: bool = False,
        slice_bytes: int = 64,
        element_type: ElementType = ElementType.FLOAT32,
        mean_of_arrived: bool = True,
        impairment: Impairment = Impairment(),
        seed: int = 0,
        window: int = 64,
        rate: int = 100_000_000,
        base: int = 0xFFFFFF00,
        memory: int = 1 << 26,
        buffer: int = 64_000,
        trace_every: int = 0,
        classes: Sequence[tuple[int, int, int, int, int]] | None = None,
        precedences: Sequence[tuple[int, int, int, int, int]] = (),
        losses: Sequence[tuple[int, int, int, int]] | None = None,
        weights: Sequence[int] | None = None,
        late: tuple[int, int, int] | None = None,
        sums: Sequence[int] = (0, 0, 0, 0),
        racks: Sequence[int] | None = None,
    ) -> None:
        """`weights`: of the owners' shares in what `submit` submits. `late`: after how many us, and of how many steps
        of any so many, a worker may be left out. `sums`, `racks`: of gl_config."""
        self.workers, self.servers, self.ranks = workers, servers, workers + servers
        self.slice_bytes, self.impairment, self.weights = slice_bytes, impairment, weights
        self.weights_of: Callable[[int], Sequence[int] | None] = lambda step: weights
        self.dtype = np.float32 if element_type == ElementType.FLOAT32 else np.float16
        self.random = random.Random(seed)
        self.now = 1_000_000
        self.queue: list[tuple[int, int, int, bytes]] = []
        self.counter = 0
        self.engines = []
        self.kept: list[object] = []
        self.events: list[list[Event]] = [[] for _ in range(self.ranks)]
        self.filter: Callable[[int, int, Header], bool] = lambda source, to, header: True
        # Of each batch, with its bytes.
        self.watch: Callable[[int, int, Sequence[Header], int], None] = lambda source, to, headers, length: None
        self.way: Callable[[int, int], list[dict[str, int]]] = lambda source, to: []  # records of the switches passed
        self.tags: list[tuple[Header, int]] = []  # of every datagram, by the host that sent it
        self.cut: Counter[int] = Counter()  # slices trimmed within the budget, by message
        self.loss = (round(push_loss * 1e6), round(pull_loss * 1e6))
        rows = [(0, 65535, *self.loss)] if losses is None else list(losses)
        loss_rows = ffi.new("gl_loss[]", rows)
        self.ledger = Ledger(
            lambda header: next(
                (row[3 if header.flags & Flag.PULL else 2] for row in rows if row[0] <= header.layer <= row[1]), 0
            ),
            leaves_out=late is not None,
        )
        after, steps, self.window = late or (0, 0, 0)
        self.element_type, self.reduction = element_type, 1 if mean_of_arrived else 2
        of_racks = ffi.NULL if racks is None else ffi.new("uint16_t[]", list(racks))
        class_ranges, precedence_ranges = (ffi.new("gl_range[]", list(rows or ())) for rows in (classes, precedences))
        for rank in range(self.ranks):
            config = ffi.new(
                "gl_config *",
                {
                    "job": JOB, "rank": rank, "workers": workers, "servers": servers, "slice_bytes": slice_bytes,
                    "token": TOKEN, "message_base": base, "window": window, "rate": rate,
                    "loss_count": len(rows), "losses": loss_rows, "memory": memory, "critical": CRITICAL,
                    "multicast": multicast and rank in self.aggregators,
                    "sums": tuple(sums), "racks": of_racks,
                    "late_after": after, "late_steps": steps, "late_window": self.window,
                    "buffer": buffer, "trace_every": trace_every, "tag": classes is not None,
                    "class_count": len(classes or ()), "precedence_count": len(precedences),
                    "classes": class_ranges, "precedences": precedence_ranges,
                },
            )  # fmt: skip
            engine = lib.gl_engine_new(config)
            assert engine != ffi.NULL
            self.engines.append(ffi.gc(engine, lib.gl_engine_free))
        self.batch = ffi.new("gl_batch *")

    @property
    def aggregators(self) -> range:
        """Ranks that aggregate."""
        return range(self.workers, self.ranks) if self.servers else range(self.workers)

    def submit(self, rank: int, step: int, tensor: int, values: np.ndarray) -> np.ndarray:
        """Starts an all-reduce at a worker; the result appears in the returned array (1-D, like `values`)."""
        source = np.ascontiguousarray(values, dtype=self.dtype)
        result = np.full_like(source, np.nan)
        slices = -(-source.nbytes // self.slice_bytes)
        layers = np.arange(slices, dtype=np.uint16)
        magnitudes = np.arange(slices).astype(np.uint8)
        self.kept += [source, result]
        code = self.start(
            rank, step, tensor, lib.GL_ALL_REDUCE, source, result, source.size, reduction=self.reduction,
            element_type=self.element_type, loss=self.loss, layers=layers, magnitudes=magnitudes,
            weights=self.weights_of(step), late=self.window > 0,
        )  # fmt: skip
        assert code == 0
        return result

    def begin_without(self, rank: int, step: int, tensor: int, elements: int) -> int:
        """Starts an all-reduce at a worker that is late, for the part it owns; returns what gl_submit does."""
        return self.start(
            rank, step, tensor, lib.GL_ALL_REDUCE, None, None, elements, reduction=self.reduction, loss=self.loss,
            element_type=self.element_type, layers=np.arange(elements, dtype=np.uint16), weights=self.weights_of(step),
            late=True,
        )  # fmt: skip

    def start(
        self,
        rank: int,
        step: int,
        tensor: int,
        collective: int,
        source: np.ndarray | None,
        result: np.ndarray | None,
        elements: int,
        *,
        algorithm: int = lib.GL_DIRECT,
        reduction: int = 0,
        element_type: ElementType = ElementType.FLOAT32,
        group: Sequence[int] | None = None,
        root: int = 0,
        stride: int = 0,
        loss: tuple[int, int] = (0, 0),
        layers: np.ndarray | None = None,
        magnitudes: np.ndarray | None = None,
        critical: bool = False,
        weights: Sequence[int] | None = None,
        late: bool = False,
    ) -> int:
        """Submits any operation, as gl_submission describes it; returns what gl_submit does."""
        self.kept += [source, result]
        ranks = ffi.new("uint16_t[]", list(group or ()))
        shares = ffi.NULL if weights is None else ffi.new("uint32_t[]", added_up(weights))
        submission = {
            "step": step, "tensor": tensor, "collective": collective, "algorithm": algorithm,
            "element_type": element_type, "reduction": reduction, "root": root, "group_size": len(group or ()),
            "group": ffi.NULL if group is None else ranks, "elements": elements, "stride": stride,
            "in": ffi.NULL if source is None else ffi.from_buffer("uint8_t[]", source),
            "out": ffi.NULL if result is None else ffi.from_buffer("uint8_t[]", result, True),
            "layers": ffi.NULL if layers is None else ffi.from_buffer("uint16_t[]", layers),
            "magnitudes": ffi.NULL if magnitudes is None else ffi.from_buffer("uint8_t[]", magnitudes),
            "push_loss": loss[0], "pull_loss": loss[1], "critical": critical, "shares": shares,
            "late": late,
        }  # fmt: skip
        return lib.gl_submit(self.engines[rank], ffi.new("gl_submission *", submission), self.now)

    def statistics(self, rank: int):
        """The engine's gl_statistics."""
        return lib.gl_engine_statistics(self.engines[rank])

    def receive(self, rank: int, datagram: bytes, congested: bool = False) -> None:
        """Hands one datagram to an engine, now."""
        self.ledger.delivered(rank, datagram)
        lib.gl_receive(self.engines[rank], datagram, len(datagram), congested, self.now)

    def _trimmed(self, header: Header) -> bool:
        if header.kind != Kind.DATA:
            return False
        if self.random.random() < self.impairment.overtrim:
            return True
        if self.cut[header.message] >= header.budget or self.random.random() >= self.impairment.trim:
            return False
        self.cut[header.message] += 1
        return True

    def _deliver(self, source: int, to: int, datagram: bytes) -> None:
        receivers = [r for r in range(self.workers) if r != source] if to == self.ranks else [to]
        header = header_of(datagram[:HEADER_BYTES])
        trimmed = self._trimmed(header)
        if trimmed:
            header = replace(header, kind=Kind.TRIMMED)
            datagram = header.pack()
        for to in receivers:
            if not self.filter(source, to, header):
                continue
            i = self.impairment
            hit = i.kinds is None or header.kind in i.kinds
            copies = 1 + (hit and self.random.random() < i.duplicate)
            for _ in range(copies):
                if hit and self.random.random() < i.loss:
                    continue
                data = datagram
                if header.kind == Kind.TRACE and not header.flags & Flag.RETURNED:
                    data = traced(data, self.way(source, to))
                if hit and self.random.random() < i.corrupt:
                    # UDP's checksum catches a flipped bit, so what gets through is cut short or foreign.
                    data = datagram[: self.random.randrange(len(datagram))]
                # What is trimmed overtakes what queues.
                at = self.now + i.delay + (self.random.randrange(i.jitter + 1) if hit and not trimmed else 0)
                self.counter += 1
                heapq.heappush(self.queue, (at, self.counter, to, data))

    def _flush(self, rank: int) -> None:
        engine = self.engines[rank]
        while lib.gl_transmit(engine, self.batch, self.now):
            b = self.batch
            data = b"".join(bytes(ffi.buffer(b.iov[i].iov_base, b.iov[i].iov_len)) for i in range(b.iov_count))
            datagrams = [data[k * b.segment : (k + 1) * b.segment] for k in range(b.datagrams)]
            headers = [header_of(datagram[:HEADER_BYTES]) for datagram in datagrams]
            self.watch(rank, b.to, headers, len(data))
            for k, datagram in enumerate(datagrams):
                self.tags.append((headers[k], b.tos[k]))
                self.ledger.sent(rank, datagram)
                self._deliver(rank, b.to, datagram)
        while (event := lib.gl_next_event(engine)) != ffi.NULL:
            lost = [i for i in range(event.slices) if event.kind == 2 and event.lost[i // 8] >> (i % 8) & 1]
            self.events[rank].append(
                Event(event.kind, event.step, event.tensor, event.source, event.first_slice, event.slices, lost)
            )
            lib.gl_event_free(event)

    def run(self, until=None, limit: int = 60_000_000) -> None:
        """Runs until `until()` holds or nothing is left to happen. Raises TimeoutError after `limit` simulated us."""
        end = self.now + limit
        while True:
            for rank in range(self.ranks):
                self._flush(rank)
            if until is not None and until():
                return
            deadline = min(lib.gl_deadline(engine, self.now) for engine in self.engines)
            if self.queue:
                deadline = min(deadline, self.queue[0][0])
            if deadline == 2**64 - 1:
                if until is not None:
                    raise TimeoutError("nothing left to happen, and the condition does not hold")
                return
            if deadline > end:
                raise TimeoutError(f"not done after {limit} simulated microseconds")
            self.now = max(deadline, self.now)
            while self.queue and self.queue[0][0] <= self.now:
                _, _, to, data = heapq.heappop(self.queue)
                self.receive(to, data)

    def paths(self, rank: int, to: int) -> list[tuple[int, list[int]]]:
        """The paths of this engine's traces to a rank, the latest first: how often, and the switches."""
        found = ffi.new("gl_path[]", lib.GL_PATHS)
        count = lib.gl_paths(self.engines[rank], to, found)
        return [(r.count, [r.hop[k].switch_id for k in range(r.hops)]) for r in found[0:count]]

    def completed(self, rank: int) -> list[tuple[int, int]]:
        """(step, tensor) of the all-reduces that this worker has completed, in order."""
        return [(e.step, e.tensor) for e in self.events[rank] if e.kind == 1]

    def all_completed(self, count: int) -> bool:
        """Whether every worker has completed `count` all-reduces."""
        return all(len(self.completed(rank)) >= count for rank in range(self.workers))
