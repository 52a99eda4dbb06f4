# SPDX-License-Identifier: Apache-2.0
"""The connections of one rank: to its neighbours (overlay.py) and to the hub, the lowest rank that lives; the hub's are
to all. The higher rank calls. When ranks die others become neighbours, and another the hub."""

import asyncio
import functools
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from gradlane.control.absent import Absent
from gradlane.control.calling import Caller
from gradlane.control.handshake import Message, Refused
from gradlane.control.overlay import neighbours
from gradlane.control.peer import Peer
from gradlane.control.security import Credentials
from gradlane.job import Job

# For a rank that is to call this one, as the new hub. It calls when it knows that the one before is dead.
MOST_HELD = 512


class Links:
    """At one rank. `spawn` runs what calls; `adopted` gets each new connection, before anything is sent on it;
    `refused` a rank that does not take this one for good, and why; `notice` tells of what may still end well."""

    def __init__(
        self,
        job: Job,
        rank: int,
        credentials: Credentials,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        adopted: Callable[[Peer], None],
        refused: Callable[[int, str], None],
        notice: Callable[[str], None],
    ) -> None:
        self.rank = rank
        self.peers: dict[int, Peer] = {}
        self.neighbours: set[int] = set()
        self.wanted: set[int] = set()
        self.absent = Absent(job, rank, self.wanted, self.peers, notice)  # until all are connected
        self._size = len(job.members)
        self._living: Collection[int] = ()
        self._caller = Caller(job, rank, credentials)
        self._spawn, self._adopted, self._refused = spawn, adopted, refused
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._held: dict[int, list[Message]] = {}  # for ranks that are not connected
        self._started = False

    def fit(self, living: Collection[int]) -> None:
        """These live from now on: says whom this rank needs."""
        self._living = set(living)
        hub = min(living)
        self.neighbours = neighbours(self.rank, living, self._size)
        # In place: others look at it.
        self.wanted.clear()
        self.wanted.update(self._living if hub == self.rank else self.neighbours | {hub})
        self.wanted.discard(self.rank)
        if self._started:
            self.start()

    def start(self) -> None:
        """Calls those lower ranks that this one needs, the nearest first, so that not all call one."""
        self._started = True
        for rank in sorted(self.wanted, reverse=True):
            if rank < self.rank:
                self._call(rank)

    def _call(self, rank: int) -> None:
        if rank not in self.peers and rank not in self._calls:
            self._calls[rank] = task = self._spawn(self._connect(rank))
            task.add_done_callback(lambda _: self._calls.pop(rank, None))

    async def _connect(self, rank: int) -> None:
        try:
            reader, writer = await self._caller.call(rank, functools.partial(self.absent.note, rank))
        except Refused as error:
            self._refused(rank, str(error))
        else:
            self.adopt(rank, reader, writer)

    def adopt(self, rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A rank is connected."""
        if rank not in self._living:
            writer.transport.abort()
            return
        self.peers[rank] = peer = Peer(rank, reader, writer)
        self._adopted(peer)
        for message in self._held.pop(rank, ()):
            peer.send(message)

    def send(self, rank: int, message: Message, hold: bool) -> bool:
        """To one that lives. `hold`: if it is not connected, as soon as it is. False: there is too much for it."""
        if rank in self.peers:
            self.peers[rank].send(message)
        elif hold and rank in self._living:
            held = self._held.setdefault(rank, [])
            if len(held) >= MOST_HELD:
                return False
            held.append(message)
            if rank < self.rank:
                self._call(rank)
        return True

    def drop(self, rank: int, hang_up: bool) -> None:
        """A rank is dead."""
        self._held.pop(rank, None)
        if call := self._calls.get(rank):
            call.cancel()
        peer = self.peers.pop(rank, None)
        if peer is not None and hang_up:
            peer.hang_up()

    def close(self) -> None:
        """Ends all connections; what was queued is still sent."""
        self._living = ()
        for peer in self.peers.values():
            peer.hang_up()
