# SPDX-License-Identifier: Apache-2.0
# pyright: reportPrivateUsage=false
"""Parameters whose gradients travel together, in training without a barrier."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradlane.client.handle import Operation
from gradlane.torch.bucket import Bucket


class Portion:
    """Parameters whose gradients travel together, and their state.

    First `ready` fills up; then `operation` is in flight; `options` are set by step(): the update that is due.
    """

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        # The gradient that was sent and its version then: so a change afterwards is noticed.
        self.ready: dict[torch.nn.Parameter, tuple[torch.Tensor, int]] = {}
        self.operation: Operation | None = None
        self.options: list[dict[str, Any]] | None = None

    @property
    def parameters(self) -> tuple[torch.nn.Parameter, ...]:
        """In the order of the model."""
        return self.bucket.parameters

    def add(self, parameter: torch.nn.Parameter) -> None:
        """The parameter's gradient is complete."""
        assert parameter.grad is not None
        self.ready[parameter] = (parameter.grad, parameter.grad._version)

    def send(self) -> Operation:
        """Starts the operation; what is not ready counts as zero."""
        self.operation = self.bucket.start([p.grad if p in self.ready else None for p in self.parameters])
        return self.operation

    def holds(self, parameter: torch.nn.Parameter) -> bool:
        """Whether the parameter still has the very gradient that was sent."""
        gradient, version = self.ready.get(parameter, (None, 0))
        return gradient is not None and parameter.grad is gradient and gradient._version == version

    def reset(self) -> None:
        """Nothing is in flight or due."""
        self.ready.clear()
        self.operation = None
        self.options = None


def alike(
    parameters: Sequence[torch.nn.Parameter], kind: Callable[[torch.dtype], str]
) -> list[list[torch.nn.Parameter]]:
    """Parameters of types of one kind, wherever they are in the model."""
    portions: dict[str, list[torch.nn.Parameter]] = {}
    for parameter in parameters:
        portions.setdefault(kind(parameter.dtype), []).append(parameter)
    return list(portions.values())


def neighbours(parameters: Sequence[torch.nn.Parameter], most: int) -> list[list[torch.nn.Parameter]]:
    """Parameters next to each other in the model, of one type and device, at most `most` bytes unless one is larger."""
    portions: list[list[torch.nn.Parameter]] = []
    size = 0
    for parameter in parameters:
        last = portions[-1][-1] if portions else None
        alike = last is not None and (last.dtype, last.device) == (parameter.dtype, parameter.device)
        if not alike or size + parameter.nbytes > most:
            portions.append([])
            size = 0
        portions[-1].append(parameter)
        size += parameter.nbytes
    return portions
