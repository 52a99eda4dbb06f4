# SPDX-License-Identifier: Apache-2.0
"""Collective operations on numpy arrays, for programs of any framework. docs/python.md shows how to use it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane import job
from gradlane._core import ffi, lib
from gradlane.client.connection import Connection, Group, Tensor
from gradlane.client.handle import Handle
from gradlane.errors import AgentError
from gradlane.job import Job, elements

Array = npt.NDArray[Any]
Layers = int | Sequence[tuple[int, int]]


class Pending:
    """An operation under way, and the array that it will give."""

    def __init__(self, handle: Handle | None, finish: Callable[[], Array | None]) -> None:
        self._handle = handle  # None: it is done
        self._finish: Callable[[], Array | None] | None = finish
        self._result: Array | None = None

    def done(self) -> bool:
        """Whether `wait` will not block."""
        return self._handle is None or self._handle.done()

    def wait(self, timeout: float | None = None) -> Array | None:
        """Blocks until it is done; returns what the operation returns. Raises AgentError, TimeoutError."""
        if self._handle is not None:
            self._handle.wait(timeout)
        finish, self._finish = self._finish, None
        if finish is not None:
            self._result = finish()
        return self._result


class Collectives:
    """The exact operations of a group of processes; `rank` and all ranks in arguments count within the group."""

    def __init__(self, connection: Connection, group: Group) -> None:
        self.connection = connection
        self._group = group
        self.rank = group.ranks.index(connection.world_rank)
        self.size = len(group.ranks)

    def empty(self, shape: int | tuple[int, ...], dtype: Any = np.float32) -> Array:
        """An uninitialised array in shared memory: operations use it without copying. Raises AgentError."""
        return _as_type(self.connection.empty(shape, elements.name_of(dtype)), np.dtype(dtype))

    def reduce_scatter(self, array: Array, op: str = "sum", asynchronous: bool = False) -> Any:
        """The reduction of all processes' arrays, of which each gets its part: `array`'s first axis is divided among
        them, in the order of ranks. Returns the part, or a Pending. Raises ValueError, AgentError."""
        target = self.empty((self._divided(array), *array.shape[1:]), array.dtype)
        return self._start("reduce_scatter", array, target, target, asynchronous, op)

    def all_gather(self, array: Array, asynchronous: bool = False) -> Any:
        """All processes' arrays, of equal shape, along a new first axis, in the order of ranks."""
        target = self.empty((self.size, *array.shape), array.dtype)
        return self._start("all_gather", array, target, target, asynchronous)

    def all_to_all(self, array: Array, asynchronous: bool = False) -> Any:
        """Part k of the first axis goes to rank k; returns what came from each rank, in their order."""
        self._divided(array)
        target = self.empty(array.shape, array.dtype)
        return self._start("all_to_all", array, target, target, asynchronous)

    def broadcast(self, array: Array, root: int = 0, asynchronous: bool = False) -> Any:
        """Fills `array` with what `root` has in it, at every process, and returns it."""
        shared = self._shared(array) if self.rank == root else self._uncopied(array)
        if self.rank == root:
            return self._start("broadcast", shared, shared, array, asynchronous, root=root, deliver=False)
        return self._start("broadcast", None, shared, _filled(array), asynchronous, root=root)

    def reduce(self, array: Array, root: int = 0, op: str = "sum", asynchronous: bool = False) -> Any:
        """The reduction of all processes' arrays, at `root`; the others get None."""
        target = self.empty(array.shape, array.dtype) if self.rank == root else None
        return self._start("reduce", array, target, target, asynchronous, op, root)

    def send(self, array: Array, to: int, tag: int = 0, asynchronous: bool = False) -> Any:
        """Sends an array to a process, which calls `receive`. Returns None, or a Pending."""
        return self._start("send", array, None, None, asynchronous, root=to, tag=tag)

    def receive(self, array: Array, source: int, tag: int = 0, asynchronous: bool = False) -> Any:
        """Fills `array`, of the shape and type that was sent, with what `source` sends, and returns it."""
        target = self._uncopied(array)
        return self._start("receive", None, target, _filled(array), asynchronous, root=source, tag=tag)

    def barrier(self) -> None:
        """Returns when all processes have called it."""
        self.connection.collective("barrier", None, None, group=self._group).wait()

    def _exact_all_reduce(self, array: Array, op: str, out: Array | None, asynchronous: bool) -> Any:
        if out is not None and _filled(out) is not array and (out.shape, out.dtype) != (array.shape, array.dtype):
            raise ValueError(f"out is {out.shape} {out.dtype}, and the result {array.shape} {array.dtype}")
        shared = self._shared(array)
        if out is not None and out is not array and self._takes(out, shared):
            target = out
        elif out is array or shared is not array:
            target = shared  # in place, where the place is ours: a copy, or the caller's own shared array
        else:
            target = self.empty(array.shape, array.dtype)
        return self._start("all_reduce", shared, target, target if out is None else out, asynchronous, op)

    def _takes(self, out: Array, shared: Array) -> bool:
        """Whether `out` is shared memory that can take the result: it does not overlap with the contribution."""
        return self.connection.is_shared(out) and not np.may_share_memory(out, shared)

    def _divided(self, array: Array) -> int:
        if not array.ndim or array.shape[0] % self.size:
            raise ValueError(f"the first axis of {array.shape} can't be divided among {self.size} processes")
        return array.shape[0] // self.size

    def _uncopied(self, array: Array) -> Array:
        """The array itself if it lies in shared memory, else one of its shape that does. A scalar is an array too."""
        array = np.asarray(array)
        return array if self.connection.is_shared(array) else self.empty(array.shape, array.dtype)

    def _shared(self, array: Array) -> Array:
        """The same, with the array's values."""
        shared = self._uncopied(array)
        if shared is not array:
            np.copyto(shared, array)
        return shared

    def _start(
        self,
        kind: str,
        source: Array | None,
        target: Array | None,
        result: Array | None,
        asynchronous: bool,
        op: str = "sum",
        root: int = 0,
        tag: int = 0,
        deliver: bool = True,
    ) -> Any:
        """`result` is what the operation returns; if it is not the target, the values are to `deliver`."""
        if not 0 <= root < self.size:
            raise ValueError(f"there is no rank {root}: ranks are 0 to {self.size - 1}")
        array = source if source is not None else target
        assert array is not None
        if not array.size:
            pending = Pending(None, lambda: result)
            return pending if asynchronous else pending.wait()
        shared = None if source is None else self._shared(source)
        handle = self.connection.collective(
            kind,
            _raw(shared),
            _raw(target),
            op,
            self._group.ranks[root],
            self._group,
            elements.name_of(array.dtype),
            tag,
        )

        def finish() -> Array | None:
            if deliver and result is not None and target is not None and result is not target:
                np.copyto(result, target)
            return result

        pending = Pending(handle, finish)
        return pending if asynchronous else pending.wait()


