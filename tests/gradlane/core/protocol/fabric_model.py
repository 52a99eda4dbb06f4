# SPDX-License-Identifier: Apache-2.0
"""Several jobs' engines on hosts whose links meet in switches with queues, in simulated time."""

import heapq
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gradlane._core import ffi, lib

from gradlane.wire import Header, Kind
from tests.gradlane.core.protocol.network import TOKEN
from tests.gradlane.core.protocol.queued_port import Port

_FRAME = 42  # bytes of Ethernet, IPv4 and UDP headers
_SLICES = frozenset((Kind.DATA, Kind.REPAIR))
_SEGMENT = 1448  # bytes of a TCP segment
_TIMEOUT = 200_000  # us: the least that TCP waits


@dataclass
class Host:
    """`ways`: by the other host, the ports to pass; filled by the model."""

    port: object
    ways: dict[int, list[Port]] = field(default_factory=dict)
    engines: list["Engine"] = field(default_factory=list)


@dataclass
class Engine:
    job: "Job"
    rank: int
    host: int
    handle: object
    deadline: int = 0

    @property
    def number(self) -> int:
        return self.job.number


@dataclass
class Tcp:
    """A bulk TCP connection: CUBIC where the window is small, as on all short paths (RFC 9438, 4.3), and its SACKs.

    Lost is what arrives later than what was sent after it; what is lost is not sent again, others take its place.
    """

    number: int
    source: int
    to: int
    window: float = 10.0  # segments
    growing: bool = True  # slow start
    sent: int = 0
    settled: int = 0  # segments of which it is known whether they arrived
    recovered: int = 0  # a loss of segments from here on halves the window anew
    deadline: int = 0

    def acknowledge(self, segment: int, now: int) -> None:
        """A segment has arrived."""
        if segment > self.settled >= self.recovered:
            self.window, self.growing, self.recovered = self.window * 0.7, False, self.sent
        self.window += 1 if self.growing else 3 * 0.3 / 1.7 / self.window
        self.settled, self.deadline = segment + 1, now + _TIMEOUT

    def expire(self, now: int) -> None:
        """Nothing has arrived for long."""
        self.window, self.settled, self.deadline = 1.0, self.sent, now + _TIMEOUT


@dataclass
class Job:
    """It repeats all-reduces, or reductions to rank 0, of `elements` float32 values; `members`: its hosts by rank."""

    number: int
    members: list[int]
    elements: int
    slice_bytes: int
    push: float  # tolerated loss
    pull: float
    collective: int
    algorithm: int = lib.GL_DIRECT
    straggler: int = 0  # of GL_STRAGGLAR
    running: bool = False
    step: int = 0
    completed: dict[int, int] = field(default_factory=dict)
    engines: list[Engine] = field(default_factory=list)
    kept: dict[int, list[object]] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)  # when steps were complete at all ranks


def _free(engines: list[object], ports: list[object]) -> None:
    for engine in engines:
        lib.gl_engine_free(engine)
    for port in ports:
        lib.gl_port_free(port)


