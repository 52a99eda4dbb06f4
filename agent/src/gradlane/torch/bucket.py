# SPDX-License-Identifier: Apache-2.0
"""Gradients that travel as one tensor: a bucket's shared memory as torch sees it."""

import itertools
import math
from collections.abc import Callable, Sequence

import torch

from gradlane.client.connection import Connection
from gradlane.client.handle import Operation
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
        # Integers know neither infinity nor NaN, so an element more says whether any of a worker's gradients are.
        self._says_if_finite = int(connection.job.sum_lanes is not None)
        self._tensor = connection.tensor(name, self.ends[-1] + self._says_if_finite, wire, spans)
        self._contribution = as_tensor(self._tensor.contribution, wire)
        self._result = as_tensor(self._tensor.result, wire)
        if self.device.type == "cuda":
            pin(self._tensor.memory, self)

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
        if self._says_if_finite:
            gradients = self._contribution[:-1]
            finite = math.isfinite(gradients.sum()) or bool(gradients.isfinite().all())  # a sum can overflow
            self._contribution[-1] = 0 if finite else math.inf  # of which no integer owes anything
            if not finite:
                gradients.zero_()
        return self._tensor.submit()

    def _mean(self) -> torch.Tensor:
        """The flat mean, in shared memory: NaN throughout if it has gradients of a worker that are not finite."""
        mean = self._result[: self.ends[-1]]
        if self._says_if_finite and self._result[-1] > 0:
            mean.fill_(torch.nan)
        return mean

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
        parts = [residual.reshape(-1).cpu() for residual in residuals]
        flat = torch.cat([*parts, torch.zeros(self._says_if_finite)]).to(self._contribution.dtype)
        self._tensor.load_residual(as_array(flat))

    def close(self) -> None:
        """Gives the shared memory back; nothing may be in flight."""
        self._tensor.close()
