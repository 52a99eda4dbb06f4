# SPDX-License-Identifier: Apache-2.0
"""Local SGD (arXiv 1805.09767) and DiLoCo (arXiv 2311.08105): many local steps, then one of all workers."""

from dataclasses import dataclass

import numpy as np

from gradlane.sync.block import Array, State
from gradlane.sync.outer import Outer


@dataclass(frozen=True)
class LocalSgd(Outer):
    """After `every` local steps, the mean of what all workers have changed is a gradient for an outer optimizer.

    It is SGD with Nesterov momentum: with a rate of 1 and no momentum the parameters become the workers' mean (local
    SGD), with 0.7 and 0.9 it is DiLoCo.

    Volume: after every `every` steps a worker sends and receives 2(n - 1)/n times its parameters, within the job's
    tolerance of loss, as floats of `transport.wire`. Only that step waits, for all others.
    """

    every: int
    outer_rate: float = 1.0
    outer_momentum: float = 0.0

    def __post_init__(self) -> None:
        if self.every < 1 or self.outer_rate <= 0 or not 0 <= self.outer_momentum < 1:
            raise ValueError(f"{self}: every is at least 1, outer_rate above 0, outer_momentum in [0, 1)")

    def ends(self, step: int) -> bool:
        """At the end of a round."""
        return (step + 1) % self.every == 0

    def state(self, values: Array) -> State:
        """Where the round began, at all workers alike, and the outer optimizer's momentum."""
        state = {"start": values.copy()}
        if self.outer_momentum:
            state["momentum"] = np.zeros_like(values)
        return state

    def change(self, values: Array, state: State) -> Array:
        """As a gradient's: what a step of rate 1 takes away."""
        return state["start"] - values

    def mix(self, values: Array, average: Array, state: State) -> None:
        """A step of the outer optimizer from where the round began, as torch.optim.SGD does it."""
        gradient = average
        if self.outer_momentum:
            momentum = state["momentum"]
            momentum *= self.outer_momentum
            momentum += average
            gradient = average + self.outer_momentum * momentum
        state["start"] -= self.outer_rate * gradient
        values[:] = state["start"]
