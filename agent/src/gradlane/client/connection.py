# SPDX-License-Identifier: Apache-2.0
"""The training process's side of the agent: a session in a job, and operations on shared memory. It needs numpy only.

gradlane.Communicator is the interface for programs; this one is for those who integrate Gradlane into a framework.
"""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane import job
from gradlane._core import ffi, lib
from gradlane.client import agent_socket
from gradlane.client.handle import Completions, Handle
from gradlane.errors import AgentError
from gradlane.ipc import memory, messages
from gradlane.job import Job, elements

log = logging.getLogger("gradlane")

ANSWER_SECONDS = 60.0
_REASON_SECONDS = 10.0  # until the reader has taken in why the agent has hung up
CLOSE_SECONDS = 15.0
DEFAULT_SOCKET = "/run/gradlane/agent.sock"

COLLECTIVES = {
    "all_reduce": lib.GL_ALL_REDUCE,
    "reduce_scatter": lib.GL_REDUCE_SCATTER,
    "all_gather": lib.GL_ALL_GATHER,
    "broadcast": lib.GL_BROADCAST,
    "reduce": lib.GL_REDUCE,
    "all_to_all": lib.GL_ALL_TO_ALL,
    "send": lib.GL_SEND,
    "receive": lib.GL_RECEIVE,
}
REDUCTIONS = {
    "mean": lib.GL_MEAN,
    "sum": lib.GL_SUM,
    "min": lib.GL_MIN,
    "max": lib.GL_MAX,
    "product": lib.GL_PRODUCT,
}
Array = npt.NDArray[Any]


class Tensor:
    """A tensor that all processes of the job reduce, again and again, under one name.

    `contribution` is for what this process has; the reduced values come to `result`, which may be the same memory. Both
    are 1-D arrays in shared memory; bfloat16 has its bits as uint16. From `submit` until the handle is done both belong
    to the agent, which may also change the contribution; the result stays until the next `submit`.
    """

    def __init__(
        self, connection: "Connection", name: str, count: int, dtype: str, answer: messages.Message, fd: int
    ) -> None:
        mapped = memory.Memory(fd, int(answer["bytes"]))
        self.name = name
        self.dtype = dtype
        self.contribution = mapped.array(elements.NUMPY[dtype], count, int(answer["contribution"]))
        self.result = mapped.array(elements.NUMPY[dtype], count, int(answer["result"]))
        self._connection = connection
        self._last: Handle | None = None
        self._command = ffi.new("gl_command *", {"kind": lib.GL_COMMAND_TENSOR, "target": int(answer["tensor"])})

    def submit(self) -> Handle:
        """Starts the all-reduce of `contribution`. One at a time. Raises AgentError."""
        if self._last is not None and not self._last.done():
            raise AgentError(f"tensor {self.name!r} is under way: wait for it before it is submitted again")
        self._last = self._connection.put(self._command, ())
        return self._last

    def residual(self) -> Array:
        """What the network dropped of earlier contributions of this host, and owes to the next one (error feedback).

        For checkpoints: read it between two steps. An array of the tensor's type, zeros where nothing is owed. Raises
        AgentError.
        """
        _, (fd,) = self._connection.request({"op": "residual", "name": self.name}, descriptors=1)
        try:
            return memory.Memory(fd, self.result.nbytes).array(self.result.dtype, self.result.size).copy()
        finally:
            os.close(fd)

    def load_residual(self, values: Array) -> None:
        """Replaces what is owed, e.g. after a restart, by an array as `residual` gives.

        Raises ValueError, AgentError.
        """
        if values.shape != self.result.shape or values.dtype != self.result.dtype:
            raise ValueError(
                f"a residual of {values.shape} {values.dtype} does not fit tensor {self.name!r}, which is "
                f"{self.result.shape} {self.result.dtype}"
            )
        fd = os.memfd_create("gradlane-residual", os.MFD_CLOEXEC)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(np.ascontiguousarray(values).data)
            self._connection.request({"op": "load", "name": self.name}, (fd,))
        finally:
            os.close(fd)

    def close(self) -> None:
        """Frees its memory, at the agent once all local processes have closed it.

        Raises AgentError if it is under way.
        """
        if self._last is not None and not self._last.done():
            raise AgentError(f"tensor {self.name!r} is under way: wait for it before it is closed")
        self._connection.tell({"op": "forget", "name": self.name})


class Group:
    """Processes of the job that call collectives together. Made by `Connection.group`."""

    def __init__(self, number: int, ranks: tuple[int, ...]) -> None:
        self.number = number
        self.ranks = ranks


