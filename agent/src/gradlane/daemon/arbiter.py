# SPDX-License-Identifier: Apache-2.0
"""What the leader of a job decides for all its ranks (control/leading.py): the numbers of names, the groups of Ripples,
and with whom a collective of all is held where ranks may die."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gradlane import json_object
from gradlane.control.leading import Answered
from gradlane.errors import listed
from gradlane.ipc.messages import REQUESTS, Message
from gradlane.job import Job
from gradlane.job.names import LIMITS, Names
from gradlane.sync.generator import Decision, Generator, Known

MAX_SYNCHRONISED = 64  # models of a job
MAX_STEP = 1 << 53
_GROUPS_KEPT = 2  # a worker may ask while it waits in the group before (Ripples.delay)

Reply = Callable[[Message], None]

_SHAPES: dict[str, dict[str, json_object.Shape]] = {
    **{kind: {"name": str} for kind in LIMITS},
    **{kind: REQUESTS[kind] for kind in ("next", "meet")},
}
_ANSWERS: dict[str, dict[str, json_object.Shape]] = {
    **{kind: {"id": int} for kind in LIMITS},
    "next": {"number": int, "group": [int]},
    "meet": {"agreed": bool, "members": [int]},
}


@dataclass
class _Groups:
    """Of one synchronised model."""

    members: int
    slack: int
    by: str  # who named it first
    generator: Generator


@dataclass
class _Meeting:
    """Of one synchronised model. `outcome`: the number and the answer of the last one."""

    votes: dict[int, tuple[int, bool, Reply]] = field(default_factory=dict[int, tuple[int, bool, Reply]])
    outcome: tuple[int, Message] = (0, {})


class Arbiter:
    """A Service of control/leading.py. Questions and answers by `kind`:

    "tensor", "group": the number of a `name`, see Names.assign.

    "next": which group a worker averages with, after its local step number `step`, or where it takes none (`pause`);
    {"number", "group"} as a Decision has them.

    "meet": a worker has come to meeting `number` of all that live, and whether all went well there (`agreed`). When
    all have come: {"agreed": of all, "members": who they are}, the same to all.
    """

    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: in s, by which groups are decided."""
        self._job = job
        self._clock = clock
        self._workers = [member.rank for member in job.workers]
        self._living = set(self._workers)
        self._kept: dict[tuple[str, str], deque[Answered]] = {}  # by kind and name: what this rank was answered last
        self._names = Names()
        self._groups: dict[str, _Groups] = {}
        self._meetings: dict[str, _Meeting] = {}

    def answer(self, rank: int, question: Message, reply: Reply) -> None:
        """See Service."""
        kind = str(question["kind"])
        if kind not in _SHAPES:
            raise ValueError(f"asks for a {kind[:60]!r}: there are {', '.join(_SHAPES)}")
        json_object.check(question, _SHAPES[kind])
        if kind in LIMITS:
            reply(self._names.assign(self._job.name_of(rank), question))
        elif rank not in self._living:
            raise ValueError(f"is no worker, and asks for the {kind} of {question['name'][:60]!r}")
        elif kind == "next":
            reply(self._next(rank, question))
        else:
            self._meet(rank, question, reply)

    def keep(self, question: Message, answer: Message) -> None:
        """See Service."""
        if "error" not in answer:
            kind, name = question["kind"], question["name"]
            most = _GROUPS_KEPT if kind == "next" else 1
            self._kept.setdefault((kind, name), deque(maxlen=most)).append((question, answer))

    def kept(self) -> list[Answered]:
        """See Service."""
        return [it for answered in self._kept.values() for it in answered]

    def drop(self, rank: int) -> None:
        """See Service."""
        self._living.discard(rank)
        for groups in self._groups.values():
            groups.generator.drop(rank)
        for meeting in self._meetings.values():
            meeting.votes.pop(rank, None)
            self._settle(meeting)

    def check(self, rank: int, kept: list[Answered]) -> None:
        """See Service."""
        for question, answer in kept:
            kind = str(question["kind"])
            if kind not in _ANSWERS:
                raise ValueError(f"was answered about a {kind[:60]!r}: there are {', '.join(_ANSWERS)}")
            json_object.check(question, _SHAPES[kind])
            json_object.check(answer, _ANSWERS[kind])
            if kind in LIMITS and ("shape" not in question or not 0 <= answer["id"] < LIMITS[kind]):
                raise ValueError(f"has {answer['id']} as the number of {kind} {question['name'][:60]!r}")
            if kind == "next":
                self._check_step(question)
                number, group = answer["number"], answer["group"]
                ranks = [worker for worker in self._workers if worker in group]
                if rank not in group or group != ranks or not 0 <= number <= MAX_STEP:
                    raise ValueError(f"got the group {group[:8]}, number {number}")

    def restore(self, reports: dict[int, list[Answered]]) -> None:
        """See Service."""
        known: dict[str, dict[int, Known]] = {}
        for rank, pieces in reports.items():
            for question, answer in pieces:
                kind, name = str(question["kind"]), str(question["name"])
                if kind in LIMITS:
                    self._names.restore(self._job.name_of(rank), question, int(answer["id"]))
                elif kind == "meet":
                    meeting = self._meetings.setdefault(name, _Meeting())
                    if question["number"] > meeting.outcome[0]:
                        meeting.outcome = question["number"], answer
                elif isinstance(groups := self._groups_of(rank, question), _Groups):
                    it = known.setdefault(name, {}).setdefault(rank, Known())
                    it.step, it.paused = question["step"], question["pause"]
                    it.got.append(Decision(int(answer["number"]), tuple(map(int, answer["group"]))))
        for name, groups in self._groups.items():
            new = {rank: Known() for rank in self._living}
            groups.generator.restore(new | known[name])

    def missing(self) -> dict[str, list[int]]:
        """At the leader, by name: who keeps the others waiting in a meeting."""
        return {name: sorted(self._living - it.votes.keys()) for name, it in self._meetings.items() if it.votes}

    def _groups_of(self, rank: int, question: Message) -> "_Groups | str":
        """Of the question's model; or what is wrong with it."""
        name, members, slack = question["name"], question["members"], question["slack"]
        size = len(self._workers)
        who = self._job.name_of(rank)
        self._check_step(question)
        groups = self._groups.get(name)
        if groups is None:
            if len(self._groups) == MAX_SYNCHRONISED:
                return f"a job synchronises at most {MAX_SYNCHRONISED} models; {name!r} would be one more"
            groups = self._groups[name] = _Groups(members, slack, who, Generator(size, members, slack, self._clock))
            for dead in self._dead():
                groups.generator.drop(dead)
        if (groups.members, groups.slack) != (members, slack):
            mine, first = f"{members} members, slack {slack}", f"{groups.members} members, slack {groups.slack}"
            return f"{who} and {groups.by} disagree about ripples of {name!r}: {mine} against {first}"
        return groups

    def _check_step(self, question: Message) -> None:
        members, slack, step = question["members"], question["slack"], question["step"]
        if not 2 <= members <= max(2, len(self._workers)) or not 0 <= slack <= MAX_STEP or not 0 <= step <= MAX_STEP:
            raise ValueError(f"asks for a group of {members} at step {step}, with a slack of {slack}")

    def _dead(self) -> Iterable[int]:
        return (rank for rank in self._workers if rank not in self._living)

    def _next(self, rank: int, question: Message) -> Message:
        groups = self._groups_of(rank, question)
        if isinstance(groups, str):
            return {"error": groups}
        generator = groups.generator
        decision = generator.pause(rank) if question["pause"] else generator.ask(rank, question["step"])
        return {"number": decision.number, "group": list(decision.group)}

    def _meet(self, rank: int, question: Message, reply: Reply) -> None:
        if question["name"] not in self._meetings and len(self._meetings) == MAX_SYNCHRONISED:
            reply({"error": f"a job synchronises at most {MAX_SYNCHRONISED} models"})
            return
        meeting = self._meetings.setdefault(question["name"], _Meeting())
        number, answer = meeting.outcome
        if question["number"] == number:
            reply(answer)
            return
        meeting.votes[rank] = question["number"], question["agreed"], reply
        self._settle(meeting)

    def _settle(self, meeting: _Meeting) -> None:
        if not meeting.votes or self._living - meeting.votes.keys():
            return
        votes, meeting.votes = meeting.votes, {}
        numbers = {number: rank for rank, (number, _, _) in votes.items()}
        answer: dict[str, Any] = {
            "agreed": all(agreed for _, agreed, _ in votes.values()),
            "members": sorted(self._living),
        }
        if len(numbers) > 1:
            who = listed([f"{self._job.name_of(rank)} for the {n}th time" for n, rank in sorted(numbers.items())])
            answer = {"error": f"the workers do not take the same steps: all average, {who}"}
        else:
            meeting.outcome = next(iter(numbers)), answer
        for _, _, reply in votes.values():
            reply(answer)
