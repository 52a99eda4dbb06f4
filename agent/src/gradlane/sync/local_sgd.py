# SPDX-License-Identifier: Apache-2.0
"""Local SGD (arXiv 1805.09767) and DiLoCo (arXiv 2311.08105, 2501.18512): many local steps, then one of all workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from gradlane.sync.block import Array, State
from gradlane.sync.outer import Outer


@dataclass(frozen=True)
class LocalSgd(Outer):
    """After `every` local steps, the mean of what all workers have changed is a gradient for an outer optimizer.

    It is SGD with Nesterov momentum: with a rate of 1 and no momentum the parameters become the workers' mean (local
    SGD), with 0.7 and 0.9 it is DiLoCo.

    Streaming: the parameters are cut into `fragments`, which have their outer steps at different times of a round. The
    result of a fragment is mixed in `delay` local steps after it was sent, as `alpha` times the worker's own parameters
    then and 1 - alpha times the common ones.

    Volume: in `every` steps a worker sends and receives 2(n - 1)/n times its parameters, within the job's tolerance of
    loss, as floats of `transport.wire`; after one step at most a fragment's. Where a result is due it waits for all.
    """

    every: int
    outer_rate: float = 1.0
    outer_momentum: float = 0.0
    fragments: int = 1
    delay: int = 0
    alpha: float = 0.0

    def __post_init__(self) -> None:
        if self.every < 1 or self.outer_rate <= 0 or not 0 <= self.outer_momentum < 1:
            raise ValueError(f"{self}: every is at least 1, outer_rate above 0, outer_momentum in [0, 1)")
        if not 1 <= self.fragments <= self.every or not 0 <= self.delay < self.every or not 0 <= self.alpha < 1:
            raise ValueError(f"{self}: fragments is 1 to every, delay 0 to every - 1, alpha in [0, 1)")

    @property
    def behind(self) -> int:
        """See Scheme."""
        return self.delay

    @property
    def pieces(self) -> int:
        """See Scheme."""
        return self.fragments

    def exchanged(self, step: int, sizes: Sequence[int]) -> list[int]:
        """The fragments' times are spread over the round, whose end is the last one's. A block belongs to the fragment
        in which its middle is."""
        total = max(1, sum(sizes))
        middles = [end - size / 2 for end, size in zip(accumulate(sizes), sizes, strict=True)]
        return [k for k, middle in enumerate(middles) if self._sent(int(middle * self.fragments / total), step)]

    def _sent(self, fragment: int, step: int) -> bool:
        fragment = min(fragment, self.fragments - 1)  # an empty block has its middle at the end
        return (step + 1 - (fragment + 1) * self.every // self.fragments) % self.every == 0

    def state(self, values: Array) -> State:
        """Where the round began, at all workers alike, and the outer optimizer's momentum."""
        state = {"start": values.copy()}
        if self.outer_momentum:
            state["momentum"] = np.zeros_like(values)
        return state

    def change(self, values: Array, state: State) -> Array:
        """As a gradient's: what a step of rate 1 takes away."""
        return state["start"] - values

    def mix(self, values: Array, average: Array, state: State, step: int) -> None:
        """A step of the outer optimizer from where it was before, as torch.optim.SGD does it."""
        gradient = average
        if self.outer_momentum:
            momentum = state["momentum"]
            momentum *= self.outer_momentum
            momentum += average
            gradient = average + self.outer_momentum * momentum
        state["start"] -= self.outer_rate * gradient
        values[:] = state["start"] if self.alpha == 0 else self.alpha * values + (1 - self.alpha) * state["start"]
