# SPDX-License-Identifier: Apache-2.0
"""The agent's own code chooses the groups: DS-Sync's schedules before a run, Ripples' generator while it goes on."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradlane._core import lib

from gradlane import wire
from gradlane.sync import DsSync, Ripples
from gradlane.sync.generator import Generator
from gradlane.sync.schedule import SCHEDULES
from gradlane_sim.errors import need
from gradlane_sim.groups import Asked, Groups, Scheduled, everyone


def ds_sync(scheme: DsSync, workers: int) -> Scheduled:
    """The groups that workers name to one another, of each step of a turn."""
    turn = len(SCHEDULES[scheme.schedule](workers).partitions)
    found = [{scheme.group(step, worker, workers) or () for worker in range(workers)} for step in range(turn)]
    return Scheduled(tuple(tuple(sorted(groups)) for groups in found), scheme.delay)


def ripples(scheme: Ripples, workers: int) -> Asked:
    """Raises SpecificationError where a job would refuse it, as sync/asked.py does."""
    members = min(scheme.members, max(2, workers))
    needed = workers + sum(math.comb(workers, size) for size in range(2, members + 1))
    need(
        needed <= lib.GL_MAX_GROUPS,
        f"{workers} workers may have {needed} groups of up to {members}; it must be at most {lib.GL_MAX_GROUPS}",
    )
    return Asked(members, scheme.slack, scheme.delay)


@dataclass(frozen=True)
class Way:
    """How workers average. `most`: of how many a job can have it."""

    summary: str
    groups: Callable[[int], Groups]
    most: int = wire.MAX_RANKS


# Ripples may need more groups of more workers than a job can have.
_MOST_RIPPLES = 90
# "behind": while the next step computes.
SCHEMES = {
    "all": Way("all average with all", everyone),
    "all-behind": Way("all average with all, while the next step computes", lambda n: everyone(n, 1)),
    "grid": Way("DS-Sync's rows and columns", lambda n: ds_sync(DsSync("grid"), n)),
    "pairs": Way("DS-Sync's pairs", lambda n: ds_sync(DsSync("pairs"), n)),
    "pairs-behind": Way("DS-Sync's pairs, while the next step computes", lambda n: ds_sync(DsSync("pairs", 1), n)),
    "ripples": Way("Ripples' pairs", lambda n: ripples(Ripples(2), n), _MOST_RIPPLES),
    "ripples-behind": Way(
        "Ripples' pairs, while the next step computes", lambda n: ripples(Ripples(2, delay=1), n), _MOST_RIPPLES
    ),
}


class Deciders:
    """Answers what the workers of a run ask."""

    def __init__(self, document: dict[str, Any]) -> None:
        """`document`: the program's input."""
        self._now = 0.0
        self._generators: dict[int, Generator] = {}
        for job in document.get("jobs", ()):
            told = job.get("groups", {})
            if told.get("kind") == "asked":
                workers = len(job["members"]) - job["servers"]
                generator = Generator(workers, told["members"], told["slack"], lambda: self._now)
                self._generators[job["id"]] = generator

    @property
    def needed(self) -> bool:
        """Whether somebody may ask."""
        return bool(self._generators)

    def answer(self, ask: dict[str, Any]) -> list[int]:
        """The ranks of the group that a worker is told."""
        self._now = ask["now"]
        generator = self._generators[ask["job"]]
        decision = generator.pause(ask["rank"]) if ask["pause"] else generator.ask(ask["rank"], ask["step"])
        return list(decision.group)