class Connection:
    """A session with this host's agent. Thread-safe; answers to control messages are read in a thread of its own."""

    def __init__(
        self,
        job_file: str | Path | Job,
        rank: int | None = None,
        process: int | None = None,
        socket_path: str | Path | None = None,
    ) -> None:
        """Joins the job and waits until all ranks have.

        `rank`: this host's rank among the job's members; `process`: the number of this process on the host, 0 to
        processes - 1 (default 0). Without `rank` both come from the environment's RANK, the process's number in the
        whole job, host by host, as torchrun sets it. `socket_path`: default GRADLANE_SOCKET of the environment, or
        /run/gradlane/agent.sock. Raises AgentError naming what is wrong, or JobError.
        """
        self.job = job_file if isinstance(job_file, Job) else job.load(job_file)
        self.processes = self.job.processes
        self.rank, self.process = _place(self.job, rank, process)
        self.world_rank = self.rank * self.processes + self.process
        self.world_size = len(self.job.workers) * self.processes
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._requests: dict[int, Future[tuple[messages.Message, list[int]]]] = {}
        self._next_request = 0
        self._farewell: Future[messages.Message] = Future()
        self._failure: AgentError | None = None
        self._completions: Completions | None = None
        self._groups: dict[tuple[tuple[int, ...], str], Group] = {}
        self._arena_lock = threading.Lock()
        self._arena = memory.Arena(self._allocate, self._release)
        self._socket = agent_socket.connect(socket_path or os.environ.get("GRADLANE_SOCKET", DEFAULT_SOCKET))
        self._thread = threading.Thread(target=self._read, name="gradlane-client", daemon=True)
        self._thread.start()
        joining = {
            "op": "join",
            "job": self.job.text,
            "file": self.job.file,
            "rank": self.rank,
            "process": self.process,
        }
        try:
            _, descriptors = self.request(joining, timeout=None)
        except BaseException:
            self._hang_up()
            raise
        if descriptors:
            self._open_channel(descriptors)

    def _open_channel(self, descriptors: list[int]) -> None:
        shared, kick = descriptors
        try:
            channel = memory.Memory(shared, int(lib.gl_channel_bytes()))
        finally:
            os.close(shared)
        with self._lock:
            self._completions = Completions(channel, kick, self._why)
            if self._failure is not None:
                self._completions.fail()

    def tensor(
        self,
        name: str,
        count: int,
        dtype: str,
        layers: Sequence[tuple[int, int]] = ((0, 0),),
        op: str = "mean",
        exact: bool = False,
    ) -> Tensor:
        """Registers a tensor of `count` elements; all processes of the job do, under the same name, in any order.

        `dtype`: "float32", "float16" and "bfloat16" may lose what the job tolerates unless `exact`; "float64", "uint8",
        "int8", "int32", "int64" lose nothing. `layers`: (first element, layer) spans, ascending from element 0; a layer
        is a position in the model, counted from its input. `op`: "mean" (of what arrived),
        "sum", "min", "max", "product". Raises AgentError, which names who declares the tensor otherwise.
        """
        content = {"op": "tensor", "name": name, "elements": count, "dtype": dtype, "reduction": op, "exact": exact}
        answer, (fd,) = self.request({**content, "layers": [list(span) for span in layers]}, descriptors=1)
        try:
            return Tensor(self, name, count, dtype, answer, fd)
        finally:
            os.close(fd)

    def empty(self, shape: int | tuple[int, ...], dtype: str) -> Array:
        """An uninitialised array in shared memory, for `collective`; given back when it and its views are gone.

        bfloat16 has its bits as uint16. Raises AgentError if the agent has no memory.
        """
        self._check()
        elements.bytes_of(dtype)
        with self._arena_lock:
            return self._arena.empty(shape if isinstance(shape, tuple) else (shape,), elements.NUMPY[dtype])

    def is_shared(self, array: Array) -> bool:
        """Whether `collective` takes that array: it is contiguous, and on memory that `empty` gave."""
        with self._arena_lock:
            return self._arena.locate(array) is not None

    def group(self, ranks: Sequence[int] | None = None, label: str = "") -> Group:
        """The group of these processes (ranks in the whole job, ascending); None: all. Only its members call it.

        There must be as many of them on each of their hosts. Groups of the same ranks with different labels are
        different ones. Raises AgentError.
        """
        members = tuple(range(self.world_size)) if ranks is None else tuple(ranks)
        return self._group(members, label, False)

    def _group(self, ranks: tuple[int, ...], label: str, pair: bool) -> Group:
        key = (ranks, f"{pair}:{label}")
        group = self._groups.get(key)
        if group is None:
            message = {"op": "group", "ranks": list(ranks), "label": label, "pair": pair}
            answer, _ = self.request(message)
            group = self._groups[key] = Group(int(answer["group"]), ranks)
        return group

    def collective(
        self,
        kind: str,
        source: Array | None,
        target: Array | None,
        op: str = "sum",
        root: int = 0,
        group: Group | None = None,
        dtype: str | None = None,
        tag: int = 0,
    ) -> Handle:
        """Starts an exact collective on arrays that `empty` made, or contiguous parts of them; they belong to the agent
        until the handle is done.

        `kind`: "all_reduce", "reduce_scatter" (`source` has a block for each member), "all_gather" (`target` has),
        "broadcast", "reduce", "all_to_all" (both have), "send", "receive", "barrier". `root`: the rank in the whole job
        of who broadcasts or gets the result; of the other side for send and receive. Arrays that a rank does not need
        are None; all_reduce, reduce and broadcast may have the same array as both. The members of a group call its
        collectives in the same order; sends and receives are matched by sender, receiver and `tag`, in order. Raises
        ValueError, AgentError.
        """
        if kind == "barrier":
            kind, source = "all_reduce", self.empty(1, "uint8")
            target = source
        if kind not in COLLECTIVES:
            raise ValueError(f"no collective {kind!r}: there are {', '.join(COLLECTIVES)}, barrier")
        if op not in REDUCTIONS:
            raise ValueError(f"no reduction {op!r}: there are {', '.join(REDUCTIONS)}")
        pair = kind in ("send", "receive")
        if pair:
            ends = (self.world_rank, root) if kind == "send" else (root, self.world_rank)
            group = self._group(ends, str(tag), True)
        elif group is None:
            group = self.group()
        arrays = [array for array in (source, target) if array is not None]
        if not arrays:
            raise ValueError(f"{kind} needs an array")
        name = dtype or elements.name_of(arrays[0].dtype)
        if op == "mean" and name not in (*elements.FLOATS, "float64"):
            raise ValueError(f"there is the mean of floats only, not of {name}: use another op")
        count = _block(kind, source, target, len(group.ranks))
        command = ffi.new("gl_command *")
        command.kind, command.target, command.root = lib.GL_COMMAND_COLLECTIVE, group.number, root
        command.collective, command.element_type = COLLECTIVES[kind], elements.CODES[name]
        command.reduction, command.elements = REDUCTIONS[op], count
        for array, prefix in ((source, "in"), (target, "out")):
            place = None
            if array is not None:
                with self._arena_lock:
                    place = self._arena.locate(array)
                if place is None:
                    raise ValueError("an array of a collective must be made by Connection.empty, and be contiguous")
            region, offset = place or (lib.GL_NO_REGION, 0)
            setattr(command, f"{prefix}_region", region)
            setattr(command, prefix, offset)
        return self.put(command, (source, target))

    def put(self, command: Any, arrays: tuple[Any, ...]) -> Handle:
        """Puts a command into the ring; `arrays` are kept until it is done. Raises AgentError."""
        self._check()
        if self._completions is None:
            raise AgentError(f"rank {self.rank} is a server: it has nothing to contribute")
        return self._completions.submit(command, arrays)

    def statistics(self) -> dict[str, Any]:
        """Cumulative counts of the transport at this host, see docs/python.md. Raises AgentError."""
        return self.request({"op": "statistics"})[0]["statistics"]

    def close(self) -> dict[str, Any]:
        """Leaves the job in order and returns the last statistics. Raises AgentError if the job had failed."""
        try:
            if self._failure is not None:
                raise self._failure
            self.tell({"op": "close"})
            return self._farewell.result(CLOSE_SECONDS)["statistics"]
        except FutureTimeout as error:
            raise AgentError(f"the agent did not end the session within {CLOSE_SECONDS:g} s") from error
        finally:
            self._fail(AgentError("the connection to the agent was closed"))
            self._hang_up()

    def wait_closed(self) -> dict[str, Any]:
        """Blocks until the agent says that the job is over (a server's end) and returns the last statistics.

        Raises AgentError if the job failed.
        """
        try:
            return self._farewell.result()["statistics"]
        finally:
            self._hang_up()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._fail(AgentError("the connection to the agent was closed"))
            self._hang_up()

    def _check(self) -> None:
        if os.getpid() != self._owner:
            raise AgentError("this connection belongs to the parent process: make another one after a fork")
        if self._failure is not None:
            raise self._why()

    def _why(self) -> AgentError:
        """The reason of a failure; a new exception each time, because raising adds to its traceback."""
        if self._failure is None:
            # The completion words were faster than the socket, which tells the reason.
            self._thread.join(_REASON_SECONDS)
        return AgentError(str(self._failure or "the agent of this host is gone"))

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._socket.close()
        if self._completions is not None:
            self._completions.close()

    def tell(self, message: messages.Message, descriptors: tuple[int, ...] = ()) -> None:
        """Sends a message that has no answer. Raises AgentError."""
        self._check()
        try:
            messages.send(self._socket, message, descriptors)
        except OSError as error:
            # Why the agent went away is in what it sent last, which the reader may still be taking in.
            self._thread.join(_REASON_SECONDS)
            raise self._failure or AgentError(f"the agent of this host is gone: {error.strerror}") from error

    def request(
        self,
        message: messages.Message,
        fds: tuple[int, ...] = (),
        descriptors: int = 0,
        timeout: float | None = ANSWER_SECONDS,
    ) -> tuple[messages.Message, list[int]]:
        """Sends a message and waits for its answer, with at least so many descriptors. Raises AgentError."""
        answer: Future[tuple[messages.Message, list[int]]] = Future()
        with self._lock:
            number = self._next_request
            self._next_request += 1
            self._requests[number] = answer
        try:
            self.tell({**message, "request": number}, fds)
            content, received = answer.result(timeout)
        except FutureTimeout as error:
            raise AgentError(f"the agent has not answered {message['op']!r} for {timeout:g} s") from error
        finally:
            with self._lock:
                self._requests.pop(number, None)
        if "error" in content:
            raise AgentError(str(content["error"]))
        if len(received) < descriptors:
            raise AgentError(f"the agent answered {message['op']!r} without the memory that belongs to it")
        return content, received

    def _allocate(self, nbytes: int) -> memory.Region:
        answer, (fd,) = self.request({"op": "region", "bytes": nbytes}, descriptors=1)
        try:
            return memory.Region(int(answer["region"]), memory.Memory(fd, nbytes))
        finally:
            os.close(fd)

    def _release(self, region: memory.Region) -> None:
        self.tell({"op": "release", "region": region.number})

    def _read(self) -> None:
        try:
            while True:
                message, descriptors = messages.receive(self._socket)
                op = message["op"]
                if op == "error":
                    self._fail(AgentError(message["message"]))
                elif op == "notice":
                    log.warning("%s", message["message"])
                elif op == "closed":
                    self._farewell.set_result(message)
                else:
                    with self._lock:
                        # The answer to a request that was given up is nobody's.
                        waiting = self._requests.pop(int(message.get("request", 0)), None)
                    if waiting is not None:
                        waiting.set_result((message, descriptors))
        except (EOFError, OSError):
            self._fail(AgentError("the agent of this host is gone: it closed its socket"))

    def _fail(self, error: AgentError) -> None:
        with self._lock:
            if self._failure is not None:
                return
            self._failure = error
            requests, self._requests = self._requests, {}
            if self._completions is not None:
                self._completions.fail()
        for waiting in [*requests.values(), self._farewell]:
            if not waiting.done():
                waiting.set_exception(error)


