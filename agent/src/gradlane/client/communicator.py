# SPDX-License-Identifier: Apache-2.0
"""Collective operations on numpy arrays, for programs of any framework. docs/python.md shows how to use it."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane.client import training
from gradlane.client.collectives import Collectives
from gradlane.client.connection import Connection
from gradlane.client.gradient import Gradient, Layers
from gradlane.job import Job

Array = npt.NDArray[Any]


class GroupCommunicator(Collectives):
    """Some processes of a job. Made by `Communicator.group`; ranks count within the group."""

    def all_reduce(self, array: Array, op: str = "mean", out: Array | None = None, asynchronous: bool = False) -> Any:
        """The exact reduction of all members' arrays, as a new array or in `out`, which may be `array`."""
        return self.exact_all_reduce(array, op, out, asynchronous)


class Communicator(Collectives):
    """All processes of a job. A context manager; thread-safe, except that a name is used by one thread at a time."""

    def __init__(
        self,
        job_file: str | Path | Job | None = None,
        rank: int | None = None,
        socket: str | Path | None = None,
        *,
        controller: str | None = None,
        job: str | None = None,
        workers: int | None = None,
        processes: int | None = None,
        template: str | None = None,
    ) -> None:
        """Joins the job through this host's agent, and waits until all processes have.

        `job_file`: the job's TOML file. Without one the job is that of the name `job` (default GRADLANE_JOB_NAME), on
        so many `workers` (hosts) with so many `processes` each (default WORLD_SIZE and LOCAL_WORLD_SIZE), by a
        `controller` (default GRADLANE_CONTROLLER) and its `template`: docs/pytorch.md. `rank`: of this process in the
        whole job, host by host; default RANK of the environment, as torchrun sets it. `socket`: the agent's; default
        GRADLANE_SOCKET of the environment, or /run/gradlane/agent.sock; "process": the agent runs in this process,
        without a daemon (docs/agent.md). Raises AgentError that names what is wrong or who is missing, JobError for the
        file.
        """
        here = None if rank is None else rank // training.processes_here(processes)
        parsed = training.obtain(
            *(job_file, here, socket),
            controller=controller,
            name=job,
            workers=workers,
            processes=processes,
            template=template,
        )
        host, process = (None, None) if rank is None else divmod(rank, parsed.processes)
        connection = Connection(parsed, host, process, socket)
        super().__init__(connection, connection.group())
        self._gradients: dict[str, Gradient] = {}

    def all_reduce(
        self,
        array: Array,
        name: str | None = None,
        op: str = "mean",
        layers: Layers | None = None,
        out: Array | None = None,
        asynchronous: bool = False,
    ) -> Any:
        """The reduction of all processes' arrays: a new array, or `out` (which may be `array`), or a Pending.

        With a `name`, the same at all processes, it is a gradient that is reduced in every step: means and sums of
        floats may lose what the job tolerates, small slices first. A mean is that of what arrived, and what a lost part
        differs from it is added to the next step's, unless the job's `error_feedback` is false. `layers` says which
        layer of the model, counted from its input, it belongs to (a number, or (first element, layer) spans): the
        network serves the front layers first. float32 travels as the job's `transport.wire`. Without a name it is
        exact. `op`: "mean" (floats only), "sum", "min", "max", "product". Raises ValueError, AgentError.
        """
        if name is None:
            if layers is not None:
                raise ValueError("layers need a name: an all-reduce without one is exact")
            return self.exact_all_reduce(array, op, out, asynchronous)
        gradient = self._gradients.get(name)
        if gradient is None:
            gradient = self._gradients[name] = Gradient(self.connection, name, array.shape, array.dtype, op, layers)
        pending = gradient.submit(array, op, out)
        return pending if asynchronous else pending.wait()

    def gradient(
        self, name: str, shape: tuple[int, ...], dtype: Any = np.float32, op: str = "mean", layers: Layers | None = None
    ) -> Array:
        """Shared memory for the gradient of that name: `all_reduce` of this very array under its name copies nothing
        in, and nothing out either if `out` is the array and the job tolerates no loss. Raises ValueError, AgentError.
        """
        if name in self._gradients:
            raise ValueError(f"there is a gradient {name!r} already")
        gradient = Gradient(self.connection, name, shape, np.dtype(dtype), op, layers)
        if gradient.converts:
            raise ValueError(f"{name!r} travels as {gradient.tensor.dtype}, so its values are copied anyway")
        self._gradients[name] = gradient
        return gradient.contribution

    def residuals(self) -> dict[str, Array]:
        """What the network has dropped of this host's contributions and will be added to the next ones, by name: the
        state of error feedback, for a checkpoint between two steps. Raises AgentError."""
        return {name: gradient.tensor.residual() for name, gradient in self._gradients.items()}

    def load_residuals(self, residuals: dict[str, Array]) -> None:
        """Restores what `residuals` gave. The gradients must be known: made by `gradient`, or reduced once. Raises
        ValueError, AgentError."""
        unknown = sorted(set(residuals) - set(self._gradients))
        if unknown:
            raise ValueError(f"no gradient {unknown[0]!r} yet: make it with `gradient`, or reduce it once before")
        for name, values in residuals.items():
            self._gradients[name].tensor.load_residual(values)

    def group(self, ranks: Sequence[int], label: str = "") -> GroupCommunicator:
        """The processes of these ranks, ascending, as many on each host; each of them calls it. Groups of the same
        ranks and different labels are different ones. Raises AgentError."""
        return GroupCommunicator(self.connection, self.connection.group(ranks, label))

    def statistics(self) -> dict[str, Any]:
        """Cumulative counts of the transport at this host, see docs/python.md. Raises AgentError."""
        return self.connection.statistics()

    def close(self) -> dict[str, Any]:
        """Leaves the job in order; returns the last statistics. Raises AgentError if the job has failed."""
        return self.connection.close()

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.__exit__(kind, error, trace)
