# SPDX-License-Identifier: Apache-2.0
"""A model that learns, and takes as long to compute as it is told."""

import itertools
import time
from collections.abc import Sequence

import torch
from torch import nn

from bench.harness.pause import paused

_FORWARD = 1 / 3  # of a step's computation


class Pauses:
    """What the layers of a model sleep, the same in each: a third of it in the forward pass. Seconds."""

    def __init__(self, layers: int) -> None:
        self._layers = layers
        self.step = 0.0  # set it before each step
        self.told = 0.0  # so far
        self.slept = 0.0

    def forward(self) -> None:
        """Of one layer."""
        self._sleep(_FORWARD)

    def backward(self) -> None:
        """Of one layer."""
        self._sleep(1 - _FORWARD)

    def _sleep(self, part: float) -> None:
        began = time.monotonic()
        seconds = self.step * part / self._layers
        self.told += seconds
        time.sleep(seconds)
        self.slept += time.monotonic() - began


class _Layer(nn.Module):
    def __init__(self, pauses: Pauses, inputs: int, outputs: int, last: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        # He's initialisation: from PyTorch's own half of all steps is spent on the plateau at the start.
        nn.init.kaiming_normal_(self.linear.weight, nonlinearity="relu")
        nn.init.zeros_(self.linear.bias)
        self._pauses, self._last = pauses, last

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.linear(inputs)
        return paused(outputs if self._last else outputs.relu(), self._pauses.forward, self._pauses.backward)


def perceptron(widths: Sequence[int]) -> tuple[nn.Module, Pauses]:
    """Linear layers of such widths with ReLU between them, and what they sleep."""
    count = len(widths) - 1
    pauses = Pauses(count)
    layers = [_Layer(pauses, widths[k], widths[k + 1], k == count - 1) for k in range(count)]
    return nn.Sequential(nn.Flatten(), *layers), pauses


def widths(width: int) -> tuple[int, ...]:
    """Of the benchmark's model: from the 64 pixels of a digit to 10 classes."""
    return 64, width, width, width, 10


def parameters(width: int) -> int:
    """How many that model has."""
    return sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(widths(width)))
