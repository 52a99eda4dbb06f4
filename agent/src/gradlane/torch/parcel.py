# SPDX-License-Identifier: Apache-2.0
"""Tensors that are exchanged together by a scheme of synchronisation."""

from collections.abc import Callable, Sequence

import torch

from gradlane.client.connection import Group
from gradlane.client.handle import Operation
from gradlane.errors import AgentError, PeerLost
from gradlane.sync.block import Block
from gradlane.torch.shared import as_tensor
from gradlane.torch.staging import Staging


def travels_as(dtype: torch.dtype) -> str:
    """The type in which values of that one are averaged. Raises ValueError if there is none."""
    if dtype == torch.float64:
        return "float64"
    if dtype in (torch.float32, torch.float16, torch.bfloat16):
        return "float32"
    raise ValueError(f"parameters of type {dtype} can't be averaged: float32, float16, bfloat16 and float64 can")


class Parcel:
    """A block of shared memory, and the tensors whose values it takes."""

    def __init__(
        self,
        block: Block,
        tensors: Callable[[], Sequence[torch.Tensor]],
        staging: Staging | None = None,
        moving: bool = False,
    ) -> None:
        """`tensors`: gives them, always of the same sizes. `staging`: for tensors on an accelerator. `moving`: they
        change while they are exchanged."""
        self.block = block
        self._tensors = tensors
        self._staging = staging
        self._memory = as_tensor(block.values, block.dtype)
        self._moving = moving
        self._sent: torch.Tensor | None = None
        self.due: Operation | None = None
        self.step = 0  # of the worker, before which the tensors get what is due

    def begin(self) -> None:
        """The tensors have what the training begins with."""
        self.fill()
        self.block.begin()

    def fill(self) -> None:
        """Gives the block the tensors' values; nothing may be due."""
        for tensor, part in self._pieces():
            part.copy_(tensor)

    def start(self, exchange: Callable[[], Operation], step: int) -> Operation:
        """Starts an exchange of the block once it has the tensors' values, which is over before that step; nothing may
        be due. Raises AgentError."""
        self.step = step
        if self._moving:
            self._sent = self._flat()
        self.due = self._run(exchange)
        return self.due

    def settle(self) -> None:
        """Waits for what is due, and gives it to the tensors. Raises AgentError."""
        sent = self._sent
        if self._came():
            self.block.finish(None if sent is None else (self._flat() - sent).numpy())
            self.deliver()

    def discard(self) -> None:
        """Waits for what is due, and leaves the tensors as they are. Raises AgentError."""
        self._came()

    def _came(self) -> bool:
        """Waits for what is due, which then is not; whether it is there. Without it the tensors keep what this worker
        has."""
        if self.due is None:
            return False
        try:
            self.due.wait()  # which other exceptions may end, as of Ctrl-C: it stays due
        except AgentError as error:
            self.due = self._sent = None
            if isinstance(error, PeerLost):
                return False
            raise
        self.due = self._sent = None
        return True

    def average(self, group: Group) -> None:
        """Makes the tensors' mean in the group, whatever the scheme, which is then there to `deliver`. Raises
        AgentError."""
        self._run(lambda: self.block.average(group)).wait()
        self.block.averaged(group)

    def _run(self, start: Callable[[], Operation]) -> Operation:
        if self._staging is not None:
            return self._staging.fetch(self._pieces(), start)
        self.fill()
        return start()

    def _flat(self) -> torch.Tensor:
        return torch.cat([tensor.flatten().to(self._memory) for tensor, _ in self._pieces()])

    def deliver(self) -> None:
        """Gives the tensors what has come."""
        for tensor, part in self._pieces():
            if tensor.dtype != part.dtype:
                part.copy_(part.to(tensor.dtype))
            tensor.copy_(part)
        self.block.taken()

    def _pieces(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        tensors = [tensor.detach() for tensor in self._tensors()]
        sizes = [tensor.numel() for tensor in tensors]
        if sum(sizes) != self._memory.numel():
            raise RuntimeError(f"the model's buffers had {self._memory.numel()} floats, and now have {sum(sizes)}")
        return [(t, part.view(t.shape)) for t, part in zip(tensors, self._memory.split(sizes), strict=True)]
