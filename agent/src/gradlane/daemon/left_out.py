# SPDX-License-Identifier: Apache-2.0
"""Workers that steps went on without (`[loss.late]` of the job file): how often, as far as this rank owns parts."""

import logging
from typing import NamedTuple

from gradlane.datapath.engines import Engines
from gradlane.datapath.exchange import Exchange
from gradlane.ipc.status import LeftOutStatus
from gradlane.job import Job

log = logging.getLogger("gradlane")


class _Told(NamedTuple):
    """Steps that a worker had been left out of; whether it could be left out of no more."""

    steps: int
    used_up: bool


class LeftOut:
    """At one rank. `look` is called now and then. `memory`: limits.memory of the agent's file, bytes."""

    def __init__(self, job: Job, rank: int, engine: Engines, exchange: Exchange, memory: int) -> None:
        self._job, self._rank, self._engine, self._exchange, self._memory = job, rank, engine, exchange, memory
        self._told: dict[int, _Told] = {}  # by rank
        self._short = False  # whether the log has told that memory is

    def look(self) -> None:
        """Logs who has been left out anew, when that begins and when its budget is used up; and if this rank could not
        be for want of memory, once."""
        if not self._short and self._exchange.statistics()["late_no_memory"]:
            self._short = True
            log.warning(
                "job %s: %s was late, and the others wait for it, though it might be left out: that takes twice the "
                "bytes of the tensor, and of the job's %d bytes %d are in use (limits.memory of the agent's file)",
                *(self._job.name, self._job.name_of(self._rank), self._memory),
                self._engine.statistics()["memory_used"],
                extra={"job": self._job.name, "rank": self._rank},
            )
        for it in self.status():
            before = self._told.get(it["rank"], _Told(0, False))
            self._told[it["rank"]] = told = _Told(it["steps"], it["recent"] >= it["budget"])
            begins = it["steps"] > before.steps and it["steps"] - before.steps == it["recent"]
            if not begins and (before.used_up or not told.used_up):
                continue
            more = ": as many as it may be, so the others wait for it" if told.used_up else ""
            log.warning(
                "job %s: %s was late, and has been left out: of %d of the last %d steps, %d in all%s",
                *(self._job.name, it["name"], it["recent"], it["window"], it["steps"], more),
                extra={"job": self._job.name, "rank": self._rank},
            )  # fmt: skip

    def status(self) -> list[LeftOutStatus]:
        """Who has been left out here."""
        late = self._job.loss.late
        if late is None:
            return []
        found: list[LeftOutStatus] = []
        for member in self._job.workers:
            steps, recent = self._engine.left_out(member.rank)
            if steps:
                found.append(
                    {
                        "rank": member.rank, "name": self._job.name_of(member.rank), "steps": steps, "recent": recent,
                        "budget": late.steps, "window": late.window,
                    }
                )  # fmt: skip
        return found
