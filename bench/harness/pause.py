# SPDX-License-Identifier: Apache-2.0
"""Computation that is a pause: hosts that share a few cores don't take it from one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class _Pause(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> torch.Tensor:
        inputs, forward, ctx.pause = args
        forward()
        return inputs.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Any:
        ctx.pause()
        return grad_outputs[0], None, None


def paused(inputs: torch.Tensor, forward: Callable[[], None], backward: Callable[[], None]) -> torch.Tensor:
    """A copy of the inputs, after `forward` has slept; and in the backward pass their gradient, after `backward`."""
    outputs = _Pause.apply(inputs, forward, backward)
    assert isinstance(outputs, torch.Tensor)
    return outputs
