# SPDX-License-Identifier: Apache-2.0
"""A training process' part in a job: its tensors, its groups, and collectives on shared memory. It needs numpy only.

Programs use gradlane.Communicator; this interface is for integrating Gradlane into a framework.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from multiprocessing.util import Finalize
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy.typing as npt

from gradlane import job
from gradlane._core import lib
from gradlane.client import agent_socket, command
from gradlane.client.handle import Handle
from gradlane.client.link import Link
from gradlane.client.tensor import Tensor
from gradlane.errors import AgentError
from gradlane.ipc import memory, messages
from gradlane.job import Job, elements

CLOSE_SECONDS = 15.0

Array = npt.NDArray[Any]


class Group:
    """Processes of the job that call collectives together. Made by `Connection.group`. `shard`: who serves them."""

    def __init__(self, number: int, ranks: tuple[int, ...], shard: int) -> None:
        self.number = number
        self.ranks = ranks
        self.shard = shard


class Connection:
    """A process in a job, through this host's agent. Thread-safe."""

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
        /run/gradlane/agent.sock; "process": without a daemon, see docs/agent.md. Raises AgentError naming what is
        wrong, or JobError.
        """
        self.job = job_file if isinstance(job_file, Job) else job.load(job_file)
        self.processes = self.job.processes
        self.rank, self.process = _place(self.job, rank, process)
        self.world_rank = self.rank * self.processes + self.process
        self.world_size = len(self.job.workers) * self.processes
        self._groups: dict[tuple[tuple[int, ...], str], Group] = {}
        self._arena_lock = threading.Lock()
        self._arena = memory.Arena(self._allocate, self._release)
        self.link = Link(socket_path or agent_socket.default_path(), self.job, self.rank)
        joining = {
            "op": "join",
            "version": messages.VERSION,
            "job": self.job.text,
            "file": self.job.file,
            "rank": self.rank,
            "process": self.process,
        }
        try:
            _, descriptors = self.link.request(joining, timeout=None)
        except BaseException:
            self.link.hang_up()
            raise
        if descriptors:
            self.link.open_channels(descriptors)
        # At the end of this process, also of one that multiprocessing has made (which atexit has no part in). A server
        # ends with its workers.
        works = self.rank < len(self.job.workers)
        self._at_exit = Finalize(None, _leave, (self.link,), exitpriority=0) if works else None

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
        answer, (fd,) = self.link.request({**content, "layers": [list(span) for span in layers]}, descriptors=1)
        try:
            return Tensor(self.link, name, count, dtype, answer, fd)
        finally:
            os.close(fd)

    def empty(self, shape: int | tuple[int, ...], dtype: str) -> Array:
        """An uninitialised array in shared memory, for `collective`; given back when it and its views are gone.

        bfloat16 has its bits as uint16. Raises AgentError if the agent has no memory.
        """
        self.link.check()
        elements.bytes_of(dtype)
        with self._arena_lock:
            return self._arena.empty(shape if isinstance(shape, tuple) else (shape,), elements.NUMPY[dtype])

    def is_shared(self, array: Array) -> bool:
        """Whether that array is contiguous, and on memory that `empty` gave."""
        with self._arena_lock:
            return self._arena.locate(array) is not None

    def takes(self, array: Array) -> bool:
        """Whether `collective` takes that array: it is shared, or contiguous and the agent is in this process."""
        return self._locate(array) is not None

    def _locate(self, array: Array) -> tuple[int, int] | None:
        with self._arena_lock:
            place = self._arena.locate(array)
        if place is None and self.link.within and array.flags.c_contiguous and array.flags.aligned and array.size:
            return int(lib.GL_OWN_REGION), array.ctypes.data
        return place

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
            answer, _ = self.link.request(message)
            group = self._groups[key] = Group(int(answer["group"]), ranks, int(answer["shard"]))
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
        tolerance: float = 0.0,
        standing: bool = False,
    ) -> Handle:
        """Starts an exact collective on arrays that `empty` made, or contiguous parts of them, or any others that it
        `takes`; they belong to the agent until the handle is done.

        `kind`: "all_reduce", "reduce_scatter" (`source` has a block for each member), "all_gather" (`target` has),
        "broadcast", "reduce", "all_to_all" (both have), "send", "receive", "barrier". `root`: the rank in the whole job
        of who broadcasts or gets the result; of the other side for send and receive. Arrays that a rank does not need
        are None; all_reduce, reduce and broadcast may have the same array as both. The members of a group call its
        collectives in the same order; sends and receives are matched by sender, receiver and `tag`, in order.
        `tolerance`, of send and receive: what of the message need not arrive, from 0 to 1. Elements that do not come
        stay as they were in `target`, and with 1 nothing is sent twice. The sender's is at most the receiver's.
        `standing`: a receive of what may never be sent, so that nobody is late with it. Raises ValueError, AgentError.
        """
        if kind == "barrier":
            kind, source = "all_reduce", self.empty(1, "uint8")
            target = source
        arrays = [array for array in (source, target) if array is not None]
        if not arrays:
            raise ValueError(f"{kind} needs an array")
        name = dtype or elements.name_of(arrays[0].dtype)
        command.check(kind, op, name, tolerance, standing)
        if kind in ("send", "receive"):
            ends = (self.world_rank, root) if kind == "send" else (root, self.world_rank)
            group = self._group(ends, str(tag), True)
        elif group is None:
            group = self.group()
        members = len(group.ranks)
        made = command.collective(
            kind, source, target, op, root, name, group.number, members, tolerance, standing, self._locate
        )
        kept = [memory.kept(array) for array in arrays]
        hosts = [rank // self.processes for rank in group.ranks]
        return self.link.submit(made, tuple(kept), hosts, group.shard)

    def next_group(self, name: str, members: int, slack: int, step: int, pause: bool) -> tuple[int, ...]:
        """Which hosts' ranks a worker of `ripples` averages with next; its own alone: with nobody. Raises AgentError.

        `name`: of the model; `step`: its local steps so far; `pause`: it takes none now, see sync/generator.py.
        """
        request = {"op": "next", "name": name, "members": members, "slack": slack, "step": step, "pause": pause}
        return tuple(map(int, self.link.request(request, timeout=None)[0]["group"]))

    def meet(self, name: str, number: int, agreed: bool) -> tuple[bool, tuple[int, ...]]:
        """Returns when all hosts that live have come to meeting `number`, from 1, of that name: whether all agreed, and
        the ranks of these hosts. All get the same. Raises AgentError."""
        answer, _ = self.link.request({"op": "meet", "name": name, "number": number, "agreed": agreed}, timeout=None)
        return bool(answer["agreed"]), tuple(map(int, answer["members"]))

    def statistics(self) -> dict[str, Any]:
        """Cumulative counts of the transport at this host, see docs/python.md. Raises AgentError."""
        return self.link.request({"op": "statistics"})[0]["statistics"]

    def close(self) -> dict[str, Any]:
        """Leaves the job in order and returns the last statistics. Raises AgentError if the job had failed.

        A process that ends without an exception does so by itself.
        """
        self._stay()
        return _close(self.link)

    def _stay(self) -> None:
        if self._at_exit is not None:
            self._at_exit.cancel()

    def wait_closed(self) -> dict[str, Any]:
        """Blocks until the agent says that the job is over (a server's end) and returns the last statistics.

        Raises AgentError if the job failed.
        """
        try:
            return self.link.farewell.result()["statistics"]
        finally:
            self.link.hang_up()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._stay()
            self.link.close()

    def _allocate(self, nbytes: int) -> memory.Region:
        answer, (fd,) = self.link.request({"op": "region", "bytes": nbytes}, descriptors=1)
        try:
            return memory.Region(int(answer["region"]), memory.Memory(fd, nbytes))
        finally:
            os.close(fd)

    def _release(self, region: memory.Region) -> None:
        self.link.tell({"op": "release", "region": region.number})


def _place(parsed: Job, rank: int | None, process: int | None) -> tuple[int, int]:
    if rank is not None:
        return rank, process or 0
    text = os.environ.get("RANK", "")
    if not text.isdigit():
        raise AgentError(f"which rank is this process? Pass rank, or set RANK in the environment (it is {text!r})")
    return divmod(int(text), parsed.processes)


def _close(link: Link) -> dict[str, Any]:
    try:
        link.tell({"op": "close"})
        return link.farewell.result(CLOSE_SECONDS)["statistics"]
    except FutureTimeout as error:
        raise AgentError(f"the agent has not confirmed the end of the job for {CLOSE_SECONDS:g} s") from error
    finally:
        link.close()


def _leave(link: Link) -> None:
    """Of a process that ends. One that an exception ends has not done its part: its job is to fail, and say so."""
    kind, error, _ = sys.exc_info()
    orderly = kind is None or (isinstance(error, SystemExit) and not error.code)
    if orderly and getattr(sys, "last_type", None) is None:
        with contextlib.suppress(AgentError):
            _close(link)
