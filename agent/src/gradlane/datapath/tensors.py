# SPDX-License-Identifier: Apache-2.0
"""The tensors that a host's processes have registered, at their agent."""

import asyncio
import contextlib
import hashlib
import os
from dataclasses import dataclass
from typing import Any

from gradlane._core import ffi, lib
from gradlane.datapath.shard import Shard, parts
from gradlane.datapath.site import ALGORITHMS, Site
from gradlane.errors import AgentError
from gradlane.ipc import memory
from gradlane.ipc.messages import Message
from gradlane.job import elements, partition
from gradlane.job.loss import Loss

MAX_BYTES = 1 << 40
REDUCTIONS = {"mean": "GL_MEAN_OF_ARRIVED", "sum": "GL_SUM", "min": "GL_MIN", "max": "GL_MAX", "product": "GL_PRODUCT"}


@dataclass
class _Tensor:
    """`offsets`: of the processes' contributions in its memory, then of the result. `users`: processes that have it.
    `parts`: the shards that have it, and the first byte of what each has."""

    number: int
    name: str
    shape: dict[str, Any]
    descriptor: int
    shared: memory.Memory
    offsets: list[int]
    users: set[int]
    planned: bool
    parts: list[tuple[Shard, int]]

    @property
    def nbytes(self) -> int:
        return int(self.shape["elements"]) * elements.bytes_of(self.shape["type"])


