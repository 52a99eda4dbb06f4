# SPDX-License-Identifier: Apache-2.0
"""This process' place in the one job that it trains in, under Horovod's names."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane.client.communicator import Communicator
from gradlane.data_parallel.model import Models
from gradlane.errors import AgentError
from gradlane.job import Job

Array = npt.NDArray[Any]

_BROADCAST_BYTES = 16 << 20  # at once

Average = "mean"
"""An operation of `allreduce`."""
Sum = "sum"
"""An operation of `allreduce`."""
Min = "min"
"""An operation of `allreduce`."""
Max = "max"
"""An operation of `allreduce`."""
Product = "product"
"""An operation of `allreduce`."""


class _World:
    def __init__(self, communicator: Communicator, bucket_bytes: int) -> None:
        self.communicator = communicator
        self.models = Models(communicator.connection, bucket_bytes)


_joined: list[_World] = []  # the one that there is


def init(
    job_file: str | Path | Job | None = None,
    rank: int | None = None,
    socket: str | Path | None = None,
    *,
    controller: str | None = None,
    job: str | None = None,
    workers: int | None = None,
    processes: int | None = None,
    template: str | None = None,
    bucket_bytes: int = 1 << 20,
) -> Communicator:
    """Joins the job through this host's agent, and waits until all processes have; the second call does nothing.

    `job_file`: default GRADLANE_JOB of the environment. Without one, and for all else, see gradlane.Communicator, which
    it returns: for the operations on numpy arrays that are not here. `bucket_bytes`: gradients of neighbouring
    variables travel together until they are so large. Raises AgentError that names what is wrong or who is missing,
    JobError for the file.
    """
    if not _joined:
        if job_file is None and controller is None:
            job_file = os.environ.get("GRADLANE_JOB")
        communicator = Communicator(
            *(job_file, rank, socket),
            controller=controller,
            job=job,
            workers=workers,
            processes=processes,
            template=template,
        )
        _joined.append(_World(communicator, bucket_bytes))
    return communicator_here()


def shutdown() -> None:
    """Leaves the job in order, as a process does that ends without an exception. Raises AgentError if it has failed."""
    if _joined:
        _joined.pop().communicator.close()


def is_initialized() -> bool:
    """Whether this process is in a job."""
    return bool(_joined)


def _here() -> _World:
    if not _joined:
        raise AgentError("this process is in no job: call init() first")
    return _joined[0]


def communicator_here() -> Communicator:
    """Of the job. Raises AgentError without one, as all that follows."""
    return _here().communicator


def models() -> Models:
    """That are trained in the job."""
    return _here().models


def rank() -> int:
    """Of this process in the job, from 0."""
    return communicator_here().rank


def size() -> int:
    """How many processes the job has."""
    return communicator_here().size


def local_rank() -> int:
    """Of this process among those of its host."""
    return communicator_here().connection.process


def local_size() -> int:
    """How many processes of the job this host has."""
    return communicator_here().connection.processes


def residuals() -> dict[str, Array]:
    """What the network has dropped of this host's gradients and the next step will carry: for a checkpoint of each
    rank, between two steps. Raises AgentError."""
    return models().residuals()


def load_residuals(residuals: dict[str, Array]) -> None:
    """Restores what `residuals` gave, before the first step. Raises ValueError, AgentError."""
    models().load_residuals(residuals)


def all_reduce(array: Array, op: str = Average) -> Array:
    """The exact reduction of all processes' arrays. Raises ValueError, AgentError."""
    return communicator_here().all_reduce(array, op=op)


def broadcast(arrays: Sequence[Array], root: int = 0) -> list[Array]:
    """New arrays with root's values, of any numeric type. Raises AgentError."""
    values = [np.empty(array.shape, array.dtype) for array in arrays]
    broadcast_into(arrays, values, root)
    return values


def broadcast_into(arrays: Sequence[Array], values: Sequence[Array], root: int = 0) -> None:
    """Fills `values`, of the shapes and types of `arrays`. Raises AgentError."""
    communicator = communicator_here()
    start = 0
    while start < len(arrays):
        end, total = start + 1, arrays[start].nbytes
        while end < len(arrays) and total + arrays[end].nbytes <= _BROADCAST_BYTES:
            total += arrays[end].nbytes
            end += 1
        # As bytes: a model's counters and seeds have types that no reduction knows.
        shared = communicator.empty(total, np.uint8)
        ends = np.cumsum([array.nbytes for array in arrays[start:end]]).tolist()
        parts = [slice(e - array.nbytes, e) for array, e in zip(arrays[start:end], ends, strict=True)]
        if communicator.rank == root:
            for array, part in zip(arrays[start:end], parts, strict=True):
                shared[part] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
        communicator.broadcast(shared, root)
        for value, part in zip(values[start:end], parts, strict=True):
            value[...] = shared[part].copy().view(value.dtype).reshape(value.shape)
        start = end
