# SPDX-License-Identifier: Apache-2.0
"""Collectives of a group of processes on torch's tensors, through shared memory."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy.typing as npt
import torch
from torch._C import _distributed_c10d as c10d

from gradlane.client.connection import Connection
from gradlane.client.handle import Operation
from gradlane.torch.shared import NAMES, as_tensor, parts

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


class _Shared(NamedTuple):
    """Shared memory for one collective: as the client takes it, and as torch sees it."""

    array: npt.NDArray[Any]
    tensor: torch.Tensor
    dtype: str


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
        target = self._empty(tensor.numel(), shared.dtype) if at_root else None
        return self._run("reduce", shared, target, [tensor] if at_root else [], op=op, root=root)

    def reduce_scatter(self, output: torch.Tensor, inputs: Sequence[torch.Tensor], reduction: Any) -> Started | None:
        """Each rank gets its part of the inputs, which lie one after the other."""
        op = _named(reduction, output.dtype)
        source = self._filled(inputs, NAMES[output.dtype])
        return self._run("reduce_scatter", source, self._empty(output.numel(), source.dtype), [output], op=op)

    def broadcast(self, tensor: torch.Tensor, root: int) -> Started | None:
        """In place."""
        at_root = self._rank == root
        shared = self._filled([tensor], "uint8") if at_root else self._empty(tensor.nbytes, "uint8")
        return self._run("broadcast", shared, shared, [] if at_root else [tensor], root=root)

    def all_gather(self, outputs: Sequence[torch.Tensor], input: torch.Tensor) -> Started | None:
        """Fills the outputs, one after the other, with everyone's input."""
        target = self._empty(input.nbytes * len(self._ranks), "uint8")
        return self._run("all_gather", self._filled([input], "uint8"), target, outputs)

    def all_to_all(self, output: torch.Tensor, input: torch.Tensor) -> Started | None:
        """Of equal parts."""
        return self._run("all_to_all", self._filled([input], "uint8"), self._empty(output.nbytes, "uint8"), [output])

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Started | None:
        """To one rank, which receives with the same tag."""
        return self._run("send", self._filled([tensor], "uint8"), None, [], root=to, tag=tag)

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Started | None:
        """From one rank."""
        return self._run("receive", None, self._empty(tensor.nbytes, "uint8"), [tensor], root=source, tag=tag)

    def barrier(self) -> Started:
        """Over when all have come."""
        return Started(self._start("barrier", None, None), _nothing)

    def _empty(self, elements: int, dtype: str) -> _Shared:
        array = self._connection.empty(elements, dtype)
        return _Shared(array, as_tensor(array, dtype), dtype)

    def _filled(self, tensors: Sequence[torch.Tensor], dtype: str) -> _Shared:
        """The tensors one after the other; as "uint8", the bytes of tensors of any type."""
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
        operation = self._start(kind, source, target, **options)

        def finish() -> None:
            if target is not None:
                for output, part in parts(target.tensor, outputs):
                    output.copy_(part)

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
    if name is None or (name == "mean" and not dtype.is_floating_point):
        raise ValueError(
            f"gradlane does not do {reduction} of {dtype}: SUM, MIN, MAX and PRODUCT of all types, AVG of floats, and "
            "BAND and BOR of bool are there; use a group of Gloo for others"
        )
    return name
