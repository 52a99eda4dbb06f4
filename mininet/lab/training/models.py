# SPDX-License-Identifier: Apache-2.0
"""The models: small to compute, wide enough that communication dominates a step at 100 Mbit/s."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from lab.training import data
from lab.training.data import CONTEXT, Dataset

BYTES = 256


@dataclass(frozen=True)
class Task:
    """A model, its data and its goal.

    build: width -> model that maps a batch of inputs to logits (..., classes).
    metric, target: what is evaluated on the test set, and the value that counts as reached: "accuracy" from below,
    "loss" (nats) from above.
    learning_rate, warmup: Adam's peak rate, and the steps over which it rises to it.
    """

    load: Callable[[], Dataset]
    build: Callable[[int], nn.Module]
    metric: str
    target: float
    learning_rate: float
    warmup: int

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over the batch, in nats."""
        return functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())

    @torch.no_grad()
    def evaluate(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
        """The metric on these examples."""
        if self.metric == "loss":
            return float(self.loss(model, inputs, targets))
        return float((model(inputs).argmax(-1) == targets).float().mean())

    def reached(self, value: float) -> bool:
        """Whether this value of the metric meets the target."""
        return value <= self.target if self.metric == "loss" else value >= self.target

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step of `steps`: it rises linearly, then falls as half a cosine (SGDR, 1608.03983).

        At a constant rate the final accuracy depends on the last few steps, by points, whatever the arm.
        """
        decay = 0.5 * (1 + math.cos(math.pi * step / steps))
        return self.learning_rate * min(1.0, (step + 1) / (self.warmup + 1)) * decay


class ConvolutionalNetwork(nn.Module):
    """(n, 1, 8, 8) -> (n, 10). `width` is that of the two hidden linear layers, and twice the last convolution's
    channels; the number of parameters goes with its square. 256: 291 thousand."""

    def __init__(self, width: int) -> None:
        super().__init__()
        first, second, third = width // 8, width // 4, width // 2
        self.features = nn.Sequential(
            nn.Conv2d(1, first, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(first, second, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(second, third, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.classifier = nn.Sequential(
            nn.Linear(4 * third, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return self.classifier(self.features(inputs))


class Block(nn.Module):
    """One layer of a decoder: causal self-attention and a feed-forward network, both on normalised input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.projections = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        projected = self.projections(self.attention_norm(hidden)).view(batch, length, 3, self.heads, -1)
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        return hidden + self.feed_forward(hidden)


class Transformer(nn.Module):
    """A byte-level language model, (n, CONTEXT) -> (n, CONTEXT, 256); width 96: 276 thousand parameters."""

    def __init__(self, width: int, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} must be a multiple of {heads}, the number of attention heads")
        self.embedding = nn.Embedding(BYTES, width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.positions = nn.Parameter(torch.zeros(CONTEXT, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, BYTES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.out(self.norm(self.blocks(self.embedding(inputs) + self.positions)))


TASKS: Mapping[str, Task] = {
    "cnn": Task(data.digits, ConvolutionalNetwork, "accuracy", 0.95, 5e-3, 4),
    "transformer": Task(data.language_reference, Transformer, "loss", 2.45, 3e-3, 8),
}
