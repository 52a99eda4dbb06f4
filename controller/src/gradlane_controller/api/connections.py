# SPDX-License-Identifier: Apache-2.0
"""What HTTP clients may take of the controller, whoever they are: connections, bytes and time.

uvicorn's protocol waits for a request for as long as its client likes, on as many connections as clients open, and
keeps headers of any length.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, cast

import httptools
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from gradlane_controller.api.errors import render

MAX_CONNECTIONS = 64
MAX_STREAMS = 16  # connections that take events, and do not count among the others
MAX_HEAD_BYTES = 32 << 10
MAX_BODY_BYTES = 256 << 10  # a job of 1024 ranks and 1024 ranges of each kind has less
MAX_REQUEST_BYTES = 4 << 20  # a body in many small chunks is longer than what it says, one that is too long is read on
CLIENT_SECONDS = 10.0  # that a client may take to send its request, and again to take the answer, or what is new in it
CLOSING_SECONDS = 2.0  # that requests at work have when the server ends
STREAM_BUFFER = 128 << 10  # bytes that the kernel holds for a client that does not read

logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # its warnings are about clients, who could fill the log


class Place:
    """One of the connections that there may be. While it waits for its client it has a deadline, and makes room for
    others when there are too many: so the slow don't keep out the quick."""

    def __init__(self, places: "Places", transport: asyncio.Transport) -> None:
        """`transport`: of the TCP connection."""
        self._places = places
        self._transport = transport
        self._deadline: asyncio.TimerHandle | None = None

    def wait(self) -> None:
        """From now on it is the client's turn: to send its request, or to take the answer."""
        self.stop_waiting()
        if not self._transport.is_closing():
            self._places.opened[self] = True
            self._places.opened.move_to_end(self)
            self._deadline = asyncio.get_running_loop().call_later(CLIENT_SECONDS, self.close, "slow")

    def stop_waiting(self) -> None:
        """The client's request is here."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self in self._places.opened:
            self._places.opened[self] = False

    def become_stream(self) -> bool:
        """It leaves the others, as it takes events now; False if too many do."""
        if len(self._places.streams) >= MAX_STREAMS or self._transport.is_closing():
            return False
        self.stop_waiting()
        self._places.opened.pop(self, None)
        self._places.streams.add(self)
        return True

    def close(self, reason: str = "") -> None:
        """At once, whatever is not sent yet; `reason`: why the client is refused, if it is."""
        if reason:
            self._places.on_refused(reason)
        self.leave()
        self._transport.abort()

    def leave(self) -> None:
        """The connection is no more."""
        self.stop_waiting()
        self._places.opened.pop(self, None)
        self._places.streams.discard(self)


class Places:
    """All connections. `opened`: who has waited longest first, and whether they wait; `streams`: those apart;
    `on_refused` hears why connections are refused, as `Traffic.refused`."""

    def __init__(self, on_refused: Callable[[str], None]) -> None:
        self.on_refused = on_refused
        self.opened: OrderedDict[Place, bool] = OrderedDict()
        self.streams: set[Place] = set()

    def take(self, transport: asyncio.Transport) -> Place:
        """One for a new connection, at the expense of who has waited longest; closed if nobody waits."""
        place = Place(self, transport)
        if len(self.opened) >= MAX_CONNECTIONS:
            next((it for it, waits in self.opened.items() if waits), place).close("crowded")
        if not transport.is_closing():
            place.wait()
        return place

    def close(self) -> None:
        """All of them."""
        for place in (*self.opened, *self.streams):
            place.close()


class _TooLongError(Exception):
    """The head of a request."""


class _SecondError(Exception):
    """Request on a connection."""


class Connection(HttpToolsProtocol):
    """One request of one client, and its answer. Whoever handles it finds it as "connection" in the scope's state."""

    def __init__(self, config: Config, state: ServerState, places: Places, place: Place | None = None) -> None:
        """`place`: where its TCP connection has one already, as it is within TLS."""
        super().__init__(config, state, {}, asyncio.get_running_loop())
        self._places = places
        self._place = place
        self._early = b""  # within TLS data may come before it is said that the connection is made
        self._head = 0
        self._fed = 0
        self._head_complete = False
        self._complete = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self._place is None:
            self._place = self._places.take(transport)
        super().connection_made(transport)
        if self._early:
            self.data_received(self._early)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._place is not None:
            self._place.leave()
        if cast(Any, self.transport) is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if cast(Any, self.transport) is None:
            self._early += data
            return
        if self._complete or self.transport.is_closing() or self.parser is None:
            return
        self._fed += len(data)
        problem: BaseException | None = None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # answered as what it is without
        except httptools.HttpParserError as found:
            problem = found.__context__ or found
        if self._complete:
            return
        if isinstance(problem, _TooLongError) or (not self._head_complete and self._fed > MAX_HEAD_BYTES):
            self._refuse("head", 431, f"the request's line and headers are longer than {MAX_HEAD_BYTES} bytes")
        elif problem is not None:
            self._refuse("malformed", 400, "this is no HTTP/1.1 request")
        elif self._fed > MAX_REQUEST_BYTES:
            self._refuse("body", 413, f"the body is longer than {MAX_BODY_BYTES} bytes")

    def on_message_begin(self) -> None:
        if self._complete:
            raise _SecondError
        super().on_message_begin()
        self.scope["state"] = {"connection": self}

    def on_url(self, url: bytes) -> None:
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(name + value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_complete = True
        super().on_headers_complete()
        self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._complete = True

    def answering(self) -> None:
        """From now on the client has to take the answer."""
        if self._place is not None and not self._is_stream:
            self._place.wait()

    def working(self) -> None:
        """The request is here."""
        if self._place is not None:
            self._place.stop_waiting()

    def become_stream(self) -> bool:
        """What is sent from now on may never end, but is taken by the client soon; False if too many have such."""
        if self._place is None or not self._place.become_stream():
            return False
        self.transport.set_write_buffer_limits(high=1)  # so that it is noticed who does not read
        with contextlib.suppress(OSError):
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER)
        return True

    async def in_time(self, sending: Awaitable[None]) -> None:
        """Sends a part of the answer; a stream's client has to take it soon, or is gone."""
        if not self._is_stream:
            return await sending
        try:
            await asyncio.wait_for(sending, CLIENT_SECONDS)
        except asyncio.TimeoutError:
            self._places.on_refused("slow")
            self.close()

    def close(self) -> None:
        """At once."""
        if self._place is not None:
            self._place.close()

    @property
    def _is_stream(self) -> bool:
        return self._place in self._places.streams

    def _count(self, data: bytes) -> None:
        self._head += len(data)
        if self._head > MAX_HEAD_BYTES:
            raise _TooLongError

    def _refuse(self, reason: str, status: int, message: str) -> None:
        """Answers what is no whole request; whoever waits for the rest of it finds its client gone."""
        if cast(Any, self.cycle) is not None:
            if self.cycle.response_started:
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._complete = True
        self._places.on_refused(reason)
        body = render({"error": message})
        lines = (f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n").encode()
        self.transport.write(STATUS_LINE[status] + lines + body)
        self.answering()
        self.transport.close()


class _Handshake(asyncio.Protocol):
    """A TCP connection on which TLS begins."""

    def __init__(self, config: Config, state: ServerState, places: Places, context: ssl.SSLContext) -> None:
        self._config, self._state, self._places, self._context = config, state, places, context
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        place = self._places.take(transport)
        if not transport.is_closing():
            self._task = asyncio.create_task(self._shake(transport, place))

    async def _shake(self, transport: asyncio.Transport, place: Place) -> None:
        if transport.is_closing():
            return
        connection = Connection(self._config, self._state, self._places, place)
        loop = asyncio.get_running_loop()
        try:
            within = await loop.start_tls(
                transport, connection, self._context, server_side=True, ssl_handshake_timeout=CLIENT_SECONDS
            )
        except OSError:
            place.close("handshake")
            return
        if within is None or within.is_closing():
            place.close()
        else:
            connection.connection_made(within)


@contextlib.asynccontextmanager
async def serving(
    application: Any,
    host: str,
    port: int,
    context: ssl.SSLContext | None = None,
    on_refused: Callable[[str], None] = lambda _reason: None,
) -> AsyncGenerator[Places, None]:
    """Serves an ASGI application while the body runs, and gives it the connections; over TLS if there is a context.
    `on_refused`: as `Places` has it.

    Raises OSError if it can't listen there.
    """
    config = Config(application, log_config=None, access_log=False, lifespan="off", ws="none", proxy_headers=False)
    config.http = Connection
    config.load()
    state, places = ServerState(), Places(on_refused)

    def accept() -> asyncio.Protocol:
        return _Handshake(config, state, places, context) if context else Connection(config, state, places)

    server = await asyncio.get_running_loop().create_server(accept, host, port)
    try:
        yield places
    finally:
        server.close()
        for place in tuple(places.streams):
            place.close()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=CLOSING_SECONDS)
        places.close()
        for task in state.tasks:
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)