class Model:
    """Hosts with links of `rate` bit/s, whose ports of the fabric hold `buffer` bytes, and whose sockets hold `sockets`
    bytes; 0: all that comes. Times in us."""

    def __init__(
        self,
        hosts: int,
        rate: int = 1_000_000_000,
        buffer: int = 64_000,
        mark: int | None = None,
        delay: int = 10,
        sockets: int = 0,
    ) -> None:
        self.now = 1_000_000
        self.rate, self.buffer = rate, buffer
        self.hosts = [Host(lib.gl_port_new(sockets)) for _ in range(hosts)]
        self._handles: list[object] = []
        weakref.finalize(self, _free, self._handles, [host.port for host in self.hosts])
        self.uplinks = [Port(rate / 8e6, 1 << 30, None, 0) for _ in range(hosts)]
        self.downlinks = [Port(rate / 8e6, buffer, mark, delay) for _ in range(hosts)]
        for a, host in enumerate(self.hosts):
            host.ways = {b: [self.uplinks[a], self.downlinks[b]] for b in range(hosts) if b != a}
        self.jobs: list[Job] = []
        self.connections: list[Tcp] = []
        self._flying: list[tuple[float, int, Engine | Tcp, bytes, bool, list[Port]]] = []
        self._count = 0
        self._split: dict[tuple[int, int], tuple[list[list[Port]], Callable[[int, int], int]]] = {}
        self._batch = ffi.new("gl_batch *")

    def lengthen(self, delay: int) -> None:
        """From now on every way has that many us each way."""
        for port in self.downlinks:
            port.delay = delay

    def join_by(self, port: Port, left: list[int], right: list[int]) -> None:
        """All that hosts on the left send to the right passes this port first."""
        for a in left:
            for b in right:
                self.hosts[a].ways[b] = [self.uplinks[a], port, self.downlinks[b]]

    def split(
        self, paths: Sequence[Sequence[Port]], left: list[int], right: list[int], choose: Callable[[int, int], int]
    ) -> None:
        """All that hosts on the left send to the right passes the ports of one of these first: `choose` says which,
        modulo their number, by the datagram's way and a count of datagrams."""
        for a in left:
            for b in right:
                ways = [[self.uplinks[a], *path, self.downlinks[b]] for path in paths]
                self._split[a, b] = (ways, choose)

    def job(
        self,
        members: list[int],
        elements: int = 65_536,
        slice_bytes: int = 1432,
        weight: int = 1,
        push: float = 0.0,
        pull: float = 0.0,
        collective: int = lib.GL_ALL_REDUCE,
        algorithm: int = lib.GL_DIRECT,
        straggler: int = 0,
    ) -> Job:
        """A job on these hosts; it rests until it is started."""
        job = Job(len(self.jobs) + 1, members, elements, slice_bytes, push, pull, collective, algorithm, straggler)
        losses = ffi.new("gl_loss[]", [(0, 65535, round(push * 1e6), round(pull * 1e6))])
        for rank, host in enumerate(members):
            config = ffi.new(
                "gl_config *",
                {
                    "job": job.number, "rank": rank, "workers": len(members), "slice_bytes": slice_bytes,
                    "token": TOKEN, "message_base": 1, "window": 64, "rate": self.rate,
                    "buffer": self.buffer, "memory": 1 << 28, "weight": weight,
                    "port": self.hosts[host].port, "loss_count": 1, "losses": losses,
                },
            )  # fmt: skip
            handle = lib.gl_engine_new(config)
            assert handle != ffi.NULL
            self._handles.append(handle)
            engine = Engine(job, rank, host, handle)
            job.engines.append(engine)
            self.hosts[host].engines.append(engine)
        self.jobs.append(job)
        return job

    def connect(self, source: int, to: int) -> Tcp:
        """A connection between two hosts that sends without end. The link of its source is no bottleneck."""
        connection = Tcp(-1 - len(self.connections), source, to, deadline=self.now + _TIMEOUT)
        self.uplinks[source].rate *= 10
        self.connections.append(connection)
        self._send_segments(connection)
        return connection

    def disconnect(self, connection: Tcp) -> None:
        """It sends nothing more."""
        self.connections.remove(connection)
        connection.window = 0.0

    def once(self, job: Job) -> int:
        """One step of a job that rests: how many us it takes."""
        begin, before = self.now, len(job.times)
        self._submit(job)
        while len(job.times) == before:
            self.run(200)
        return job.times[-1] - begin

    def late(self, job: Job, delay: int) -> int:
        """One step of a job that rests, whose straggler begins so many us later: how many us it takes from there."""
        before = len(job.times)
        self._submit(job, [engine for engine in job.engines if engine.rank != job.straggler])
        self.run(delay)
        begin = self.now
        self._begin(job, job.engines[job.straggler])
        while len(job.times) == before:
            self.run(200)
        return job.times[-1] - begin

    def start(self, job: Job) -> None:
        """It repeats its steps, two at a time, until it is stopped."""
        job.running = True
        for _ in range(2):
            self._submit(job)

    def stop(self, job: Job) -> None:
        """It ends with the steps that are in flight."""
        job.running = False

    def _submit(self, job: Job, engines: Sequence[Engine] | None = None) -> None:
        job.step += 1
        job.kept[job.step] = []
        job.completed[job.step] = 0
        for engine in job.engines if engines is None else engines:
            self._begin(job, engine)

    def _begin(self, job: Job, engine: Engine) -> None:
        slices = -(-job.elements * 4 // job.slice_bytes)
        layers, magnitudes = np.zeros(slices, np.uint16), np.full(slices, 255, np.uint8)
        values, result = np.ones(job.elements, np.float32), np.empty(job.elements, np.float32)
        job.kept[job.step] += [layers, magnitudes, values, result]
        submission = {
            "step": job.step, "tensor": 0, "collective": job.collective, "algorithm": job.algorithm,
            "element_type": 1, "reduction": lib.GL_MEAN_OF_ARRIVED, "elements": job.elements, "root": job.straggler,
            "in": ffi.from_buffer("uint8_t[]", values), "out": ffi.from_buffer("uint8_t[]", result, True),
            "layers": ffi.from_buffer("uint16_t[]", layers), "magnitudes": ffi.from_buffer("uint8_t[]", magnitudes),
            "push_loss": round(job.push * 1e6), "pull_loss": round(job.pull * 1e6),
        }  # fmt: skip
        assert lib.gl_submit(engine.handle, ffi.new("gl_submission *", submission), self.now) == 0
        engine.deadline = 0

    def _send(self, engine: Engine) -> bool:
        b = self._batch
        if not lib.gl_transmit(engine.handle, b, self.now):
            return False
        data = b"".join(ffi.buffer(b.iov[i].iov_base, b.iov[i].iov_len)[:] for i in range(b.iov_count))
        to = engine.job.engines[b.to]
        way = self.hosts[engine.host].ways[to.host]
        ways, choose = self._split.get((engine.host, to.host), ([way], lambda way, count: 0))
        for k in range(b.datagrams):
            datagram = data[k * b.segment : (k + 1) * b.segment]
            way = ways[choose(Header.unpack(datagram).way, self._count) % len(ways)]
            self._hop(self.now, to, datagram, False, way)
        return True

    def _send_segments(self, connection: Tcp) -> None:
        while connection.sent - connection.settled < int(connection.window):
            segment = bytes([Kind.DATA]) + connection.sent.to_bytes(4, "big") + bytes(_SEGMENT)
            self._hop(self.now, connection, segment, False, self.hosts[connection.source].ways[connection.to])
            connection.sent += 1

    def _segment(self, connection: Tcp, segment: bytes) -> None:
        """One arrives, or what acknowledges it."""
        if segment[0] == Kind.DATA:
            answer = bytes([Kind.STOP]) + segment[1:5]
            self._hop(self.now, connection, answer, False, self.hosts[connection.to].ways[connection.source])
        elif connection in self.connections:
            connection.acknowledge(int.from_bytes(segment[1:5], "big"), self.now)
            self._send_segments(connection)

    def _hop(self, now: float, to: Engine | Tcp, datagram: bytes, marked: bool, way: list[Port]) -> None:
        passed = way[0].forward(int(now), len(datagram) + _FRAME, to.number, datagram[0] & 15 in _SLICES)
        if passed is None:
            return
        self._count += 1
        heapq.heappush(self._flying, (passed[0], self._count, to, datagram, marked or passed[1], way[1:]))

    def _serve(self, host: Host) -> None:
        sent = True
        while sent:
            sent = False
            for engine in host.engines:
                sent |= self._send(engine)
        for engine in host.engines:
            while (event := lib.gl_next_event(engine.handle)) != ffi.NULL:
                if event.kind == lib.GL_EVENT_COMPLETED:
                    self._completed(engine.job, event.step)
                lib.gl_event_free(event)
            engine.deadline = lib.gl_deadline(engine.handle, self.now)

    def _completed(self, job: Job, step: int) -> None:
        job.completed[step] += 1
        if job.completed[step] < len(job.engines):
            return
        del job.completed[step], job.kept[step]
        job.times.append(self.now)
        if job.running:
            self._submit(job)

    def run(self, duration: int) -> None:
        """Lets that many us pass."""
        end = self.now + duration
        while True:
            due = min(timed.deadline for timed in [*self.connections, *(e for job in self.jobs for e in job.engines)])
            if self._flying:
                due = min(due, int(self._flying[0][0]) + 1)
            if due > end:
                self.now = end
                return
            self.now = max(due, self.now)
            touched = {e.host for job in self.jobs for e in job.engines if e.deadline <= self.now}
            while self._flying and self._flying[0][0] <= self.now:
                at, _, to, datagram, marked, way = heapq.heappop(self._flying)
                if way:
                    self._hop(at, to, datagram, marked, way)
                elif isinstance(to, Tcp):
                    self._segment(to, datagram)
                else:
                    lib.gl_receive(to.handle, datagram, len(datagram), marked, self.now)
                    touched.add(to.host)
            for connection in self.connections:
                if connection.deadline <= self.now:
                    connection.expire(self.now)
                    self._send_segments(connection)
            for host in touched:
                self._serve(self.hosts[host])


def dumbbell(
    jobs: int,
    rate: int = 1_000_000_000,
    mark: int | None = 16_000,
    buffer: int = 64_000,
    plain: int | None = None,
    **options: Any,
) -> tuple[Model, Port]:
    """Jobs of two workers each, which all meet at a link between two switches; and that link's port, left to right.

    `plain`: the link's ports have no classes, and so many pairs of hosts more, without a job, are to its two sides.
    """
    pairs = jobs + (plain or 0)
    model = Model(2 * pairs, rate, buffer, mark)
    left, right = list(range(pairs)), list(range(pairs, 2 * pairs))
    there, back = (Port(rate / 8e6, buffer, mark, classes=plain is None) for _ in range(2))
    model.join_by(there, left, right)
    model.join_by(back, right, left)
    for number in range(jobs):
        model.job([number, pairs + number], **options)
    return model, there


def rates(model: Model, port: Port, duration: int, jobs: Sequence[Job | Tcp]) -> list[float]:
    """What each one's slices take of a port in that many us, as a part of its rate."""
    before = {job.number: port.carried[job.number] for job in jobs}
    model.run(duration)
    return [(port.carried[job.number] - before[job.number]) / duration / port.rate for job in jobs]


def jain(rates: list[float]) -> float:
    """Jain's fairness index: 1 when all are equal, 1 / n when one has everything."""
    return sum(rates) ** 2 / (len(rates) * sum(r * r for r in rates))
