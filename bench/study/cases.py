# SPDX-License-Identifier: Apache-2.0
"""The runs of the accuracy study: the models, how gradients are synchronised, what the network loses. Pure data."""

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Literal

from gradlane.units import parse_rate, parse_size
from lab.model import jobs
from lab.model.plan import FabricPlan
from lab.model.scenarios import SCENARIOS, Scenario

Sync = Literal["gloo", "rank-order", "gradlane"]
Drops = Literal["random", "policy"]

WORKERS = 4
TOLERANCES = (0.0, 0.01, 0.03, 0.1, 0.2)
POLICY_TOLERANCE = 0.1
_ROOMY = dataclasses.replace(
    SCENARIOS["clean"], name="study", workers=WORKERS, rate=parse_rate("1gbit"), buffer=parse_size("1MB")
)
# A port counts as congested, but not badly, as soon as datagrams meet there: the policy drops what it may, of the
# smaller half of each message.
SCENARIO: dict[Drops, Scenario] = {
    "random": _ROOMY,
    "policy": dataclasses.replace(_ROOMY, name="study-policy", thresholds=(0.002, 0.5)),
}
# More than is tolerated, so that budgets are used up; and at p = 0 enough that much of every message is repaired.
_EXCESS = 1.15
_LOSS_TO_REPAIR = 0.01


@dataclass(frozen=True)
class Training:
    """How a model of training.models is trained here. batch: examples of all workers in a step.

    The widths make messages of a little over 100 slices, so that each tolerance leaves a whole number of them.
    """

    width: int
    batch: int
    steps: int
    optimizer: Literal["sgd", "adam"]
    learning_rate: float


# SGD (momentum 0.9) takes a gradient as it is, so its length counts; Adam divides by it, element by element.
TRAININGS: Mapping[str, Training] = {
    "cnn": Training(width=184, batch=64, steps=80, optimizer="sgd", learning_rate=0.05),
    "transformer": Training(width=68, batch=32, steps=100, optimizer="adam", learning_rate=5e-3),
}


@dataclass(frozen=True)
class Case:
    """One run.

    sync: "gloo" is stock DistributedDataParallel; "rank-order" is the same with a hook that adds in the order of
    ranks, as Gradlane does. tolerance: the p of the pushes. feedback: error feedback, with the zero-filled sum over the
    number of workers; without it the mean is that of what arrived. drops: links lose datagrams by chance, or a
    congested switch drops by the job's policy.
    """

    model: str
    seed: int
    steps: int
    sync: Sync
    tolerance: float = 0.0
    feedback: bool = True
    drops: Drops = "random"
    workers: int = WORKERS

    @property
    def arm(self) -> str:
        """What is compared, in words."""
        if self.sync != "gradlane":
            words = {"gloo": "DDP, Gloo", "rank-order": "DDP, summed in rank order"}[self.sync]
        else:
            words = f"p = {100 * self.tolerance:g} %"
            if self.tolerance:
                words += ", feedback" if self.feedback else ", no feedback"
            if self.drops == "policy":
                words += ", dropped by policy"
        return words + (f" ({self.workers} workers)" if self.workers != WORKERS else "")

    @property
    def key(self) -> str:
        """Tells the run from all others, with all that it depends on."""
        return ",".join(f"{name}={value}" for name, value in asdict(self).items())

    @property
    def link_loss(self) -> float:
        """Probability with which the link from the switch to a host loses a frame."""
        if self.sync != "gradlane" or self.drops == "policy":
            return 0.0
        return self.tolerance * _EXCESS or _LOSS_TO_REPAIR

    def job(self, plan: FabricPlan) -> dict[str, Any]:
        """The job file, before it is TOML; of a job whose datagrams no other run takes for its own."""
        document = jobs.document("gradlane-fp32", plan, zlib.crc32(self.key.encode()))
        document["worker"] = document["worker"][: self.workers]
        document["transport"]["collective"] = "direct"  # a ring tolerates no loss, and adds in another order
        document["loss"] = {"push": self.tolerance, "pull": 0.0, "error_feedback": self.feedback}
        if self.drops == "random":
            document["policy"]["drop_precedences"] = []
        return document


# Messages between the study and its workers


@dataclass(frozen=True)
class Order:
    """A run for a worker to start; `job` is the path of its job file."""

    case: Case
    job: str


@dataclass(frozen=True)
class Outcome:
    """What a rank found. losses: of its own examples in each step, in nats. statistics: the transport's last.

    test: loss in nats and accuracy on the test examples; at rank 0 alone, as the replicas are equal.
    """

    losses: list[float]
    test: tuple[float, float] | None
    parameters_sha256: str
    statistics: dict[str, Any]


def matrix(models: Sequence[str], seeds: Sequence[int], tolerances: Sequence[float], steps: int | None) -> list[Case]:
    """Every run of the study for these models, seeds and tolerances; `steps` instead of each model's own."""
    cases: list[Case] = []
    for seed, model in product(seeds, models):
        length = steps or TRAININGS[model].steps
        cases.append(Case(model, seed, length, "gloo"))
        for p in tolerances:
            if p == 0:
                cases.append(Case(model, seed, length, "rank-order"))
                cases.append(Case(model, seed, length, "gradlane"))
                if seed == seeds[0]:
                    cases.append(Case(model, seed, length, "gloo", workers=2))
                    cases.append(Case(model, seed, length, "gradlane", workers=2))
                continue
            for feedback in (True, False):
                cases.append(Case(model, seed, length, "gradlane", p, feedback))
        if POLICY_TOLERANCE in tolerances:
            for feedback in (True, False):
                cases.append(Case(model, seed, length, "gradlane", POLICY_TOLERANCE, feedback, drops="policy"))
    return cases
