# SPDX-License-Identifier: Apache-2.0
"""One rank among those of its job: what they tell one another, whether they live, and the end.

It has TLS connections to its neighbours and to the hub (links.py), which carry lines of JSON. Nothing that a step of
training waits for goes there: the transport's own messages are datagrams in the top queue class.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from gradlane import json_object
from gradlane.control import handshake, topics
from gradlane.control.board import Board
from gradlane.control.closings import Closings
from gradlane.control.handshake import Call, Message
from gradlane.control.leading import Leading, Service
from gradlane.control.links import Links
from gradlane.control.membership import MAX_REASON, Membership
from gradlane.control.peer import Peer, Stage
from gradlane.control.rendezvous import Rendezvous
from gradlane.control.security import Credentials
from gradlane.control.signs import DEAD_SECONDS, HEARTBEAT_SECONDS, Signs, never_heard
from gradlane.errors import listed
from gradlane.job import Job

# Between heartbeats, which say nothing of others, until all are ready: many agents may share a machine, and are busy.
JOINING_SECONDS = 1.0


class Peers:
    """The others of one job at one rank. `failed` is called once, with the reason, when the job can't go on.

    `service` answers the questions of all ranks, where this one leads. `notice` tells of what may still end well.
    `dropped` is called with each rank that is dead, and why, in a job that outlives deaths. TCP holds heartbeats back
    behind whatever is lost; then datagrams are signs of life: `beat` sends one to a rank. `listeners` take what is
    told of topics that go on all the time, by their names: (rank, content).
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
        self.listeners: dict[str, Callable[[int, Any], None]] = {}
        self.beat: Callable[[int], None] | None = None  # until the token is known
        self._failed = failed
        self._dropped = dropped
        self._clock = asyncio.get_running_loop().time
        self._all = range(len(job.members))
        self.signs = Signs(rank, len(self._all), self._clock)
        self.board = Board(len(self._all), self._clock)
        self._links = Links(job, rank, credentials, self._spawn, self._adopted, self._refused, notice)
        self._peers, self.absent = self._links.peers, self._links.absent
        self._links.fit(self._all)
        self.rendezvous = Rendezvous(job, rank, self._links, self.board, lambda: self.living, self._begin)
        self._missed: list[int] = []  # whom the hub has told to be absent
        self.leading = Leading(rank, self._all, service, self._send)
        # Of a job that outlives deaths, when all have joined it.
        self._membership: Membership | None = None
        self._closings: Closings | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def name(self, rank: int) -> str:
        """A rank as errors name it."""
        return self.job.name_of(rank)

    @property
    def neighbours(self) -> list[int]:
        """Those that this rank watches, the next first."""
        return sorted(self._links.neighbours, key=lambda rank: (rank - self.rank) % len(self._all))

    @property
    def living(self) -> Collection[int]:
        """The ranks that live, with this one."""
        return self._all if self._membership is None else self._membership.living

    @property
    def _hub(self) -> int:
        return min(self.living)

    @property
    def complete(self) -> bool:
        """Whether all have joined."""
        return self.rendezvous.reached >= Stage.CONNECTED

    @property
    def _ready(self) -> bool:
        """Whether all take datagrams: from now on they are watched."""
        return self.rendezvous.reached >= Stage.READY

    def _begin(self) -> None:
        self.signs.begin(self._all)

    def start(self) -> None:
        """Begins to call the lower ranks that this one needs; the higher ones call us."""
        self._links.start()
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

    def accept(self, call: Call) -> str:
        """Takes over a connection that another agent opened; or what is wrong with it.

        Raises ConnectionError for a rank that is connected: its agent was restarted, and this is the end of the job.
        Also for the next job of that name, while this rank only waits for all to leave this one: it is to call again.
        """
        if problem := call.problem(self.job, self.rank):
            if call.knows(self.job, self.rank):
                if self.rendezvous.stage >= Stage.LEFT:
                    raise ConnectionError(f"the job {self.job.name!r} before it is not over yet")
                self.rendezvous.refuse(f"{self.name(call.rank)} {problem}")
            else:
                self.absent.refused(call.address, problem)
            return problem
        if why := self.dead.get(call.rank):
            return f"goes on without rank {call.rank}, which died: {why}"
        if peer := self._peers.get(call.rank):
            self._lost(peer, "is gone: its agent was restarted, and calls again")
            raise ConnectionError(f"rank {call.rank} is connected already")
        call.accept(self.job, self.rank)
        self._links.adopt(call.rank, call.reader, call.writer)
        return ""

    def _refused(self, rank: int, why: str) -> None:
        if self._membership is None:
            self.rendezvous.refuse(f"{self.name(rank)} {why}")
        else:
            self._failed(f"{self.name(rank)} {why}")

    def _adopted(self, peer: Peer) -> None:
        self.signs.hear(peer.rank)
        if self.rendezvous.stage > peer.stage:
            peer.send({"stage": self.rendezvous.stage})
        if self.complete and self._hub == self.rank:
            peer.send({"reached": self.rendezvous.reached})
        peer.listening = self._spawn(self._listen(peer))
        self.rendezvous.news()

    # Telling

    def tell(self, topic: str, content: Any, ranks: list[int] | None = None) -> None:
        """Sends `content` to those ranks (None: to all others), where `told` returns it, or a listener takes it. They
        or this one are the hub."""
        for rank in list(self.living) if ranks is None else ranks:
            self._send(rank, {"topic": topic, "content": content})

    def _send(self, rank: int, message: Message) -> None:
        held = self._membership is not None and not self._closing
        if rank != self.rank and not self._links.send(rank, message, held) and self._membership is not None:
            self._membership.lost(rank, f"{self.name(rank)} does not call {self.name(self.rank)}, which leads now")

    # The end

    def abort(self, reason: str) -> None:
        """Tells the others why this rank gives up. Whoever hears it does so, too, or the hub tells all."""
        for peer in self._peers.values():
            peer.send({"failed": reason[:MAX_REASON]})
        self.leading.fail(reason)

    def close(self) -> None:
        """Ends all connections; what was queued is still sent."""
        self._closing = True
        self.rendezvous.close()
        self.signs.silence = never_heard  # the engine that knows is gone
        for task in self._tasks:
            task.cancel()
        self._links.close()

    # While it runs

    def state(self, rank: int) -> tuple[str, float | None]:
        """Of a rank: "none" (not joined), "connected", "silent" or "dead", and the seconds since it was heard."""
        if rank in self.dead:
            return "dead", None
        if rank not in self._peers and not self.complete:
            return "none", None
        age = self.signs.age(rank)
        return "silent" if self._ready and age > self.signs.usual(rank) else "connected", age

    def lived(self, rank: int) -> float:
        """The seconds for which a neighbour has run since it was connected, by its heartbeats."""
        return self._peers[rank].lived

    def waits(self, what: str | None, seconds: float = 0.0) -> None:
        """This rank waits for an operation, and has done so for these seconds."""
        if self.board.waits(self.rank, what, seconds):
            self._send(self._hub, self.board.own(self.rank))

    def _lost(self, peer: Peer, what: str, certain: bool = True) -> None:
        why = f"{self.name(peer.rank)} {what}"
        if self.rendezvous.stage == Stage.GONE:
            peer.stage = Stage.GONE
            self.rendezvous.news()
        elif self._closing or self._peers.get(peer.rank) is not peer:
            pass
        elif self._membership is None:
            # What a peer has said may be lost with its connection, as on a path that was down. Who has left hears from
            # the hub whether that one had left, too.
            told = self.rendezvous.stage >= Stage.LEFT and self._hub not in (self.rank, peer.rank)
            if peer.stage < Stage.LEFT and not told:
                self._failed(why)
        elif not certain:
            self.signs.lose(peer.rank)  # whether it is dead nobody knows
        elif peer.stage < Stage.GONE:
            self._membership.lost(peer.rank, why)

    async def _listen(self, peer: Peer) -> None:
        try:
            # What makes an end of this task is heard of only where it waits, and it may not: more lines may be here.
            while not self._closing and self._peers.get(peer.rank) is peer:
                message = await handshake.read(peer.reader)
                self.signs.hear(peer.rank)
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
        if "beat" in message:
            self.signs.hear(peer.rank, heartbeat=True)
            self.signs.take(peer.rank, message["beat"])
            peer.lived += HEARTBEAT_SECONDS if message["beat"] else JOINING_SECONDS
            return
        if "stage" in message:
            self.rendezvous.hear(peer, Stage(message["stage"]))
        elif "waiting" in message:
            self.board.hear(peer.rank, message)
        elif not message.keys().isdisjoint(("reached", "left", "waits", "missing")):
            self._heed(peer, message)
        elif topics.is_one(message.get("topic")):
            topics.check(message["topic"], message["content"])
            self.rendezvous.take(message["topic"], peer.rank, message["content"])
        elif (take := self.listeners.get(message.get("topic", ""))) is not None:
            take(peer.rank, message["content"])
        elif "closed" in message and self._closings is not None:
            self._closings.hear(peer.rank, message)
        elif "lost" in message or "dead" in message:
            if self._membership is None:
                raise ValueError("it says who is dead, in a job that ends with the first")
            self._membership.hear(peer.rank, message)
        elif "ask" in message or "answer" in message or "report" in message:
            self.leading.hear(peer.rank, message)
        self.rendezvous.news()

    def _heed(self, peer: Peer, message: Message) -> None:
        """What a hub says. A lower rank may know of the death of the hub before this one does."""
        if peer.rank != self._hub and (self._membership is None or peer.rank > self.rank):
            raise ValueError(f"it says what rank {self._hub} has to say: {str(message)[:60]}")
        if "reached" in message:
            self.rendezvous.all_have(Stage(message["reached"]))
        elif "missing" in message:
            json_object.check(message, {"missing": [int]})
            self.absent.others = frozenset(self.board.ranks(message["missing"]))
        else:
            self.board.take(message)

    async def _beat(self) -> None:
        while not self._ready:
            await asyncio.sleep(JOINING_SECONDS)
            if self._hub == self.rank and not self.complete:
                self._tell_missing()
            if self.complete:
                self._beat_once("")
        last = self._clock()
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            now = self._clock()
            # While this agent did not run (it was stopped, its host was busy) it could not hear the others.
            absent = now - last - HEARTBEAT_SECONDS
            if absent > HEARTBEAT_SECONDS:
                self.signs.excuse(absent)
            last = now
            self.signs.merge()
            self._look_for_silent()
            if self._closing:
                return
            self._beat_once(self.signs.packed())
            if self._hub == self.rank:
                for message in self.board.news():
                    self._tell_all(message)

    def _beat_once(self, ages: str) -> None:
        for rank in self._links.neighbours & self._peers.keys():
            if self._peers[rank].stalled and self.beat is not None:
                self.beat(rank)
            self._peers[rank].send({"beat": ages})

    def _tell_all(self, message: Message) -> None:
        for rank in list(self.living):
            self._send(rank, message)

    def _tell_missing(self) -> None:
        missing = self.absent.ranks()
        if missing != self._missed:
            self._missed = missing
            self._tell_all({"missing": missing})

    def _look_for_silent(self) -> None:
        leaving = Stage.LEFT if self._membership is None else Stage.GONE
        ranks = [
            rank
            for rank in self.living
            if rank != self.rank
            and (self._peers[rank].stage < leaving if rank in self._peers else rank not in self.board.left)
        ]
        found = self.signs.silence_of(ranks)
        if not found.silent:
            return
        # Not all others fail at once: who has fallen silent meanwhile is behind the same link or switch.
        if len(ranks) > 1 and len(found.quiet) == len(ranks):
            self._failed(
                f"no agent of the job has answered for {DEAD_SECONDS:g} s: the switch or the link of "
                f"{self.name(self.rank)} is down"
            )
        elif self._membership is None:
            self._failed(self._unanswered(found.silent))
        else:
            self._membership.silent(found.silent, found.quiet, found.doubtful, self._unanswered)

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
        self._closings = Closings(self.rank, len(self._all), lambda: self._hub, self._send, closed)
        self._membership = Membership(self.rank, self._all, self._send, self._drop, self._failed)

    def close_group(self, number: int, hosts: Collection[int]) -> None:
        """Tells the hosts of a group that one of them is dead."""
        if self._closings is not None:
            self._closings.tell(number, [host for host in hosts if host in self.living])

    def expel(self, ranks: Collection[int], why: str) -> None:
        """The others go on without ranks that live, but keep them waiting. If this is one of them, it ends."""
        for rank in ranks:
            if rank != self.rank and self._membership is not None:
                self._membership.lost(rank, why)
        if self.rank in ranks:
            self._failed(why)

    def _drop(self, rank: int, why: str) -> None:
        led = rank < self._hub
        self._links.drop(rank, hang_up=not self._closing)
        self._links.fit(self.living)
        self.board.drop(rank)
        self.signs.drop(rank)
        if led and not self._closing:  # the new hub has to know what this rank has told the old one
            self.board.again()
            self._send(self._hub, {"stage": self.rendezvous.stage})
            self._send(self._hub, self.board.own(self.rank))
        self._dropped(rank, why)
        self.leading.drop(rank)
        self.rendezvous.news()
