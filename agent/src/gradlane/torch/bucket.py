# SPDX-License-Identifier: Apache-2.0
"""Gradients that travel as one tensor: a bucket's shared memory as torch sees it."""

import itertools
from collections.abc import Callable, Sequence

import torch

from gradlane.client.connection import Connection
from gradlane.client.handle import Operation, Together
from gradlane.errors import AgentError
from gradlane.torch.shared import NAMES, as_array, as_tensor
from gradlane.torch.staging import Staging, pin


def wire_name(dtype: torch.dtype, wire: str) -> str:
    """How gradients of `dtype` travel: the job's `wire` narrows float32 alone. Raises AgentError."""
    if dtype == torch.float32:
        return wire
    if dtype not in (torch.float16, torch.bfloat16, torch.float64):
        raise AgentError(f"gradients of type {dtype} can't be reduced: float32, float16, bfloat16 and float64 can")
    return NAMES[dtype]


class Bucket:
    """Some parameters' gradients, flattened one after the other."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        parameters: Sequence[torch.nn.Parameter],
        layers: Sequence[int],
        staging: Staging | None,
    ) -> None:
        """`layers`: of each parameter. `staging`: for gradients on an accelerator. Raises AgentError."""
        first = parameters[0]
        self.parameters = tuple(parameters)
        self.dtype = first.dtype
        self.device = first.device
        self.ends = list(itertools.accumulate(parameter.numel() for parameter in parameters))
        self._staging = staging
        wire = wire_name(self.dtype, connection.job.transport.floats)
        starts = [0, *self.ends[:-1]]
        spans = [
            (start, layer)
            for parameter, start, layer in zip(parameters, starts, layers, strict=True)
            if parameter.numel()
        ]
        self._tensor = connection.tensor(name, self.ends[-1], wire, spans)
        self._contribution = as_tensor(self._tensor.contribution, wire)
        self._result = as_tensor(self._tensor.result, wire)
        # Integers know neither infinity nor NaN, so workers tell each other apart whether their gradients have any.
        self._not_finite = None
        if connection.job.sum_lanes is not None:
            self._not_finite = connection.tensor(
                f"{name}.not-finite", 1, "uint8", op="max", exact=True, follows=self._tensor
            )
        self._unpin = (
            [pin(memory) for memory in (self._contribution, self._result)] if self.device.type == "cuda" else []
        )

    def start(self, gradients: Sequence[torch.Tensor | None]) -> Operation:
        """Takes over the gradients, one per parameter or all in one flat tensor, and starts their mean.

        None counts as zero. Raises AgentError if the job has failed.
        """
        pieces: list[tuple[torch.Tensor, torch.Tensor]] = []
        start = 0
        for gradient, end in zip(gradients, self.ends if len(gradients) > 1 else self.ends[-1:], strict=True):
            target = self._contribution[start:end]
            if gradient is None:
                target.zero_()
            else:
                pieces.append((gradient.detach(), target.view(gradient.shape)))
            start = end
        if self._staging is not None:
            return self._staging.fetch(pieces, self._submit)
        for source, target in pieces:
            target.copy_(source)  # also converts to the wire's type
        return self._submit()

    def _submit(self) -> Operation:
        if self._not_finite is None:
            return self._tensor.submit()
        extremes = torch.stack(torch.aminmax(self._contribution))  # NaN if there is any
        self._not_finite.contribution[0] = spoilt = not extremes.isfinite().all()
        if spoilt:
            self._contribution.zero_()  # so that it is not owed either, if the others have gone on without this worker
        return Together(self._tensor.submit(), self._not_finite.submit())

    def _mean(self) -> torch.Tensor:
        """The flat mean, in shared memory: NaN throughout if any worker's gradients are not finite."""
        if self._not_finite is not None and self._not_finite.result[0]:
            self._result.fill_(torch.nan)
        return self._result

    def result(self) -> torch.Tensor:
        """The flat mean after the operation, of the gradients' type and device.

        It may be the shared memory itself: valid until the next `start`.
        """
        return self._mean().to(self.device, self.dtype, non_blocking=True)

    def deliver(self, target: torch.Tensor, then: Callable[[torch.Tensor], None]) -> None:
        """Calls `then` with the flat mean: on an accelerator in `target`, from the stream that fills it."""
        if self._staging is None:
            then(self.result())  # DDP copies it to where it wants to have it
        else:
            self._staging.deliver(self._mean(), target, lambda: then(target))

    def means(self) -> list[torch.Tensor]:
        """The mean of each parameter's gradient, in its shape. As `result`, valid until the next `start`."""
        flat = self.result()
        return [flat[end - p.numel() : end].view(p.shape) for p, end in zip(self.parameters, self.ends, strict=True)]

    def residuals(self) -> list[torch.Tensor]:
        """What the network dropped of each parameter's gradient and the next operation will carry: copies, flat."""
        name = NAMES[self._contribution.dtype]
        flat = as_tensor(self._tensor.residual(), name)
        return [flat[end - p.numel() : end].clone() for p, end in zip(self.parameters, self.ends, strict=True)]

    def load_residuals(self, residuals: Sequence[torch.Tensor]) -> None:
        """Puts back what `residuals` gave."""
        flat = torch.cat([residual.reshape(-1).cpu() for residual in residuals]).to(self._contribution.dtype)
        self._tensor.load_residual(as_array(flat))

    def close(self) -> None:
        """Gives the shared memory back; nothing may be in flight."""
        for unpin in self._unpin:
            unpin()
        if self._not_finite is not None:
            self._not_finite.close()
        self._tensor.close()
