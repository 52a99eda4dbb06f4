# SPDX-License-Identifier: Apache-2.0
# torch's annotations list every overload of its C++ class; what it calls in Python is one of them.
# pyright: reportIncompatibleMethodOverride=false, reportAssignmentType=false
"""The backend "gradlane" of torch.distributed: its collectives over the agents, all of them exact.

import gradlane.torch
torch.distributed.init_process_group("gradlane")
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from gradlane.client.connection import Connection
from gradlane.torch.collectives import Collectives, Started
from gradlane.torch.work import Work, untraced

# torch numbers the messages of send and recv as the caller likes; those within collectives keep away from them.
_GATHER, _SCATTER, _ALL_TO_ALL = 0x7FFFFFF0, 0x7FFFFFF1, 0x7FFFFFF2


@untraced
class ProcessGroup(dist.ProcessGroup):
    """A group of the job's processes. Tensors of accelerators are copied to the host and back.

    Every method that torch calls gives a Work, whose wait() raises gradlane.AgentError naming the culprit.
    """

    def __init__(self, connection: Connection, ranks: Sequence[int], group: Any, options: Any) -> None:
        """`ranks`: the processes of the group by their ranks in the job, `group`: the client's, None for all."""
        # The constructor of subclasses in Python takes no store.
        super().__init__(options.group_rank, options.group_size)  # pyright: ignore[reportCallIssue]
        self.connection = connection
        self._start = Collectives(connection, ranks, group, options.group_rank)
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
        reduction = _reduction(opts)
        return self._work([self._start.all_reduce(tensor, reduction) for tensor in tensors], tensors, opts)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """Reduces to `opts.rootRank`; the others' tensors stay as they are."""
        reduction = _reduction(opts)
        return self._work([self._start.reduce(tensor, reduction, opts.rootRank) for tensor in tensors], tensors, opts)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """Rank k of the group gets the k-th part of the reduced input."""
        return self._work([self._start.reduce_scatter(output, [input], _reduction(opts))], [output], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Several at once."""
        reduction = _reduction(opts)
        pairs = zip(outputs, inputs, strict=True)
        return self._work(
            [self._start.reduce_scatter(output, [input], reduction) for output, input in pairs], outputs, opts
        )

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None) -> Work:
        """The same from a list with a tensor for each rank."""
        reduction = _reduction(opts)
        pairs = zip(outputs, inputs, strict=True)
        return self._work(
            [self._start.reduce_scatter(output, of_ranks, reduction) for output, of_ranks in pairs], outputs, opts
        )

    # Copies, of any type: they travel as bytes.

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        """Everyone gets the tensors of `opts.rootRank`."""
        return self._work([self._start.broadcast(tensor, opts.rootRank) for tensor in tensors], tensors, opts)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """Everyone gets all inputs, one after the other in the order of the ranks."""
        return self._work([self._start.all_gather([output], input)], [output], opts)

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Work:
        """Several at once."""
        pairs = zip(outputs, inputs, strict=True)
        return self._work([self._start.all_gather([output], input) for output, input in pairs], outputs, opts)

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Work:
        """The same into a list with a tensor for each rank."""
        pairs = zip(outputs, inputs, strict=True)
        return self._work([self._start.all_gather(of_ranks, input) for of_ranks, input in pairs], _flat(outputs), opts)

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
            return self._work([self._start.all_to_all(output, input)], [output], opts)
        outputs = list(output.split(output_split_sizes or len(output) // self.size()))
        inputs = list(input.split(input_split_sizes or len(input) // self.size()))
        return self._work(self._uneven_all_to_all(outputs, inputs), [output], opts)

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Work:
        """The same from and into lists, whose tensors may differ in size."""
        return self._work(self._uneven_all_to_all(outputs, inputs), outputs, opts)

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Work:
        """`opts.rootRank` gets everyone's input."""
        root = opts.rootRank
        if self.rank() != root:
            return self._work([self._start.send(tensor, root, _GATHER) for tensor in inputs], [], opts)
        started: list[Started | None] = []
        for of_ranks, input in zip(outputs, inputs, strict=True):
            of_ranks[root].copy_(input)
            started += [self._start.receive(output, k, _GATHER) for k, output in enumerate(of_ranks) if k != root]
        return self._work(started, _flat(outputs), opts)

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Work:
        """Each rank gets its part of the inputs of `opts.rootRank`."""
        root = opts.rootRank
        if self.rank() != root:
            return self._work([self._start.receive(output, root, _SCATTER) for output in outputs], outputs, opts)
        started: list[Started | None] = []
        for output, of_ranks in zip(outputs, inputs, strict=True):
            output.copy_(of_ranks[root])
            started += [self._start.send(input, k, _SCATTER) for k, input in enumerate(of_ranks) if k != root]
        return self._work(started, outputs, opts)

    def send(self, tensors: list[torch.Tensor], dst_rank: int, tag: int) -> Work:
        """To a rank of the group."""
        return self._work([self._start.send(tensor, dst_rank, tag) for tensor in tensors], tensors)

    def recv(self, tensors: list[torch.Tensor], src_rank: int, tag: int) -> Work:
        """From a rank of the group."""
        return self._work([self._start.receive(tensor, src_rank, tag) for tensor in tensors], tensors)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Work:
        """Raises ValueError."""
        raise ValueError(
            "gradlane's recv needs the sender's rank (src=): a message waits at its sender until it is asked for"
        )

    def barrier(self, opts: Any = None) -> Work:
        """No rank continues before all have called it."""
        return self._work([self._start.barrier()], [], opts)

    # What PyTorch before 2.13 calls them.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _uneven_all_to_all(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
    ) -> list[Started | None]:
        me, start = self.rank(), self._start
        outputs[me].copy_(inputs[me])
        others = [k for k in range(self.size()) if k != me]
        sends = [start.send(inputs[k], k, _ALL_TO_ALL) for k in others if inputs[k].numel()]
        return sends + [start.receive(outputs[k], k, _ALL_TO_ALL) for k in others if outputs[k].numel()]

    def _work(self, collectives: Sequence[Started | None], tensors: Sequence[torch.Tensor], opts: Any = None) -> Work:
        """`collectives`: None for tensors without elements. `opts`: torch's; newer ones say who waits at once."""
        started = [one for one in collectives if one is not None]

        def finish() -> None:
            for one in started:
                one.finish()

        awaited = not getattr(opts, "asyncOp", True)
        return Work([one.operation for one in started], finish, tensors, self._timeout, awaited)


def _flat(lists: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    return [tensor for one in lists for tensor in one]


def _reduction(opts: Any) -> Any:
    return c10d.ReduceOp.SUM if opts is None else opts.reduceOp
