# SPDX-License-Identifier: Apache-2.0
"""ACCO (arXiv 2406.02613): gradients are accumulated while others travel, and the delay is made up for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradlane.sync.block import Array, State
from gradlane.sync.outer import Outer


@dataclass(frozen=True)
class Acco(Outer):
    """A round has two halves, a local step each; while the gradients of one are computed those of the other travel.

    With the mean of the first half's the workers estimate their next parameters, where they compute the first half of
    the next round. The update itself is with the mean of both halves, and from the parameters before the estimate.

    Here the change of a local step is the gradient, so it is what an optimizer without a state makes of that. PyTorch
    has optimizers with one (gradlane.torch.accumulated).

    Volume: after each step a worker sends and receives 2(n - 1)/n times its parameters, within the job's tolerance of
    loss, as floats of `transport.wire`, hidden behind the computation of the next one.
    """

    @property
    def behind(self) -> int:
        """The other half is computed meanwhile."""
        return 1

    def exchanged(self, step: int, sizes: Sequence[int]) -> list[int]:
        """All, in each step."""
        return list(range(len(sizes)))

    def state(self, values: Array) -> State:
        """The parameters as they are, where gradients are computed, and the mean gradient of the first half."""
        return {"true": values.copy(), "point": values.copy(), "half": np.zeros_like(values)}

    def change(self, values: Array, state: State) -> Array:
        """As a gradient's: what a step of rate 1 takes away."""
        return state["point"] - values

    def meanwhile(self, state: State) -> Array | None:
        """The change is taken back, as it counts when its mean does."""
        return state["point"]

    def mix(self, values: Array, average: Array, state: State, step: int) -> None:
        """The change of the half that was computed meanwhile stays on top."""
        values -= state["point"]
        if first_half(step):
            state["half"] = average
            state["point"] = state["true"] - average
        else:
            state["true"] -= (state["half"] + average) / 2
            state["point"] = state["true"].copy()
        values += state["point"]


def first_half(step: int) -> bool:
    """Whether a step's gradients are the first half of a round's, with which the next parameters are estimated."""
    return step % 2 == 0
