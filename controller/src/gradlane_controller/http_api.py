# SPDX-License-Identifier: Apache-2.0
"""The controller over HTTP, in JSON.

Errors are {"error": "..."}: 400 for a bad job, 404 for an unknown one, 503 if a switch can't follow just now.

Whoever reaches its address may use it, so a browser on this host must not do so for the pages that it shows: what
another site's page sends has an Origin, and after DNS rebinding that site's name as Host.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from gradlane import GradlaneError
from gradlane_controller.desired.storage import StorageError
from gradlane_controller.errors import SwitchError, SwitchLostError, UnknownJobError
from gradlane_controller.http_server import MAX_BODY_BYTES, receive
from gradlane_controller.metrics import metrics
from gradlane_controller.service import Controller

JOB_TYPE = "application/toml"
MAX_AT_WORK = 8  # requests that involve switches
MAX_ERROR = 1000  # characters, as it may quote what was asked

_PORT = re.compile(r":\d*\Z")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_STATUS: dict[type[GradlaneError], int] = {
    UnknownJobError: 404,
    SwitchError: 503,
    SwitchLostError: 503,
    StorageError: 500,
}


def make_application(controller: Controller, host: str) -> web.Application:
    """GET /status, /metrics, /counters, /violations and /links, POST /jobs (body: a job file), DELETE /jobs/NAME.
    What would change: GET /plan (if the files are read again), POST /plan (a job file); ?live=true reads the switches.

    `host` is where it listens: beside addresses, "localhost" and this machine's name the only one by which it answers.
    """
    names = {host, "localhost", socket.gethostname()}
    at_work = asyncio.Semaphore(MAX_AT_WORK)

    async def status(_request: web.Request) -> web.Response:
        return web.json_response(controller.status())

    async def counters(_request: web.Request) -> web.Response:
        return web.json_response((await controller.counters()).to_json())

    async def violations(_request: web.Request) -> web.Response:
        return web.json_response({"violations": controller.violations()})

    async def links(_request: web.Request) -> web.Response:
        return web.json_response(controller.links())

    async def prometheus(_request: web.Request) -> web.Response:
        return web.Response(
            body=metrics(controller.status(), controller.links(), controller.host_ports()),
            headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4},
        )

    async def plan(request: web.Request) -> web.Response:
        live = request.query.get("live", "false")
        if live not in ("true", "false"):
            raise web.HTTPBadRequest(reason=f"live is {live[:MAX_ERROR]!r}; it must be true or false")
        text = await _job_file(request) if request.method == "POST" else None
        return web.json_response(await controller.preview(text, live=live == "true"))

    async def post_job(request: web.Request) -> web.Response:
        it = await controller.put_job(await _job_file(request))
        return web.json_response({"job": it.name, "id": it.id})

    async def delete_job(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        await controller.delete_job(name)
        return web.json_response({"deleted": name})

    def working(handler: _Handler) -> _Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if at_work.locked():
                return _error(503, f"{MAX_AT_WORK} requests that involve switches are at work; try again")
            async with at_work:
                return await handler(request)

        return handle

    @web.middleware
    async def answer(request: web.Request, handler: _Handler) -> web.StreamResponse:
        """One request of one connection, which is closed then."""
        connection = None
        try:
            connection = await receive(request)
            response = _refusal(request, names) or await handler(request)
        except GradlaneError as problem:
            response = _error(_STATUS.get(type(problem), 400), str(problem))
        except web.HTTPNotFound:
            here = "/status, /metrics, /counters, /violations, /links, /plan, /jobs and /jobs/NAME"
            response = _error(404, f"no {request.path} here; there are {here}")
        except web.HTTPException as problem:
            response = _error(problem.status, problem.reason)
        finally:
            if connection is not None:
                connection.wait()
        response.force_close()
        return response

    application = web.Application(middlewares=[answer], client_max_size=MAX_BODY_BYTES)
    application.router.add_get("/status", status)
    application.router.add_get("/counters", working(counters))
    application.router.add_get("/metrics", prometheus)
    application.router.add_get("/violations", violations)
    application.router.add_get("/links", links)
    application.router.add_get("/plan", working(plan))
    application.router.add_post("/plan", working(plan))
    application.router.add_post("/jobs", working(post_job))
    application.router.add_delete("/jobs/{name}", working(delete_job))
    return application


async def _job_file(request: web.Request) -> str:
    """The body. Raises HTTPException."""
    if request.content_type != JOB_TYPE:
        text = f"the body must be a job file, with the header Content-Type: {JOB_TYPE}"
        raise web.HTTPUnsupportedMediaType(reason=text)
    try:
        return (await request.read()).decode("utf-8")
    except UnicodeDecodeError:
        raise web.HTTPBadRequest(reason="the body must be a job file: TOML in UTF-8") from None


def _refusal(request: web.Request, names: set[str]) -> web.Response | None:
    """The answer to what a browser sends for a page of another site; None for all else."""
    if "Origin" in request.headers or request.headers.get("Sec-Fetch-Site", "none") != "none":
        return _error(403, "pages of web sites may not use the controller")
    host = _PORT.sub("", request.headers.get("Host", "localhost"))  # browsers always send one
    if host not in names and not _is_address(host.strip("[]")):
        return _error(403, f"the request is for {host!r}; use this machine's address or name")
    return None


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _error(status: int, message: str) -> web.Response:
    body: dict[str, Any] = {"error": message[:MAX_ERROR]}
    return web.json_response(body, status=status)
