# SPDX-License-Identifier: Apache-2.0
"""A job whose gradients a switch sums: whether it does, how all ranks go on by hosts together where it does not
(control/sums.py), and when they try the switch again (ownership.py). Rank 0 leads: such a job ends with a death."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gradlane import json_object
from gradlane.control.peers import Peers
from gradlane.control.sums import Decision, Leader, Member, Rerun, Resumed, State, Stream, Waits, decide, steps
from gradlane.daemon.ownership import Ownership
from gradlane.datapath.engines import Engines
from gradlane.datapath.exchange import Exchange
from gradlane.errors import listed
from gradlane.ipc.status import Counts, SumsStatus
from gradlane.job import Job
from gradlane.job.plans import MOST_GENERATION

log = logging.getLogger("gradlane")

TICK_SECONDS = 0.05
LEAST_TICK_SECONDS = 0.005
OVERDUE_SECONDS = 0.25  # that a sum is missing, before all are asked how far they are, and from then to the next time;
# while a worker is late this is doubled each time
MOST_OVERDUE_SECONDS = 4.0
HALT_SECONDS = 10.0  # for which a halt may be open, as a link may be down for 5 s
SWITCH_REST_SECONDS = 10.0  # by hosts, until the switch is tried again; doubled each time that it fails soon
MOST_SWITCH_REST_SECONDS = 600.0
_LATE_SECONDS = 1.0  # that sums wait for a worker, before the log says so


class Sums:
    """At one rank. `run` looks now and then, `hear` takes what other ranks say of it.

    `halted`: whether this rank contributes nothing until all have said how far they are. `fallbacks`: how often all
    went on by hosts. Waiting counts only while this agent runs: on a busy machine nobody may run for a while, the
    switch neither.
    """

    def __init__(
        self,
        job: Job,
        rank: int,
        engine: Engines,
        exchange: Exchange,
        peers: Peers,
        ownership: Ownership,
        generation: int,
        fail: Callable[[str], None],
    ) -> None:
        """`generation`: as all ranks have agreed on it. `fail` ends the job."""
        self._job, self._rank, self._engine, self._exchange = job, rank, engine, exchange
        self._peers, self._ownership, self._fail = peers, ownership, fail
        self._leads = rank == peers.leading.leader
        self._member = Member(self._halt, self._resume)
        self._leader = Leader([member.rank for member in job.members], self._tell, self._decide)
        self._after = job.loss.late.after if job.loss.late else None
        self._tick = max(LEAST_TICK_SECONDS, min(TICK_SECONDS, (self._after or 1.0) / 4))
        self._told: dict[int, int] = {}  # by tensor, the latest step of which others know that this rank waits in it
        self._waited_in = Waits(len(job.workers))  # at the leader
        self._by_switch, self._generation = True, generation
        self._reason, self._since = "as the job file says", time.time()
        self._begun = -math.inf  # when the generation began: s, monotonic
        self._results = 0  # sums that had come by then
        self.fallbacks = 0
        self._patience = OVERDUE_SECONDS / 2  # from the last halt to the next
        self._reported = -1  # the halt after which the leader was told that a sum is missing
        self._ran = 0.0  # s that this agent has run for
        self._resumed = -math.inf  # of which the last halt ended after so many
        self._waits = 0.0  # ... a sum has been missing for so many
        self._open = 0.0  # ... and a halt has been open for so many
        self._wanted = False  # at the leader: whether somebody misses a sum
        self._rest, self._back = SWITCH_REST_SECONDS, math.inf  # the next one's length; when the present one is over
        self._before: Mapping[int, State] = {}  # at the leader: what all said in the last halt
        self._late: Rerun | None = None  # the step of which the log has told who is late
        self._now = 0.0
        self._context = {"job": job.name, "rank": rank}

    async def run(self, over: asyncio.Event) -> None:
        """Until the job is over."""
        while not over.is_set():
            self.look(time.monotonic())
            await asyncio.sleep(self._tick)

    @property
    def halted(self) -> bool:
        """See the class."""
        return self._member.halted

    def look(self, now: float) -> None:
        """`now`: s, monotonic."""
        passed, self._now = min(now - self._now, 2 * TICK_SECONDS), now
        self._ran += passed
        self._note_plan()
        if self.halted:
            self._open += passed
            self._look_who_keeps_it_halted()
            return
        self._tell_what_waits()
        self._waits = min(self._exchange.sums_overdue(), self._waits + passed)
        if self._waits < OVERDUE_SECONDS:
            self._patience = OVERDUE_SECONDS / 2
        elif self._ran - self._resumed >= self._patience:
            self._report()
        if not self._leads:
            return
        if self._wanted and self._ran - self._resumed >= OVERDUE_SECONDS:
            self._wanted = False
            self._leader.halt()
        elif not self._by_switch and now >= self._back and self._ownership.may_propose:
            _, plan = self._ownership.plan
            reason = f"it is tried again after {now - self._begun:.0f} s by hosts"
            self._ownership.propose(replace(plan, generation=_after(self._generation)), reason)

    def hear(self, rank: int, message: Any) -> None:
        """What another rank says. Raises ValueError if it makes no sense, and the like (json_object.NONSENSE)."""
        self._note_plan()
        if not self._leads:
            if rank != self._peers.leading.leader:
                raise ValueError(f"it does not lead, and says of sums {str(message)[:100]!r}")
            self._follow(message)
        elif "waiting" in message and self._after is not None:
            self._go_on(self._waited_in.hear(rank, message))
        elif "overdue" in message:
            json_object.check(message, {"overdue": int})
            if not 0 <= message["overdue"] <= self._leader.halts:
                raise ValueError(f"it misses a sum after halt {message['overdue']} of {self._leader.halts}")
            self._wanted |= message["overdue"] == self._leader.halts and self._by_switch and not self.halted
        else:
            self._leader.hear(rank, message)

    def status(self, counts: Counts) -> SumsStatus:
        """`counts`: of the engine and the exchange."""
        self._note_plan()
        whole = counts["reduced_bytes"]
        return {
            "by_switch": self._by_switch and self._exchange.step >= self._ownership.plan[0],
            "reason": self._reason,
            "since": self._since,
            "generation": self._generation,
            "halts": self._member.halts,
            "fallbacks": self.fallbacks,
            "share": counts["summed_bytes"] / whole if whole else 0.0,
        }

    # Who is late

    def _tell_what_waits(self) -> None:
        if self._after is None:
            return
        waiting = [it for it in self._exchange.sums_waiting(self._after) if self._told.get(it[0], 0) < it[1]]
        if not waiting:
            return
        self._told.update(waiting)
        message = {"waiting": [list(it) for it in waiting]}
        if self._leads:
            self._go_on(self._waited_in.hear(self._rank, message))
        else:
            self._peers.tell("sums", message, [self._peers.leading.leader])

    def _go_on(self, found: Sequence[Rerun]) -> None:
        if found:
            self._tell({"go_on": [list(it) for it in found]})

    # Whether a sum is missing

    def _report(self) -> None:
        if self._reported == self._member.halts:
            return
        self._reported = self._member.halts
        if self._leads:
            self._wanted = True
        else:
            self._peers.tell("sums", {"overdue": self._member.halts}, [self._peers.leading.leader])

    def _look_who_keeps_it_halted(self) -> None:
        # The leader knows who does not answer, so it is the first to say it.
        if self._leads and self._open >= HALT_SECONDS:
            names = listed([self._job.name_of(rank) for rank in self._leader.missing])
            self._fail(f"a sum of the switch is missing, and for {HALT_SECONDS:g} s {names} did not say how far it is")
        elif self._open >= HALT_SECONDS + 2:
            name = self._job.name_of(self._peers.leading.leader)
            self._fail(
                f"{name} asked all to halt as a sum of the switch is missing, and has not ended that for "
                f"{HALT_SECONDS + 2:g} s"
            )

    # Halting and going on

    def _tell(self, message: dict[str, Any]) -> None:
        self._peers.tell("sums", message)
        try:
            self._follow(message)
        except json_object.NONSENSE as error:  # no other rank's fault
            self._fail(f"{self._job.name_of(self._rank)}: {error}")

    def _follow(self, message: dict[str, Any]) -> None:
        if "go_on" in message and self._after is not None:
            json_object.check(message, {"go_on": [[int]]})
            for tensor, step in steps(message["go_on"], "the leader"):
                self._exchange.go_on(tensor, step)
            return
        answer = self._member.hear(message)
        if answer is None:
            return
        if self._leads:
            self._leader.hear(self._rank, answer)
        else:
            self._peers.tell("sums", answer, [self._peers.leading.leader])

    def _halt(self) -> State:
        waits = min(self._waits, self._exchange.sums_overdue())
        self._exchange.sums_halt()
        self._open = 0.0
        streams = {tensor: Stream(completed, begun) for tensor, completed, begun in self._exchange.sums_state()}
        return State(waits, streams)

    def _resume(self, how: Resumed) -> bool:
        sound = how.generation == self._generation if how.by_switch else _newer(how.generation, self._generation)
        if not sound or not self._exchange.sums_resume(how.generation, how.by_switch, how.reruns):
            return False
        self._resumed = self._ran
        if how.by_switch:
            self._patience = min(2 * self._patience, MOST_OVERDUE_SECONDS)
            return True
        self.fallbacks += 1
        self._change(False, how.generation, how.reason)
        log.warning("job %s: hosts sum from now on: %s", self._job.name, how.reason, extra=self._context)
        return True

    def _change(self, by_switch: bool, generation: int, reason: str) -> None:
        self._by_switch, self._generation, self._reason = by_switch, generation, reason
        self._since, self._begun = time.time(), self._now
        self._results = self._received()

    def _received(self) -> int:
        return self._engine.statistics()["sums_received"]

    def _note_plan(self) -> None:
        first, plan = self._ownership.plan
        if plan.generation and _newer(plan.generation, self._generation):
            self._change(True, plan.generation, f"tried again from step {first} on")

    # At the leader

    def _decide(self, states: Mapping[int, State]) -> Resumed | None:
        try:
            decision = decide(states, self._before, OVERDUE_SECONDS / 2)
        except ValueError as error:
            self._fail(f"job {self._job.name}: {error}")
            return None
        self._before = states
        if not decision.stuck:
            self._tell_who_is_late(decision, states)
            return Resumed(self._generation, True, decision.reruns, "")
        if self._now - self._begun >= MOST_SWITCH_REST_SECONDS:
            self._rest = SWITCH_REST_SECONDS
        self._back = self._now + self._rest
        reason = f"{self._missing(decision, states)}; it is tried again after {self._rest:g} s"
        self._rest = min(2 * self._rest, MOST_SWITCH_REST_SECONDS)
        return Resumed(_after(self._generation), False, decision.reruns, reason)

    def _missing(self, decision: Decision, states: Mapping[int, State]) -> str:
        waits = max(state.waits for state in states.values())
        what = "the switch does not answer any more"
        if self._received() == self._results:
            what = "the switch has not answered: it has no slots for the job, or does not sum"
        return f"{what} ({self._named(decision.stuck)}: all have begun it, and a sum is missing for {waits:.2f} s)"

    def _named(self, steps: tuple[Rerun, ...]) -> str:
        return listed([self._exchange.what(tensor, step) for tensor, step in steps])

    def _tell_who_is_late(self, decision: Decision, states: Mapping[int, State]) -> None:
        """Once of a step."""
        if not decision.late or max(state.waits for state in states.values()) < _LATE_SECONDS:
            return
        step, ranks = decision.late[0]
        if step != self._late:
            self._late = step
            names = listed([self._job.name_of(rank) for rank in ranks])
            log.info("job %s: the sums of %s wait for %s", self._job.name, self._named((step,)), names,
                     extra=self._context)  # fmt: skip


def _after(generation: int) -> int:
    """The next one; 0 is none."""
    return generation % MOST_GENERATION + 1


def _newer(one: int, other: int) -> bool:
    """By serial numbers, as the switch compares them (RFC 1982)."""
    return 0 < (one - other) & MOST_GENERATION < 1 << 31
