# SPDX-License-Identifier: Apache-2.0
"""The data path of a job at this host, as its session sees it: memory, tensors and groups of the local processes.

Only control happens here. Once something is registered, commands, contributions and results go through shared memory
between the processes and the transport's thread (core/exchange.c).
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradlane import costs, elements, ipc, memory, names, partition
from gradlane._core import ffi, lib
from gradlane.agreement import Agreement
from gradlane.errors import AgentError
from gradlane.job import Job
from gradlane.transport import Engine

Tell = Callable[[ipc.Message, tuple[int, ...]], None]
REDUCTIONS = {"mean": "GL_MEAN", "sum": "GL_SUM", "min": "GL_MIN", "max": "GL_MAX", "product": "GL_PRODUCT"}
STATISTICS = [name for name, _ in ffi.typeof("gl_exchange_statistics").fields]
MAX_REGION = 1 << 40


@dataclass(frozen=True)
class Waiting:
    """The oldest operation under way. `ranks`: hosts of which nothing of it has come; `processes`: local processes
    that have not called it."""

    seconds: float
    what: str
    ranks: list[int]
    processes: list[int]


@dataclass
class _Process:
    """A local process: its channel, and the regions that it has."""

    tell: Tell
    channel: int
    shared: memory.Memory
    pipe: tuple[int, int]  # both ends: with the writing one open the pipe never ends
    regions: dict[int, memory.Memory] = field(default_factory=dict[int, memory.Memory])


@dataclass
class _Tensor:
    """A registered tensor, and which local processes have it."""

    number: int
    name: str
    shape: dict[str, Any]
    descriptor: int
    shared: memory.Memory
    offsets: list[int]  # of the contributions, then of the result
    users: set[int]


class Exchange:
    """Made when the engine is there. Everything is called in the event loop."""

    def __init__(
        self,
        job: Job,
        rank: int,
        engine: Engine,
        agreement: Agreement,
        failed: Callable[[str], None],
        ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
    ) -> None:
        """`failed` ends the job; `ask` brings a question to `assign` of rank 0. Raises AgentError."""
        self._job = job
        self._rank = rank
        self._engine = engine
        self._agreement = agreement
        self._failed = failed
        self._ask = ask
        self._names = names.Names()
        self._processes: dict[int, _Process] = {}
        self._tensors: dict[str, asyncio.Task[_Tensor]] = {}
        self._groups: dict[str, asyncio.Task[int]] = {}
        self._numbers: dict[int, str] = {}  # of tensors and groups on the wire, as errors name them
        self._tasks: set[asyncio.Task[Any]] = set()
        self._notify = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        adaptive = job.loss.adaptive
        config = ffi.new(
            "gl_exchange_config *",
            {
                "host": rank,
                "hosts": len(job.workers),
                "servers": len(job.servers),
                "processes": job.processes,
                "slice_bytes": agreement.slice_bytes,
                "critical": adaptive.critical if adaptive else 1.0,
                "threshold": adaptive.threshold if adaptive else 0.0,
                "window": adaptive.window if adaptive else 0,
            },
        )
        self._pointer = lib.gl_exchange_new(engine.runner, engine.pointer, config, self._notify)
        if self._pointer == ffi.NULL:
            os.close(self._notify)
            raise AgentError(f"job {job.name!r}: out of memory or file descriptors")
        asyncio.get_running_loop().add_reader(self._notify, self._news)

    def open(self, process: int, tell: Tell) -> None:
        """Makes the channel of a local process; `tell` sends it a message and descriptors. Raises AgentError."""
        if process in self._processes or not 0 <= process < self._job.processes:
            raise AgentError(
                f"process {process} of {self._name(self._rank)} has joined already, or is none of the "
                f"{self._job.processes} that the job has there"
            )
        nbytes = int(lib.gl_channel_bytes())
        descriptor = self._create("channel", nbytes)
        pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        opened = _Process(tell, descriptor, memory.Memory(descriptor, nbytes), pipe)
        with self._engine.locked():
            code = lib.gl_exchange_open(self._pointer, process, opened.shared.pointer, pipe[0])
        self._processes[process] = opened
        if code:
            raise AgentError("out of memory")

    def joined(self, process: int) -> tuple[ipc.Message, tuple[int, int]]:
        """What a process is told when it has joined: content of a message, and descriptors that stay this object's."""
        opened = self._processes[process]
        return {}, (opened.channel, opened.pipe[1])

    def handle(self, process: int, message: ipc.Message, descriptors: Sequence[int]) -> None:
        """A message of a local process. Raises ValueError or AgentError for what only a faulty one sends."""
        operations: dict[str, Callable[[int, ipc.Message], Coroutine[Any, Any, None]]] = {
            "region": self._region,
            "tensor": self._tensor,
            "group": self._group,
            "residual": self._residual,
        }
        op = message["op"]
        if process not in self._processes:
            raise ValueError(f"{op!r} of process {process}, which has not joined")
        if op == "release":
            self._release(process, int(message["region"]))
        elif op == "forget":
            self._forget(process, str(message["name"]))
        elif op == "load":
            if len(descriptors) != 1:
                raise ValueError("a residual comes with one descriptor")
            self._load(process, message, descriptors[0])
        elif op in operations:
            self._spawn(self._answer(process, message, operations[op]))
        else:
            raise ValueError(f"unknown message {op!r}")

    def assign(self, rank: int, question: dict[str, Any]) -> dict[str, Any]:
        """At rank 0: the answer to another rank's question, see Names.assign."""
        return self._names.assign(self._name(rank), question)

    @property
    def step(self) -> int:
        """The highest step that a tensor has been submitted in."""
        return self.statistics()["step"]

    @property
    def under_way(self) -> int:
        """How many operations are under way."""
        with self._engine.locked():
            return int(lib.gl_exchange_under_way(self._pointer))

    def statistics(self) -> dict[str, int]:
        """Cumulative counts of the data path, see docs/results.md."""
        counts = ffi.new("gl_exchange_statistics *")
        with self._engine.locked():
            lib.gl_exchange_counts(self._pointer, counts)
        return {name: int(getattr(counts, name)) for name in STATISTICS}

    def oldest(self) -> Waiting | None:
        """What has been waiting longest: for a local process, or for other hosts."""
        oldest = ffi.new("gl_oldest_operation *")
        remote = ffi.new("gl_waiting *")
        now = lib.gl_runner_now()
        with self._engine.locked() as engine:
            if not lib.gl_exchange_oldest(self._pointer, oldest, now):
                return None
            lib.gl_oldest(engine, now, remote)
        processes = [k for k in range(self._job.processes) if oldest.missing >> k & 1]
        members = range(len(self._job.members))
        ranks = [] if processes else [rank for rank in members if remote.missing[rank // 64] >> (rank % 64) & 1]
        return Waiting(oldest.age / 1e6, self._what(oldest.tensor, oldest.step), ranks, processes)

    def stop(self) -> None:
        """Takes no commands any more, and no events of the engine."""
        asyncio.get_running_loop().remove_reader(self._notify)
        for task in self._tasks:
            task.cancel()
        lib.gl_exchange_stop(self._pointer)

    def close(self) -> None:
        """Gives everything back; after `stop`, and when the engine, which works on this memory, is gone."""
        lib.gl_exchange_free(self._pointer)
        for task in self._tensors.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                os.close(task.result().descriptor)
        for process in self._processes.values():
            for descriptor in (process.channel, *process.pipe):
                os.close(descriptor)
        os.close(self._notify)

    def _name(self, rank: int) -> str:
        member = self._job.member(rank)
        return f"rank {rank} ({member.host}, {member.address})"

    def _what(self, number: int, step: int) -> str:
        key = number if number >= lib.GL_FIRST_GROUP else number // lib.GL_MAX_PARTITIONS
        return f"{self._numbers.get(key, f'operation {number}')}, step {step}"

    def _create(self, name: str, nbytes: int) -> int:
        try:
            return memory.create(name, nbytes)
        except OSError as error:
            raise AgentError(f"{nbytes} bytes of shared memory: {error.strerror}") from error

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _answer(
        self, process: int, message: ipc.Message, operation: Callable[[int, ipc.Message], Coroutine[Any, Any, None]]
    ) -> None:
        """Mistakes are told to who made them, and the job goes on; what ranks disagree about ends it."""
        try:
            await operation(process, message)
        except (ValueError, TypeError, AgentError) as error:
            self._reply(process, message, {"error": str(error)})
        except KeyError as error:
            self._reply(process, message, {"error": f"message {message['op']!r} lacks {error}"})
        except OSError as error:
            self._reply(process, message, {"error": f"{message['op']}: {error.strerror}"})

    def _reply(self, process: int, message: ipc.Message, content: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        self._processes[process].tell({"op": "answer", "request": message.get("request"), **content}, fds)

    def _news(self) -> None:
        os.eventfd_read(self._notify)
        with self._engine.locked():
            failure = lib.gl_exchange_failure(self._pointer)[0]
        what = self._what(failure.tensor, failure.step)
        text = ffi.string(failure.text).decode(errors="replace")
        own = self._name(self._rank)
        if failure.kind == lib.GL_FAILURE_MISMATCH:
            reason = f"{self._name(failure.process)} and {own} disagree about {what}: do they run the same program?"
        elif failure.kind == lib.GL_FAILURE_PROCESS:
            reason = f"process {failure.process} of {own}: {text}"
        else:
            reason = f"{own}: {what}: {text}"
        self._failed(reason)

    async def _agree(self, kind: str, name: str, shape: Any) -> int:
        answer = await self._ask({"kind": kind, "name": name, "shape": shape})
        if "error" in answer:
            self._failed(str(answer["error"]))
            raise AgentError(str(answer["error"]))
        return int(answer["id"])

    async def _region(self, process: int, message: ipc.Message) -> None:
        nbytes = int(message["bytes"])
        if not 0 < nbytes <= MAX_REGION:
            raise ValueError(f"a region of {nbytes} bytes: 1 to {MAX_REGION}")
        regions = self._processes[process].regions
        number = next(k for k in range(len(regions) + 1) if k not in regions)
        descriptor = self._create("region", nbytes)
        try:
            region = memory.Memory(descriptor, nbytes)
            with self._engine.locked():
                if lib.gl_exchange_region(self._pointer, process, number, region.pointer, nbytes):
                    raise ValueError(f"a process has at most {lib.GL_MAX_REGIONS} regions")
            regions[number] = region
            self._reply(process, message, {"region": number}, (descriptor,))
        finally:
            os.close(descriptor)

    def _release(self, process: int, number: int) -> None:
        with self._engine.locked():
            if lib.gl_exchange_release_region(self._pointer, process, number):
                raise ValueError(f"process {process} releases region {number}, which it has not or still uses")
        del self._processes[process].regions[number]

    async def _tensor(self, process: int, message: ipc.Message) -> None:
        name, dtype, op = str(message["name"]), str(message["dtype"]), str(message["reduction"])
        count, exact = int(message["elements"]), bool(message["exact"])
        spans = [(int(start), int(layer)) for start, layer in message["layers"]]
        elements.bytes_of(dtype)
        if count < 1:
            raise ValueError(f"tensor {name!r} of {count} elements")
        if op not in REDUCTIONS or (op == "mean" and "float" not in dtype):
            raise ValueError(f"reduction {op!r} of {dtype}: there are {', '.join(REDUCTIONS)}, the mean of floats only")
        partition.check_spans(spans, count)
        shape = {"elements": count, "type": dtype, "reduction": op, "exact": exact, "layers": hash_of(spans)}
        task = self._tensors.get(name)
        if task is None:
            task = self._tensors[name] = self._spawn(self._register(name, shape, spans))
        try:
            tensor = await asyncio.shield(task)
        except BaseException:
            self._tensors.pop(name, None)
            raise
        if tensor.shape != shape:
            raise ValueError(f"tensor {name!r} is registered with {tensor.shape}, not with {shape}")
        tensor.users.add(process)
        content = {"tensor": tensor.number, "bytes": tensor.shared.nbytes}
        content |= {"contribution": tensor.offsets[process], "result": tensor.offsets[-1]}
        self._reply(process, message, content, (tensor.descriptor,))

    async def _register(self, name: str, shape: dict[str, Any], spans: partition.Spans) -> _Tensor:
        count, dtype = int(shape["elements"]), str(shape["type"])
        job, item = self._job, elements.bytes_of(dtype)
        loss = None if shape["exact"] or dtype not in elements.FLOATS else job.loss
        algorithm = self._algorithm(count * item, len(job.workers), loss.push if loss else 0.0)
        if algorithm == lib.GL_RING:
            loss = None  # a partial sum is worth many gradients: a ring loses nothing
        slice_bytes = self._agreement.slice_bytes
        per_slice, owners = slice_bytes // item, len(job.aggregators)
        parts = partition.divide(spans, count, loss, per_slice, slice_bytes, owners, algorithm == lib.GL_RING)
        number = await self._agree("tensor", name, shape)
        lossy = any(part.push or part.pull for part in parts)
        # In place where nothing is lost: a lost contribution must be known until it is added to the next one.
        copies = job.processes + (1 if lossy or job.processes > 1 else 0)
        stride = memory.aligned(count * item, memory.PAGE)
        descriptor = self._create(f"tensor-{number}", copies * stride)
        mapped = memory.Memory(descriptor, copies * stride)
        offsets = [k * stride for k in range(job.processes)] + [(copies - 1) * stride]
        reduction = "GL_MEAN_OF_ARRIVED" if lossy and job.aggregation == "mean" else "GL_MEAN"
        op = str(shape["reduction"])
        contributions = ffi.new("uint8_t *[]", [mapped.pointer + offset for offset in offsets[: job.processes]])
        rows = [(p.first, p.elements, round(p.push * 1e6), round(p.pull * 1e6), algorithm) for p in parts]
        c_rows = ffi.new("gl_partition[]", rows)
        layers = partition.layers(spans, parts, per_slice)
        c_tensor = ffi.new(
            "gl_tensor *",
            {
                "id": number,
                "element_type": elements.CODES[dtype],
                "reduction": getattr(lib, reduction if op == "mean" else REDUCTIONS[op]),
                "feedback": job.loss.error_feedback,
                "elements": count,
                "contributions": contributions,
                "result": mapped.pointer + offsets[-1],
                "partition_count": len(rows),
                "partitions": c_rows,
                "layers": ffi.from_buffer("uint16_t[]", layers),
            },
        )
        with self._engine.locked():
            if lib.gl_exchange_tensor(self._pointer, c_tensor):
                os.close(descriptor)
                raise AgentError(f"tensor {name!r}: out of memory")
        self._numbers[number] = f"the all-reduce of tensor {name!r}"
        return _Tensor(number, name, shape, descriptor, mapped, offsets, set())

    def _algorithm(self, nbytes: int, hosts: int, tolerance: float) -> int:
        job = self._job
        name = job.transport.collective
        if name == "auto":
            name = costs.choose(
                nbytes, hosts, self._agreement.conditions,
                processes=job.processes, servers=len(job.servers), tolerance=tolerance,
            ).algorithm  # fmt: skip
        return int(lib.GL_RING if name == "ring" else lib.GL_DIRECT)

    def _forget(self, process: int, name: str) -> None:
        task = self._tensors.get(name)
        if task is None or not task.done() or process not in task.result().users:
            raise ValueError(f"process {process} forgets tensor {name!r}, which it has not")
        tensor = task.result()
        tensor.users.discard(process)
        if tensor.users:
            return
        with self._engine.locked():
            if lib.gl_exchange_release_tensor(self._pointer, tensor.number):
                raise ValueError(f"process {process} forgets tensor {name!r} while it is under way")
        os.close(tensor.descriptor)
        del self._tensors[name]

    async def _group(self, process: int, message: ipc.Message) -> None:
        job = self._job
        ranks = [int(rank) for rank in message["ranks"]]
        label, pair = str(message["label"]), bool(message["pair"])
        total = len(job.workers) * job.processes
        if len(set(ranks)) != len(ranks) or not all(0 <= rank < total for rank in ranks):
            raise ValueError(f"group {ranks[:8]}: each rank once, 0 to {total - 1}")
        if self._rank * job.processes + process not in ranks:
            raise ValueError(f"group {ranks[:8]}: rank {self._rank * job.processes + process} is not in it")
        if pair and len(ranks) != 2:
            raise ValueError(f"a pair has two different ranks, not {ranks[:8]}")
        hosts = sorted({rank // job.processes for rank in ranks})
        local = [[rank % job.processes for rank in ranks if rank // job.processes == host] for host in hosts]
        if not pair and (ranks != sorted(ranks) or len({len(members) for members in local}) > 1):
            raise ValueError(f"group {ranks[:8]}: ascending ranks, and the same number of processes on each host")
        name = f"{'pair' if pair else 'group'} {ranks} {label}".strip()
        task = self._groups.get(name)
        if task is None:
            members = sorted(local[hosts.index(self._rank)])
            task = self._groups[name] = self._spawn(self._form(name, pair, ranks, hosts, members))
        try:
            number = await asyncio.shield(task)
        except BaseException:
            self._groups.pop(name, None)
            raise
        self._reply(process, message, {"group": number})

    async def _form(self, name: str, pair: bool, ranks: list[int], hosts: list[int], members: list[int]) -> int:
        number = await self._agree("group", name, len(ranks))
        sizes = range(int(lib.GL_SIZE_CLASSES))
        direct = int(lib.GL_DIRECT)
        c_hosts, c_members = ffi.new("uint16_t[]", hosts), ffi.new("uint16_t[]", members)
        c_group = ffi.new(
            "gl_group *",
            {
                "id": number,
                "host_count": len(hosts),
                "member_count": len(members),
                "hosts": c_hosts,
                "members": c_members,
                "pair": pair,
                "from": ranks[0],
                "to": ranks[-1],
                "algorithms": [direct if pair else self._algorithm(1 << size, len(hosts), 0.0) for size in sizes],
            },
        )
        with self._engine.locked():
            if lib.gl_exchange_group(self._pointer, c_group):
                raise AgentError(f"{name}: out of memory")
        self._numbers[int(lib.GL_FIRST_GROUP) + number] = f"a collective of {name}"
        return number

    def _registered(self, process: int, name: str) -> _Tensor:
        task = self._tensors.get(name)
        if task is None or not task.done() or process not in task.result().users:
            raise ValueError(f"process {process} has no tensor {name!r}")
        return task.result()

    async def _residual(self, process: int, message: ipc.Message) -> None:
        tensor = self._registered(process, str(message["name"]))
        nbytes = int(tensor.shape["elements"]) * elements.bytes_of(tensor.shape["type"])
        descriptor = self._create("residual", nbytes)
        try:
            values = memory.Memory(descriptor, nbytes)
            with self._engine.locked():
                if lib.gl_exchange_residual(self._pointer, tensor.number, values.pointer, False):
                    raise ValueError(f"tensor {tensor.name!r} is under way: its residual is known between steps")
            self._reply(process, message, {}, (descriptor,))
        finally:
            os.close(descriptor)

    def _load(self, process: int, message: ipc.Message, descriptor: int) -> None:
        """The process made this memory, and may shrink it at any time: it is read, not mapped."""
        tensor = self._registered(process, str(message["name"]))
        nbytes = int(tensor.shape["elements"]) * elements.bytes_of(tensor.shape["type"])
        values = bytearray()
        while len(values) < nbytes and (chunk := os.pread(descriptor, nbytes - len(values), len(values))):
            values += chunk
        if len(values) != nbytes:
            raise ValueError(f"the residual of tensor {tensor.name!r} has {len(values)} bytes, not {nbytes}")
        with self._engine.locked():
            if lib.gl_exchange_residual(self._pointer, tensor.number, ffi.from_buffer("uint8_t[]", values), True):
                raise ValueError(f"tensor {tensor.name!r} is under way: its residual can be set between steps")
        self._reply(process, message, {})


def hash_of(spans: partition.Spans) -> str:
    """A digest of layer spans: two ranks need not send each other thousands of them."""
    import hashlib

    return hashlib.sha256(repr(spans).encode()).hexdigest()[:16]
