# SPDX-License-Identifier: Apache-2.0
"""Agents: they report, each for its own host, and who may read sees which do."""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated

from fastapi import APIRouter, Path, Request

from gradlane_controller.api.context import Context
from gradlane_controller.api.errors import Json, Refusal
from gradlane_controller.api.models.trainings import AgentsAnswer, ReportTaken
from gradlane_controller.api.negotiation import Cursor, Limit, accepts, page, takes_json
from gradlane_controller.api.security import bearer, for_agents, needs
from gradlane_controller.api.tokens import Scope, Token
from gradlane_controller.network.fabric import Port
from gradlane_controller.trainings.reports import Report


def routes(context: Context) -> APIRouter:
    """GET needs the scope read, PUT the scope agents."""
    trainings = context.trainings
    router = APIRouter(prefix="/v1/agents", dependencies=[bearer, accepts("application/json")])

    @router.get("", response_model=AgentsAnswer, dependencies=[needs(Scope.READ)])
    async def agents(limit: Limit = 100, cursor: Cursor = "") -> Json:
        """Some of those that report to this controller, by host."""
        return Json(page(trainings.reports.hosts(), "host", limit, cursor))

    @router.put("/{host}", response_model=ReportTaken, dependencies=[for_agents, takes_json])
    async def report(
        request: Request, host: Annotated[str, Path(description="Its name, or an address of it")], content: Report
    ) -> Json:
        """What the agent of a host says of itself and its jobs, instead of what it said before. A token that names no
        host is good for the host that the request comes from; one of scope admin for all."""
        port = trainings.host_of(host)
        _check_host(request, port)
        seconds = trainings.report(port, content)
        return Json({"host": port.host, "seconds": seconds, "tolerated": context.tuner.tolerated(port.host)})

    return router


def _check_host(request: Request, port: Port) -> None:
    """Raises Refusal unless who asks may speak for that host."""
    token: Token = request.scope["state"]["token"]
    client = request.scope["client"]
    if token.scope is Scope.ADMIN or token.host == port.host:
        return
    if token.host is not None:
        raise Refusal(403, f"this token is for the agent of {token.host!r}, not for that of {port.host!r}")
    if client is None or _address(client[0]) not in port.addresses:
        raise Refusal(
            403,
            f"the request comes from {client[0] if client else '?'}, which is no address of {port.host!r} in the "
            "fabric file; use a token that names the host (`token create --scope agents --host`)",
        )


def _address(text: str) -> IPv4Address | IPv6Address:
    """Of a client; IPv4 where the socket is one of IPv6."""
    found = ip_address(text)
    return (found.ipv4_mapped if isinstance(found, IPv6Address) else None) or found
