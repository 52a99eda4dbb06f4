# SPDX-License-Identifier: Apache-2.0
"""A worker's part in a job, and the communication hook for DistributedDataParallel."""

import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch._C._distributed_c10d import GradBucket  # what torch.distributed exports, with its type

from gradlane.client import training
from gradlane.client.connection import Connection
from gradlane.client.handle import Operation
from gradlane.client.tensor import Tensor
from gradlane.errors import AgentError
from gradlane.torch.bucket import Bucket
from gradlane.torch.shared import as_tensor, parts
from gradlane.torch.staging import Staging

_BROADCAST_BYTES = 16 << 20  # at once
_MOST_SECONDS = 10_000  # that `statistics` keeps


class Session:
    """This worker's part in a job, for any number of models. Made by `connect`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._places: dict[torch.nn.Parameter, tuple[int, int]] = {}  # number of its model, position in it
        self._models = 0
        self._hooked: dict[tuple[int, int], Bucket] = {}  # DDP's buckets, by model and index
        self._own: list[Bucket] = []  # those of `bucket`
        self._residuals: dict[tuple[int, int], torch.Tensor] = {}  # of parameters that have no bucket yet
        self._stagings: dict[torch.device, Staging] = {}
        self._before_close: list[Callable[[], None]] = []
        self._seconds: deque[float] = deque(maxlen=_MOST_SECONDS)
        self._observers: list[Callable[[float, float], None]] = []

    @property
    def rank(self) -> int:
        """This process' rank in the job, from 0."""
        return self.connection.world_rank

    def watch(self, model: torch.nn.Module) -> None:
        """Numbers the layers of a model that will be trained, before it is wrapped.

        A model declares its parameters from its input on, so their order numbers the layers. All ranks watch the same
        models in the same order; one whose parameters are all known already counts once.
        """
        if all(parameter in self._places for parameter in model.parameters()):
            return
        for position, parameter in enumerate(model.parameters()):
            self._places.setdefault(parameter, (self._models, position))
        self._models += 1

    def statistics(self) -> dict[str, Any]:
        """Cumulative counts of the transport, and `allreduce_seconds`: of the latest operations since the last call.

        Raises AgentError if the job has failed.
        """
        seconds = [self._seconds.popleft() for _ in range(len(self._seconds))]
        return {**self.connection.statistics(), "allreduce_seconds": seconds}

    def before_close(self, finish: Callable[[], None]) -> Callable[[], None]:
        """Registers what must be done before the session can end. Returns what takes that back."""
        self._before_close.append(finish)
        return lambda: self._before_close.remove(finish)

    def close(self) -> dict[str, Any]:
        """Leaves the job in order; returns the last statistics. Raises AgentError if the job has failed."""
        try:
            for finish in tuple(self._before_close):
                finish()
        finally:
            for staging in self._stagings.values():
                staging.close()
            statistics = self.connection.close()
        return statistics

    def state_dict(self) -> dict[str, Any]:
        """What the network dropped of this host's gradients and the next step will carry, by parameter.

        Between steps only. Each rank keeps its own, beside the checkpoint of model and optimizer; of several processes
        on a host it is process 0 whose state is not empty.
        """
        residuals = dict(self._residuals)
        for bucket in self._buckets():
            residuals.update(self._residuals_of(bucket))
        named = {f"{model}.{position}": value for (model, position), value in residuals.items()}
        return {"rank": self.rank, "ranks": self.connection.world_size, "residuals": named}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave, after `watch`. Raises ValueError if it is of another rank or model."""
        if (state["rank"], state["ranks"]) != (self.rank, self.connection.world_size):
            raise ValueError(
                f"this state is of rank {state['rank']} of {state['ranks']}, not of rank {self.rank} of "
                f"{self.connection.world_size}: each rank keeps its own, and the number of ranks stays"
            )
        parameters = {place: parameter for parameter, place in self._places.items()}
        residuals: dict[tuple[int, int], torch.Tensor] = {}
        for name, value in state["residuals"].items():
            model, _, position = name.partition(".")
            place = (int(model), int(position))
            expected = parameters[place].numel() if place in parameters else 0
            if expected != value.numel():
                here = f"{expected} in the watched models" if expected else "the watched models have no such parameter"
                raise ValueError(f"parameter {name} of this state has {value.numel()} elements, {here}")
            residuals[place] = value
        if self.connection.process == 0:
            self._residuals = residuals
            for bucket in self._buckets():
                self._load_residuals(bucket)

    def bucket(self, parameters: Sequence[torch.nn.Parameter]) -> Bucket:
        """A tensor of the job for the gradients of these parameters, of one type and device. Raises AgentError."""
        bucket = self._make("bucket", parameters)
        self._own.append(bucket)
        return bucket

    def release(self, bucket: Bucket) -> None:
        """Gives a bucket back; what the network dropped goes on with the next one of its parameters."""
        self._residuals.update(self._residuals_of(bucket))
        bucket.close()
        self._own = [other for other in self._own if other is not bucket]

    def layers(self, parameters: Sequence[torch.nn.Parameter]) -> list[int]:
        """Of each parameter of a watched model, counted from the input."""
        return [self._place(parameter)[1] for parameter in parameters]

    def name(self, kind: str, parameters: Sequence[torch.nn.Parameter]) -> str:
        """The name of a tensor for these parameters: another one if they are others, or in another order."""
        places = [self._place(parameter) for parameter in parameters]
        (model, first), digest = places[0], zlib.crc32(str(places).encode())
        return f"{kind}.{model}.{first}.{len(places)}.{digest:08x}"

    def exact(self, kind: str, parameters: Sequence[torch.nn.Parameter], count: int, op: str) -> Tensor:
        """A tensor of `count` bytes that belongs to these parameters; it loses nothing. Raises AgentError."""
        return self.connection.tensor(self.name(kind, parameters), count, "uint8", [(0, 0)], op=op, exact=True)

    def staging(self, device: torch.device) -> Staging | None:
        """What copies between that device and shared memory; None for the CPU."""
        if device.type != "cpu" and device not in self._stagings:
            self._stagings[device] = Staging(device)
        return self._stagings.get(device)

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        """Gives all workers rank 0's values. Raises AgentError."""
        start = 0
        while start < len(tensors):
            end, size = start + 1, tensors[start].nbytes
            while end < len(tensors) and size + tensors[end].nbytes <= _BROADCAST_BYTES:
                size += tensors[end].nbytes
                end += 1
            array = self.connection.empty(size, "uint8")
            pairs = parts(as_tensor(array, "uint8"), tensors[start:end])
            for tensor, part in pairs:
                part.copy_(tensor)
            if size:
                self.connection.collective("broadcast", array, array).wait()
            for tensor, part in pairs:
                tensor.copy_(part)
            start = end

    def observe(self, observer: Callable[[float, float], None]) -> None:
        """Calls `observer` after each operation with its start and end, in seconds of time.monotonic."""
        self._observers.append(observer)

    def timed(self, operation: Operation) -> Operation:
        """Measures the operation, for `statistics` and observers."""
        started = time.monotonic()

        def done(_: Any) -> None:
            ended = time.monotonic()
            self._seconds.append(ended - started)
            for observer in self._observers:
                observer(started, ended)

        operation.add_done_callback(done)
        return operation

    def all_reduce(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Averages a bucket of DistributedDataParallel over all workers. Raises AgentError, as does the future."""
        buffer = bucket.buffer()
        shared = self._shared(bucket)
        devices: list[int | str | torch.device] = [] if buffer.device.type == "cpu" else [buffer.device]
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)

        def done(error: Exception | None) -> None:
            if error is not None:
                future.set_exception(error)  # pyright: ignore[reportArgumentType]: torch takes any exception
            else:
                shared.deliver(buffer, future.set_result)

        self.timed(shared.start([buffer])).add_done_callback(done)
        # An exception of torch's is a value, which only Python raises; a callback that raises fails the future in C++.
        return future.then(lambda finished: finished.value())

    def _shared(self, bucket: GradBucket) -> Bucket:
        """The shared memory of DDP's bucket. After the first step DDP makes its buckets again."""
        parameters = cast(list[torch.nn.Parameter], bucket.parameters())
        model = self._place(parameters[0])[0]
        shared = self._hooked.get((model, bucket.index()))
        if shared is not None:
            if _same(shared.parameters, parameters):
                return shared
            for key in [key for key in self._hooked if key[0] == model]:
                self.release(self._hooked.pop(key))
        shared = self._make(f"ddp.{bucket.index()}", parameters)
        self._hooked[model, bucket.index()] = shared
        return shared

    def _place(self, parameter: torch.nn.Parameter) -> tuple[int, int]:
        if parameter not in self._places:
            raise AgentError("the session does not know this model: call session.watch(model) before it is wrapped")
        return self._places[parameter]

    def _make(self, kind: str, parameters: Sequence[torch.nn.Parameter]) -> Bucket:
        name = self.name(kind, parameters)
        bucket = Bucket(self.connection, name, parameters, self.layers(parameters), self.staging(parameters[0].device))
        if any(self._places[parameter] in self._residuals for parameter in parameters):
            self._load_residuals(bucket)
        return bucket

    def _buckets(self) -> list[Bucket]:
        return [*self._hooked.values(), *self._own]

    def _residuals_of(self, bucket: Bucket) -> dict[tuple[int, int], torch.Tensor]:
        """What is owed to a bucket's parameters, where anything is. The host's, so its process 0 alone cares for it."""
        if self.connection.process:
            return {}
        places = [self._places[parameter] for parameter in bucket.parameters]
        return {place: value for place, value in zip(places, bucket.residuals(), strict=True) if value.any()}

    def _load_residuals(self, bucket: Bucket) -> None:
        values = [
            self._residuals.pop(self._places[p], torch.zeros(p.numel(), dtype=p.dtype)) for p in bucket.parameters
        ]
        bucket.load_residuals(values)


def _same(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def connect(
    job_path: str | Path | None = None,
    rank: int | None = None,
    socket_path: str | Path | None = None,
    model: torch.nn.Module | None = None,
    process: int | None = None,
    *,
    controller: str | None = None,
    job: str | None = None,
    workers: int | None = None,
    processes: int | None = None,
    template: str | None = None,
) -> Session:
    """Joins a job through this host's agent, and waits until all ranks have.

    Without a job file it is the job of the name `job` (default GRADLANE_JOB_NAME), on so many `workers` (hosts) with so
    many `processes` each (default WORLD_SIZE and LOCAL_WORLD_SIZE), by a `controller` (default GRADLANE_CONTROLLER) and
    its `template`. `rank` of this host in the job and `process` on this host: by default from the environment's RANK;
    `socket_path`: from GRADLANE_SOCKET; "process": the agent runs in this process, without a daemon. `model`: what will
    be trained, before it is wrapped; further ones by `Session.watch`. Raises gradlane.AgentError that names what is
    wrong or which rank is missing, gradlane.job.JobError for the file.
    """
    found = training.obtain(
        *(job_path, rank, socket_path),
        controller=controller,
        name=job,
        workers=workers,
        processes=processes,
        template=template,
    )
    session = Session(Connection(found, rank, process, socket_path))
    if model is not None:
        session.watch(model)
    return session


def allreduce_hook(session: Session, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The hook for `DistributedDataParallel.register_comm_hook(session, allreduce_hook)`."""
    return session.all_reduce(bucket)
