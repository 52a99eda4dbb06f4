# SPDX-License-Identifier: Apache-2.0
"""Stragglers and shares of a running job: what its owners know of late workers comes together at rank 0, which tells
everybody, and where the job file lets it, proposes the shares that suit them (control/shares.py)."""

import logging
import math
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from gradlane.control.peers import Peers
from gradlane.control.shares import Leader, Member
from gradlane.datapath.engine import Engine
from gradlane.datapath.exchange import Exchange
from gradlane.errors import listed
from gradlane.ipc.status import OwnershipStatus, StragglerStatus
from gradlane.job import Job, stragglers
from gradlane.job.ownership import Case, Owner
from gradlane.job.stragglers import Lateness, Report

log = logging.getLogger("gradlane")

PROPOSAL_SECONDS = 2.0  # that a proposal stays open, and steps may wait for its end
AHEAD_SECONDS = 0.5  # of steps that may begin meanwhile
REST_SECONDS = 10.0  # from one proposal to the next
_LEADER = 0
_SHOWN = 16  # shares that a text names


class Ownership:
    """At one rank. `look` is called now and then, `hear` with what other ranks say of it. `rate`: of a link, bit/s."""

    def __init__(self, job: Job, rank: int, engine: Engine, exchange: Exchange, peers: Peers, rate: float) -> None:
        self._job, self._rank, self._engine, self._exchange, self._peers = job, rank, engine, exchange, peers
        self._rate = rate
        given = job.transport.ownership
        self._weights = [1] * len(job.aggregators) if isinstance(given, str) else list(given)
        self._first, self._reason = 1, "the job file" if isinstance(given, tuple) else ""
        self._known: dict[int, Lateness] = {}  # by rank: who has been late
        self._named: set[int] = set()
        self._reports: dict[int, Report] = {}  # at the leader, by owner
        self._member = Member(exchange.hold, self._apply, exchange.release)
        self._leader = Leader([member.rank for member in job.workers], self._tell)
        self._proposed = -math.inf
        self._seen: tuple[int, float] | None = None  # a step, and when it was the latest
        self._context = {"job": job.name, "rank": rank}

    # What is known

    def _report(self) -> Report:
        late: dict[int, Lateness] = {}
        step, steps = 0, 0
        for member in self._job.workers:
            step, seconds = self._engine.lateness(member.rank)
            steps = len(seconds)
            if (found := stragglers.summary(seconds)) is not None:
                late[member.rank] = found
        return Report(step, steps, late)

    def look(self, now: float) -> None:
        """Tells the leader what this rank knows. At the leader: judges what all know. `now`: s, monotonic."""
        report = self._report()
        if self._rank != _LEADER:
            if report.steps:
                content = {"step": report.step, "steps": report.steps, "late": _packed(report.late)}
                self._peers.tell("ownership", {"report": content}, [_LEADER])
            return
        self._reports[self._rank] = report
        known = stragglers.merged(list(self._reports.values()))
        if known or self._known:
            self._note(known)
            self._peers.tell("ownership", {"known": _packed(known)})
        if self._job.transport.ownership == "adaptive":
            self._lead(now)

    def hear(self, rank: int, message: Any) -> None:
        """What another rank says. Raises ValueError, TypeError or KeyError if it makes no sense."""
        if "report" in message:
            report = message["report"]
            self._reports[rank] = Report(int(report["step"]), int(report["steps"]), _unpacked(report["late"]))
        elif "bound" in message:
            self._leader.hear(rank, message)
        elif rank != _LEADER:
            raise ValueError(f"rank {rank} does not lead: {str(message)[:100]!r}")
        elif "known" in message:
            self._note(_unpacked(message["known"]))
        else:
            self._follow(message)

    def _note(self, known: dict[int, Lateness]) -> None:
        self._known = known
        named = {rank for rank, it in known.items() if it.persistent}
        for rank in sorted(named - self._named):
            log.warning(
                "job %s: %s is a straggler: %s", self._job.name, self._job.name_of(rank), known[rank],
                extra=self._context,
            )  # fmt: skip
        for rank in sorted(self._named - named):
            log.info(
                "job %s: %s is no straggler any more", self._job.name, self._job.name_of(rank), extra=self._context
            )
        self._named = named

    # Shares

    def _lead(self, now: float) -> None:
        step, seen = self._exchange.step, self._seen
        self._seen = step, now
        if self._leader.open:
            if now - self._proposed > PROPOSAL_SECONDS:
                missing = [self._job.name_of(rank) for rank in self._leader.withdraw()]
                log.info("job %s: other shares were not agreed on: %s did not answer in %g s",
                         self._job.name, listed(missing), PROPOSAL_SECONDS, extra=self._context)  # fmt: skip
            return
        if now - self._proposed < REST_SECONDS or step < stragglers.LEAST_STEPS or seen is None or step <= seen[0]:
            return
        better = stragglers.better(self._case(), self._weights)
        if better is None:
            return
        self._proposed = now
        late = [f"{self._job.name_of(rank)} is {it}" for rank, it in self._known.items() if it.counted]
        reason = (
            f"{'; '.join(late) or 'no worker is late'}; once the last has come, the all-reduce is expected to be "
            f"{better.times:.2f} times as fast"
        )
        steps, elapsed = step - seen[0], now - seen[1]
        ahead = max(1, math.ceil(steps / elapsed * AHEAD_SECONDS))
        self._leader.propose(better.weights, ahead, {"reason": reason})

    def _case(self) -> Case:
        late = {rank: it.counted for rank, it in self._known.items()}
        servers = bool(self._job.servers)
        return Case(
            nbytes=max(1, self._exchange.step_bytes),
            workers=len(self._job.workers),
            owners=tuple(Owner(self._rate, 0.0 if servers else late.get(m.rank, 0.0)) for m in self._job.aggregators),
            last=max(late.values(), default=0.0),
            servers=servers,
            multicast=self._job.transport.multicast is not None,
        )

    def _tell(self, message: dict[str, Any]) -> None:
        self._peers.tell("ownership", message, [m.rank for m in self._job.workers if m.rank != self._rank])
        self._follow(message)

    def _follow(self, message: dict[str, Any]) -> None:
        if "decide" in message:
            self._reason = str(message["reason"])
        answer = self._member.hear(message)
        if answer is None:
            return
        if self._rank == _LEADER:
            self._leader.hear(self._rank, answer)
        else:
            self._peers.tell("ownership", answer, [_LEADER])

    def _apply(self, first: int, weights: Sequence[int]) -> bool:
        if len(weights) != len(self._weights) or not self._exchange.set_shares(first, weights):
            return False
        self._weights, self._first = list(weights), first
        log.info("job %s: from step %d on the shares are %s: %s", self._job.name, first, shares_text(weights),
                 self._reason, extra=self._context)  # fmt: skip
        return True

    # For operators

    def stragglers(self) -> list[StragglerStatus]:
        """Who is late, with the evidence."""
        return [
            {
                "rank": rank, "name": self._job.name_of(rank), "straggler": it.persistent, "steps": it.steps,
                "late_steps": it.late, "low": it.low, "median": it.median, "high": it.high,
            }
            for rank, it in self._known.items()
        ]  # fmt: skip

    def shares(self) -> OwnershipStatus:
        """Who owns how much, and since when."""
        return {
            "ranks": [member.rank for member in self._job.aggregators],
            "shares": [weight / sum(self._weights) for weight in self._weights],
            "first": self._first,
            "reason": self._reason,
        }


def shares_text(weights: Sequence[int]) -> str:
    """The shares by owner, or of many owners how many have none."""
    if len(weights) > _SHOWN:
        return f"of {len(weights)} owners, of whom {sum(weight == 0 for weight in weights)} own nothing"
    return ", ".join(f"{weight / sum(weights):.0%}" for weight in weights)


def _packed(late: dict[int, Lateness] | Any) -> dict[str, list[float]]:
    return {str(rank): [round(value, 4) for value in astuple(it)] for rank, it in late.items()}


def _unpacked(late: dict[str, list[float]]) -> dict[int, Lateness]:
    return {
        int(rank): Lateness(int(steps), int(count), float(low), float(median), float(high))
        for rank, (steps, count, low, median, high) in late.items()
    }
