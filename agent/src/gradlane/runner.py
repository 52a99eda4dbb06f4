# SPDX-License-Identifier: Apache-2.0
"""The C core on this host's sockets, in a thread of its own (the GIL is released while it runs)."""

import errno
import logging
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane import wire
from gradlane._core import ffi, lib
from gradlane.agreement import Agreement
from gradlane.errors import AgentError
from gradlane.job import Job
from gradlane.policy import MAX_MAGNITUDE
from gradlane.toml_file import Address

log = logging.getLogger("gradlane")

# A sequence window of this many messages of one source is more than a step of any model has under way.
MAX_WINDOW = 2048
# Contributions that wait for the slowest worker; beyond it datagrams are dropped, and repaired later.
MEMORY_BYTES = 2 << 30
SOCKET_BUFFER = 4 << 20
# A fabric of a few hops; the default of 1 would end at the first switch.
_MULTICAST_TTL = 16
# Numbers of Linux that the socket module does not name.
_IP_MTU_DISCOVER = 10
_IP_PMTUDISC_DO = 2
_SO_RCVBUFFORCE = 33
_SO_SNDBUFFORCE = 32
_UDP_GRO = 104
_REALTIME_PRIORITY = 1

ELEMENT_TYPES = {"float32": wire.ElementType.FLOAT32, "float16": wire.ElementType.FLOAT16}
# float32 or float16 arrays: the job decides.
Values = npt.NDArray[Any]
NUMPY_TYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16)}

STATISTICS = [name for name, _ in ffi.typeof("gl_statistics").fields]


@dataclass(frozen=True)
class Completed:
    """The result of (step, tensor) is there."""

    step: int
    tensor: int


@dataclass(frozen=True)
class Lost:
    """A push is over. `slices`: those of the tensor of which this worker's contribution did not count."""

    step: int
    tensor: int
    slices: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Mismatch:
    """Rank `source` disagrees about the shape of (step, tensor)."""

    step: int
    tensor: int
    source: int


Event = Completed | Lost | Mismatch

COLORS = ("green", "yellow", "red", "red")  # v1model numbers red 2, TNA 3


@dataclass(frozen=True)
class Hop:
    """What a switch told in a trace: the ports by which it came and went, and the queue in between.

    `depth` is in `depth_unit` ("packets" or "bytes"), as the trace left the queue; `wait_us` is its time there.
    """

    switch: int
    ingress_port: int
    egress_port: int
    queue_class: int
    color: str
    depth: int
    depth_unit: str
    wait_us: float


@dataclass(frozen=True)
class Route:
    """A way through the fabric, how many traces took it, and what the latest of them met."""

    count: int
    hops: tuple[Hop, ...]

    @property
    def name(self) -> str:
        """Its switches with their ports, e.g. "1:3-5 4:1-2"."""
        return " ".join(f"{hop.switch}:{hop.ingress_port}-{hop.egress_port}" for hop in self.hops)


def _hop(hop: Any) -> Hop:
    depth, unit = (hop.depth * hop.depth_unit, "bytes") if hop.depth_unit else (hop.depth, "packets")
    wait = hop.wait / 1000
    return Hop(hop.switch_id, hop.ingress_port, hop.egress_port, hop.queue_class, COLORS[hop.color], depth, unit, wait)


def _bind(address: Address, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    for force, plain in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, SOCKET_BUFFER)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, plain, SOCKET_BUFFER)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)  # a slice is never fragmented
    try:
        sock.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
    except OSError as error:
        log.warning("UDP_GRO (Linux 5.0): %s; each datagram is received by itself, at more CPU time", error.strerror)
    try:
        sock.bind((str(address), port))
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise AgentError(f"UDP port {port} of {address} is in use: another agent or program holds it") from error
        raise AgentError(f"UDP port {port} of {address}: {error.strerror}") from error
    return sock


