# SPDX-License-Identifier: Apache-2.0
"""Tokens: which there are, making and revoking them."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path

from gradlane_controller.api.context import Context
from gradlane_controller.api.errors import Json
from gradlane_controller.api.models.common import Deleted, Error
from gradlane_controller.api.models.tokens import NewToken, TokenMade, TokensAnswer
from gradlane_controller.api.negotiation import Cursor, Limit, accepts, page, takes_json
from gradlane_controller.api.security import bearer, needs
from gradlane_controller.api.tokens import Scope, describe


def routes(context: Context) -> APIRouter:
    """All need the scope admin."""
    tokens = context.tokens
    router = APIRouter(prefix="/v1/tokens", dependencies=[bearer, needs(Scope.ADMIN), accepts("application/json")])

    @router.get("", response_model=TokensAnswer)
    async def known(limit: Limit = 100, cursor: Cursor = "") -> Json:
        """Some of them, by id."""
        return Json(page((describe(it) for it in tokens.all()), "id", limit, cursor))

    @router.post("", response_model=TokenMade, status_code=201, dependencies=[takes_json])
    async def create(wanted: NewToken) -> Json:
        """Makes one. It is said only now: what is kept is its hash."""
        lifetime = None if wanted.days is None else timedelta(days=wanted.days)
        scope = Scope[wanted.scope.upper()]
        token, text = await tokens.create(wanted.name, scope, lifetime, wanted.host)
        return Json({**describe(token), "token": text}, 201)

    @router.delete("/{id}", response_model=Deleted, responses={404: {"model": Error}})
    async def revoke(id: Annotated[str, Path(max_length=200)]) -> Json:
        """It is worth nothing from now on, and within a second at other controllers of the store."""
        await tokens.revoke(id)
        return Json({"deleted": id})

    return router
