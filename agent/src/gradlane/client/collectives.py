# SPDX-License-Identifier: Apache-2.0
"""Exact collectives of a group of processes on numpy arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane.client.connection import Connection, Group
from gradlane.client.handle import Operation
from gradlane.errors import AgentError
from gradlane.job import elements

Array = npt.NDArray[Any]

_AT_ONCE = 256  # operations of one call


class Pending:
    """An operation in flight, and the array that it will give."""

    def __init__(self, handle: Operation | None, finish: Callable[[], Array | None]) -> None:
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
        return as_type(self.connection.empty(shape, elements.name_of(dtype)), np.dtype(dtype))

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
        there = self._shared if self.rank == root else self._uncopied
        shared = there(array, asynchronous)
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
        target = self._uncopied(array, asynchronous)
        return self._start("receive", None, target, _filled(array), asynchronous, root=source, tag=tag)

    def barrier(self) -> None:
        """Returns when all processes have called it."""
        self.connection.collective("barrier", None, None, group=self._group).wait()

    def exact_all_reduce(self, array: Array, op: str, out: Array | None, asynchronous: bool) -> Any:
        """The reduction of all processes' arrays: a new array, or `out`, or a Pending of it."""
        pending = self._reduction(array, op, out, asynchronous)
        return pending if asynchronous else pending.wait()

    def all_reduce_into(self, arrays: Sequence[Array], results: Sequence[Array], op: str = "mean") -> None:
        """Fills `results` with the exact reductions of `arrays`, many of which are under way at once. When it returns
        or raises, nothing works on any of these arrays, whoever owns their memory. Raises ValueError, AgentError."""
        for start in range(0, len(arrays), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            self._reduce_at_once(arrays[part], results[part], op)

    def _reduce_at_once(self, arrays: Sequence[Array], results: Sequence[Array], op: str) -> None:
        pending: list[Pending] = []
        failed: AgentError | ValueError | None = None
        try:
            try:
                for array, result in zip(arrays, results, strict=True):
                    pending.append(self._reduction(array, op, result, False))
            except (AgentError, ValueError) as error:
                failed = error
            for one in pending:  # after a failure as well: others may still be under way
                try:
                    one.wait()
                except AgentError as error:
                    failed = failed or error
        except BaseException:  # such as Ctrl-C
            self.connection.link.close()
            raise
        try:
            if failed is not None:
                raise failed
        finally:
            failed = None  # it refers to this frame, and so to the arrays

    def _reduction(self, array: Array, op: str, out: Array | None, goes_on: bool) -> Pending:
        """`goes_on`: the caller may use the arrays before it is done."""
        if out is not None and _filled(out) is not array and (out.shape, out.dtype) != (array.shape, array.dtype):
            raise ValueError(f"out is {out.shape} {out.dtype}, and the result {array.shape} {array.dtype}")
        shared = self._shared(array, goes_on)
        if out is not None and out is not array and self._takes(out, shared, goes_on):
            target = out
        elif out is array or shared is not array:
            target = shared  # in place, where the place is ours: a copy, or what the caller gives for it
        else:
            target = self.empty(array.shape, array.dtype)
        return self._begin("all_reduce", shared, target, target if out is None else out, goes_on, op)

    def _takes(self, out: Array, shared: Array, goes_on: bool) -> bool:
        """Whether the result can come to `out` itself, which does not overlap with the contribution."""
        return self._is_usable(out, goes_on) and not np.may_share_memory(out, shared)

    def _is_usable(self, array: Array, goes_on: bool) -> bool:
        """Whether an operation may work on an array where it lies. Who does not wait may go on to use it if it is not
        shared memory, wherever the agent is."""
        return self.connection.is_shared(array) if goes_on else self.connection.takes(array)

    def _divided(self, array: Array) -> int:
        if not array.ndim or array.shape[0] % self.size:
            raise ValueError(f"the first axis of {array.shape} can't be divided among {self.size} processes")
        return array.shape[0] // self.size

    def _uncopied(self, array: Array, goes_on: bool) -> Array:
        """The array itself if it is usable, else one of its shape in shared memory. A scalar is an array too."""
        values = np.asarray(array)
        usable = values is array and self._is_usable(array, goes_on)
        return array if usable else self.empty(values.shape, values.dtype)

    def _shared(self, array: Array, goes_on: bool) -> Array:
        """The same, with the array's values."""
        shared = self._uncopied(array, goes_on)
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
        pending = self._begin(kind, source, target, result, asynchronous, op, root, tag, deliver)
        return pending if asynchronous else pending.wait()

    def _begin(
        self,
        kind: str,
        source: Array | None,
        target: Array | None,
        result: Array | None,
        goes_on: bool,
        op: str = "sum",
        root: int = 0,
        tag: int = 0,
        deliver: bool = True,
    ) -> Pending:
        """`result` is what the operation returns; if it is not the target, the values are to `deliver`."""
        if not 0 <= root < self.size:
            raise ValueError(f"there is no rank {root}: ranks are 0 to {self.size - 1}")
        array = source if source is not None else target
        assert array is not None
        if not array.size:
            return Pending(None, lambda: result)
        shared = None if source is None else self._shared(source, goes_on)
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

        return Pending(handle, finish)


def _filled(array: Any) -> Array:
    """An array that an operation will fill. Raises ValueError before it starts."""
    if not isinstance(array, np.ndarray):
        raise ValueError(f"the result needs an array, not a {type(array).__name__}")
    values: Array = array
    if not values.flags.writeable:
        raise ValueError("the result needs an array, and this one is read-only")
    return values


def as_type(values: Array, dtype: np.dtype[Any]) -> Array:
    """The same memory as another type of the same size: bfloat16 of ml_dtypes, bool."""
    return values if values.dtype == dtype else values.view(dtype)


def _raw(array: Array | None) -> Array | None:
    """The type under which shared memory knows it."""
    return None if array is None else as_type(array, elements.NUMPY[elements.name_of(array.dtype)])
