# SPDX-License-Identifier: Apache-2.0
"""DeAR (arXiv 2302.12445) on torch.distributed: each half of a ring all-reduce hides behind another half of the step.

Gradients are reduced and scattered while the backward pass makes others. What each rank then owns is gathered while the
next forward pass runs, the front layers first; a layer is updated when its own has arrived. Reduce-scatter and
all-gather are rings of isend and irecv: Gloo's own reduce_scatter is an all-reduce of which most is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class _Part:
    """A layer whose gradients travel together, in as many chunks as there are ranks."""

    def __init__(self, layer: nn.Module, make: Make) -> None:
        self.parameters = list(layer.parameters())
        self.optimizer = make(self.parameters)
        self.missing = len(self.parameters)  # gradients that the backward pass has not made yet
        self.due: Future[None] | None = None
        self._size = dist.get_world_size()
        self._rank = dist.get_rank()
        self._count = sum(p.numel() for p in self.parameters)
        self._flat = torch.zeros(-(-self._count // self._size) * self._size)
        self._chunks = self._flat.chunk(self._size)
        self._arriving = torch.empty_like(self._chunks[0])

    def take(self) -> None:
        """Copies the gradients, so that the training loop may do with its own what it likes."""
        torch.cat([p.grad.flatten() for p in self.parameters if p.grad is not None], out=self._flat[: self._count])

    def reduce_scatter(self) -> None:
        """Makes the chunk of this rank's number the mean of all ranks'."""
        for step in range(1, self._size):
            self._exchange(self._rank - step, self._arriving)
            self._chunk(self._rank - step - 1).add_(self._arriving)
        self._chunk(self._rank).div_(self._size)

    def all_gather(self, reduced: Future[None] | None) -> None:
        """Makes the other chunks those of the ranks that own them, after `reduce_scatter`."""
        assert reduced is not None, "the backward pass did not use this layer"
        reduced.result()
        for step in range(self._size - 1):
            self._exchange(self._rank - step, self._chunk(self._rank - step - 1))

    def update(self) -> None:
        """A step of the optimizer with the mean gradients."""
        own = [p.grad for p in self.parameters]
        means = self._flat[: self._count].split([p.numel() for p in self.parameters])
        for parameter, mean in zip(self.parameters, means, strict=True):
            parameter.grad = mean.view_as(parameter)
        self.optimizer.step()
        for parameter, gradient in zip(self.parameters, own, strict=True):
            parameter.grad = gradient

    def _exchange(self, number: int, arriving: torch.Tensor) -> None:
        """Sends a chunk to the next rank, and receives one from the rank before."""
        # In this order, or Gloo sends and receives one after the other.
        receiving = dist.irecv(arriving, (self._rank - 1) % self._size)
        sending = dist.isend(self._chunk(number), (self._rank + 1) % self._size)
        assert sending is not None
        assert receiving is not None
        receiving.wait()
        sending.wait()

    def _chunk(self, number: int) -> torch.Tensor:
        return self._chunks[number % self._size]


class Dear:
    """Takes the place of DistributedDataParallel and of the optimizer.

    Nothing else may use torch.distributed between `step` and `close`. Every step uses all parameters once.
    """

    def __init__(self, layers: Sequence[nn.Module], make: Make) -> None:
        """`layers`: from the input on; a layer's forward pass begins when its parameters are up to date, float32 on the
        CPU. `make`: an optimizer for some of the parameters."""
        self._thread = ThreadPoolExecutor(1)  # one task after the other, in an order that is the same at all ranks
        self._parts = [_Part(layer, make) for layer in layers]
        self._ends: list[Any] = []
        for layer, part in zip(layers, self._parts, strict=True):
            self._ends.append(layer.register_forward_pre_hook(self._forward(part)))
            for parameter in part.parameters:
                dist.broadcast(parameter.detach(), 0)
                self._ends.append(parameter.register_post_accumulate_grad_hook(self._backward(part)))

    def zero_grad(self) -> None:
        """As in torch."""
        for part in self._parts:
            part.optimizer.zero_grad()

    def step(self) -> None:
        """All that was reduced is gathered, the front layers first; it does not wait."""
        for part in self._parts:
            part.due = self._thread.submit(part.all_gather, part.due)

    def synchronize(self) -> None:
        """Does all updates that are due."""
        for part in self._parts:
            self._settle(part)

    def close(self) -> None:
        """Gives the model back, up to date."""
        self.synchronize()
        for end in self._ends:
            end.remove()
        self._thread.shutdown()

    def _forward(self, part: _Part) -> Callable[[nn.Module, Any], None]:
        return lambda _, __: self._settle(part)

    def _backward(self, part: _Part) -> Callable[[torch.Tensor], None]:
        def made(_: torch.Tensor) -> None:
            if part.due is not None:
                raise RuntimeError("a layer was used before its update was done")
            part.missing -= 1
            if not part.missing:
                part.missing = len(part.parameters)
                part.take()
                part.due = self._thread.submit(part.reduce_scatter)

        return made

    def _settle(self, part: _Part) -> None:
        due, part.due = part.due, None
        if due is not None:
            due.result()
            part.update()
