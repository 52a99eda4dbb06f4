# SPDX-License-Identifier: Apache-2.0
"""Collectives of a group of processes on torch's tensors, through shared memory."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch._C import _distributed_c10d as c10d

from gradlane.client.connection import Connection
from gradlane.client.handle import Operation
from gradlane.torch.shared import NAMES, as_tensor, lent, parts

_REDUCTIONS = {
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


# What may have the same memory for its input and its output.
_IN_PLACE = ("all_reduce", "reduce", "broadcast")


class _Shared(NamedTuple):
    """Memory for one collective: as the client takes it, and as torch sees it. `lent`: it is that of a tensor."""

    array: npt.NDArray[Any]
    tensor: torch.Tensor
    dtype: str
    lent: bool = False


class Started(NamedTuple):
    """A collective that has been started, and what brings its result to its tensors."""

    operation: Operation
    finish: Callable[[], None]


class Collectives:
    """Starts the collectives of one group. Roots and peers are ranks within it.

    Copies are of any type: they travel as bytes. Tensors without elements start nothing: the result is None.
    """

    def __init__(self, connection: Connection, ranks: Sequence[int], group: Any, rank: int) -> None:
        """`ranks`: the processes of the group by their ranks in the job; `group`: the client's, None for all; `rank`:
        this process' in the group."""
        self._connection = connection
        self._ranks = list(ranks)
        self._group = group
        self._rank = rank

    def all_reduce(self, tensor: torch.Tensor, reduction: Any) -> Started | None:
        """In place."""
        op = _named(reduction, tensor.dtype)
        shared = self._filled([tensor], NAMES[tensor.dtype])
        return self._run("all_reduce", shared, shared, [tensor], op=op)

    def reduce(self, tensor: torch.Tensor, reduction: Any, root: int) -> Started | None:
        """In place at the root; the others' tensors stay as they are."""
        op = _named(reduction, tensor.dtype)
        shared = self._filled([tensor], NAMES[tensor.dtype])
        at_root = self._rank == root
        target = self._target([tensor], tensor.numel(), shared.dtype) if at_root else None
        return self._run("reduce", shared, target, [tensor] if at_root else [], op=op, root=root)

    def reduce_scatter(self, output: torch.Tensor, inputs: Sequence[torch.Tensor], reduction: Any) -> Started | None:
        """Each rank gets its part of the inputs, which lie one after the other."""
        op = _named(reduction, output.dtype)
        source = self._filled(inputs, NAMES[output.dtype])
        target = self._target([output], output.numel(), source.dtype)
        return self._run("reduce_scatter", source, target, [output], op=op)

    def broadcast(self, tensor: torch.Tensor, root: int) -> Started | None:
        """In place."""
        at_root = self._rank == root
        shared = self._filled([tensor], "uint8") if at_root else self._target([tensor], tensor.nbytes, "uint8")
        return self._run("broadcast", shared, shared, [] if at_root else [tensor], root=root)

    def all_gather(self, outputs: Sequence[torch.Tensor], input: torch.Tensor) -> Started | None:
        """Fills the outputs, one after the other, with everyone's input."""
        target = self._target(outputs, input.nbytes * len(self._ranks), "uint8")
        return self._run("all_gather", self._filled([input], "uint8"), target, outputs)

    def all_to_all(self, output: torch.Tensor, input: torch.Tensor) -> Started | None:
        """Of equal parts."""
        target = self._target([output], output.nbytes, "uint8")
        return self._run("all_to_all", self._filled([input], "uint8"), target, [output])

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Started | None:
        """To one rank, which receives with the same tag."""
        return self._run("send", self._filled([tensor], "uint8"), None, [], root=to, tag=tag)

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Started | None:
        """From one rank."""
        target = self._target([tensor], tensor.nbytes, "uint8")
        return self._run("receive", None, target, [tensor], root=source, tag=tag)

    def barrier(self) -> Started:
        """Over when all have come."""
        return Started(self._start("barrier", None, None), _nothing)

    def _empty(self, elements: int, dtype: str) -> _Shared:
        array = self._connection.empty(elements, dtype)
        return _Shared(array, as_tensor(array, dtype), dtype)

    def _lent(self, tensors: Sequence[torch.Tensor], dtype: str) -> _Shared | None:
        """The memory of the one tensor, if the agent can take it."""
        array = lent(tensors[0], dtype) if len(tensors) == 1 else None
        if array is None or not self._connection.takes(array):
            return None
        return _Shared(array, tensors[0].detach(), dtype, True)

    def _target(self, outputs: Sequence[torch.Tensor], elements: int, dtype: str) -> _Shared:
        """Where what is for the outputs comes to."""
        return self._lent(outputs, dtype) or self._empty(elements, dtype)

    def _filled(self, tensors: Sequence[torch.Tensor], dtype: str) -> _Shared:
        """The tensors one after the other; as "uint8", the bytes of tensors of any type."""
        return self._lent(tensors, dtype) or self._copied(tensors, dtype)

    def _copied(self, tensors: Sequence[torch.Tensor], dtype: str) -> _Shared:
        shared = self._empty(sum(t.nbytes if dtype == "uint8" else t.numel() for t in tensors), dtype)
        for tensor, part in parts(shared.tensor, tensors):
            part.copy_(tensor)
        return shared

    def _run(
        self, kind: str, source: _Shared | None, target: _Shared | None, outputs: Sequence[torch.Tensor], **options: Any
    ) -> Started | None:
        """Starts a collective; its finish copies the target to the outputs, one after the other."""
        shared = source or target
        if shared is None or shared.tensor.numel() == 0:
            return None
        divided = options.get("op") == "mean" and not shared.tensor.is_floating_point()  # agents' means are of floats
        if divided:
            options["op"] = "sum"
        if source and target and source.lent and kind not in _IN_PLACE and np.may_share_memory(source[0], target[0]):
            source = self._copied([source.tensor], source.dtype)
        operation = self._start(kind, source, target, **options)

        def finish() -> None:
            if target is not None and not target.lent:
                for output, part in parts(target.tensor, outputs):
                    output.copy_(part)
            for output in outputs if divided else ():
                output.div_(len(self._ranks), rounding_mode="trunc")  # as NCCL

        return Started(operation, finish)

    def _start(
        self, kind: str, source: _Shared | None, target: _Shared | None, op: str = "sum", root: int = 0, tag: int = 0
    ) -> Operation:
        shared = source or target
        return self._connection.collective(
            kind,
            None if source is None else source.array,
            None if target is None else target.array,
            op=op,
            root=self._ranks[root],
            group=self._group,
            tag=tag,
            dtype=None if shared is None else shared.dtype,
        )


def _nothing() -> None:
    return


def _named(reduction: Any, dtype: torch.dtype) -> str:
    """The reduction's name on the wire. Raises ValueError with what to do instead."""
    reduction = getattr(reduction, "op", reduction)
    if dtype not in NAMES:
        known = ", ".join(str(known).removeprefix("torch.") for known in NAMES)
        raise ValueError(f"gradlane does not reduce {dtype}: convert to one of {known}, or use a group of Gloo for it")
    name = (_OF_BOOL if dtype == torch.bool else _REDUCTIONS).get(reduction)
    if name is None:
        raise ValueError(
            f"gradlane does not do {reduction} of {dtype}: SUM, MIN, MAX and PRODUCT of all types, AVG of numbers, and "
            "BAND and BOR of bool are there; use a group of Gloo for others"
        )
    return name
