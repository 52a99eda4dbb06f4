# SPDX-License-Identifier: Apache-2.0
"""Asking: status, topology, links, counters, violations."""

from typing import Any

from fastapi import APIRouter, Request, Response

from gradlane_controller.api.context import Context
from gradlane_controller.api.errors import Json, render
from gradlane_controller.api.models.network import CountersAnswer, FabricAnswer, LinksAnswer, ViolationsAnswer
from gradlane_controller.api.models.status import Status
from gradlane_controller.api.negotiation import accepts, tagged, version_of
from gradlane_controller.api.security import bearer, needs
from gradlane_controller.api.together import Together
from gradlane_controller.api.tokens import Scope
from gradlane_controller.network.fabric import Fabric


def routes(context: Context) -> APIRouter:
    """What needs the scope read."""
    controller = context.controller
    router = APIRouter(prefix="/v1", dependencies=[bearer, needs(Scope.READ), accepts("application/json")])

    the_status, the_links = Together(controller.status), Together(controller.links)

    @router.get("/status", response_model=Status)
    async def status() -> Response:
        """Switches and jobs."""
        return Response(await the_status.answer(), media_type=Json.media_type)

    @router.get("/fabric", response_model=FabricAnswer)
    async def fabric(request: Request) -> Json:
        """The topology, which changes with the fabric file only."""
        content = _fabric(controller.plan.fabric)
        return tagged(request, content, version_of(render(content).decode()))

    @router.get("/links", response_model=LinksAnswer)
    async def links() -> Response:
        """Which links work, since when, and what others send over them."""
        return Response(await the_links.answer(), media_type=Json.media_type)

    @router.get("/violations", response_model=ViolationsAnswer)
    async def violations() -> Json:
        """Gradients that the guard refused."""
        return Json({"violations": controller.violations()})

    @router.get("/counters", response_model=CountersAnswer)
    async def counters() -> Json:
        """What switches have counted; they are asked."""
        async with context.working():
            return Json((await controller.counters()).to_json())

    return router


def _fabric(fabric: Fabric) -> dict[str, Any]:
    ends = fabric.link_ports
    return {
        "switches": [
            {"name": it.name, "target": it.target, "aggregation": it.aggregation, "address": it.address}
            for it in fabric.switches
        ],
        "hosts": [
            {
                "name": it.host,
                "switch": it.switch,
                "port": it.number,
                "rate": it.rate,
                "addresses": [str(address) for address in it.addresses],
            }
            for it in fabric.ports
        ],
        "links": [
            {"ends": [f"{it.switch}:{it.number}" for it in pair], "rate": [it.rate for it in pair]}
            for pair in zip(ends[::2], ends[1::2], strict=True)
        ],
    }
