# SPDX-License-Identifier: Apache-2.0
"""What the controller wants: what would change, changing it, switches' maintenance, and all of it as files."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request

from gradlane_controller.api.context import Context
from gradlane_controller.api.errors import Json
from gradlane_controller.api.models.desired import Applied, Drained, ExportAnswer, PlanAnswer, Reloaded, Undrained
from gradlane_controller.api.negotiation import CHANGE, accepts, takes_change, wanted
from gradlane_controller.api.routes.jobs import NOT_FOUND
from gradlane_controller.api.security import bearer, needs
from gradlane_controller.api.tokens import Scope

Live = Annotated[Literal["true", "false"], Query(description="Compare with what switches do hold")]
Name = Annotated[str, Path(description="Of the switch")]


def routes(context: Context) -> APIRouter:
    """Asking needs the scope read, jobs the scope jobs, and the rest admin."""
    controller = context.controller
    router = APIRouter(prefix="/v1", dependencies=[bearer, needs(Scope.READ), accepts("application/json")])
    operate = [needs(Scope.ADMIN)]

    @router.get("/plan", response_model=PlanAnswer)
    async def plan(live: Live = "false") -> Json:
        """What would change if the files were read again; `live`: compared with what switches do hold."""
        async with context.working():
            return Json(await controller.preview([], files=True, live=live == "true"))

    @router.post("/plan", response_model=PlanAnswer, dependencies=[takes_change], openapi_extra=CHANGE)
    async def plan_change(request: Request, live: Live = "false") -> Json:
        """What would change if that was applied."""
        texts, files = await wanted(request)
        async with context.working():
            return Json(await controller.preview(texts, files=files, live=live == "true"))

    @router.post("/apply", response_model=Applied, dependencies=[*operate, takes_change], openapi_extra=CHANGE)
    async def apply(request: Request) -> Json:
        """Adds or replaces jobs, and reads the files again: all of it, or nothing."""
        texts, files = await wanted(request)
        async with context.working():
            jobs = await controller.apply(texts, files=files)
        return Json({"jobs": [it.name for it in jobs]})

    @router.post("/reload", response_model=Reloaded, dependencies=operate)
    async def reload() -> Json:
        """Reads the files again."""
        async with context.working():
            await controller.reload()
        return Json({"reloaded": True})

    @router.get("/export", response_model=ExportAnswer, dependencies=operate)
    async def export() -> Json:
        """Files that make the same entries; job files have no keys."""
        return Json(await controller.export())

    @router.post("/switches/{name}/drain", response_model=Drained, dependencies=operate, responses=NOT_FOUND)
    async def drain(name: Name) -> Json:
        """Leads traffic around a switch, so that it may go."""
        async with context.working():
            return Json(await controller.drain(name))

    @router.post("/switches/{name}/undrain", response_model=Undrained, dependencies=operate, responses=NOT_FOUND)
    async def undrain(name: Name) -> Json:
        """Uses it again."""
        async with context.working():
            return Json(await controller.undrain(name))

    return router
