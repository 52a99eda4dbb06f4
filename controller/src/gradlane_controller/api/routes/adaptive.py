# SPDX-License-Identifier: Apache-2.0
"""How jobs are tuned: seeing it, taking it back, letting it go on."""

from typing import Annotated

from fastapi import APIRouter, Path

from gradlane_controller.api.context import Context
from gradlane_controller.api.errors import Json
from gradlane_controller.api.models.jobs import AdaptiveAnswer, JobTuning
from gradlane_controller.api.negotiation import accepts
from gradlane_controller.api.routes.jobs import NOT_FOUND
from gradlane_controller.api.security import bearer, needs
from gradlane_controller.api.tokens import Scope

Name = Annotated[str, Path(description="Of the job")]


def routes(context: Context) -> APIRouter:
    """Asking needs the scope read, the rest admin."""
    tuner = context.tuner
    router = APIRouter(prefix="/v1/adaptive", dependencies=[bearer, needs(Scope.READ), accepts("application/json")])
    operate = [needs(Scope.ADMIN)]

    @router.get("", response_model=AdaptiveAnswer)
    async def adaptive() -> Json:
        """Within which bounds, and how each job is tuned now."""
        return Json(tuner.state())

    @router.post("/{name}/undo", response_model=JobTuning, dependencies=operate, responses=NOT_FOUND)
    async def undo(name: Name) -> Json:
        """Takes the latest change of a job back; no other follows until `resume`."""
        async with context.working():
            return Json(await tuner.undo(name))

    @router.post("/{name}/resume", response_model=JobTuning, dependencies=operate, responses=NOT_FOUND)
    async def resume(name: Name) -> Json:
        """Lets a job be tuned again."""
        async with context.working():
            return Json(await tuner.resume(name))

    return router
