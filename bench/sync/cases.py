# SPDX-License-Identifier: Apache-2.0
"""What is compared: who is slow (cases), and how workers are kept together (arms). Pure data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Method = Literal["ddp", "post-local", "overlap", "synchronise"]

LEARNING_RATES = (0.0125, 0.025, 0.05, 0.1)
"""The grid from which each arm has its own (bench.sync.rates), or from beyond its edge: Ringmaster's server applies the
changes of all workers one by one."""
TARGET = 0.96
"""Accuracy on the test examples."""


@dataclass(frozen=True)
class Case:
    """Who is slow. All but `seconds` is relative to a usual worker.

    slow: the last worker's computation takes so many times as long. tail: p99 over p50 of the computation of each
    worker's steps, log-normal. link: the rate of the port towards the last worker. seconds: of a run of 8 workers,
    several times what a global step needs to the target.
    """

    title: str
    seconds: float
    slow: float = 1.0
    tail: float = 1.0
    link: float = 1.0


CASES: Mapping[str, Case] = {
    "equal": Case("equal workers", 8),
    "slow2": Case("one worker 2x slower", 13, slow=2),
    "slow5": Case("one worker 5x slower", 26, slow=5),
    "tail1.5": Case("random slowness, p99/p50 = 1.5", 10, tail=1.5),
    "tail3": Case("random slowness, p99/p50 = 3", 13, tail=3),
    "link": Case("one link at a quarter of the rate", 15, link=0.25),
}


@dataclass(frozen=True)
class Arm:
    """How workers are kept together.

    learning_rate: of SGD with momentum 0.9. transport, sync: of these tables of the job
    file, as a user writes them. bsp: a global step of all workers.
    """

    title: str
    method: Method
    learning_rate: float
    transport: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sync: Mapping[str, Any] = field(default_factory=dict[str, Any])
    bsp: bool = False


def _scheme(title: str, learning_rate: float, scheme: str, **options: Any) -> Arm:
    return Arm(title, "synchronise", learning_rate, sync={"scheme": scheme, **options})


_HALF = {"wire": "float16"}  # as DDP's hook

ARMS: Mapping[str, Arm] = {
    "ddp": Arm("DDP on Gloo, fp16 hook", "ddp", 0.05, bsp=True),
    "post-local": Arm("post_localSGD on Gloo, every 8", "post-local", 0.05),
    "overlap": Arm("overlap(), fp16", "overlap", 0.05, _HALF, bsp=True),
    "adaptive": Arm("overlap(), fp16, adaptive", "overlap", 0.05, {**_HALF, "ownership": "adaptive"}, bsp=True),
    "grid": _scheme("ds-sync, grid", 0.05, "ds-sync", schedule="grid"),
    "pairs": _scheme("ds-sync, pairs", 0.025, "ds-sync", schedule="pairs"),
    "pairs-late": _scheme("ds-sync, pairs, delay 1", 0.05, "ds-sync", schedule="pairs", delay=1),
    "ad-psgd": _scheme("ad-psgd", 0.05, "ad-psgd"),
    "ripples": _scheme("ripples, groups of 3", 0.05, "ripples"),
    "ripples-2": _scheme("ripples, pairs", 0.05, "ripples", members=2),
    "ripples-late": _scheme("ripples, pairs, delay 1", 0.05, "ripples", members=2, delay=1),
    "ripples-4-late": _scheme("ripples, groups of 4, delay 1", 0.05, "ripples", members=4, delay=1),
    "local-sgd": _scheme("local-sgd, every 8", 0.05, "local-sgd"),
    "acco": Arm("acco, fp16", "synchronise", 0.1, _HALF, {"scheme": "acco"}),
    "ringmaster": _scheme("ringmaster", 0.006, "ringmaster"),
    "r-fast": _scheme("r-fast", 0.1, "r-fast"),
    "streaming": _scheme("local-sgd, 4 fragments, delay 2", 0.05, "local-sgd", fragments=4, delay=2, alpha=0.5),
    "diloco": _scheme("diloco, every 8", 0.025, "diloco", every=8),
}


@dataclass(frozen=True)
class Settings:
    """Of the machine that is emulated, and of the training; the same in all runs of a benchmark.

    computation: seconds of a usual worker's step, as pauses. ratio: of the time in which a ring of float32 all-reduces
    the gradients to that; the links' rate follows from it. None: no limit. batch: examples of a worker's step.
    """

    workers: int
    computation: float
    ratio: float | None = 1.0
    batch: int = 8
    width: int = 256


@dataclass(frozen=True)
class Order:
    """A run. seconds, steps: it ends after the first of both; an asynchronous worker counts its own steps. interval:
    seconds from one snapshot of the parameters to the next, at least."""

    settings: Settings
    case: str
    arm: str
    seed: int
    learning_rate: float
    seconds: float
    steps: int
    interval: float

    @property
    def name(self) -> str:
        """Tells it from the other runs of a benchmark."""
        return f"{self.settings.workers}-{self.case}-{self.arm}-{self.seed}"

    def document(self) -> dict[str, Any]:
        """All that the run depends on: a record of another document is of another run."""
        return {**asdict(self), "of_case": asdict(CASES[self.case]), "of_arm": asdict(ARMS[self.arm])}
