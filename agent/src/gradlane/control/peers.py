# SPDX-License-Identifier: Apache-2.0
"""The control connections of one job at one rank: rendezvous, liveness and the orderly end.

One TLS connection between every two ranks, opened by the higher rank, lines of JSON. They carry nothing that a step of
training waits for: the transport's own messages are datagrams in the top queue class.
"""

import asyncio
import functools
import math
import time
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from gradlane import json_object
from gradlane.control import handshake, topics
from gradlane.control.absent import Absent
from gradlane.control.calling import Caller
from gradlane.control.handshake import Call, Message, Refused
from gradlane.control.leading import Leading, Service
from gradlane.control.membership import MAX_REASON, Membership
from gradlane.control.peer import Peer, Stage
from gradlane.control.security import Credentials
from gradlane.errors import AgentError, listed
from gradlane.job import Job

HEARTBEAT_SECONDS = 0.5
# TCP sends again 0.2, 0.6, 1.4, 3 and 6.2 s after a loss, so a connection survives an outage of 5 s.
DEAD_SECONDS = 7.5


class Peers:
    """All connections of one job at one rank. `failed` is called once, with the reason, when the job can't go on.

    `service` answers the questions of all ranks, where this one leads. `notice` tells of what may still end well.
    `dropped` is called with each rank that is dead, and why, in a job that outlives deaths. `waiting` goes to the
    others with each heartbeat. TCP holds heartbeats back behind whatever is lost, so datagrams are signs of life too:
    `beat` sends one to a rank, `silence` gives the seconds since one of the transport came from it. `listeners` take
    what is told of topics that go on all the time, by their names: (rank, content).
    """

    def __init__(
        self,
        job: Job,
        rank: int,
        credentials: Credentials,
        failed: Callable[[str], None],
        service: Service,
        notice: Callable[[str], None],
        dropped: Callable[[int, str], None],
    ) -> None:
        self.job = job
        self.rank = rank
        self.waiting: str | None = None
        self.listeners: dict[str, Callable[[int, Any], None]] = {}
        self.silence: Callable[[int], float] = _never_heard
        self.beat: Callable[[int], None] | None = None  # until the token is known
        self._caller = Caller(job, rank, credentials)
        self._failed = failed
        self._dropped = dropped
        self._peers: dict[int, Peer] = {}
        self.absent = Absent(job, rank, self._peers, notice)  # until all are connected
        self._stage = Stage.CONNECTED
        self._others = [member.rank for member in job.members if member.rank != rank]
        self._told: dict[str, dict[int, Any]] = {}  # by topic and rank
        self.leading = Leading(rank, range(len(job.members)), service, self._send)
        # Of a job that outlives deaths, when all have joined it.
        self._membership: Membership | None = None
        self._closed: Callable[[int, int], None] | None = None
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._refusal = ""

    def name(self, rank: int) -> str:
        """A rank as errors name it."""
        return self.job.name_of(rank)

    def start(self) -> None:
        """Begins to call the lower ranks, the nearest first, so that not all call one; the higher ranks call us."""
        for rank in reversed(range(self.rank)):
            self._spawn(self._call(rank))
        self._spawn(self._beat())

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(f"control connection of {self.name(self.rank)}: {error!r}")

    # Connecting

    async def _call(self, rank: int) -> None:
        try:
            reader, writer = await self._caller.call(rank, functools.partial(self.absent.note, rank))
        except Refused as error:
            self._refuse(f"{self.name(rank)} {error}")
        else:
            self._adopt(rank, reader, writer)

    def accept(self, call: Call) -> str:
        """Takes over a connection that another agent opened; or what is wrong with it.

        Raises ConnectionError for a rank that is connected: its agent was restarted, and this is the end of the job.
        Also for the next job of that name, while this rank only waits for all to leave this one: it is to call again.
        """
        if problem := call.problem(self.job, self.rank):
            if call.knows(self.job, self.rank):
                if self._stage >= Stage.LEFT:
                    raise ConnectionError(f"the job {self.job.name!r} before it is not over yet")
                self._refuse(f"{self.name(call.rank)} {problem}")
            else:
                self.absent.refused(call.address, problem)
            return problem
        if why := self.dead.get(call.rank):
            return f"goes on without rank {call.rank}, which died: {why}"
        if peer := self._peers.get(call.rank):
            self._lost(peer, "is gone: its agent was restarted, and calls again")
            raise ConnectionError(f"rank {call.rank} is connected already")
        call.accept(self.job, self.rank)
        self._adopt(call.rank, call.reader, call.writer)
        return ""

    def _refuse(self, reason: str) -> None:
        self._refusal = self._refusal or reason
        self._changed.set()

    def _adopt(self, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closing:
            writer.transport.abort()
            return
        self._peers[rank] = peer = Peer(rank, reader, writer)
        peer.send({"stage": self._stage})
        peer.listening = self._spawn(self._listen(peer))
        self._changed.set()

    # Agreeing

    async def _wait(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._closing:  # wait_for of Python before 3.12 loses a cancellation that comes with what it waits for
                raise asyncio.CancelledError
            if condition():
                return True
            self._changed.clear()
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except asyncio.TimeoutError:
                return condition()

    async def connected(self, timeout: float) -> None:
        """Returns when all ranks are connected. Raises AgentError naming who is missing after `timeout` seconds."""
        complete = await self._wait(lambda: bool(self._refusal) or len(self._peers) == len(self._others), timeout)
        if self._refusal or not complete:
            raise AgentError(
                self._refusal or f"after {timeout:g} s these have not joined the job: {listed(self.absent.names())}"
            )

    async def reach(self, stage: Stage, timeout: float | None) -> None:
        """Says that this rank has reached the stage, and waits for the others. Raises AgentError naming who has not."""
        self._stage = stage
        for peer in self._peers.values():
            peer.send({"stage": stage})
        if not await self._wait(lambda: all(p.stage >= stage for p in self._peers.values()), timeout):
            missing = listed([self.name(p.rank) for p in self._peers.values() if p.stage < stage])
            raise AgentError(f"after {timeout:g} s these have not reached the stage {stage.name}: {missing}")

    def tell(self, topic: str, content: Any, ranks: list[int] | None = None) -> None:
        """Sends `content` to those ranks (None: to all others), where `told` returns it, or a listener takes it."""
        for rank in self._others if ranks is None else ranks:
            self._send(rank, {"topic": topic, "content": content})

    def _send(self, rank: int, message: Message) -> None:
        if rank in self._peers:
            self._peers[rank].send(message)

    async def told(self, topic: str, ranks: list[int], timeout: float) -> list[Any]:
        """What those ranks have sent about the topic. Raises AgentError naming who has not after `timeout` seconds."""
        found = self._told.setdefault(topic, {})
        if not await self._wait(lambda: all(rank in found for rank in ranks), timeout):
            missing = listed([self.name(rank) for rank in ranks if rank not in found])
            raise AgentError(f"after {timeout:g} s these have not sent the {topic}: {missing}")
        return [found[rank] for rank in ranks]

    async def workers_left(self) -> None:
        """Returns when every worker has left: a server ends with them."""
        workers = len(self.job.workers)
        await self._wait(lambda: all(p.stage >= Stage.LEFT for p in self._peers.values() if p.rank < workers), None)

    # The end

    def abort(self, reason: str) -> None:
        """Tells the others why this rank gives up."""
        for peer in self._peers.values():
            peer.send({"failed": reason[:MAX_REASON]})
        self.leading.fail(reason)

    def close(self) -> None:
        """Ends all connections; what was queued is still sent."""
        self._closing = True
        self.silence = _never_heard  # the engine that knows is gone
        for task in self._tasks:
            task.cancel()
        for peer in self._peers.values():
            peer.hang_up()

    # While it runs

    def state(self, rank: int) -> tuple[str, float | None]:
        """Of the connection to a rank: "none", "connected", "silent" or "dead", and the seconds since it was heard."""
        peer = self._peers.get(rank)
        if peer is None:
            return "dead" if rank in self.dead else "none", None
        age = self._age(peer)
        return "silent" if age > 3 * HEARTBEAT_SECONDS else "connected", age

    def hear(self, rank: int) -> None:
        """A rank has given a sign of life."""
        if rank in self._peers:
            self._peers[rank].heard = time.monotonic()

    def lived(self, rank: int) -> float:
        """The seconds for which a rank has run since it was connected, by its heartbeats."""
        return self._peers[rank].beats * HEARTBEAT_SECONDS

    def _age(self, peer: Peer) -> float:
        """Seconds since the last sign of life."""
        age = time.monotonic() - peer.heard
        return age if age < DEAD_SECONDS / 2 or age == math.inf else min(age, self.silence(peer.rank))

    def waits_for(self, rank: int) -> str | None:
        """The operation that a rank has waited for longest, by its last heartbeat."""
        return self._peers[rank].waiting

    def has_left(self, rank: int) -> bool:
        """Whether a rank has left the job."""
        return self._peers[rank].stage >= Stage.LEFT

    def _lost(self, peer: Peer, what: str, certain: bool = True) -> None:
        why = f"{self.name(peer.rank)} {what}"
        if self._stage == Stage.GONE:
            peer.stage = Stage.GONE
            self._changed.set()
        elif self._closing or self._peers.get(peer.rank) is not peer:
            pass
        elif self._membership is None:
            if peer.stage < Stage.LEFT:
                self._failed(why)
        elif not certain:
            peer.heard = -math.inf  # nothing comes from it any more; whether it is dead nobody knows
        elif peer.stage < Stage.GONE:
            self._membership.lost(peer.rank, why)

    async def _listen(self, peer: Peer) -> None:
        try:
            # What makes an end of this task is heard of only where it waits, and it may not: more lines may be here.
            while not self._closing and self._peers.get(peer.rank) is peer:
                message = await handshake.read(peer.reader)
                peer.heard = time.monotonic()
                if "failed" not in message:
                    self._handle(peer, message)
                elif self._membership is not None:
                    self._membership.lost(peer.rank, str(message["failed"])[:MAX_REASON])
                else:
                    peer.stage = Stage.GONE
                    self._failed(str(message["failed"]))
                    return
        except (EOFError, ConnectionError):
            self._lost(peer, "is gone: its agent closed the connection")
        except OSError as error:
            self._lost(peer, f"is out of reach: {error!r}", certain=False)
        except json_object.NONSENSE as error:
            self._lost(peer, f"sent what makes no sense: {error!r}")

    def _handle(self, peer: Peer, message: Message) -> None:
        if "waiting" in message:
            json_object.check(message, {"waiting": (str, None)})
            peer.waiting = message["waiting"]
            peer.beats += 1
        elif "stage" in message:
            peer.stage = Stage(message["stage"])
        elif topics.is_one(message.get("topic")):
            topics.check(message["topic"], message["content"])
            self._told.setdefault(message["topic"], {})[peer.rank] = message["content"]
        elif (take := self.listeners.get(message.get("topic", ""))) is not None:
            take(peer.rank, message["content"])
        elif message.get("topic") == "closed" and self._closed is not None:
            self._closed(peer.rank, int(message["content"]))
        elif "lost" in message or "dead" in message:
            if self._membership is None:
                raise ValueError("it says who is dead, in a job that ends with the first")
            self._membership.hear(peer.rank, message)
        elif "ask" in message or "answer" in message or "report" in message:
            self.leading.hear(peer.rank, message)
        self._changed.set()

    async def _beat(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            now = time.monotonic()
            # While this agent did not run (it was stopped, its host was busy) it could not hear the others.
            absent = now - last - HEARTBEAT_SECONDS
            if absent > HEARTBEAT_SECONDS:
                for peer in self._peers.values():
                    peer.heard = min(now, peer.heard + absent)
            last = now
            self._look_for_silent()
            if self._closing:
                return
            for peer in self._peers.values():
                peer.send({"waiting": self.waiting})
                if self.beat is not None:
                    self.beat(peer.rank)

    def _look_for_silent(self) -> None:
        leaving = Stage.LEFT if self._membership is None else Stage.GONE
        ages = {p.rank: self._age(p) for p in self._peers.values() if p.stage < leaving}
        silent = [rank for rank, age in ages.items() if age > DEAD_SECONDS]
        if not silent:
            return
        # Not all others fail at once: who has fallen silent meanwhile is behind the same link or switch.
        quiet = [rank for rank, age in ages.items() if age > DEAD_SECONDS / 2]
        if len(ages) > 1 and len(quiet) == len(ages):
            self._failed(
                f"no agent of the job has answered for {DEAD_SECONDS:g} s: the switch or the link of "
                f"{self.name(self.rank)} is down"
            )
        elif self._membership is None:
            self._failed(self._unanswered(silent))
        else:
            doubtful = [rank for rank, age in ages.items() if age > 3 * HEARTBEAT_SECONDS]
            self._membership.silent(silent, quiet, doubtful, self._unanswered)

    def _unanswered(self, ranks: Collection[int]) -> str:
        who = listed(list(map(self.name, ranks)))
        return f"{who}: no answer for {DEAD_SECONDS:g} s; the host, its agent or the network is down"

    # Deaths that the job outlives

    @property
    def dead(self) -> dict[int, str]:
        """The ranks that have died in a job that outlives it, and why."""
        return {} if self._membership is None else self._membership.dead

    def outlive(self, closed: Callable[[int, int], None]) -> None:
        """From now on, when all have joined, ranks may die, and the others go on. `closed` takes who says that a dead
        rank is in a group, as others know first, and the group's number."""
        ranks = [self.rank, *self._peers]
        self._closed = closed
        self._membership = Membership(self.rank, ranks, self._send, self._drop, self._failed)

    def expel(self, ranks: Collection[int], why: str) -> None:
        """The others go on without ranks that live, but keep them waiting. If this is one of them, it ends."""
        for rank in ranks:
            if rank != self.rank and self._membership is not None:
                self._membership.lost(rank, why)
        if self.rank in ranks:
            self._failed(why)

    def _drop(self, rank: int, why: str) -> None:
        peer = self._peers.pop(rank, None)
        self._others.remove(rank)
        if peer is not None and not self._closing:
            peer.hang_up()
        self._dropped(rank, why)
        self.leading.drop(rank)
        self._changed.set()


def _never_heard(_: int) -> float:
    return math.inf
