# SPDX-License-Identifier: Apache-2.0
"""Ranks that compare how far their sums are: without agents, at given times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gradlane import job
from gradlane.daemon.sums import TICK_SECONDS, Sums
from gradlane.job.plans import Plan
from tests.support.agents import loopback
from tests.support.members import job_file

WORKERS = 3
GENERATION = (1 << 32) - 1  # the next is 1: 0 is none
AFTER = 0.03
LATE = f"\n[loss.late]\nafter = {AFTER}\nsteps = 2\nwindow = 8"
TRANSPORT = 'collective = "switch"\nwire = "int32"\nmulticast = "239.1.0.1"'


class Exchange:
    """One stream. `waits`: s for which a sum has been missing."""

    def __init__(self) -> None:
        self.waits = 0.0
        self.halted = False
        self.completed, self.begun = 3, 3
        self.received = 0
        self.resumed: list[tuple[int, bool, tuple[tuple[int, int], ...]]] = []
        self.refuses = False
        self.step = 8
        self.waiting: list[tuple[int, int]] = []
        self.gone_on: list[tuple[int, int]] = []

    def sums_waiting(self, seconds: float) -> list[tuple[int, int]]:
        assert seconds == AFTER
        return self.waiting

    def go_on(self, tensor: int, step: int) -> None:
        self.gone_on.append((tensor, step))

    def sums_overdue(self) -> float:
        return 0.0 if self.halted else self.waits

    def sums_halt(self) -> None:
        self.halted = True

    def sums_state(self) -> list[tuple[int, int, int]]:
        return [(2, self.completed, self.begun)]

    def sums_resume(self, generation: int, by_switch: bool, reruns: tuple[tuple[int, int], ...]) -> bool:
        assert self.halted
        self.halted = False
        self.resumed.append((generation, by_switch, reruns))
        if not by_switch:
            self.completed, self.waits = self.begun, 0.0
        return not self.refuses

    def what(self, tensor: int, step: int) -> str:
        return f"tensor {tensor}, step {step}"


class Ownership:
    """Plans hold at once, from step 9 on."""

    def __init__(self) -> None:
        self.plan = (1, Plan((1,) * WORKERS))
        self.may_propose = True
        self.proposed: list[tuple[Plan, str]] = []

    def propose(self, plan: Plan, reason: str) -> None:
        self.proposed.append((plan, reason))


class Rank:
    def __init__(self, folder: Path, rank: int, send: Callable[[int, int | None, Any], None], lines: str) -> None:
        self.exchange, self.ownership = Exchange(), Ownership()
        self.failures: list[str] = []
        parsed = job.load(job_file(folder, loopback(WORKERS), lines=TRANSPORT + lines))

        def tell(topic: str, content: Any, ranks: list[int] | None = None) -> None:
            assert topic == "sums"
            for to in ranks or range(WORKERS):
                if to != rank:
                    send(rank, to, content)

        peers = SimpleNamespace(leading=SimpleNamespace(leader=0), tell=tell)
        engine = SimpleNamespace(statistics=lambda: {"sums_received": self.exchange.received})
        stands_in: Any = engine, self.exchange, peers, self.ownership
        self.sums = Sums(parsed, rank, *stands_in, GENERATION, self.failures.append)


class Job:
    """All ranks. What they tell each other comes at once, but to and from who is `cut` off."""

    def __init__(self, folder: Path, lines: str = "") -> None:
        """`lines`: of the job file, behind [transport]."""
        self.now = 100.0
        self.cut: set[int] = set()
        self.said: list[tuple[float, int, Any]] = []
        self.waiting: list[tuple[int, int, Any]] = []
        self.ranks = [Rank(folder, rank, self.send, lines) for rank in range(WORKERS)]
        self.leader = self.ranks[0]
        for rank in self.ranks:
            rank.sums.look(self.now)

    def send(self, by: int, to: int | None, content: Any) -> None:
        assert to is not None
        if to == 1 or by != 0:
            self.said.append((self.now, by, content))
        self.waiting.append((by, to, content))

    def deliver(self) -> None:
        while ready := [it for it in self.waiting if not self.cut & {it[0], it[1]}]:
            self.waiting.remove(ready[0])
            by, to, content = ready[0]
            self.ranks[to].sums.hear(by, content)

    def run(self, seconds: float) -> None:
        """Sums that are missing stay so."""
        for _ in range(round(seconds / TICK_SECONDS)):
            self.now += TICK_SECONDS
            for rank in self.ranks:
                if rank.exchange.waits:
                    rank.exchange.waits += TICK_SECONDS
                if not rank.failures:
                    rank.sums.look(self.now)
            self.deliver()

    def pause(self, seconds: float, *ranks: int) -> None:
        """The agents of these do not run, and sums are missing; the agents of the others run."""
        for _ in range(round(seconds / TICK_SECONDS)):
            self.now += TICK_SECONDS
            for number, rank in enumerate(self.ranks):
                if rank.exchange.waits:
                    rank.exchange.waits += TICK_SECONDS
                if number not in ranks:
                    rank.sums.look(self.now)
        self.deliver()

    def begin(self, *ranks: int) -> None:
        """These contribute to the next step, and wait for its sum from now on."""
        for rank in ranks or range(WORKERS):
            exchange = self.ranks[rank].exchange
            exchange.begun, exchange.waits = exchange.completed + 1, 1e-9

    def sum(self) -> None:
        for rank in self.ranks:
            rank.exchange.completed, rank.exchange.waits = rank.exchange.begun, 0.0
            rank.exchange.received += 1

    def halts(self) -> list[float]:
        """When there were."""
        return [at for at, _, content in self.said if "halt" in content]
