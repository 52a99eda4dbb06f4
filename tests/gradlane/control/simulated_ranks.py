# SPDX-License-Identifier: Apache-2.0
"""The ranks of a job as they are in agents (control/peers.py), without sockets: lines come at once, and time is that of
the loop, which passes only while nobody has anything to do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gradlane.control import joining, links
from gradlane.control.peer import Stage
from gradlane.control.peers import Peers
from gradlane.control.probing import Path
from gradlane.control.security import Credentials
from gradlane.daemon.arbiter import Arbiter

CREDENTIALS = Credentials(None)


class _Wire:
    """One direction of a connection: what `sender` writes `reader` gets."""

    def __init__(self, world: World, sender: int, receiver: int) -> None:
        self.reader = asyncio.StreamReader(1 << 20)
        self.back: _Wire | None = None
        self.transport = self
        self._world, self.sender, self._receiver = world, sender, receiver
        self._closed = False

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closed

    def get_extra_info(self, _: str) -> None: ...

    def write(self, line: bytes) -> None:
        world = self._world
        world.sent[self.sender][next(iter(json.loads(line)))] += 1
        if not {self.sender, self._receiver} & world.mute:
            self.reader.feed_data(line)

    def close(self) -> None:
        for wire in (self, self.back):
            if wire is not None and not wire._closed:
                wire._closed = True
                if not {self.sender, self._receiver} & self._world.mute:
                    wire.reader.feed_eof()

    abort = close


class _Prober:
    def add(self, *_: object) -> _Prober:
        return self

    def beat(self, rank: int) -> None: ...

    async def path(self, *_: object) -> Path:
        return Path(1500, 1e-4)

    async def rate(self, *_: object) -> None: ...


class World:
    """All ranks. `sent`: lines of each rank, by their first word; `mute`: who is silent; `failed`: why, and when;
    `dropped`: of each, who is dead, and when."""

    def __init__(self, size: int, survives: bool = False) -> None:
        self.size, self.survives = size, survives
        self.sent: list[Counter[str]] = [Counter() for _ in range(size)]
        self.mute: set[int] = set()
        self._wires: list[_Wire] = []
        self.failed: dict[int, tuple[str, float]] = {}
        self.dropped: list[dict[int, float]] = [{} for _ in range(size)]
        self.why: dict[int, str] = {}  # a rank is dead
        self.closed: list[list[tuple[int, int]]] = [[] for _ in range(size)]
        members = [SimpleNamespace(rank=rank, address=f"10.0.{rank >> 8}.{rank & 255}") for rank in range(size)]
        transport = SimpleNamespace(slice_bytes=None, rate=1e9, buffer=100_000, contention="fair")
        self.job: Any = SimpleNamespace(
            racks=None,
            name="trial", id=7, members=members, workers=members, servers=[], family=4, patience=60,
            transport=transport, name_of=lambda rank: f"rank {rank}", can_be_cut=True, sum_lanes=None,
        )  # fmt: skip
        self.peers = [self._rank(rank) for rank in range(size)]

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def _rank(self, rank: int) -> Peers:
        def failed(why: str) -> None:
            if rank not in self.failed:
                self.failed[rank] = why, self.now
                self.peers[rank].abort(why)
                self.peers[rank].close()

        def dropped(who: int, why: str) -> None:
            self.dropped[rank][who] = self.now
            self.why[who] = why

        return Peers(self.job, rank, CREDENTIALS, failed, Arbiter(self.job), lambda _: None, dropped)

    async def join(self) -> None:
        """All of them, within a second."""
        chance = random.Random(self.size)

        async def one(rank: int) -> None:
            await asyncio.sleep(chance.random())
            peers = self.peers[rank]
            peers.start()
            await peers.rendezvous.connected(60)
            prober: Any = _Prober()
            agreed = await joining.agree(self.job, rank, peers, prober, 1)
            assert agreed.slice_bytes
            await peers.rendezvous.reach(Stage.READY, 60)
            if self.survives:
                peers.outlive(lambda by, number: self.closed[rank].append((by, number)))

        await asyncio.gather(*map(one, range(self.size)))

    async def leave(self, ranks: Collection[int]) -> None:
        async def one(rank: int) -> None:
            await self.peers[rank].rendezvous.reach(Stage.LEFT, None)
            await self.peers[rank].rendezvous.reach(Stage.GONE, 5)
            self.peers[rank].close()

        await asyncio.gather(*map(one, ranks))

    def kill(self, rank: int) -> None:
        """Its agent dies: its connections close."""
        self.failed[rank] = "killed", self.now
        self.peers[rank].close()
        for wire in self._wires:
            if wire.sender == rank:
                wire.close()

    def call(self, rank: int, other: int) -> tuple[asyncio.StreamReader, Any]:
        """A new connection from a rank to a lower one. Raises ConnectionError."""
        if {rank, other} & self.mute or other in self.failed:
            raise ConnectionError
        there, back = _Wire(self, rank, other), _Wire(self, other, rank)
        there.back, back.back = back, there
        self._wires += there, back
        call: Any = SimpleNamespace(
            problem=lambda *_: "", accept=lambda *_: None, rank=rank, reader=there.reader, writer=back
        )
        problem = self.peers[other].accept(call)
        if problem:
            raise links.Refused(problem)
        return back.reader, there


@contextlib.contextmanager
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    """What makes a World."""
    worlds: list[World] = []

    class Caller:
        def __init__(self, _: object, rank: int, __: object) -> None:
            self._rank = rank

        async def call(self, rank: int, _: object) -> tuple[asyncio.StreamReader, Any]:
            while True:
                await asyncio.sleep(0)
                with contextlib.suppress(ConnectionError):
                    return worlds[-1].call(self._rank, rank)
                await asyncio.sleep(0.2)

    def make(size: int, survives: bool = False) -> World:
        worlds.append(World(size, survives))
        return worlds[-1]

    monkeypatch.setattr(links, "Caller", Caller)
    yield make
