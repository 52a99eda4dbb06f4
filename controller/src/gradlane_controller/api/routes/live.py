# SPDX-License-Identifier: Apache-2.0
"""What happens: the live state, once, as a stream of server-sent events (HTML standard, section 9.2), or as it was."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import AwareDatetime

from gradlane_controller.api.connections import MAX_STREAMS, Connection
from gradlane_controller.api.context import Context
from gradlane_controller.api.errors import Json, Refusal, render
from gradlane_controller.api.models.live import EventsAnswer, HistoryAnswer, StateAnswer
from gradlane_controller.api.negotiation import Limit, accepts
from gradlane_controller.api.security import bearer, needs, token_of
from gradlane_controller.api.tokens import Scope, Token
from gradlane_controller.errors import StoreError
from gradlane_controller.live import stamp
from gradlane_controller.store.events import Event

BATCH = 200  # entries of the timeline at once
CHECK_SECONDS = 1.0  # between two looks whether a stream's token is worth something
_MOST = (1 << 63) - 1

EventId = Annotated[int | None, Query(ge=0, le=_MOST, description="Those with a greater id")]
LastEventId = Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=_MOST, description="The last one known")]
Kind = Annotated[str | None, Query(max_length=32)]
From = Annotated[AwareDatetime, Query(alias="from", description="Begins with the picture of that time (ISO 8601)")]
To = Annotated[AwareDatetime, Query(description="Until that time (ISO 8601)")]
Step = Annotated[float, Query(ge=0, le=86400, description="At most one picture in each so many seconds; 0: all")]


class Stream(StreamingResponse):
    """Server-sent events."""

    media_type = "text/event-stream"


def routes(context: Context) -> APIRouter:
    """All need the scope read."""
    controller = context.controller
    router = APIRouter(prefix="/v1", dependencies=[bearer, needs(Scope.READ)])

    @router.get("/state", response_model=StateAnswer, dependencies=[accepts("application/json")])
    async def state() -> Response:
        """What is known of the network at most a second ago."""
        return Response(await context.live.now(), media_type="application/json")

    @router.get("/events", response_model=EventsAnswer, dependencies=[accepts("application/json")])
    async def timeline(after: EventId = None, limit: Limit = 100, kind: Kind = None) -> Json:
        """What has happened, the oldest first: after that entry, or the latest ones. Of one kind, if that is given."""
        if after is None:
            known = [it for it in controller.journal.after(0) if kind in (None, it.kind)]
            return Json({"items": [it.to_json() for it in known[-limit:]], "next": None})
        found = await controller.journal.read(after, limit + 1, kind)
        following = found[limit - 1].id if len(found) > limit else None
        return Json({"items": [it.to_json() for it in found[:limit]], "next": following})

    @router.get("/history", response_model=HistoryAnswer, dependencies=[accepts("application/json")])
    async def history(begin: From, to: To, step: Step = 0.0, limit: Limit = 100) -> Response:
        """Pictures of the last day as they were, the oldest first."""
        if begin > to:
            raise Refusal(422, f"from ({begin.isoformat()}) is after to ({to.isoformat()}): it must not be later")
        found, following = await context.history.read(begin, to, timedelta(seconds=step), limit)
        more = render(stamp(following) if following else None)
        content = b'{"items":[' + b",".join(found) + b'],"next":' + more + b"}"
        return Response(content, media_type="application/json")

    @router.get("/stream", response_class=Stream, dependencies=[accepts("text/event-stream")])
    async def stream(request: Request, last: LastEventId = None) -> Response:
        """`state`: a picture each second; who reads slowly gets the latest one only. `event`: what has happened, from
        now on, or since the Last-Event-ID."""
        connection: Connection = request.scope["state"]["connection"]
        if not connection.become_stream():
            raise Refusal(503, f"{MAX_STREAMS} clients take streams; try again later", {"Retry-After": "10"})
        return Stream(everything(token_of(request), last))

    async def everything(token: Token, last: int | None) -> AsyncGenerator[bytes, None]:
        """While the token is worth something."""
        journal = controller.journal
        known = max((it.id for it in journal.after(0)), default=0) if last is None else last
        with contextlib.suppress(StoreError):  # what is in memory is told in any case
            while last is not None and (found := await journal.read(known, BATCH)):
                yield b"".join(map(_event, found))
                known = found[-1].id
        number = 0
        picture = asyncio.create_task(context.live.after(number))
        entries = asyncio.create_task(journal.wait(known))
        try:
            while context.tokens.holds(token):
                await asyncio.wait((picture, entries), timeout=CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if entries.done():
                    found = entries.result()[:BATCH]
                    known = found[-1].id
                    yield b"".join(map(_event, found))
                    entries = asyncio.create_task(journal.wait(known))
                if picture.done():
                    number = picture.result().number
                    yield b"event: state\ndata: " + picture.result().content + b"\n\n"
                    picture = asyncio.create_task(context.live.after(number))
        finally:
            picture.cancel()
            entries.cancel()

    return router


def _event(it: Event) -> bytes:
    return b"event: event\nid: %d\ndata: %b\n\n" % (it.id, render(it.to_json()))
