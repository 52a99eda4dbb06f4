# SPDX-License-Identifier: Apache-2.0
"""Ranks that tell each other of late workers and agree on plans: without agents, at given times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradlane import job
from gradlane.daemon.ownership import Ownership
from gradlane.job.costs import Conditions
from gradlane.job.plans import Plan
from gradlane.job.stragglers import Moment, Neighbour
from tests.support.agents import loopback
from tests.support.members import job_file

WORKERS = 4
RATE = 1e9
STEP = 0.1  # s
AUTO = 'ownership = "adaptive"'
DIRECT = AUTO + '\ncollective = "direct"'
EVEN = {"algorithm": "direct", "straggler": 0, "least": 0, "generation": 0}


class Engine:
    """Knows of each worker how late it was, in s, in all of the latest steps."""

    def __init__(self, exchange: Exchange, workers: int) -> None:
        self.exchange = exchange
        self.late = [0.0] * workers
        self.row: range | None = None  # that it knows alone
        self.latest: int | None = None  # step that was reduced directly; None: that of the exchange
        self.ring: Neighbour | None = None
        self.waits: dict[Moment, float] = {}  # for sums of a switch
        self.receives, self.slow = RATE, set[int]()  # of this host; to whom its flows are held
        self.delivered = self.delivered_held = 0
        self.delivered_to_group = 0

    def lateness(self) -> tuple[int, list[list[float]]]:
        step = self.exchange.step if self.latest is None else self.latest
        known = range(len(self.late)) if self.row is None else self.row
        return step, [[late] * min(32, step) * (rank in known) for rank, late in enumerate(self.late)]

    def neighbour(self) -> Neighbour | None:
        return self.ring

    def sum_waits(self) -> dict[Moment, float]:
        return self.waits

    def link(self) -> tuple[list[float], list[float]]:
        return [self.receives] * 32, [RATE] * 32

    def held(self) -> list[tuple[int, int]]:
        of_ranks = [(self.delivered, self.delivered_held * (rank in self.slow)) for rank in range(len(self.late))]
        return [*of_ranks, (self.delivered_to_group, 0)]


class Exchange:
    """Begins as many steps as it is told to."""

    step_bytes: tuple[int, int] = (1 << 20, 0)

    def __init__(self) -> None:
        self.step = 0
        self.held = False
        self.plans: list[tuple[int, Plan]] = []

    def hold(self, ahead: int) -> int:
        self.held = True
        return self.step + ahead

    def set_plan(self, first: int, plan: Plan) -> bool:
        self.plans.append((first, plan))
        return first > self.step

    @property
    def shares(self) -> list[tuple[int, list[int]]]:
        return [(first, list(plan.weights)) for first, plan in self.plans]

    def release(self) -> None:
        self.held = False


@dataclass
class Leading:
    leader: int = 0


class Peers:
    def __init__(self) -> None:
        self.leading, self.dead = Leading(), dict[int, str]()
        self.said: list[tuple[Any, list[int] | None]] = []

    def tell(self, topic: str, content: Any, ranks: list[int] | None = None) -> None:
        assert topic == "ownership"
        self.said.append((content, ranks))

    def last(self, key: str) -> Any:
        return [content for content, _ in self.said if key in content][-1]


class Rank:
    """One of the workers."""

    def __init__(self, folder: Path, rank: int, transport: str = DIRECT, workers: int = WORKERS, **values: str) -> None:
        self.exchange, self.peers = Exchange(), Peers()
        self.engine = Engine(self.exchange, workers)
        parsed = job.load(job_file(folder, loopback(workers), lines=transport, **values))
        stands_in: Any = self.engine, self.exchange, self.peers
        conditions = Conditions(RATE, 50e-6, parsed.transport.contention)
        self.ownership = Ownership(parsed, rank, stands_in[0], stands_in[1], stands_in[2], conditions)
        self.now = 100.0

    def second(self, steps: int = int(1 / STEP)) -> None:
        self.now += 1
        self.exchange.step += steps
        self.engine.delivered += 100 * steps
        self.engine.delivered_held = self.engine.delivered
        self.ownership.look(self.now)

    def proposals(self) -> list[Any]:
        return [content for content, _ in self.peers.said if "propose" in content]

    def all_answer(self, bounds: Sequence[int] = (15, 21, 18)) -> None:
        number = self.proposals()[-1]["propose"]
        for rank, bound in enumerate(bounds, 1):
            self.ownership.hear(rank, {"bound": bound, "number": number})
