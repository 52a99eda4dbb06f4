# SPDX-License-Identifier: Apache-2.0
"""The runs of the study of sums in the switch: what adds up the gradients, and what goes wrong meanwhile. Pure data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

Wire = Literal["float32", "float16", "int16", "int32"]

PLAIN = "float32"  # the arm that others are compared with: exact DDP
EVERY = 10  # in every so many steps gradients are clipped, or one worker's batch is bad
BEYOND = 4  # times as large as what lanes can hold are the largest sums that are clipped
BAD = 64.0  # times as large are the gradients of a bad batch
NORM = 1.0  # at which the optimizer then clips the mean gradient
EXCESS = 1.15  # slices seem lost so many times more often than is tolerated, so that budgets are used up


@dataclass(frozen=True)
class Arm:
    """What adds up the gradients: hosts, in float32 or float16, or a switch, in integers.

    push: the fraction of a message that a worker may be missing in. late: it is always the same worker's last slices;
    otherwise any worker's and any slice. clipped: in some steps the exponents are too small for the gradients, as if
    these had grown suddenly. bad: in some steps one worker has a bad batch.
    """

    name: str
    wire: Wire
    push: float = 0.0
    late: bool = False
    clipped: bool = False
    bad: bool = False

    @property
    def against(self) -> str:
        """The name of the arm that does the same in exact float32."""
        return "float32, bad batches" if self.bad else PLAIN


ARMS: tuple[Arm, ...] = (
    Arm(PLAIN, "float32"),
    Arm("float16", "float16"),
    Arm("int16", "int16"),
    Arm("int32", "int32"),
    Arm("int16, clipped", "int16", clipped=True),
    Arm("int32, clipped", "int32", clipped=True),
    Arm("int16, push = 10 %", "int16", push=0.1),
    Arm("int32, push = 10 %", "int32", push=0.1),
    Arm("int16, push = 10 %, one late worker", "int16", push=0.1, late=True),
    Arm("float32, bad batches", "float32", bad=True),
    Arm("int16, bad batches", "int16", bad=True),
    Arm("int32, bad batches", "int32", bad=True),
)


@dataclass(frozen=True)
class SumCase:
    """One run. `headroom`: sums should use that part of what lanes hold; 0: as the rules have it."""

    model: str
    workers: int
    seed: int
    steps: int
    arm: Arm
    headroom: int = 0

    @property
    def key(self) -> str:
        """Tells the run from all others."""
        words = f"{self.model}, {self.workers} workers, seed {self.seed}, {self.steps} steps: {self.arm.name}"
        return words + (f", headroom {self.headroom}" if self.headroom else "")


def matrix(
    models: Sequence[str],
    workers: Sequence[int],
    seeds: Sequence[int],
    steps: Mapping[str, int],
    arms: Sequence[Arm],
    headroom: int = 0,
) -> list[SumCase]:
    """Every run of these, seed by seed; `steps` of each model."""
    return [
        SumCase(model, count, seed, steps[model], arm, headroom)
        for seed, model, count, arm in product(seeds, models, workers, arms)
    ]