class GroupCommunicator(Collectives):
    """Some processes of a job. Made by `Communicator.group`; ranks count within the group."""

    def all_reduce(self, array: Array, op: str = "mean", out: Array | None = None, asynchronous: bool = False) -> Any:
        """The exact reduction of all members' arrays, as a new array or in `out`, which may be `array`."""
        return self._exact_all_reduce(array, op, out, asynchronous)


class Communicator(Collectives):
    """All processes of a job. A context manager; thread-safe, except that a name is used by one thread at a time."""

    def __init__(self, job_file: str | Path | Job, rank: int | None = None, socket: str | Path | None = None) -> None:
        """Joins the job through this host's agent, and waits until all processes have.

        `job_file`: the job's TOML file. `rank`: of this process in the whole job, host by host; default RANK of the
        environment, as torchrun sets it. `socket`: the agent's; default GRADLANE_SOCKET of the environment, or
        /run/gradlane/agent.sock. Raises AgentError that names what is wrong or who is missing, JobError for the file.
        """
        parsed = job_file if isinstance(job_file, Job) else job.load(job_file)
        host, process = (None, None) if rank is None else divmod(rank, parsed.processes)
        connection = Connection(parsed, host, process, socket)
        super().__init__(connection, connection.group())
        self._named: dict[str, _Named] = {}

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
                raise ValueError("layers are of an all-reduce that has a name")
            return self._exact_all_reduce(array, op, out, asynchronous)
        named = self._named.get(name)
        if named is None:
            named = self._named[name] = _Named(self.connection, name, array.shape, array.dtype, op, layers)
        pending = named.submit(array, op, out)
        return pending if asynchronous else pending.wait()

    def gradient(
        self, name: str, shape: tuple[int, ...], dtype: Any = np.float32, op: str = "mean", layers: Layers | None = None
    ) -> Array:
        """Shared memory for the gradient of that name: `all_reduce` of this very array under its name copies nothing
        in, and nothing out either if `out` is the array and the job tolerates no loss. Raises ValueError, AgentError.
        """
        if name in self._named:
            raise ValueError(f"there is a gradient {name!r} already")
        named = _Named(self.connection, name, shape, np.dtype(dtype), op, layers)
        if named.converts:
            raise ValueError(f"{name!r} travels as {named.tensor.dtype}, so its values are copied anyway")
        self._named[name] = named
        return named.contribution

    def residuals(self) -> dict[str, Array]:
        """What the network has dropped of this host's contributions and will be added to the next ones, by name: the
        state of error feedback, for a checkpoint between two steps. Raises AgentError."""
        return {name: named.tensor.residual() for name, named in self._named.items()}

    def load_residuals(self, residuals: dict[str, Array]) -> None:
        """Restores what `residuals` gave. The gradients must be known: made by `gradient`, or reduced once. Raises
        ValueError, AgentError."""
        unknown = sorted(set(residuals) - set(self._named))
        if unknown:
            raise ValueError(f"no gradient {unknown[0]!r} yet: make it with `gradient`, or reduce it once before")
        for name, values in residuals.items():
            self._named[name].tensor.load_residual(values)

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


