# SPDX-License-Identifier: Apache-2.0
"""Jobs: which there are, adding, replacing and removing them."""

import asyncio
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request

from gradlane.job import Job
from gradlane_controller.api.context import Context
from gradlane_controller.api.errors import Json
from gradlane_controller.api.models.common import Deleted, Error
from gradlane_controller.api.models.jobs import JobAnswer, JobsAnswer, JobTaken
from gradlane_controller.api.negotiation import (
    JOB_FILE,
    Cursor,
    Limit,
    accepts,
    check_version,
    conditional,
    job_file,
    page,
    tagged,
    takes_job,
    version_of,
)
from gradlane_controller.api.security import bearer, needs, token_of
from gradlane_controller.api.tokens import Scope
from gradlane_controller.desired.keys import without_key
from gradlane_controller.errors import UnknownJobError
from gradlane_controller.service import Controller
from gradlane_controller.store.jobs import ABSENT

NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": Error}}

Name = Annotated[str, Path(description="Of the job")]
Key = Annotated[
    str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200, description="Any, drawn by the client")
]


def routes(context: Context) -> APIRouter:
    """GET needs the scope read, what changes something the scope jobs."""
    controller = context.controller
    router = APIRouter(prefix="/v1/jobs", dependencies=[bearer, needs(Scope.READ), accepts("application/json")])
    change = [needs(Scope.JOBS)]

    versions = Versions(controller)

    def described() -> list[dict[str, Any]]:
        """All jobs."""
        return [{**it, "version": versions.of(it["name"])} for it in controller.status()["jobs"]]

    def check_owner(request: Request, name: str) -> None:
        token = token_of(request)
        context.trainings.check_owner(name, token.id, admin=token.scope >= Scope.ADMIN)

    def expected(request: Request, name: str) -> int | None:
        """Which version a job must have in the store, if the client says so. Raises Refusal if it has another one."""
        if not conditional(request):
            return None
        check_version(request, f"job {name!r}", versions.of(name))
        stored = controller.stored_jobs.get(name)
        return ABSENT if stored is None else stored.version

    async def put(request: Request, text: str, version: int | None = None, name: str | None = None) -> dict[str, Any]:
        async with context.working():
            it = await controller.put_job(text, version, name, partial(check_owner, request))
        return {"job": it.name, "id": it.id}

    @router.get("", response_model=JobsAnswer)
    async def jobs(limit: Limit = 100, cursor: Cursor = "") -> Json:
        """Some of them, by name."""
        return Json(page(described(), "name", limit, cursor))

    @router.get("/{name}", response_model=JobAnswer, responses=NOT_FOUND)
    async def job(request: Request, name: Name) -> Json:
        """One of them; its ETag is its version."""
        one = next((it for it in described() if it["name"] == name), None)
        if one is None:
            raise UnknownJobError(f"there is no job {name!r}; GET /v1/jobs says which there are")
        stored = controller.stored_jobs.get(name)
        text = None if stored is None else await asyncio.to_thread(without_key, stored.text)
        return tagged(request, {**one, "text": text}, one["version"])

    @router.post("", response_model=JobTaken, dependencies=[*change, takes_job], openapi_extra=JOB_FILE)
    async def post(request: Request, key: Key = None) -> Json:
        """Adds a job, or replaces that of its name. With an Idempotency-Key it is done once only, however often it is
        asked within a day."""
        text = await job_file(request)
        answer, again = await context.answers.once(token_of(request).id, key, text, lambda: put(request, text))
        return Json(answer, headers={"Idempotent-Replayed": "true"} if again else None)

    @router.put("/{name}", response_model=JobTaken, dependencies=[*change, takes_job], openapi_extra=JOB_FILE)
    async def put_job(request: Request, name: Name) -> Json:
        """Adds that job, or replaces it; with If-Match only that version, with If-None-Match: * only if it is new. A
        file without a key keeps that of the job."""
        text = await job_file(request)
        taken = await put(request, text, expected(request, name), name)
        return Json(taken, headers={"ETag": f'"{versions.of(name)}"'})

    @router.delete("/{name}", response_model=Deleted, responses=NOT_FOUND, dependencies=change)
    async def delete_job(request: Request, name: Name) -> Json:
        """Removes it; with If-Match only that version."""
        check_owner(request, name)
        async with context.working():
            await controller.delete_job(name, expected(request, name))
        return Json({"deleted": name})

    return router


class Versions:
    """Of jobs: of those in the store theirs, of those of files what changes with the job."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._known: dict[str, tuple[Job, str]] = {}  # those of files

    def of(self, name: str) -> str | None:
        """None if there is no such job."""
        if (stored := self._controller.stored_jobs.get(name)) is not None:
            return str(stored.version)
        it = self._controller.plan.jobs.get(name)
        if it is None:
            self._known.pop(name, None)
            return None
        if name not in self._known or self._known[name][0] is not it:
            self._known[name] = it, version_of(repr(it))
        return f"file-{self._known[name][1]}"