class Runner:
    """An engine of one job on this host. Use `submit`, wait for `notify` to be readable, then drain `events`."""

    def __init__(self, job: Job, rank: int, agreement: Agreement) -> None:
        """Binds the sockets and starts the thread. Raises AgentError."""
        self._job = job
        self._sockets = self._open_sockets(job, rank)
        self.notify = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        engine = self._engine(job, rank, agreement)
        descriptors = [sock.fileno() for sock in self._sockets]
        self._runner = lib.gl_runner_new(engine, descriptors, len(descriptors), wire.UDP_PORT, self.notify)
        if self._runner == ffi.NULL:
            lib.gl_engine_free(engine)
            self._close_descriptors()
            raise AgentError("out of memory or file descriptors while starting the transport")
        self.failure = ""
        self._thread = threading.Thread(target=self._run, name=f"gradlane-{job.name}", daemon=True)
        self._thread.start()

    @staticmethod
    def _open_sockets(job: Job, rank: int) -> list[socket.socket]:
        member = job.member(rank)
        unicast = _bind(member.address, wire.UDP_PORT)
        base = job.transport.multicast
        if base is None:
            return [unicast]
        unicast.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, member.address.packed)
        unicast.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, _MULTICAST_TTL)
        unicast.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        sockets = [unicast]
        index = 0
        try:
            # A socket for each group: bound to the group's address it receives nothing else.
            for index, aggregator in enumerate(job.aggregators):
                if rank >= len(job.workers) or aggregator.rank == rank:
                    continue
                sockets.append(_bind(base + index, wire.UDP_PORT))
                group = (base + index).packed + member.address.packed
                sockets[-1].setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
        except (AgentError, OSError) as error:
            for sock in sockets:
                sock.close()
            if isinstance(error, AgentError):
                raise
            raise AgentError(f"multicast group {base + index} on {member.address}: {error.strerror}") from error
        return sockets

    @staticmethod
    def _engine(job: Job, rank: int, agreement: Agreement) -> Any:
        policy = job.policy
        classes = [(*row.layers, 0, MAX_MAGNITUDE, row.queue_class) for row in policy.queue_classes if policy.priority]
        precedences = [(*row.layers, *row.magnitudes, row.drop_precedence) for row in policy.drop_precedences]
        class_ranges, precedence_ranges = ffi.new("gl_range[]", classes), ffi.new("gl_range[]", precedences)
        rows = [(*row.layers, row.push, row.pull) for row in job.loss.classes] + [
            (0, 65535, job.loss.push, job.loss.pull)
        ]
        losses = ffi.new("gl_loss[]", [(first, last, round(a * 1e6), round(b * 1e6)) for first, last, a, b in rows])
        index = next((k for k, m in enumerate(job.aggregators) if m.rank == rank), None)
        group = None if index is None else job.multicast_address(index)
        config = ffi.new(
            "gl_config *",
            {
                "job": job.id,
                "rank": rank,
                "workers": len(job.workers),
                "servers": len(job.servers),
                "slice_bytes": agreement.slice_bytes,
                "token": agreement.token,
                "message_base": agreement.message_base,
                # Two messages in flight never share a budget slot of the switch; numbers are a power of two apart.
                "window": max(1, min(MAX_WINDOW, (job.slots.mask + 1) >> (len(job.members) - 1).bit_length())),
                "rate": job.transport.rate,
                "buffer": job.transport.buffer,
                "loss_count": len(rows),
                "losses": losses,
                "multicast": 0 if group is None else int(group),
                "memory": MEMORY_BYTES,
                "trace_every": job.transport.trace_every,
                "tag": job.transport.tagging == "host",
                "class_count": len(classes),
                "precedence_count": len(precedences),
                "classes": class_ranges,
                "precedences": precedence_ranges,
            },
        )
        engine = lib.gl_engine_new(config, [int(member.address) for member in job.members])
        if engine == ffi.NULL:
            raise AgentError(f"job {job.name!r} can't be carried: at most 256 ranks, or out of memory")
        return engine

    def _run(self) -> None:
        # As the kernel's TCP does, this thread goes before the training that waits for it.
        try:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_REALTIME_PRIORITY))
        except PermissionError:
            log.warning("no real-time priority (CAP_SYS_NICE): a busy host makes the transport's pace uneven")
        code = lib.gl_runner_run(self._runner)
        if code:
            self.failure = f"the transport's socket loop ended: {os.strerror(code)}"
            os.eventfd_write(self.notify, 1)

    def submit(
        self,
        step: int,
        tensor: int,
        contribution: Values,
        result: Values,
        layers: npt.NDArray[np.uint16],
        magnitudes: npt.NDArray[np.uint8],
    ) -> None:
        """Starts an all-reduce; the arrays must live until it is Completed. Raises AgentError."""
        push, pull = (round(p * 1e6) for p in (self._job.loss.push, self._job.loss.pull))
        mean = lib.GL_MEAN_OF_ARRIVED if self._job.aggregation == "mean" else lib.GL_MEAN
        source, to = ffi.from_buffer("uint8_t[]", contribution), ffi.from_buffer("uint8_t[]", result, True)
        layer_of, magnitude_of = ffi.from_buffer("uint16_t[]", layers), ffi.from_buffer("uint8_t[]", magnitudes)
        submission = {
            "step": step,
            "tensor": tensor,
            "collective": lib.GL_ALL_REDUCE,
            "algorithm": lib.GL_DIRECT,
            "element_type": ELEMENT_TYPES[self._job.transport.wire],
            "reduction": mean,
            "elements": contribution.size,
            "in": source,
            "out": to,
            "layers": layer_of,
            "magnitudes": magnitude_of,
            "push_loss": push,
            "pull_loss": pull,
        }
        code = lib.gl_runner_submit(self._runner, ffi.new("gl_submission *", submission))
        if code:
            raise AgentError(
                f"all-reduce of step {step}, tensor {tensor} can't start: it is under way already, has more than "
                f"{wire.MAX_SLICES} slices per aggregator, or contributions of other workers fill the memory"
            )

    def events(self) -> Iterator[Event]:
        """What happened since the last call."""
        while (event := lib.gl_runner_event(self._runner)) != ffi.NULL:
            try:
                if event.kind == lib.GL_EVENT_COMPLETED:
                    yield Completed(event.step, event.tensor)
                elif event.kind == lib.GL_EVENT_LOST:
                    bits = np.frombuffer(ffi.buffer(event.lost, (event.slices + 7) // 8), dtype=np.uint8)
                    lost = np.flatnonzero(np.unpackbits(bits, bitorder="little")[: event.slices])
                    yield Lost(event.step, event.tensor, lost + event.first_slice)
                else:
                    yield Mismatch(event.step, event.tensor, event.source)
            finally:
                lib.gl_event_free(event)

    def idle(self) -> bool:
        """Whether nobody waits for a datagram of ours any more: every message sent has been stopped."""
        return bool(lib.gl_runner_idle(self._runner))

    def statistics(self) -> dict[str, int]:
        """Cumulative counts of this job on this host; docs/results.md explains them."""
        values = ffi.new("gl_statistics *")
        lib.gl_runner_statistics(self._runner, values)
        count, last = ffi.new("uint64_t *"), ffi.new("int *")
        lib.gl_runner_send_errors(self._runner, count, last)
        result = {name: int(getattr(values, name)) for name in STATISTICS}
        return result | {"send_errors": int(count[0]), "send_errno": int(last[0])}

    def path(self, rank: int) -> tuple[int, int]:
        """Pacing rate (bit/s) and smoothed round-trip time (us) towards a rank."""
        rate, srtt = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        lib.gl_runner_path_state(self._runner, rank, rate, srtt)
        return int(rate[0]), int(srtt[0])

    def routes(self, rank: int) -> list[Route]:
        """The ways that traces to a rank have taken, the latest first; those seen longest ago are forgotten."""
        found = ffi.new("gl_route[]", lib.GL_ROUTES)
        count = lib.gl_runner_routes(self._runner, rank, found)
        return [Route(int(r.count), tuple(_hop(r.hop[k]) for k in range(r.hops))) for r in found[0:count]]

    def close(self) -> None:
        """Stops the thread and closes the sockets."""
        lib.gl_runner_stop(self._runner)
        self._thread.join()
        lib.gl_runner_free(self._runner)
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        for sock in self._sockets:
            sock.close()
        os.close(self.notify)