class _Named:
    """A gradient: its tensor at the agent, and the caller's type and shape."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        op: str,
        layers: Layers | None,
    ) -> None:
        self._shape = shape
        self._dtype = dtype
        self._op = op
        own = elements.name_of(dtype)
        wire = connection.job.transport.wire if own == "float32" else own
        spans = [(0, layers or 0)] if layers is None or isinstance(layers, int) else layers
        self.tensor: Tensor = connection.tensor(name, int(np.prod(shape, dtype=np.int64)), wire, spans, op)
        self.converts = wire != own
        self._last: Pending | None = None
        self._types = elements.CODES[own], elements.CODES[wire]

    @property
    def contribution(self) -> Array:
        return self._view(self.tensor.contribution)

    def _view(self, values: Array) -> Array:
        return _as_type(values, self._dtype).reshape(self._shape)

    def submit(self, array: Array, op: str, out: Array | None) -> Pending:
        if array.shape != self._shape or array.dtype != self._dtype or op != self._op:
            raise ValueError(
                f"{self.tensor.name!r} is the {self._op} of {self._shape} {self._dtype}, not the {op} of {array.shape} "
                f"{array.dtype}"
            )
        if self._last is not None:
            if not self._last.done():
                raise AgentError(f"{self.tensor.name!r} is under way: wait for it before it is reduced again")
            self._last.wait()  # its result is still to be taken out of the memory that is used again now
        self._take_in(array)
        result = np.empty(self._shape, self._dtype) if out is None else out
        self._last = Pending(self.tensor.submit(), lambda: self._give_out(result))
        return self._last

    def _take_in(self, array: Array) -> None:
        if self.converts:
            own, wire = self._types
            source = np.ascontiguousarray(array)
            _convert(self.tensor.contribution, wire, source, own)
        elif array.ctypes.data != self.tensor.contribution.ctypes.data:
            np.copyto(self.contribution, array)

    def _give_out(self, result: Array) -> Array:
        if self.converts:
            own, wire = self._types
            target = result if result.flags.c_contiguous else np.empty(self._shape, self._dtype)
            _convert(target, own, self.tensor.result, wire)
            if target is not result:
                np.copyto(result, target)
        elif result.ctypes.data != self.tensor.result.ctypes.data:
            np.copyto(result, self._view(self.tensor.result))
        return result


def _convert(target: Array, target_type: int, source: Array, source_type: int) -> None:
    lib.gl_convert(
        ffi.from_buffer("uint8_t[]", target, require_writable=True),
        target_type,
        ffi.from_buffer("uint8_t[]", source),
        source_type,
        source.size,
    )


def _filled(array: Any) -> Array:
    """An array that an operation is to fill. Raises ValueError before it begins."""
    if not isinstance(array, np.ndarray):
        raise ValueError(f"what comes needs an array to go to, not a {type(array).__name__}")
    values: Array = array
    if not values.flags.writeable:
        raise ValueError("what comes needs an array to go to, and this one is read-only")
    return values


def _as_type(values: Array, dtype: np.dtype[Any]) -> Array:
    """The same memory as another type of the same size: bfloat16 of ml_dtypes, bool."""
    return values if values.dtype == dtype else values.view(dtype)


def _raw(array: Array | None) -> Array | None:
    """The type under which shared memory knows it."""
    return None if array is None else _as_type(array, elements.NUMPY[elements.name_of(array.dtype)])


__all__ = ["Communicator", "GroupCommunicator", "Pending"]
