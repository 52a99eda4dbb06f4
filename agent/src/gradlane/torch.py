# SPDX-License-Identifier: Apache-2.0
"""Gradlane as a communication hook of PyTorch's DistributedDataParallel.

session = gradlane.torch.connect("job.toml", rank, "/run/gradlane/agent.sock")
session.watch(model)
model = DistributedDataParallel(model)
model.register_comm_hook(session, gradlane.torch.allreduce_hook)
"""

import time
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch._C._distributed_c10d import GradBucket  # what torch.distributed exports, with its type

from gradlane.client import Connection, Tensor
from gradlane.errors import AgentError


class _Tensor:
    """One gradient bucket at the agent, and its shared memory as torch sees it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.contribution = _as_torch(tensor.contribution, tensor.dtype)
        self.result = _as_torch(tensor.result, tensor.dtype)


def _as_torch(values: npt.NDArray[Any], dtype: str) -> torch.Tensor:
    if dtype == "bfloat16":  # numpy has none: its bits are uint16 there
        return torch.from_numpy(values.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(values)


class Session:
    """This worker's part in a job. Made by `connect`; one for each DistributedDataParallel module."""

    def __init__(self, connection: Connection, model: torch.nn.Module) -> None:
        self._connection = connection
        # A model declares its parameters from its input on, so their order numbers the layers.
        self._layers = {parameter.data_ptr(): i for i, parameter in enumerate(model.parameters())}
        self._tensors: dict[tuple[int, int], _Tensor] = {}
        self._seconds: list[float] = []

    @property
    def rank(self) -> int:
        """This worker's rank."""
        return self._connection.rank

    def statistics(self) -> dict[str, Any]:
        """Cumulative counts of the transport, and `allreduce_seconds`, one per bucket since the last call.

        Raises AgentError if the job has failed.
        """
        seconds, self._seconds = self._seconds, []
        return {**self._connection.statistics(), "allreduce_seconds": seconds}

    def close(self) -> dict[str, Any]:
        """Leaves the job in order; returns the last statistics. Raises AgentError if the job has failed."""
        return self._connection.close()

    def all_reduce(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Averages a bucket over all workers; the future holds the bucket's own buffer. Errors are AgentErrors."""
        buffer = bucket.buffer()
        index = bucket.index()
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        shared = self._tensors.get((index, buffer.numel()))
        if shared is None:
            shared = self._share(bucket, buffer)
        shared.contribution.copy_(buffer)  # also converts to the wire's type
        started = time.perf_counter()

        def done(error: AgentError | None) -> None:
            if error is not None:
                # torch marks a future by the exception itself; the cause keeps its type and text.
                future.set_exception(error)  # pyright: ignore[reportArgumentType]: torch takes any exception
                return
            buffer.copy_(shared.result)
            self._seconds.append(time.perf_counter() - started)
            future.set_result(buffer)

        shared.tensor.submit().add_done_callback(done)
        return future

    def _share(self, bucket: GradBucket, buffer: torch.Tensor) -> _Tensor:
        spans: list[tuple[int, int]] = []
        start = 0
        for parameter in bucket.parameters():
            spans.append((start, self._layers[parameter.data_ptr()]))
            start += parameter.numel()
        # DDP makes its buckets anew after the first step.
        name = f"bucket {bucket.index()} of {buffer.numel()}"
        wire = self._connection.job.transport.wire
        shared = _Tensor(self._connection.tensor(name, buffer.numel(), wire, spans))
        self._tensors[bucket.index(), buffer.numel()] = shared
        return shared


def connect(job_path: str | Path, rank: int, socket_path: str | Path, model: torch.nn.Module) -> Session:
    """Joins a job through this host's agent, and waits until all ranks have.

    `model`: what will be trained, before it is wrapped. Raises gradlane.AgentError that names what is wrong or which
    rank is missing, gradlane.job.JobError for the file.
    """
    return Session(Connection(job_path, rank, socket_path=socket_path), model)


def allreduce_hook(session: Session, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The hook for `DistributedDataParallel.register_comm_hook(session, allreduce_hook)`."""
    return session.all_reduce(bucket)