class Tensors:
    """By name; the first process that names one registers it for all of the host."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._known: dict[str, asyncio.Task[_Tensor]] = {}

    async def register(self, process: int, message: Message) -> tuple[dict[str, Any], int]:
        """What a process is answered, and a descriptor of the tensor's memory. Raises ValueError, AgentError."""
        name, dtype, op = message["name"], message["dtype"], message["reduction"]
        count, exact = message["elements"], message["exact"]
        if self._site.job.survives:
            raise ValueError(
                f"tensor {name!r} is reduced by all ranks, and this job goes on without those that die (job.deaths = "
                '"survive"): use exact collectives'
            )
        spans = [(start, layer) for start, layer in message["layers"]]
        if not 1 <= count <= MAX_BYTES // elements.bytes_of(dtype):
            raise ValueError(f"tensor {name!r} of {count} elements: 1 to {MAX_BYTES} bytes")
        if op not in REDUCTIONS or (op == "mean" and not elements.is_float(dtype)):
            raise ValueError(f"reduction {op!r} of {dtype}: there are {', '.join(REDUCTIONS)}, the mean of floats only")
        partition.check_spans(spans, count)
        # Two ranks need not send each other thousands of spans to find out whether theirs are equal.
        layers = hashlib.sha256(repr(spans).encode()).hexdigest()[:16]
        shape = {"elements": count, "type": dtype, "reduction": op, "exact": exact, "layers": layers}
        tensor = await self._site.share(self._known, name, self._register(name, shape, spans))
        if tensor.shape != shape:
            raise ValueError(f"tensor {name!r} is registered with {tensor.shape}, not with {shape}")
        tensor.users.add(process)
        shards = [self._site.shards.index(shard) for shard, _ in tensor.parts]
        content = {"tensor": tensor.number, "bytes": tensor.shared.nbytes, "shards": shards}
        return content | {"contribution": tensor.offsets[process], "result": tensor.offsets[-1]}, tensor.descriptor

    async def _register(self, name: str, shape: dict[str, Any], spans: partition.Spans) -> _Tensor:
        site, job = self._site, self._site.job
        count, dtype = int(shape["elements"]), str(shape["type"])
        item, slice_bytes = elements.bytes_of(dtype), site.agreement.slice_bytes
        may_lose = not shape["exact"] and dtype in elements.FLOATS and shape["reduction"] in ("mean", "sum")
        loss = job.loss if may_lose else None
        late = loss is not None and loss.late is not None and shape["reduction"] == "mean"
        number = await site.agree("tensor", name, shape)
        sums = None
        if may_lose and number < job.transport.sum_tensors:
            sums = job.transport.sums(count, slice_bytes)
        hosts = range(len(job.workers))
        algorithm = site.algorithm(count * item, hosts, _most_lost(loss), planned=True, late=late, sums=sums)
        code = ALGORITHMS[algorithm]
        partial = code != lib.GL_DIRECT
        exact = loss is None or partial  # a partial sum is worth many gradients: none is lost
        owners, per_slice = len(job.aggregators), slice_bytes // item
        divided = [
            (site.shards[shard], first, size, partition.cut(spans, first, size))
            for shard, first, size in parts(number, count, item, per_slice, len(site.shards))
        ]
        partitions = [
            partition.divide(cut, size, job.loss, exact, per_slice, slice_bytes, owners, partial)
            for _, _, size, cut in divided
        ]
        summed = algorithm == "switch"
        lossy = late or any(part.push or part.pull for some in partitions for part in some)
        # In place where nothing is lost: a lost contribution must be known until it is added to the next one, and what
        # a switch has not summed until hosts have.
        copies = job.processes + (1 if lossy or summed or job.processes > 1 else 0)
        stride = memory.aligned(count * item, memory.PAGE)
        descriptor, shared = await site.create(f"tensor-{number}", copies * stride)
        offsets = [k * stride for k in range(job.processes)] + [(copies - 1) * stride]
        tensor = _Tensor(number, name, shape, descriptor, shared, offsets, set(), algorithm == "plan", [])
        op = str(shape["reduction"])
        for (shard, first, size, cut), some in zip(divided, partitions, strict=True):
            starts = [shared.pointer + offset + first * item for offset in offsets]
            contributions = ffi.new("uint8_t *[]", starts[: job.processes])
            rows = [(p.first, p.elements, round(p.push * 1e6), round(p.pull * 1e6), code, late) for p in some]
            described = ffi.new("gl_partition[]", rows)
            layers = partition.layers(cut, some, per_slice)
            description = ffi.new(
                "gl_tensor *",
                {
                    "id": number,
                    "element_type": elements.CODES[dtype],
                    "reduction": getattr(lib, REDUCTIONS[op]),
                    "feedback": job.loss.error_feedback,
                    "summed": summed,
                    "elements": size,
                    "contributions": contributions,
                    "result": starts[-1],
                    "partition_count": len(rows),
                    "partitions": described,
                    "layers": ffi.from_buffer("uint16_t[]", layers),
                },
            )
            with shard.locked() as exchange:
                refused = lib.gl_exchange_tensor(exchange, description)
            if refused:
                self._release(tensor)
                site.give_back(shared.nbytes)
                os.close(descriptor)
                raise AgentError(f"tensor {name!r}: out of memory")
            tensor.parts.append((shard, first * item))
        site.numbers[number] = f"the all-reduce of tensor {name!r}"
        return tensor

    @staticmethod
    def _release(tensor: _Tensor) -> bool:
        """Whether no part of it was in flight; else all stay."""
        with contextlib.ExitStack() as all_locked:
            exchanges = [all_locked.enter_context(shard.locked()) for shard, _ in tensor.parts]
            if not all(lib.gl_exchange_idle(exchange, tensor.number) for exchange in exchanges):
                return False
            released = [lib.gl_exchange_release_tensor(exchange, tensor.number) for exchange in exchanges]
        for part in released:
            lib.gl_tensor_free(part)
        return True

    @property
    def nbytes(self) -> tuple[int, int]:
        """Of what a host contributes, all tensors together: whose algorithm is fixed, and whose is the plan's."""
        done = [task for task in self._known.values() if task.done() and not task.cancelled() and not task.exception()]
        found = [task.result() for task in done]
        return sum(t.nbytes for t in found if not t.planned), sum(t.nbytes for t in found if t.planned)

    def forget(self, process: int, name: str) -> None:
        """A process needs the tensor no longer. Raises ValueError if it has none, or uses it."""
        tensor = self._of(process, name)
        if len(tensor.users) == 1:
            if not self._release(tensor):
                raise ValueError(f"tensor {name!r} is in flight, and can't be forgotten")
            self._site.give_back(tensor.shared.nbytes)
            os.close(tensor.descriptor)
            del self._known[name]
        tensor.users.discard(process)

    async def residual(self, process: int, name: str) -> int:
        """A descriptor of what the network owes to the tensor; the caller closes it. Raises ValueError, AgentError."""
        nbytes = self._of(process, name).nbytes
        descriptor, values = await self._site.create("residual", nbytes)
        try:
            tensor = self._of(process, name)  # it may have been forgotten meanwhile
            if not self._residual(tensor, values.pointer, False):
                raise ValueError(f"tensor {name!r} is in flight: its residual is known between steps")
        except ValueError:
            self._site.give_back(nbytes)
            os.close(descriptor)
            raise
        return descriptor

    def load_residual(self, process: int, name: str, region: memory.Memory | None) -> None:
        """Replaces what is owed by what lies in the process' region. Raises ValueError."""
        tensor = self._of(process, name)
        if region is None or region.nbytes < tensor.nbytes:
            found = "is not there" if region is None else f"has {region.nbytes} bytes"
            raise ValueError(f"the residual of tensor {name!r} has {tensor.nbytes} bytes, but its region {found}")
        if not self._residual(tensor, region.pointer, True):
            raise ValueError(f"tensor {name!r} is in flight: its residual can be set between steps")

    def _residual(self, tensor: _Tensor, values: Any, load: bool) -> bool:
        """Copies what is owed, a partition at a time: other jobs wait for the lock. False if it is in flight."""
        for shard, start in tensor.parts:
            partition, left = 0, 1
            while left > 0:
                with shard.locked() as exchange:
                    left = lib.gl_exchange_residual(exchange, tensor.number, partition, values + start, load)
                partition += 1
            if left:
                return False
        return True

    def close(self) -> None:
        """Closes the descriptors, and unmaps the memory, each map of which has one of its own."""
        for task in self._known.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                os.close(task.result().descriptor)
        self._known.clear()

    def _of(self, process: int, name: str) -> _Tensor:
        task = self._known.get(name)
        if task is None or not task.done() or process not in task.result().users:
            raise ValueError(f"it has no tensor {name!r}")
        return task.result()


def _most_lost(loss: Loss | None) -> float:
    """The highest tolerated loss of any layer's contributions."""
    return 0.0 if loss is None else max(loss.push, *(row.push for row in loss.classes), 0.0)
