# SPDX-License-Identifier: Apache-2.0
"""TCP relays, by which a run cuts, holds up, delays and breaks the connections between processes."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any, Protocol, TypeVar, cast

from tests.support.ports import free_ports

_MOST_WAITING = 64 << 20  # bytes of a connection's way; nobody here has more to say
_LINGER = struct.pack("ii", 1, 0)  # SO_LINGER, by which a close sends RST

_T = TypeVar("_T")


class Way(Enum):
    """A direction: UP is from who has connected, to the relay's target."""

    UP = "up"
    DOWN = "down"


class Observer(Protocol):
    """Sees what passes a connection, when it comes (time.monotonic), before anything happens to it."""

    def saw(self, way: Way, data: bytes, now: float) -> None:
        """More bytes."""
        ...


class Relay:
    """`port` is where to connect instead of `target`, both at 127.0.0.1. These change what it does from now on:

    Of the ways that are `held` nothing is delivered until they are not, as by a network that is parted for less time
    than TCP tries. `delay`: in seconds. `left`: the way, and after how many bytes of it the connection that brings them
    is reset, once. `refusing`: new connections are reset.
    """

    def __init__(self, name: str, target: int, observe: Callable[[], Observer] | None) -> None:
        self.name, self.target, self.observe = name, target, observe
        (self.port,) = free_ports(1)
        self.held: frozenset[Way] = frozenset()
        self.delay = 0.0
        self.left: tuple[Way, int] | None = None
        self.refusing = False
        self.connections: set[_Connection] = set()

    def pass_on(self, way: Way, size: int) -> int:
        """Of so many bytes, those that come before a reset."""
        if self.left is None or self.left[0] is not way:
            return size
        if size < self.left[1]:
            self.left = way, self.left[1] - size
            return size
        left, self.left = self.left[1], None
        return left


class Relays:
    """The thread that has all of them. Every method may be called from any other one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._all: list[Relay] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._thread.start()

    def add(self, name: str, target: int, observe: Callable[[], Observer] | None = None) -> Relay:
        """One to a port of 127.0.0.1. `observe`: makes the observer of a connection."""
        it = Relay(name, target, observe)

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            self._servers.append(await loop.create_server(lambda: _End(_Connection(it), Way.UP), "127.0.0.1", it.port))

        self._do(serve())
        self._all.append(it)
        return it

    def cut(self, it: Relay, *, refuse: bool = False) -> None:
        """Resets its connections; `refuse`: new ones, too."""

        async def cut() -> None:
            it.refusing = refuse
            for each in list(it.connections):
                each.reset()

        self._do(cut())

    def set(self, it: Relay, **settings: Any) -> None:
        """Changes `held`, `delay` or `left`."""

        async def change() -> None:
            for name, value in settings.items():
                setattr(it, name, value)
            for each in list(it.connections):
                for way in Way:
                    each.flush(way)

        self._do(change())

    def heal(self, it: Relay) -> None:
        """All is as in the beginning; what was held is delivered."""
        self.set(it, held=frozenset[Way](), delay=0.0, left=None, refusing=False)

    def close(self) -> None:
        """Ends all of them."""
        for each in self._all:
            self.cut(each, refuse=True)

        async def stop() -> None:
            for each in self._servers:
                each.close()

        self._do(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _do(self, what: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)


class _Connection:
    """Both ends, and what waits to be delivered: parts with when they are due, None for the end of a way."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._observer = relay.observe() if relay.observe is not None else None
        self._ends: dict[Way, asyncio.Transport] = {}  # by the way that comes to it
        self._waiting: dict[Way, deque[tuple[float, bytes | None]]] = {way: deque() for way in Way}
        self._size = dict.fromkeys(Way, 0)
        self._opening: asyncio.Task[None] | None = None

    def opened(self, way: Way, transport: asyncio.Transport) -> None:
        """The end whose bytes go that way is there."""
        self._ends[Way.DOWN if way is Way.UP else Way.UP] = transport
        if way is Way.DOWN:
            self.flush(Way.UP)
        elif self._relay.refusing:
            self.reset()
        else:
            self._relay.connections.add(self)
            self._opening = asyncio.create_task(self._open())

    def came(self, way: Way, data: bytes | None) -> None:
        """Bytes, or the end of them."""
        now = time.monotonic()
        if data is not None:
            if self._observer is not None:
                self._observer.saw(way, data, now)
            self._size[way] += len(data)
            assert self._size[way] < _MOST_WAITING, f"{self._relay.name}: too much waits"
        self._waiting[way].append((now + self._relay.delay, data))
        self.flush(way)

    def flush(self, way: Way) -> None:
        """Delivers what is due."""
        to, waiting = self._ends.get(way), self._waiting[way]
        while to is not None and waiting and way not in self._relay.held:
            due, data = waiting[0]
            if (wait := due - time.monotonic()) > 0:
                asyncio.get_running_loop().call_later(wait, self.flush, way)
                return
            waiting.popleft()
            if data is None:
                if to.can_write_eof() and not to.is_closing():
                    to.write_eof()
                continue
            self._size[way] -= len(data)
            passed = self._relay.pass_on(way, len(data))
            if not to.is_closing():
                to.write(data[:passed])
            if passed < len(data):
                asyncio.get_running_loop().call_later(0.02, self.reset)  # when these are gone
                self._waiting[way].clear()
                return

    def lost(self, problem: Exception | None) -> None:
        """An end is gone: of one that was reset the other hears at once, else when all was delivered."""
        if problem is not None:
            self.reset()
        elif all(end.is_closing() for end in self._ends.values()):
            self._relay.connections.discard(self)

    def reset(self) -> None:
        """Ends it, by RST."""
        self._relay.connections.discard(self)
        for end in self._ends.values():
            sock = cast(socket.socket | None, end.get_extra_info("socket"))
            if sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
            end.abort()

    async def _open(self) -> None:
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: _End(self, Way.DOWN), "127.0.0.1", self._relay.target)
        except OSError:
            self.reset()


class _End(asyncio.Protocol):
    """An end, whose bytes go `way`."""

    def __init__(self, connection: _Connection, way: Way) -> None:
        self._connection, self._way = connection, way

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.opened(self._way, cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._connection.came(self._way, data)

    def eof_received(self) -> bool:
        self._connection.came(self._way, None)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.lost(exc)
