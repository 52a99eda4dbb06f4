# SPDX-License-Identifier: Apache-2.0
"""What HTTP clients may take of the controller, whoever they are: connections and time.

aiohttp bounds lines, headers and bodies, but waits for a request for as long as its client likes, on as many
connections as clients open.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator
from typing import Any

from aiohttp import web
from aiohttp.http import HttpProcessingError, HttpVersion10, HttpVersion11
from yarl import URL

MAX_CONNECTIONS = 64
MAX_BODY_BYTES = 256 << 10  # a job of 256 ranks and 1024 ranges of each kind has half of it
CLIENT_SECONDS = 10.0  # that a client may take to send its request, and again to take the answer

_LOG = logging.getLogger(__name__)
# aiohttp logs each malformed request with a traceback, and so lets clients fill the log.
_LOG.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError | OSError)))
_NO_URL = URL("/")


class Connection(asyncio.Protocol):
    """Hands everything to aiohttp's protocol. While it waits for its client it has a deadline, and makes room for
    others when there are too many: so the slow don't keep out the quick."""

    def __init__(self, inner: asyncio.Protocol, opened: "OrderedDict[Connection, bool]") -> None:
        """`opened`: all connections, who has waited longest first, and whether they wait."""
        self._inner = inner
        self._opened = opened
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._inner.connection_made(transport)
        if len(self._opened) >= MAX_CONNECTIONS:
            next((it for it, waits in self._opened.items() if waits), self).close()
        if not transport.is_closing():
            self.wait()

    def wait(self) -> None:
        """From now on it is the client's turn: to send its request, or to take the answer."""
        self.stop_waiting()
        if self._transport is not None and not self._transport.is_closing():
            self._opened[self] = True
            self._opened.move_to_end(self)
            self._deadline = asyncio.get_running_loop().call_later(CLIENT_SECONDS, self.close)

    def stop_waiting(self) -> None:
        """The client's request is here."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self in self._opened:
            self._opened[self] = False

    def close(self) -> None:
        """At once, whatever is not sent yet."""
        self.stop_waiting()
        self._opened.pop(self, None)
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


async def receive(request: web.Request) -> Connection:
    """Waits for the whole request; the connection from which it came. Raises aiohttp.web.HTTPException."""
    connection = request.transport.get_protocol() if request.transport is not None else None
    if not isinstance(connection, Connection):
        raise web.HTTPBadRequest(reason="the client has gone")
    try:
        await request.read()
    except (OSError, web.RequestPayloadError):
        raise web.HTTPBadRequest(reason="the body is cut off or malformed") from None
    connection.stop_waiting()
    return connection


@contextlib.asynccontextmanager
async def serving(application: web.Application, host: str, port: int) -> AsyncGenerator[None, None]:
    """Serves while the body runs. Raises OSError if it can't listen there."""
    # A compressed body would be bounded only once it is unpacked.
    runner = web.AppRunner(
        application, access_log=None, logger=_LOG, handle_signals=False, auto_decompress=False, shutdown_timeout=2.0
    )
    await runner.setup()
    opened: OrderedDict[Connection, bool] = OrderedDict()
    try:
        inner = runner.server
        assert inner is not None
        make = inner.request_factory

        def request(message: Any, *others: Any) -> web.BaseRequest:
            # Of some malformed requests aiohttp's parser finds no URL, on which its request fails with a traceback. The
            # answer would have the request's version: also 0.9, if there is none, or 2.0.
            url = _NO_URL if message.url is None else message.url
            version = min(max(message.version, HttpVersion10), HttpVersion11)
            return make(message._replace(url=url, version=version), *others)

        inner.request_factory = request
        server = await asyncio.get_running_loop().create_server(lambda: Connection(inner(), opened), host, port)
        try:
            yield
        finally:
            server.close()
    finally:
        await runner.cleanup()
