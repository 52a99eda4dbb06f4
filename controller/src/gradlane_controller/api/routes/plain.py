# SPDX-License-Identifier: Apache-2.0
"""What needs no token: for who watches over processes, and for Prometheus."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from gradlane_controller.api.context import Context
from gradlane_controller.api.errors import Json
from gradlane_controller.api.models.status import Health, Readiness


def routes(context: Context) -> APIRouter:
    """They don't change anything, and ask no switch."""
    controller = context.controller
    router = APIRouter()

    @router.get("/healthz", response_model=Health)
    async def health() -> Json:
        """Whether the process lives."""
        return Json({"alive": True})

    @router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
    async def readiness() -> Json:
        """Whether this controller leads, and every switch that it reaches holds its state."""
        problems = unready(controller.status())
        return Json({"ready": not problems, "problems": problems}, 503 if problems else 200)

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def prometheus() -> Response:
        """For Prometheus."""
        return Response(await context.metrics.text(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    return router


def unready(status: dict[str, Any]) -> list[str]:
    """Why a controller of that status is not ready; nothing if it is."""
    if not status["controller"]["leader"]:
        return [f"this controller stands by: {status['controller']['who']}"]
    reached = [it for it in status["switches"] if it["connected"]]
    if not reached:
        return ["no switch is reached"]
    return [f"{it['name']}: {it['problem']}" for it in reached if it["refused"] or not it["ready"]]
