# SPDX-License-Identifier: Apache-2.0
"""What every request passes before it is handled, and every answer afterwards."""

import asyncio
import logging
import time
from email.utils import formatdate
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gradlane import GradlaneError
from gradlane_controller.api.connections import MAX_BODY_BYTES, Connection
from gradlane_controller.api.errors import Refusal, answer_to, error
from gradlane_controller.api.security import Doorkeeper
from gradlane_controller.api.traffic import Traffic

QUIET_SECONDS = 60.0  # between two tracebacks in the log

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_LOG = logging.getLogger(__name__)


class Front:
    """Takes whole requests, asks the doorkeeper, and hands them on; below /v1 with the "token" in the scope's state."""

    def __init__(self, application: ASGIApp, doorkeeper: Doorkeeper, traffic: Traffic) -> None:
        self._application, self._doorkeeper, self._traffic = application, doorkeeper, traffic
        self._said_at = -QUIET_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request of a connection (ASGI)."""
        connection: Connection = scope["state"]["connection"]
        started = False
        begun = time.monotonic()

        async def send_on(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._count(scope, message["status"], time.monotonic() - begun)
                connection.answering()
                message["headers"] = [*message.get("headers", ()), *_common(message)]
            await connection.in_time(send(message))

        try:
            body = await _read(receive)
            if body is None:
                return
            connection.working()
            begun = time.monotonic()
            headers = Headers(scope=scope)
            self._doorkeeper.refuse_other_sites(scope["scheme"], scope["path"], headers)
            if len(body) > MAX_BODY_BYTES:
                raise Refusal(413, f"the body is longer than {MAX_BODY_BYTES} bytes", reason="body")
            if scope["path"].startswith("/v1"):
                address = scope["client"][0] if scope["client"] else "?"
                scope["state"]["token"] = self._doorkeeper.admit(address, headers)
            await self._application(scope, _again(body, receive), send_on)
        except GradlaneError as problem:
            scope["state"]["problem"] = problem
            await answer_to(problem)(scope, receive, send_on)
        except asyncio.CancelledError:
            connection.close()
        except Exception:  # noqa: BLE001 - of this program; it must go on
            if (now := time.monotonic()) >= self._said_at + QUIET_SECONDS:
                self._said_at = now
                _LOG.exception("%s %r failed", scope["method"], scope["path"][:100])
            if started:
                connection.close()
            else:
                await error(500, "this is an error of the controller; its log says more")(scope, receive, send_on)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        self._traffic.answered(scope, status, seconds)
        problem = scope["state"].get("problem")
        if isinstance(problem, Refusal) and problem.reason:
            self._traffic.refused(problem.reason)


async def _read(receive: Receive) -> bytes | None:
    """The body, or of one that is too long more than the most; None if the client has gone."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        if len(body) <= MAX_BODY_BYTES:
            body += message["body"]
        if not message["more_body"]:
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Gives the body, and then what `receive` does: that the client has gone."""
    given = False

    async def give() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give


def _common(message: Message) -> list[tuple[bytes, bytes]]:
    has: set[Any] = {name for name, _ in message.get("headers", ())}
    found = [*_HEADERS, (b"date", formatdate(usegmt=True).encode())]
    if b"cache-control" not in has:
        found.append((b"cache-control", b"no-store"))
    return found
