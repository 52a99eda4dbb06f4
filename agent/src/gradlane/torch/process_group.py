# SPDX-License-Identifier: Apache-2.0
# torch's annotations list every overload of its C++ class; what it calls in Python is one of them.
# pyright: reportIncompatibleMethodOverride=false, reportAssignmentType=false
"""The backend "gradlane" of torch.distributed: its collectives over the agents, all of them exact.

import gradlane.torch
torch.distributed.init_process_group("gradlane")
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import numpy.typing as npt
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from gradlane.client.connection import Connection
from gradlane.errors import AgentError
from gradlane.torch import rendezvous
from gradlane.torch.session import Session
from gradlane.torch.shared import NAMES, as_tensor, parts
from gradlane.torch.staging import Exchange
from gradlane.torch.work import Work

# torch numbers the messages of send and recv as the caller likes; those within collectives keep away from them.
_GATHER, _SCATTER, _ALL_TO_ALL = 0x7FFFFFF0, 0x7FFFFFF1, 0x7FFFFFF2

_OPERATIONS = {
    c10d.ReduceOp.SUM: "sum",
    c10d.ReduceOp.AVG: "mean",
    c10d.ReduceOp.MIN: "min",
    c10d.ReduceOp.MAX: "max",
    c10d.ReduceOp.PRODUCT: "product",
}
# Truth values are bytes of 0 and 1: their sum is an or, their product an and.
_OF_BOOL = {
    c10d.ReduceOp.SUM: "max",
    c10d.ReduceOp.MAX: "max",
    c10d.ReduceOp.BOR: "max",
    c10d.ReduceOp.PRODUCT: "min",
    c10d.ReduceOp.MIN: "min",
    c10d.ReduceOp.BAND: "min",
}


class _Shared(NamedTuple):
    """Shared memory for one exchange: as the client takes it, and as torch sees it."""

    array: npt.NDArray[Any]
    tensor: torch.Tensor
    dtype: str


class _Step(NamedTuple):
    """An exchange that has been started, and what brings its result to its tensors."""

    exchange: Exchange
    finish: Callable[[], None]


class ProcessGroup(dist.ProcessGroup):
    """A group of the job's processes. Tensors of accelerators are copied to the host and back.

    Every method that torch calls gives a Work, whose wait() raises gradlane.AgentError naming the culprit.
    """

    def __init__(self, connection: Connection, ranks: Sequence[int], group: Any, options: Any) -> None:
        """`ranks`: the processes of the group by their ranks in the job, `group`: the client's, None for all."""
        # The constructor of subclasses in Python takes no store.
        super().__init__(options.group_rank, options.group_size)  # pyright: ignore[reportCallIssue]
        self.connection = connection
        self._ranks = list(ranks)
        self._group = group
        self._timeout: timedelta = options.timeout
        self._name = options.group_id

    def getBackendName(self) -> str:
        """What torch calls it."""
        return "gradlane"

    @property
    def group_name(self) -> Any:
        """torch's name of the group."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """torch names the groups."""
        self._name = name

    def shutdown(self) -> None:
        """The end of one group among others needs nothing."""

    def abort(self) -> None:
        """As shutdown()."""
        self.shutdown()

    # Reductions.

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Work:
        """Reduces each tensor over the group, in place."""
        operation = _operation(opts)
        return self._work([self._all_reduce(tensor, operation) for tensor in tensors], tensors)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """Reduces to `opts.rootRank`; the others' tensors stay as they are."""
        operation = _operation(opts)
        return self._work([self._reduce(tensor, operation, opts.rootRank) for tensor in tensors], tensors)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """Rank k of the group gets the k-th part of the reduced input."""
        return self._work([self._reduce_scatter(output, [input], _operation(opts))], [output])

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Several at once."""
        operation = _operation(opts)
        pairs = zip(outputs, inputs, strict=True)
        return self._work([self._reduce_scatter(output, [input], operation) for output, input in pairs], outputs)

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None) -> Work:
        """The same from a list with a tensor for each rank."""
        operation = _operation(opts)
        pairs = zip(outputs, inputs, strict=True)
        return self._work([self._reduce_scatter(output, of_ranks, operation) for output, of_ranks in pairs], outputs)

    # Copies, of any type: they travel as bytes.

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """Everyone gets the tensors of `opts.rootRank`."""
        return self._work([self._broadcast(tensor, opts.rootRank) for tensor in tensors], tensors)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """Everyone gets all inputs, one after the other in the order of the ranks."""
        return self._work([self._all_gather([output], input)], [output])

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Several at once."""
        pairs = zip(outputs, inputs, strict=True)
        return self._work([self._all_gather([output], input) for output, input in pairs], outputs)

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Work:
        """The same into a list with a tensor for each rank."""
        pairs = zip(outputs, inputs, strict=True)
        return self._work([self._all_gather(of_ranks, input) for of_ranks, input in pairs], _flat(outputs))

    def allgather_coalesced(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """The same of several tensors: outputs[rank][k] takes input k of that rank."""
        by_input = [[of_rank[k] for of_rank in outputs] for k in range(len(inputs))]
        return self.allgather(by_input, inputs, opts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: list[int] | None,
        input_split_sizes: list[int] | None,
        opts: Any = None,
    ) -> Work:
        """Rank k gets the k-th part of everyone's input; parts are equal, or as many rows as the sizes say."""
        if not output_split_sizes and not input_split_sizes:
            return self._work([self._even_all_to_all(output, input)], [output])
        outputs = list(output.split(output_split_sizes or len(output) // self.size()))
        inputs = list(input.split(input_split_sizes or len(input) // self.size()))
        return self._work(self._exchange_parts(outputs, inputs), [output])

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Work:
        """The same from and into lists, whose tensors may differ in size."""
        return self._work(self._exchange_parts(outputs, inputs), outputs)

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Work:
        """`opts.rootRank` gets everyone's input."""
        root = opts.rootRank
        if self.rank() != root:
            return self._work([self._send(tensor, root, _GATHER) for tensor in inputs], [])
        steps: list[_Step | None] = []
        for of_ranks, input in zip(outputs, inputs, strict=True):
            of_ranks[root].copy_(input)
            steps += [self._receive(output, k, _GATHER) for k, output in enumerate(of_ranks) if k != root]
        return self._work(steps, _flat(outputs))

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Work:
        """Each rank gets its part of the inputs of `opts.rootRank`."""
        root = opts.rootRank
        if self.rank() != root:
            return self._work([self._receive(output, root, _SCATTER) for output in outputs], outputs)
        steps: list[_Step | None] = []
        for output, of_ranks in zip(outputs, inputs, strict=True):
            output.copy_(of_ranks[root])
            steps += [self._send(input, k, _SCATTER) for k, input in enumerate(of_ranks) if k != root]
        return self._work(steps, outputs)

    def send(self, tensors: list[torch.Tensor], dst_rank: int, tag: int) -> Work:
        """To a rank of the group."""
        return self._work([self._send(tensor, dst_rank, tag) for tensor in tensors], tensors)

    def recv(self, tensors: list[torch.Tensor], src_rank: int, tag: int) -> Work:
        """From a rank of the group."""
        return self._work([self._receive(tensor, src_rank, tag) for tensor in tensors], tensors)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Work:
        """Raises ValueError."""
        raise ValueError(
            "gradlane's recv must be told from which rank (src=): a message waits at its sender until then"
        )

    def barrier(self, opts: Any = None) -> Work:
        """Nobody goes on before all have come."""
        return self._work([_Step(self._start("barrier", None, None), _nothing)], [])

    # What PyTorch before 2.13 calls them.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # One exchange each.

    def _all_reduce(self, tensor: torch.Tensor, operation: Any) -> _Step | None:
        op = _named(operation, tensor.dtype)
        shared = self._filled([tensor], NAMES[tensor.dtype])
        return self._run("all_reduce", shared, shared, [tensor], op=op)

    def _reduce(self, tensor: torch.Tensor, operation: Any, root: int) -> _Step | None:
        op = _named(operation, tensor.dtype)
        shared = self._filled([tensor], NAMES[tensor.dtype])
        at_root = self.rank() == root
        target = self._empty(tensor.numel(), shared.dtype) if at_root else None
        return self._run("reduce", shared, target, [tensor] if at_root else [], op=op, root=root)

    def _reduce_scatter(self, output: torch.Tensor, inputs: Sequence[torch.Tensor], operation: Any) -> _Step | None:
        op = _named(operation, output.dtype)
        source = self._filled(inputs, NAMES[output.dtype])
        return self._run("reduce_scatter", source, self._empty(output.numel(), source.dtype), [output], op=op)

    def _broadcast(self, tensor: torch.Tensor, root: int) -> _Step | None:
        at_root = self.rank() == root
        shared = self._filled([tensor], "uint8") if at_root else self._empty(tensor.nbytes, "uint8")
        return self._run("broadcast", shared, shared, [] if at_root else [tensor], root=root)

    def _all_gather(self, outputs: Sequence[torch.Tensor], input: torch.Tensor) -> _Step | None:
        target = self._empty(input.nbytes * self.size(), "uint8")
        return self._run("all_gather", self._filled([input], "uint8"), target, outputs)

    def _even_all_to_all(self, output: torch.Tensor, input: torch.Tensor) -> _Step | None:
        return self._run("all_to_all", self._filled([input], "uint8"), self._empty(output.nbytes, "uint8"), [output])

    def _exchange_parts(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[_Step | None]:
        me = self.rank()
        outputs[me].copy_(inputs[me])
        others = [k for k in range(self.size()) if k != me]
        steps = [self._send(inputs[k], k, _ALL_TO_ALL) for k in others if inputs[k].numel()]
        return steps + [self._receive(outputs[k], k, _ALL_TO_ALL) for k in others if outputs[k].numel()]

    def _send(self, tensor: torch.Tensor, to: int, tag: int) -> _Step | None:
        return self._run("send", self._filled([tensor], "uint8"), None, [], root=to, tag=tag)

    def _receive(self, tensor: torch.Tensor, source: int, tag: int) -> _Step | None:
        return self._run("receive", None, self._empty(tensor.nbytes, "uint8"), [tensor], root=source, tag=tag)

    # Shared memory.

    def _empty(self, elements: int, dtype: str) -> _Shared:
        array = self.connection.empty(elements, dtype)
        return _Shared(array, as_tensor(array, dtype), dtype)

    def _filled(self, tensors: Sequence[torch.Tensor], dtype: str) -> _Shared:
        """The tensors one after the other; as "uint8", the bytes of tensors of any type."""
        shared = self._empty(sum(t.nbytes if dtype == "uint8" else t.numel() for t in tensors), dtype)
        for tensor, part in parts(shared.tensor, tensors):
            part.copy_(tensor)
        return shared

    def _run(
        self, kind: str, source: _Shared | None, target: _Shared | None, outputs: Sequence[torch.Tensor], **options: Any
    ) -> _Step | None:
        """Starts a collective; its finish copies the target to the outputs, one after the other."""
        shared = source or target
        if shared is None or shared.tensor.numel() == 0:
            return None
        exchange = self._start(kind, source, target, **options)

        def finish() -> None:
            if target is not None:
                for output, part in parts(target.tensor, outputs):
                    output.copy_(part)

        return _Step(exchange, finish)

    def _start(
        self, kind: str, source: _Shared | None, target: _Shared | None, op: str = "sum", root: int = 0, tag: int = 0
    ) -> Exchange:
        shared = source or target
        return self.connection.collective(
            kind,
            None if source is None else source.array,
            None if target is None else target.array,
            op=op,
            root=self._ranks[root],
            group=self._group,
            tag=tag,
            dtype=None if shared is None else shared.dtype,
        )

    def _work(self, steps: Sequence[_Step | None], tensors: Sequence[torch.Tensor]) -> Work:
        """`steps`: None for tensors without elements."""
        started = [step for step in steps if step is not None]

        def finish() -> None:
            for step in started:
                step.finish()

        return Work([step.exchange for step in started], finish, tensors, self._timeout)


class WorldGroup(ProcessGroup):
    """The group that joined the job: all of its processes. Its end is that of this process' part in the job."""

    def __init__(self, connection: Connection, options: Any) -> None:
        super().__init__(connection, range(options.group_size), None, options)
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """For the communication hook and `overlap`, in the same job."""
        if self._session is None:
            self._session = Session(self.connection)
        return self._session

    def shutdown(self) -> None:
        """Leaves the job in order. Raises AgentError if it has failed."""
        _world.pop("group", None)
        if self._session is None:
            self.connection.close()
        else:
            self._session.close()


_world: dict[str, tuple[WorldGroup, list[int]]] = {}  # "group": the one that joined, and its members' ranks in torch


def create(options: Any, _: Any) -> ProcessGroup:
    """What torch calls for a new group, with its _DistributedBackendOptions. Raises AgentError, JobError."""
    members = list(options.global_ranks_in_group) or list(range(options.group_size))
    if "group" not in _world:
        group = WorldGroup(rendezvous.join(options.store, options.group_rank, options.group_size), options)
        _world["group"] = group, members
        return group
    world, known = _world["group"]
    strangers = [rank for rank in members if rank not in known]
    if strangers:
        raise AgentError(f"ranks {strangers} are not in the job: it has {known}, those of the first gradlane group")
    ranks = [known.index(rank) for rank in members]
    return ProcessGroup(world.connection, ranks, world.connection.group(ranks, options.group_id), options)


def default_session() -> Session:
    """The session of the job that `init_process_group("gradlane")` has joined. Raises AgentError without one."""
    if "group" not in _world:
        raise AgentError('there is no job yet: call torch.distributed.init_process_group("gradlane") before')
    return _world["group"][0].session


def _nothing() -> None:
    return


def _flat(lists: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    return [tensor for one in lists for tensor in one]


def _operation(opts: Any) -> Any:
    return c10d.ReduceOp.SUM if opts is None else opts.reduceOp


def _named(operation: Any, dtype: torch.dtype) -> str:
    """The reduction's name on the wire. Raises ValueError with what to do instead."""
    operation = getattr(operation, "op", operation)
    if dtype not in NAMES:
        known = ", ".join(str(known).removeprefix("torch.") for known in NAMES)
        raise ValueError(f"gradlane does not reduce {dtype}: convert to one of {known}, or use a group of Gloo for it")
    name = (_OF_BOOL if dtype == torch.bool else _OPERATIONS).get(operation)
    if name is None or (name == "mean" and not dtype.is_floating_point):
        raise ValueError(
            f"gradlane does not do {operation} of {dtype}: SUM, MIN, MAX and PRODUCT of all types, AVG of floats, and "
            "BAND and BOR of bool are there; use a group of Gloo for others"
        )
    return name
