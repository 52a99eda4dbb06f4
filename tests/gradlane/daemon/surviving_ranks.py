# SPDX-License-Identifier: Apache-2.0
"""A model of the ranks of a job that outlives deaths: their agents' decisions over connections that take any time, and
workers that ask for groups, wait in them, pause, and average with all."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from gradlane.control.leading import Leading, Message
from gradlane.control.membership import Membership
from gradlane.daemon.arbiter import Arbiter

GONE = {"gone": True}  # the end of a connection


def _job(size: int) -> Any:
    workers = [SimpleNamespace(rank=rank) for rank in range(size)]
    return SimpleNamespace(workers=workers, name_of=lambda rank: f"rank {rank}")


class Rank:
    """An agent with its worker. The worker is "idle", or it "asks", "waits" for groups to average, has "paused", is
    "meeting" the others, or "done"."""

    def __init__(self, ranks: Ranks, rank: int) -> None:
        self.rank, self._ranks = rank, ranks
        send = self._send
        self.arbiter = Arbiter(ranks.job, lambda: ranks.now)
        self.leading = Leading(rank, range(ranks.size), self.arbiter, send)
        self.membership = Membership(rank, range(ranks.size), send, self._dropped, self._out)
        self.state = "idle"
        self.steps = 0
        self.last = 0  # the number of the last group
        self.groups: list[tuple[int, tuple[int, ...]]] = []  # not averaged yet, by number; it is in the first
        self._most = 0  # of these, while it does not wait
        self._then = "idle"  # after it has waited
        self.outcomes: dict[int, Any] = {}  # of meetings
        self.why = ""

    def _send(self, to: int, message: Message) -> None:
        if to in self.membership.living or "dead" in message:
            self._ranks.connections[self.rank, to].append(message)

    def hear(self, rank: int, message: Message) -> None:
        if rank not in self.membership.living:
            return
        if message is GONE:
            self.membership.lost(rank, f"rank {rank} is gone")
        elif "dead" in message or "lost" in message:
            self.membership.hear(rank, message)
        else:
            self.leading.hear(rank, message)

    def _dropped(self, rank: int, why: str) -> None:
        self._wait([it for it in self.groups if rank not in it[1]])  # of one that is lost it keeps what it has
        self.leading.drop(rank)

    def _out(self, why: str) -> None:
        self.why = why
        self._ranks.kill(self.rank)

    def ask(self, pause: bool) -> None:
        """The worker's next question. Before it pauses it waits for what is in flight."""
        if pause and self.groups:
            self.state, self._most, self._then = "waits", 0, "idle"
            return
        self.state = "asks"
        question = {"kind": "next", "name": "m", "members": self._ranks.members, "slack": 1, "step": self.steps}
        self.steps += not pause
        self.leading.question({**question, "pause": pause}, lambda answer: self._answered(pause, answer))

    def _answered(self, pause: bool, answer: Message) -> None:
        group = tuple(answer["group"])
        assert self.rank in group
        alone = group == (self.rank,)
        self.state, self._then = "waits", "paused" if alone and pause else "idle"
        self._most = 0
        if not alone:
            assert answer["number"] > self.last, "in the order in which they were decided"
            self.last = answer["number"]
            assert self._ranks.decided.setdefault(self.last, group) == group or self._ranks.died(self.last)
            if self.membership.living.issuperset(group):
                self.groups.append((self.last, group))
                self._most = 0 if pause else self._ranks.delay
        self._wait(self.groups)

    def averaged(self) -> None:
        """The average of the first group is over."""
        self._wait(self.groups[1:])

    def _wait(self, groups: list[tuple[int, tuple[int, ...]]]) -> None:
        """For those that are left."""
        self.groups = groups
        if groups:
            self._ranks.entered.setdefault(groups[0], set()).add(self.rank)
        if self.state == "waits" and len(groups) <= self._most:
            self.state = self._then

    def meet(self, well: bool) -> None:
        """The worker comes to the next meeting."""
        self.state = "meeting"
        number = len(self.outcomes) + 1
        question = {"kind": "meet", "name": "m", "number": number, "agreed": well}

        def met(answer: Message) -> None:
            self.outcomes[number] = answer
            self.state = "done" if answer["agreed"] else "paused"

        self.leading.question(question, met)


class Ranks:
    """All of them. `connections`: what is in flight from one rank to another, in order."""

    def __init__(self, size: int, members: int, delay: int = 0) -> None:
        """`delay`: as that of Ripples."""
        self.size, self.members, self.delay = size, members, delay
        self.now = 0.0  # s; each move takes one
        self.job = _job(size)
        self.connections: dict[tuple[int, int], deque[Message]] = {
            (a, b): deque() for a in range(size) for b in range(size) if a != b
        }
        self.decided: dict[int, tuple[int, ...]] = {}  # groups by number
        self.entered: dict[tuple[int, tuple[int, ...]], set[int]] = {}
        self.dead: dict[int, int] = {}  # and how many messages of it still arrive
        self.ranks = [Rank(self, rank) for rank in range(size)]

    @property
    def living(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.rank not in self.dead]

    def died(self, number: int) -> bool:
        """Whether a group of that number has a dead member: nobody who lives may have got it, so its number is free."""
        return not self.dead.keys().isdisjoint(self.decided[number])

    def kill(self, rank: int, cut: int = 1 << 30) -> None:
        """Of what it has sent to each the first `cut` messages still arrive."""
        if rank in self.dead:
            return
        self.dead[rank] = cut
        for other in range(self.size):
            if other == rank:
                continue
            queue = self.connections[rank, other]
            while len(queue) > cut:
                queue.pop()
            queue.append(GONE)
            self.connections[other, rank].clear()

    def moves(self) -> list[tuple[str, int, int]]:
        """What may happen next."""
        found = [("deliver", a, b) for (a, b), queue in self.connections.items() if queue and b not in self.dead]
        for it in self.living:
            if it.state == "idle":
                found.append(("work", it.rank, 0))
            if it.groups and self.entered[it.groups[0]] >= set(it.groups[0][1]):
                found.append(("averaged", it.rank, 0))
        return found

    def move(self, kind: str, a: int, b: int, pause: bool = False) -> None:
        self.now += 1
        if kind == "deliver":
            self.ranks[b].hear(a, self.connections[a, b].popleft())
        elif kind == "work":
            self.ranks[a].ask(pause)
        else:
            self.ranks[a].averaged()