def _place(parsed: Job, rank: int | None, process: int | None) -> tuple[int, int]:
    if rank is not None:
        return rank, process or 0
    text = os.environ.get("RANK", "")
    if not text.isdigit():
        raise AgentError(f"which rank is this process? Pass rank, or set RANK in the environment (it is {text!r})")
    return divmod(int(text), parsed.processes)


def _block(kind: str, source: Array | None, target: Array | None, members: int) -> int:
    """Elements as a command states them. Raises ValueError where the arrays do not fit each other."""
    sizes = [None if array is None else array.size for array in (source, target)]
    if kind in ("reduce_scatter", "all_to_all"):
        sizes[0] = _part(kind, sizes[0], members)
    if kind in ("all_gather", "all_to_all"):
        sizes[1] = _part(kind, sizes[1], members)
    known = {size for size in sizes if size is not None}
    if known == {0}:
        raise ValueError(f"{kind} of no elements: there is nothing to exchange")
    if len(known) != 1:
        raise ValueError(f"{kind}: blocks of {sizes[0]} elements in the source and {sizes[1]} in the target")
    return known.pop()


def _part(kind: str, size: int | None, members: int) -> int | None:
    if size is not None and size % members:
        raise ValueError(f"{kind}: {size} elements are not a block for each of {members} members")
    return None if size is None else size // members


__all__ = ["Connection", "Group", "Handle", "Tensor"]
