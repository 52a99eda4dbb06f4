# SPDX-License-Identifier: Apache-2.0
"""The C core's engine of one job: its configuration, its counts and the state of its paths."""

import contextlib
import math
import socket
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from gradlane import wire
from gradlane._core import ffi, lib
from gradlane.datapath import sockets, steering
from gradlane.datapath.transport import Transport
from gradlane.errors import AgentError
from gradlane.ipc.status import Hop
from gradlane.job import Job
from gradlane.job.agreement import Agreement
from gradlane.job.policy import MAX_LAYER, MAX_MAGNITUDE
from gradlane.job.stragglers import Moment, Neighbour
from gradlane.toml_file import Address

# A sequence window of this many messages of one source is more than any model has in flight in a step.
MAX_WINDOW = 2048
# Contributions that wait for the slowest worker; beyond it datagrams are dropped, and repaired later.
MEMORY_BYTES = 2 << 30

STATISTICS = [name for name, _ in ffi.typeof("gl_statistics").fields]
_OF_PEER = [name for name, _ in ffi.typeof("gl_counts").fields]


COLORS = ("green", "yellow", "red", "red")  # v1model numbers red 2, TNA 3


@dataclass(frozen=True)
class FabricPath:
    """A path through the fabric, how many traces took it, and what the latest of them met."""

    count: int
    hops: tuple[Hop, ...]

    @property
    def name(self) -> str:
        """Its switches with their ports, e.g. "1:3-5 4:1-2"."""
        return " ".join(f"{hop['switch']}:{hop['ingress_port']}-{hop['egress_port']}" for hop in self.hops)


@dataclass(frozen=True)
class Flow:
    """Towards a rank: pacing rate (bit/s), smoothed round-trip time (us), and the paths that traces have taken, the
    latest first; those seen longest ago are forgotten."""

    rate: int
    srtt_us: int
    paths: Sequence[FabricPath]


def _hop(hop: Any) -> Hop:
    """Of a gl_hop."""
    depth, unit = (hop.depth * hop.depth_unit, "bytes") if hop.depth_unit else (hop.depth, "packets")
    return {
        "switch": hop.switch_id,
        "ingress_port": hop.ingress_port,
        "egress_port": hop.egress_port,
        "queue_class": hop.queue_class,
        "color": COLORS[hop.color],
        "depth": depth,
        "depth_unit": unit,
        "wait_us": hop.wait / 1000,
    }


def _token(agreement: Agreement, shard: int) -> int:
    """Engines of one job at a host differ in the lowest bits, by which they get their datagrams."""
    if agreement.shards == 1:
        return agreement.token
    return agreement.token & -int(lib.GL_MAX_SHARDS) | shard


def _bits(count: int) -> int:
    """Those of a number below it."""
    return (count - 1).bit_length()


def _configuration(
    job: Job, rank: int, agreement: Agreement, shard: int, memory: int, port: Any
) -> tuple[Any, list[Any]]:
    """A gl_config, and what it points to."""
    policy = job.policy
    classes = [(*row.layers, 0, MAX_MAGNITUDE, row.queue_class) for row in policy.queue_classes if policy.priority]
    precedences = [(*row.layers, *row.magnitudes, row.drop_precedence) for row in policy.drop_precedences]
    class_ranges, precedence_ranges = ffi.new("gl_range[]", classes), ffi.new("gl_range[]", precedences)
    rows = [(*row.layers, row.push, row.pull) for row in job.loss.classes]
    rows.append((0, MAX_LAYER, job.loss.push, job.loss.pull))
    losses = ffi.new("gl_loss[]", [(first, last, round(a * 1e6), round(b * 1e6)) for first, last, a, b in rows])
    late, racks = job.loss.late, agreement.conditions.racks
    of_racks = ffi.NULL if racks is None else ffi.new("uint16_t[]", racks.of)
    config = ffi.new(
        "gl_config *",
        {
            "job": job.id,
            "rank": rank,
            "workers": len(job.workers),
            "servers": len(job.servers),
            "slice_bytes": agreement.slice_bytes,
            "token": _token(agreement, shard),
            "shard": shard,
            "shards": agreement.shards,
            "message_base": agreement.message_base,
            # Two messages in flight never share a budget slot of the switch; numbers are a power of two apart.
            "window": max(
                1, min(MAX_WINDOW, (job.slots.mask + 1) >> _bits(len(job.members)) + _bits(agreement.shards))
            ),
            "rate": job.transport.rate,
            "buffer": job.transport.buffer,
            "loss_count": len(rows),
            "losses": losses,
            "critical": round(job.loss.adaptive.critical * 1e6) if job.loss.adaptive else 1_000_000,
            "port": port,
            "multicast": _group_of(job, rank) is not None,
            "memory": memory // agreement.shards,
            "late_after": round(late.after * 1e6) if late else 0,
            "late_steps": late.steps if late else 0,
            "late_window": late.window if late else 0,
            "trace_every": job.transport.trace_every,
            "sums": _sums(job, agreement),
            "racks": of_racks,
            "tag": job.transport.tagging == "host",
            "class_count": len(classes),
            "precedence_count": len(precedences),
            "classes": class_ranges,
            "precedences": precedence_ranges,
        },
    )
    return config, [class_ranges, precedence_ranges, losses, of_racks]


