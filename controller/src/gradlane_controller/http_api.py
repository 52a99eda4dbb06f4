# SPDX-License-Identifier: Apache-2.0
"""The controller over HTTP, in JSON.

Errors are {"error": "..."}: 400 for a bad job, 404 for an unknown one, 503 if a switch can't follow just now.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from gradlane import GradlaneError
from gradlane_controller.desired.storage import StorageError
from gradlane_controller.errors import SwitchError, SwitchLostError
from gradlane_controller.service import Controller, UnknownJobError

MAX_JOB_BYTES = 1 << 20

_STATUS: dict[type[GradlaneError], int] = {
    UnknownJobError: 404,
    SwitchError: 503,
    SwitchLostError: 503,
    StorageError: 500,
}


def make_application(controller: Controller) -> web.Application:
    """GET /status, GET /counters, GET /violations, GET /links, POST /jobs (body: a job file), DELETE /jobs/NAME."""

    async def status(_request: web.Request) -> web.Response:
        return web.json_response(controller.status())

    async def counters(_request: web.Request) -> web.Response:
        return web.json_response((await controller.counters()).to_json())

    async def violations(_request: web.Request) -> web.Response:
        return web.json_response({"violations": controller.violations()})

    async def links(_request: web.Request) -> web.Response:
        return web.json_response(controller.links())

    async def post_job(request: web.Request) -> web.Response:
        try:
            text = (await request.read()).decode("utf-8")
        except UnicodeDecodeError:
            return _error(400, "the body must be a job file: TOML in UTF-8")
        it = await controller.put_job(text)
        return web.json_response({"job": it.name, "id": it.id})

    async def delete_job(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        await controller.delete_job(name)
        return web.json_response({"deleted": name})

    application = web.Application(middlewares=[_errors_as_json], client_max_size=MAX_JOB_BYTES)
    application.router.add_get("/status", status)
    application.router.add_get("/counters", counters)
    application.router.add_get("/violations", violations)
    application.router.add_get("/links", links)
    application.router.add_post("/jobs", post_job)
    application.router.add_delete("/jobs/{name}", delete_job)
    return application


@web.middleware
async def _errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except GradlaneError as problem:
        return _error(_STATUS.get(type(problem), 400), str(problem))
    except web.HTTPNotFound:
        return _error(
            404, f"no {request.path} here; there are /status, /counters, /violations, /links, /jobs and /jobs/NAME"
        )
    except web.HTTPException as problem:
        return _error(problem.status, problem.reason)


def _error(status: int, message: str) -> web.Response:
    body: dict[str, Any] = {"error": message}
    return web.json_response(body, status=status)
