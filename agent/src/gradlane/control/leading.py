# SPDX-License-Identifier: Apache-2.0
"""Questions that the ranks of a job ask the one that leads: the lowest that lives.

When the leader dies the next rank takes over. Nothing was written down, so each of the others reports what it was
answered, which is all that anybody has acted on; the successor makes up its mind from the reports of all that live, and
answers nobody before. A question without an answer is asked again.
"""

import asyncio
import functools
import itertools
from collections.abc import Callable, Collection
from typing import Any, Protocol

from gradlane import json_object
from gradlane.errors import AgentError

Message = dict[str, Any]
Answered = tuple[Message, Message]  # a question, and its answer

MAX_WAITING = 64  # questions of one rank that wait for a leader that takes over
_PIECE = 32  # of what is reported, in a message
_MAX_KEPT = 1 << 14  # answers of one rank: the numbers of all names, and two of each model


class Service(Protocol):
    """What leads, in terms of its questions and answers."""

    def answer(self, rank: int, question: Message, reply: Callable[[Message], None]) -> None:
        """At the leader: a rank's question; `reply` may be called later. Raises ValueError, TypeError, KeyError."""
        ...

    def keep(self, question: Message, answer: Message) -> None:
        """This rank was answered."""
        ...

    def kept(self) -> list[Answered]:
        """What a successor has to know of that."""
        ...

    def check(self, rank: int, kept: list[Answered]) -> None:
        """At a successor: whether a rank can have been answered so. Raises as `answer`."""
        ...

    def restore(self, reports: dict[int, list[Answered]]) -> None:
        """At a successor: what those that live, itself among them, have kept, each part checked."""
        ...

    def drop(self, rank: int) -> None:
        """A rank is dead."""
        ...


class Leading:
    """At one rank. `hear` gets what others say; the messages of a pair of ranks come in order.

    Where it takes over, it waits for the reports of those `awaited`: see to it that this does not last.
    """

    def __init__(
        self, rank: int, ranks: Collection[int], service: Service, send: Callable[[int, Message], None]
    ) -> None:
        self.leader = min(ranks)
        self._rank = rank
        self._living = set(ranks)
        self._service = service
        self._send = send
        self._numbers = itertools.count()
        self._futures: set[asyncio.Future[Message]] = set()
        self._asked: dict[int, tuple[Message, Callable[[Message], None]]] = {}
        self.awaited: set[int] = set()  # of a successor: who has not reported
        self._reports: dict[int, list[Answered]] = {}
        self._waiting: list[tuple[int, int, Message]] = []  # rank, number, question: until all have reported

    async def ask(self, question: Message) -> Message:
        """The leader's answer. Raises AgentError if the job fails."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.question(question, lambda answer: None if future.done() else future.set_result(answer))
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return await future

    def fail(self, reason: str) -> None:
        """The job has failed: nobody gets an answer."""
        for future in list(self._futures):
            if not future.done():
                future.set_exception(AgentError(reason))

    def question(self, question: Message, done: Callable[[Message], None]) -> None:
        """`done` gets the leader's answer."""
        number = next(self._numbers)
        self._asked[number] = question, done
        if self.leader == self._rank:
            self._take(self._rank, number, question)
        else:
            self._send(self.leader, {"ask": number, "question": question})

    def hear(self, rank: int, message: Message) -> None:
        """What another rank says of this. Raises ValueError, TypeError or KeyError if it makes no sense."""
        if rank not in self._living:
            return
        if "question" in message:
            if self.leader != self._rank:
                raise ValueError(f"it asks, and rank {self.leader} leads")
            self._take(rank, int(message["ask"]), dict(message["question"]))
        elif "answer" in message:
            self._answered(rank, int(message["answer"]), message["content"])
        else:
            self._report(rank, message)

    def _take(self, rank: int, number: int, question: Message) -> None:
        if self.awaited:
            if sum(who == rank for who, _, _ in self._waiting) >= MAX_WAITING:
                raise ValueError(f"it has more than {MAX_WAITING} questions at once")
            self._waiting.append((rank, number, question))
            return
        self._service.answer(rank, question, functools.partial(self._reply, rank, number))

    def _take_late(self, rank: int, number: int, question: Message) -> None:
        """A question that has waited. If it makes no sense, that is not the fault of whom is listened to just now."""
        try:
            self._take(rank, number, question)
        except json_object.NONSENSE as error:
            self._reply(rank, number, {"error": f"rank {rank} asks what makes no sense: {error!r}"})

    def _reply(self, rank: int, number: int, content: Message) -> None:
        if rank == self._rank:
            self._answered(rank, number, content)
        elif rank in self._living:
            self._send(rank, {"answer": number, "content": content})

    def _answered(self, rank: int, number: int, content: Message) -> None:
        if rank != self.leader:
            raise ValueError(f"it answers, and rank {self.leader} leads")
        question, done = self._asked.pop(number)
        self._service.keep(question, content)
        done(content)

    def _report(self, rank: int, message: Message) -> None:
        if rank not in self.awaited:
            raise ValueError("it reports what nobody waits for")
        pieces = [(dict(question), dict(answer)) for question, answer in message["report"]]
        kept = self._reports.setdefault(rank, [])
        kept.extend(pieces)
        if len(kept) > _MAX_KEPT:
            raise ValueError(f"it reports more than {_MAX_KEPT} answers")
        if message["whole"]:
            self._service.check(rank, kept)
            self.awaited.discard(rank)
            self._begin()

    def drop(self, rank: int) -> None:
        """A rank is dead."""
        self._living.discard(rank)
        self.awaited.discard(rank)
        self._reports.pop(rank, None)
        self._waiting = [it for it in self._waiting if it[0] != rank]
        self._service.drop(rank)
        if rank != self.leader:
            if self._reports and not self.awaited:
                self._begin()
            return
        self.leader = min(self._living)
        if self.leader == self._rank:
            self.awaited = self._living - {self._rank}
            self._reports = {self._rank: self._service.kept()}
            self._begin()
        else:
            kept = self._service.kept()
            for start in range(0, max(1, len(kept)), _PIECE):
                whole = start + _PIECE >= len(kept)
                self._send(self.leader, {"report": kept[start : start + _PIECE], "whole": whole})
        for number, (question, _) in list(self._asked.items()):
            if self.leader == self._rank:
                self._take_late(self._rank, number, question)
            else:
                self._send(self.leader, {"ask": number, "question": question})

    def _begin(self) -> None:
        """Leads, once all have reported."""
        if self.awaited:
            return
        reports, self._reports = self._reports, {}
        self._service.restore(reports)
        waiting, self._waiting = self._waiting, []
        for rank, number, question in waiting:
            self._take_late(rank, number, question)