def _sums(job: Job, agreement: Agreement) -> tuple[int, ...]:
    """A gl_sums."""
    how = job.transport
    return (job.sum_lanes or 0, how.sum_slots, how.sum_window, agreement.generation)


def _group_of(job: Job, rank: int) -> Address | None:
    """Where it sends its results, as an aggregator of a job with multicast."""
    index = next((k for k, member in enumerate(job.aggregators) if member.rank == rank), None)
    return None if index is None else job.multicast_address(index)


def _peers(job: Job, rank: int) -> Any:
    """The addresses of a job's ranks, then of the multicast group of this one, then of a switch's sums."""
    addresses: list[Address | None] = [*(it.address for it in job.members), _group_of(job, rank), job.sum_address]
    while addresses[-1] is None:
        addresses.pop()
    peers = ffi.new("struct sockaddr_storage[]", len(addresses))
    for k, address in enumerate(addresses):
        if address is not None:
            packed = sockets.pack(address, wire.UDP_PORT)
            ffi.memmove(ffi.addressof(peers, k), packed, len(packed))
    return peers


class Engine:
    """One job at one rank of this host, or a shard of it. What it carries goes through core/exchange/.

    `pointer` and `runner` are the gl_engine and the gl_runner that has it.
    """

    def __init__(
        self,
        transport: Transport,
        job: Job,
        rank: int,
        agreement: Agreement,
        memory: int = MEMORY_BYTES,
        shard: int = 0,
    ) -> None:
        """Joins the job's multicast groups. Raises AgentError."""
        self._job = job
        self._transport = transport
        self._groups: list[Address] = []
        self._sender: socket.socket | None = None
        config, _kept = _configuration(job, rank, agreement, shard, memory, transport.port)
        self.pointer: Any = lib.gl_engine_new(config)
        if self.pointer == ffi.NULL:
            raise AgentError(f"job {job.name!r} can't run: out of memory")
        self._key = steering.key_of(job.id, int(config.token))
        self._loop = transport.take(self._key, job.transport.multicast is not None)
        self.runner = self._loop.runner
        try:
            own = job.member(rank).address
            sender = self._loop.socket_of(own)
            if agreement.steered:
                # The kernel of who receives puts together what comes from one port, and steers it to one thread.
                sender = self._sender = sockets.bind(own, 0, transport.fallbacks)
            self._receive_groups(job, rank, sender)
            peers = _peers(job, rank)
            if lib.gl_runner_add(self.runner, self.pointer, sender.fileno(), peers, len(peers), ffi.NULL, ffi.NULL):
                raise AgentError(f"job {job.name!r}: out of memory")
        except AgentError:
            self.close()
            raise

    def _receive_groups(self, job: Job, rank: int, sender: socket.socket) -> None:
        own = job.member(rank).address
        if job.transport.multicast is None:
            return
        sockets.send_multicast_from(sender, own)
        if rank >= len(job.workers):
            return
        groups = [job.multicast_address(k) for k, member in enumerate(job.aggregators) if member.rank != rank]
        for group in (*groups, job.sum_address):
            if group is not None:
                self._loop.join(group, own)
                self._groups.append(group)

    def beat(self, descriptor: int, sign: bytes, others: Sequence[tuple[Address, int]], tos: int) -> None:
        """From now on the transport's thread sends that datagram by that socket to the others twice a second, whatever
        else this process does. Raises AgentError."""
        to = ffi.new("struct sockaddr_storage[]", max(1, len(others)))
        for k, (address, port) in enumerate(others):
            packed = sockets.pack(address, port)
            ffi.memmove(ffi.addressof(to, k), packed, len(packed))
        beats = ffi.new("gl_beats *", {"fd": descriptor, "tos": tos, "bytes": sign, "length": len(sign)})
        beats.to, beats.count = to, len(others)
        if lib.gl_runner_beat(self.runner, self.pointer, beats):
            raise AgentError(f"job {self._job.name!r}: out of memory")

    @contextlib.contextmanager
    def locked(self) -> Generator[Any]:
        """Around calls on `pointer`, which it gives."""
        with self._loop.locked():
            yield self.pointer

    def deliver(self, drain: Any, context: Any) -> None:
        """From now on the C function `drain` (gl_drain of io.h) takes the events, in the transport's thread."""
        lib.gl_runner_deliver(self.runner, self.pointer, drain, context)

    def idle(self) -> bool:
        """Whether no rank waits for a datagram of ours any more: every message sent has been stopped."""
        with self.locked() as engine:
            return bool(lib.gl_engine_idle(engine))

    def statistics(self) -> dict[str, int]:
        """Cumulative counts of this job on this host; docs/results.md explains them."""
        with self.locked() as engine:
            values = ffi.new("gl_statistics *", lib.gl_engine_statistics(engine)[0])
        count, last = ffi.new("uint64_t *"), ffi.new("int *")
        lib.gl_runner_send_errors(self.runner, self.pointer, count, last)
        result = {name: int(getattr(values, name)) for name in STATISTICS}
        return result | {"send_errors": int(count[0]), "send_errno": int(last[0])}

    def peer_counts(self, rank: int) -> dict[str, int]:
        """What went to a rank and came from it: the fields of gl_counts in core/job/statistics.h."""
        with self.locked() as engine:
            return self._counts(lib.gl_peer_statistics, engine, rank)

    def class_counts(self, index: int) -> dict[str, int]:
        """The same of a loss class, by its number in the job's list; one past the last: of all other layers."""
        with self.locked() as engine:
            return self._counts(lib.gl_class_statistics, engine, index)

    @staticmethod
    def _counts(function: Callable[[Any, int, Any], None], engine: Any, index: int) -> dict[str, int]:
        counts = ffi.new("gl_counts *")
        function(engine, index, counts)
        return {name: int(getattr(counts, name)) for name in _OF_PEER}

    def flows(self) -> list[Flow]:
        """Towards each rank."""
        size = len(self._job.members)
        rates, srtts, traced = ffi.new("uint64_t[]", size), ffi.new("uint32_t[]", size), ffi.new("bool[]", size)
        with self.locked() as engine:
            lib.gl_flow_states(engine, rates, srtts, traced)
        return [
            Flow(int(rates[rank]), int(srtts[rank]), self._paths(rank) if traced[rank] else []) for rank in range(size)
        ]

    def silence(self, rank: int) -> float:
        """Seconds since a datagram with the job's token came from a rank; infinite if none has come."""
        with self.locked() as engine:
            heard = int(lib.gl_heard(engine, rank))
        return (int(lib.gl_now()) - heard) / 1e6 if heard else math.inf

    def lateness(self) -> tuple[int, list[list[float]]]:
        """The latest step of which all contributions came here, and of each worker how late it came in that and in
        those before it, in s; nothing where this rank owns nothing."""
        found = ffi.new("gl_lateness[]", len(self._job.workers))
        with self.locked() as engine:
            lib.gl_engine_latenesses(engine, found)
        return int(found[0].step), [[late / 1e6 for late in it.late[0 : it.steps]] for it in found]

    def left_out(self, rank: int) -> tuple[int, int]:
        """Steps that something was reduced in here without a worker: since the job began, and of the latest window."""
        found = ffi.new("gl_left_out *")
        with self.locked() as engine:
            lib.gl_engine_left_out(engine, rank, found)
        return int(found.steps), int(found.recent)

    def neighbour(self) -> Neighbour | None:
        """What rings have shown of the one that sends to this rank; None: there was none."""
        found = ffi.new("gl_neighbour *")
        with self.locked() as engine:
            lib.gl_engine_neighbour(engine, found)
        later = {(int(found.step[k]), int(found.tensor[k])): found.later[k] / 1e6 for k in range(found.steps)}
        return Neighbour(int(found.rank), later) if later else None

    def sum_waits(self) -> dict[Moment, float]:
        """How long this rank has waited for the first sum of a switch, in s, in the latest steps."""
        found = ffi.new("gl_sum_waits *")
        with self.locked() as engine:
            lib.gl_engine_sum_waits(engine, found)
        return {(int(found.step[k]), int(found.tensor[k])): found.waited[k] / 1e6 for k in range(found.steps)}

    def link(self) -> tuple[list[float], list[float]]:
        """What this host's link carried of the job, bit/s, in its latest windows: what came, what went."""
        found = ffi.new("gl_link *")
        with self.locked() as engine:
            lib.gl_engine_link(engine, found)
        windows = found.received[0 : found.received_count], found.sent[0 : found.sent_count]
        return [rate * 8e6 for rate in windows[0]], [rate * 8e6 for rate in windows[1]]

    def held(self) -> list[tuple[int, int]]:
        """Slices to each rank that arrived; of them, those while congestion held the flow below its share. One more
        than there are ranks: to the multicast group, each slice counted for each that receives it."""
        size = len(self._job.members) + 1
        delivered, held = ffi.new("uint64_t[]", size), ffi.new("uint64_t[]", size)
        with self.locked() as engine:
            lib.gl_flows_held(engine, delivered, held)
        return list(zip(ffi.unpack(delivered, size), ffi.unpack(held, size), strict=True))

    def _paths(self, rank: int) -> list[FabricPath]:
        found = ffi.new("gl_path[]", lib.GL_PATHS)
        with self.locked() as engine:
            count = lib.gl_paths(engine, rank, found)
        return [FabricPath(int(p.count), tuple(_hop(p.hop[k]) for k in range(p.hops))) for p in found[0:count]]

    def close(self) -> None:
        """Ends the job on this host. What is called later raises TypeError."""
        with self._loop.locked():  # for both: the loop can't work on an engine that has left the port
            lib.gl_engine_leave(self.pointer)
            lib.gl_runner_remove(self.runner, self.pointer)
        self._transport.give_back(self._loop, self._key)
        for group in self._groups:
            self._loop.leave(group)
        if self._sender is not None:
            self._sender.close()
        pointer, self.pointer = self.pointer, None
        lib.gl_engine_free(pointer)  # it may take long: other jobs go on meanwhile
