# SPDX-License-Identifier: Apache-2.0
"""The stages of a job, which all ranks enter together, and what they tell one another on the way.

Each says which stage it has reached to those who have to know: its neighbours or the hub, and in the end both. The hub,
the lowest rank that lives, has a connection to every rank, and tells all when they have.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from gradlane.control.board import Board
from gradlane.control.links import Links
from gradlane.control.peer import Peer, Stage
from gradlane.errors import AgentError, listed
from gradlane.job import Job

HUB_SECONDS = 2.0  # for the hub, to say who is late, before others say that they miss its word


class Rendezvous:
    """At one rank. `living` gives the ranks that live, with this one; `ready` is called when all are.
    `reached`: the last stage that all have."""

    def __init__(
        self,
        job: Job,
        rank: int,
        links: Links,
        board: Board,
        living: Callable[[], Collection[int]],
        ready: Callable[[], None],
    ) -> None:
        self.stage = Stage.CONNECTED
        self.reached = -1
        self._ready = ready
        self._job, self._rank = job, rank
        self._links, self._board, self._living = links, board, living
        self._told: dict[str, dict[int, Any]] = {}  # by topic and rank
        self._refusal = ""
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def _leads(self) -> bool:
        return min(self._living()) == self._rank

    @property
    def _silent_hub(self) -> str:
        return f"{self._job.name_of(min(self._living()))} does not say who"

    def news(self) -> None:
        """Something has changed."""
        self._changed.set()

    def close(self) -> None:
        """The job is over here."""
        self._closed = True

    def refuse(self, reason: str) -> None:
        """The job can't be joined."""
        self._refusal = self._refusal or reason
        self.news()

    def hear(self, peer: Peer, stage: Stage) -> None:
        """A rank has reached a stage."""
        peer.stage = stage
        if stage >= Stage.LEFT:
            self._board.leaves(peer.rank)
        if stage == Stage.GONE:  # it knows that all have left
            self.all_have(Stage.LEFT)

    def all_have(self, stage: Stage) -> None:
        """All have reached a stage."""
        if self.reached < Stage.READY <= stage:
            self._ready()
        self.reached = max(self.reached, stage)

    def take(self, topic: str, rank: int, content: Any) -> None:
        """A rank tells of a topic."""
        self._told.setdefault(topic, {})[rank] = content

    async def _wait(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        clock = asyncio.get_running_loop().time
        deadline = None if timeout is None else clock() + timeout
        while True:
            if self._closed:  # wait_for of Python before 3.12 loses a cancellation that comes with what it waits for
                raise asyncio.CancelledError
            if condition():
                return True
            self._changed.clear()
            left = None if deadline is None else deadline - clock()
            if left is not None and left <= 0:
                return False
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except asyncio.TimeoutError:
                return condition()

    def _behind(self, stage: Stage) -> list[int]:
        """Who has not reached a stage, at the hub."""
        return [
            rank
            for rank in self._living()
            if rank != self._rank and (rank not in self._links.peers or self._links.peers[rank].stage < stage)
        ]

    def _judge(self, stage: Stage) -> bool:
        """Whether all have reached a stage; the hub tells the others."""
        if self.reached < stage and self._leads and not self._behind(stage):
            self.all_have(stage)
            for peer in self._links.peers.values():
                peer.send({"reached": stage})
        return self.reached >= stage

    async def connected(self, timeout: float) -> None:
        """Returns when all ranks have joined. Raises AgentError naming who is missing after `timeout` seconds."""

        def here() -> bool:
            return self._judge(Stage.CONNECTED) and self._links.wanted <= self._links.peers.keys()

        complete = await self._wait(lambda: bool(self._refusal) or here(), timeout)
        if self._refusal or not complete:
            missing = listed(self._links.absent.names()) or self._silent_hub
            raise AgentError(self._refusal or f"after {timeout:g} s these have not joined the job: {missing}")

    async def near(self, stage: Stage, timeout: float) -> None:
        """Says that this rank has reached the stage, and waits for its neighbours. Raises AgentError naming them."""
        self._enter(stage, self._links.neighbours)

        def missing() -> list[int]:
            return [rank for rank in sorted(self._links.neighbours) if self._links.peers[rank].stage < stage]

        if not await self._wait(lambda: not missing(), timeout):
            raise AgentError(self._too_late(stage, timeout, missing()))

    async def reach(self, stage: Stage, timeout: float | None) -> None:
        """Says that this rank has reached the stage, and waits for the others. Raises AgentError naming who has not."""
        self._enter(stage, list(self._links.peers) if stage >= Stage.LEFT else [min(self._living())])
        if stage == Stage.GONE and not self._leads:
            return  # only the hub has to know who needs it no more
        longer = None if timeout is None else timeout + (0 if self._leads else HUB_SECONDS)
        if not await self._wait(lambda: self._judge(stage), longer):
            raise AgentError(self._too_late(stage, timeout, self._behind(stage) if self._leads else []))

    def _enter(self, stage: Stage, tell: Collection[int]) -> None:
        self.stage = stage
        if stage >= Stage.LEFT:
            self._board.leaves(self._rank)
        for rank in tell:
            if rank in self._links.peers:
                self._links.peers[rank].send({"stage": stage})

    def _too_late(self, stage: Stage, timeout: float | None, ranks: Collection[int]) -> str:
        who = listed(list(map(self._job.name_of, ranks))) or self._silent_hub
        return f"after {timeout:g} s these have not reached the stage {stage.name}: {who}"

    async def told(self, topic: str, ranks: list[int], timeout: float) -> list[Any]:
        """What those ranks have sent about the topic. Raises AgentError naming who has not after `timeout` seconds."""
        found = self._told.setdefault(topic, {})
        if not await self._wait(lambda: all(rank in found for rank in ranks), timeout):
            missing = listed([self._job.name_of(rank) for rank in ranks if rank not in found])
            raise AgentError(f"after {timeout:g} s these have not sent the {topic}: {missing}")
        return [found[rank] for rank in ranks]

    async def workers_left(self) -> None:
        """Returns when every worker has left: a server ends with them."""
        workers = {member.rank for member in self._job.workers}
        await self._wait(lambda: workers.intersection(self._living()) <= self._board.left, None)
