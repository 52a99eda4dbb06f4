# SPDX-License-Identifier: Apache-2.0
"""The plan of a running job: what its ranks know of late workers and slow links comes together at the one that leads
(evidence.py), rank 0 or its successor, which tells everybody, and where the job file lets it, proposes the plan that
suits them (control/plans.py). Others may propose one, too (sums.py)."""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gradlane.control.peers import Peers
from gradlane.control.plans import Leader, Member
from gradlane.daemon import evidence
from gradlane.daemon.evidence import Evidence, Known
from gradlane.datapath.engines import Engines
from gradlane.datapath.exchange import MOST_PLANS, Exchange
from gradlane.errors import listed
from gradlane.ipc.status import OwnershipStatus, StragglerStatus
from gradlane.job import Job, links, plans, stragglers
from gradlane.job.costs import Conditions
from gradlane.job.plans import Plan, Situation

log = logging.getLogger("gradlane")

PROPOSAL_SECONDS = 2.0  # that a proposal stays open, and steps may wait for its end
AHEAD_SECONDS = 0.5  # of steps that may begin meanwhile
REST_SECONDS = 10.0  # from one proposal to the next
_SHOWN = 16  # shares that a text names


class Ownership:
    """At one rank. `look` is called now and then, `hear` with what other ranks say of it."""

    def __init__(
        self, job: Job, rank: int, engine: Engines, exchange: Exchange, peers: Peers, conditions: Conditions
    ) -> None:
        """`conditions`: as all ranks have agreed on them."""
        self._job, self._rank, self._exchange, self._peers = job, rank, exchange, peers
        self._evidence = Evidence(job, rank, engine)
        self._situation = Situation(
            conditions,
            workers=len(job.workers),
            servers=len(job.servers),
            multicast=job.multicast_address(0) is not None,
            choice=job.changes_algorithm,
        )
        self._leads = self._leader_rank == rank
        self._plan, self._reason = Plan((1,) * len(job.aggregators)), ""
        given = job.transport.ownership
        if not isinstance(given, str):
            self._plan, self._reason = Plan(given), "the job file"
        elif job.changes_algorithm:
            self._plan, self._reason = plans.plain(self._situation), "as nobody is late, and no link slow"
        self._first, self._plans = 1, 0  # of which step the plan is the first; how many there were
        if self._plan != Plan((1,) * len(job.aggregators)):
            exchange.set_plan(self._first, self._plan)
            self._plans = 1
        self._known = Known()
        self._named: tuple[set[int], set[int]] = set(), set()  # of whom the log has told: late, slow
        self._member = Member(exchange.hold, self._apply, exchange.release)
        self._leader = Leader([member.rank for member in job.members], self._tell, self._most)
        self._proposed = -math.inf
        self._seen: tuple[int, float] | None = None  # a step, and when it was the latest
        self._pace = 0.0  # steps per second, lately
        self._context = {"job": job.name, "rank": rank}
        self._now = 0.0

    @property
    def plan(self) -> tuple[int, Plan]:
        """The latest, and from which step on it holds."""
        return self._first, self._plan

    @property
    def _leader_rank(self) -> int:
        return self._peers.leading.leader

    def _most(self) -> int:
        """The last step that any rank can have begun: for more they need this one, or have left it out too often."""
        late = self._job.loss.late
        return self._exchange.step + 1 + (late.steps if late else 0)

    # What is known

    def look(self, now: float) -> None:
        """Tells the leader what this rank knows. At the leader: judges what all know. `now`: s, monotonic."""
        self._now = now
        report = self._evidence.look()
        if self._rank != self._leader_rank:
            if report:
                self._peers.tell("ownership", {"report": report}, [self._leader_rank])
            return
        if not self._leads:
            self._leads = True
            self._evidence.take_over(self._known)
        for rank in self._peers.dead:
            self._evidence.drop(rank)
        self._evidence.hear(self._rank, report, now, self._most())
        known = self._evidence.judge(now, self._exchange.step)
        if known or self._known or self._peers.dead:  # what a dead leader has told last, not all need have heard
            self._note(known)
            self._peers.tell("ownership", {"known": known.packed()})
        self._watch(now)
        if self._job.transport.ownership == "adaptive":
            self._improve()

    def hear(self, rank: int, message: Any) -> None:
        """What another rank says. Raises ValueError, TypeError or KeyError if it makes no sense."""
        try:
            self._hear(rank, message)
        except (AttributeError, OverflowError) as error:
            raise TypeError(f"rank {rank} says {str(message)[:100]!r}") from error

    def _hear(self, rank: int, message: Any) -> None:
        if "report" in message:
            self._evidence.hear(rank, message["report"], self._now, self._most())
        elif "bound" in message:
            self._leader.hear(rank, message)
        elif rank != self._leader_rank:
            if not self._job.survives:  # otherwise it may know of a death before this rank does, and says it again
                raise ValueError(f"rank {rank} does not lead: {str(message)[:100]!r}")
        elif "known" in message:
            self._note(evidence.unpacked(message["known"], self._job))
        else:
            self._follow(message)

    def _note(self, known: Known) -> None:
        late, slow = {rank for rank, it in known.late.items() if it.persistent}, set(known.slow)
        before, self._known = self._named, known
        self._named = late, slow
        name, job, extra = self._job.name_of, self._job.name, self._context
        for rank in sorted(late - before[0]):
            log.warning("job %s: %s is a straggler: %s", job, name(rank), known.late[rank], extra=extra)
        for rank in sorted(slow - before[1]):
            log.warning("job %s: %s is slow: %s", job, name(rank), links.text(known.slow[rank]), extra=extra)
        for rank in sorted(before[0] - late):
            log.info("job %s: %s is no straggler any more", job, name(rank), extra=extra)
        for rank in sorted(before[1] - slow - self._peers.dead.keys()):
            log.info("job %s: the link of %s is sound again", job, name(rank), extra=extra)

    # The plan

    def _watch(self, now: float) -> None:
        """How fast steps follow one another, and whether all answer a proposal in time."""
        step, seen = self._exchange.step, self._seen
        self._seen = step, now
        self._pace = 0.0 if seen is None or now <= seen[1] else (step - seen[0]) / (now - seen[1])
        if self._leader.open and now - self._proposed > PROPOSAL_SECONDS:
            missing = [self._job.name_of(rank) for rank in self._leader.withdraw()]
            log.info("job %s: another plan was not agreed on: %s did not answer in %g s",
                     self._job.name, listed(missing), PROPOSAL_SECONDS, extra=self._context)  # fmt: skip

    @property
    def may_propose(self) -> bool:
        """At the leader: whether it is time for another plan. While no steps begin it can't be said how far ahead it
        has to be."""
        rested = self._now - self._proposed >= REST_SECONDS
        return rested and not self._leader.open and self._plans < MOST_PLANS and self._pace > 0

    def propose(self, plan: Plan, reason: str) -> None:
        """At the leader, where it may: a plan that soon holds, unless somebody does not answer."""
        self._proposed = self._now
        self._leader.propose(plan.packed(), max(1, math.ceil(self._pace * AHEAD_SECONDS)), {"reason": reason})

    def _improve(self) -> None:
        if not self.may_propose or self._exchange.step < stragglers.LEAST_STEPS:
            return
        better = plans.better(self._now_situation(), self._plan)
        if better is None:
            return
        who = [rank for rank in sorted(self._known.late.keys() | self._known.slow.keys()) if self._counts(rank)]
        said = listed([f"{self._job.name_of(rank)}: {self._known.text(rank)}" for rank in who], "; ")
        reason = (
            f"{said}{'; ' if said else ''}{better.compared}; once the last has come, the all-reduce is expected to be "
            f"{better.times:.2f} times as fast"
        )
        self.propose(better.plan, reason)

    def _counts(self, rank: int) -> bool:
        return rank in self._known.slow or (rank in self._known.late and self._known.late[rank].counted > 0)

    def _now_situation(self) -> Situation:
        fixed, free = self._exchange.step_bytes
        owners = {member.rank for member in self._job.aggregators}
        conditions = self._situation.conditions
        if self._known.slow:  # what was measured at the join may be their rate: the others have that of the file
            conditions = replace(conditions, rate=float(self._job.transport.rate))
        return replace(
            self._situation,
            conditions=conditions,
            fixed=fixed,
            free=free,
            late={rank: it.counted for rank, it in self._known.late.items() if it.counted},
            rates={rank: rate for rank, rate in self._known.slow.items() if rank in owners},
        )

    def _tell(self, message: dict[str, Any]) -> None:
        self._peers.tell("ownership", message)
        self._follow(message)

    def _follow(self, message: dict[str, Any]) -> None:
        if "decide" in message:
            self._reason = str(message["reason"])
        answer = self._member.hear(message)
        if answer is None:
            return
        if self._rank == self._leader_rank:
            self._leader.hear(self._rank, answer)
        else:
            self._peers.tell("ownership", answer, [self._leader_rank])

    def _apply(self, first: int, content: Any) -> bool:
        plan = plans.parse(content, len(self._job.aggregators), len(self._job.workers))
        if plan.algorithm != "direct" and not self._job.changes_algorithm:
            return False
        if plan.generation and self._job.sum_lanes is None:
            return False
        if not self._exchange.set_plan(first, plan):
            return False
        self._plan, self._first, self._plans = plan, first, self._plans + 1
        log.info("job %s: from step %d on %s: %s", self._job.name, first, self._text(), self._reason,
                 extra=self._context)  # fmt: skip
        if self._plans == MOST_PLANS:
            log.info("job %s: it keeps this plan, as a job has at most %d", self._job.name, MOST_PLANS,
                     extra=self._context)  # fmt: skip
        return True

    def _text(self) -> str:
        plan, shares = self._plan, f"the shares are {shares_text(self._plan.weights)}"
        if plan.generation:
            return "a switch sums"
        if plan.algorithm == "direct":
            return f"all is direct and {shares}" if self._job.changes_algorithm else shares
        without = f" without {self._job.name_of(plan.straggler)}" if plan.algorithm == "stragglar" else ""
        return f"exact tensors from {plan.least} bytes on are by {plan.algorithm}{without}, of others {shares}"

    # For operators

    def stragglers(self) -> list[StragglerStatus]:
        """Who is late or has a slow link, with the evidence."""
        on_time = stragglers.Lateness(0, 0, 0.0, 0.0, 0.0)
        return [
            {
                "rank": rank, "name": self._job.name_of(rank), "straggler": it.persistent, "steps": it.steps,
                "late_steps": it.late, "low": it.low, "median": it.median, "high": it.high,
                "link": self._known.slow.get(rank),
            }
            for rank in sorted(self._known.late.keys() | self._known.slow.keys())
            for it in [self._known.late.get(rank, on_time)]
        ]  # fmt: skip

    def shares(self) -> OwnershipStatus:
        """How steps are reduced, who owns how much, and since when."""
        plan = self._plan
        return {
            "ranks": [member.rank for member in self._job.aggregators],
            "shares": [weight / sum(plan.weights) for weight in plan.weights],
            "algorithm": plan.algorithm,
            "straggler": plan.straggler if plan.algorithm == "stragglar" else None,
            "least": plan.least,
            "first": self._first,
            "reason": "" if plan.generation else self._reason,  # which is that of its sums
        }


def shares_text(weights: Sequence[int]) -> str:
    """The shares by owner, or of many owners how many have none."""
    if len(weights) > _SHOWN:
        return f"of {len(weights)} owners, of whom {sum(weight == 0 for weight in weights)} own nothing"
    return ", ".join(f"{weight / sum(weights):.0%}" for weight in weights)
