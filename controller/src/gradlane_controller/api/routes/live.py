# SPDX-License-Identifier: Apache-2.0
"""What happens now: the live state, once or as a stream of server-sent events (HTML standard, section 9.2)."""

from collections.abc import AsyncGenerator

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from gradlane_controller.api import models
from gradlane_controller.api.connections import MAX_STREAMS, Connection
from gradlane_controller.api.context import Context
from gradlane_controller.api.errors import Refusal
from gradlane_controller.api.negotiation import accepts
from gradlane_controller.api.security import bearer, needs, token_of
from gradlane_controller.api.tokens import Scope, Token


class Stream(StreamingResponse):
    """Server-sent events."""

    media_type = "text/event-stream"


def routes(context: Context) -> APIRouter:
    """All need the scope read."""
    router = APIRouter(prefix="/v1", dependencies=[bearer, needs(Scope.READ)])

    @router.get("/state", response_model=models.StateAnswer, dependencies=[accepts("application/json")])
    async def state() -> Response:
        """What is known of the network at most a second ago."""
        return Response(await context.live.now(), media_type="application/json")

    @router.get("/stream", response_class=Stream, dependencies=[accepts("text/event-stream")])
    async def stream(request: Request) -> Response:
        """`state`: a picture each second. Who reads slowly gets the latest one only."""
        connection: Connection = request.scope["state"]["connection"]
        if not connection.become_stream():
            raise Refusal(503, f"{MAX_STREAMS} clients take streams; try again later", {"Retry-After": "10"})
        return Stream(events(token_of(request)))

    async def events(token: Token) -> AsyncGenerator[bytes, None]:
        number = 0
        while context.tokens.holds(token):
            picture = await context.live.after(number)
            number = picture.number
            yield b"event: state\ndata: " + picture.content + b"\n\n"

    return router
