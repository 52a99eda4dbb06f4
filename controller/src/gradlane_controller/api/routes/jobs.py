# SPDX-License-Identifier: Apache-2.0
"""Jobs: which there are, adding, replacing and removing them."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request

from gradlane.job import Job
from gradlane_controller.api import models
from gradlane_controller.api.context import Context
from gradlane_controller.api.errors import Json, Refusal
from gradlane_controller.api.negotiation import (
    JOB_FILE,
    Cursor,
    Limit,
    accepts,
    check_version,
    job_file,
    page,
    tagged,
    takes_job,
    version_of,
)
from gradlane_controller.api.security import bearer, needs
from gradlane_controller.api.tokens import Scope, Token
from gradlane_controller.errors import UnknownJobError

NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": models.Error}}

Name = Annotated[str, Path(description="Of the job")]
Key = Annotated[
    str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200, description="Any, drawn by the client")
]


def routes(context: Context) -> APIRouter:
    """GET needs the scope read, what changes something the scope jobs."""
    controller = context.controller
    router = APIRouter(prefix="/v1/jobs", dependencies=[bearer, needs(Scope.READ), accepts("application/json")])
    change = [needs(Scope.JOBS)]

    def described() -> list[dict[str, Any]]:
        texts = controller.job_texts()
        rows = controller.status()["jobs"]
        return [{**row, "text": texts[row["name"]], "version": version_of(texts[row["name"]])} for row in rows]

    def found(name: str) -> dict[str, Any]:
        one = next((it for it in described() if it["name"] == name), None)
        if one is None:
            raise UnknownJobError(f"there is no job {name!r}; GET /v1/jobs says which there are")
        return one

    def check_owner(request: Request, name: str) -> None:
        token: Token = request.scope["state"]["token"]
        context.trainings.check_owner(name, token.id, admin=token.scope >= Scope.ADMIN)

    async def put(request: Request, text: str, wanted: str | None = None) -> dict[str, Any]:
        def check(it: Job, now: str | None) -> None:
            if wanted is not None and it.name != wanted:
                raise Refusal(400, f"job.name is {it.name!r} in the job file, but {wanted!r} in the path")
            check_owner(request, it.name)
            check_version(request, f"job {it.name!r}", now and version_of(now))

        async with context.working():
            it = await controller.put_job(text, check)
        return {"job": it.name, "id": it.id}

    @router.get("", response_model=models.JobsAnswer)
    async def jobs(limit: Limit = 100, cursor: Cursor = "") -> Json:
        """Some of them, by name."""
        return Json(page(described(), "name", limit, cursor))

    @router.get("/{name}", response_model=models.JobAnswer, responses=NOT_FOUND)
    async def job(request: Request, name: Name) -> Json:
        """One of them; its ETag is its version."""
        one = found(name)
        return tagged(request, one, one["version"])

    @router.post("", response_model=models.JobTaken, dependencies=[*change, takes_job], openapi_extra=JOB_FILE)
    async def post(request: Request, key: Key = None) -> Json:
        """Adds a job, or replaces that of its name. With an Idempotency-Key it is done once only, however often it is
        asked within a day."""
        text = await job_file(request)
        token: Token = request.scope["state"]["token"]
        answer, again = await context.answers.once(token.id, key, text, lambda: put(request, text))
        return Json(answer, headers=_tag(text) | ({"Idempotent-Replayed": "true"} if again else {}))

    @router.put("/{name}", response_model=models.JobTaken, dependencies=[*change, takes_job], openapi_extra=JOB_FILE)
    async def put_job(request: Request, name: Name) -> Json:
        """Adds that job, or replaces it; with If-Match only that version, with If-None-Match: * only if it is new."""
        text = await job_file(request)
        return Json(await put(request, text, name), headers=_tag(text))

    @router.delete("/{name}", response_model=models.Deleted, responses=NOT_FOUND, dependencies=change)
    async def delete_job(request: Request, name: Name) -> Json:
        """Removes it; with If-Match only that version."""

        def check(now: str | None) -> None:
            check_owner(request, name)
            check_version(request, f"job {name!r}", now and version_of(now))

        async with context.working():
            await controller.delete_job(name, check)
        return Json({"deleted": name})

    return router


def _tag(text: str) -> dict[str, str]:
    return {"ETag": f'"{version_of(text)}"'}
