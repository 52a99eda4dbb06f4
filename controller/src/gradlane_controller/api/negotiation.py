# SPDX-License-Identifier: Apache-2.0
"""Content of requests and answers: types, versions (RFC 9110, sections 8.8.3 and 13.1), pages of lists."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from gradlane_controller.api.errors import Json, Refusal
from gradlane_controller.api.models.desired import Wanted

JOB_TYPE = "application/toml"
JSON_TYPE = "application/json"
MAX_PAGE = 1000

_Item = TypeVar("_Item")

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="At most so many")]
Cursor = Annotated[str, Query(max_length=200, description="`next` of the answer before")]

JOB_FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A job file (TOML)",
        "content": {JOB_TYPE: {"schema": {"type": "string"}}},
    }
}


CHANGE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A job file (TOML), or several, in JSON",
        "content": {
            JOB_TYPE: {"schema": {"type": "string"}},
            JSON_TYPE: {"schema": Wanted.model_json_schema()},
        },
    }
}


def accepts(media_type: str) -> Any:
    """For a route: the client must take that."""

    def check(request: Request) -> None:
        ranges = [it.partition(";") for it in ",".join(request.headers.getlist("Accept")).split(",") if it.strip()]
        wanted = {
            it.strip().lower() for it, _, parameters in ranges if parameters.replace(" ", "") not in ("q=0", "q=0.0")
        }
        if ranges and wanted.isdisjoint((media_type, f"{media_type.partition('/')[0]}/*", "*/*")):
            raise Refusal(406, f"the answer is {media_type}; say so with Accept, or nothing")

    return Depends(check)


def takes(what: str, *media_types: str) -> Any:
    """For a route: the body must be of one of these types."""

    def check(request: Request) -> None:
        if _media_type(request) not in media_types:
            header = " or ".join(media_types)
            raise Refusal(415, f"the body must be {what}, with the header Content-Type: {header}")

    return Depends(check)


takes_job = takes("a job file", JOB_TYPE)
takes_json = takes("JSON", JSON_TYPE)
takes_change = takes("a job file, or JSON", JOB_TYPE, JSON_TYPE)


async def wanted(request: Request) -> tuple[list[str], bool]:
    """The job files of a change, and whether the controller is to read its files again. Raises Refusal."""
    if _media_type(request) == JOB_TYPE:
        return [await job_file(request)], False
    try:
        found = Wanted.model_validate_json(await request.body())
    except ValidationError as problem:
        raise RequestValidationError(
            [{**it, "loc": ("body", *it["loc"])} for it in problem.errors(include_url=False)]
        ) from None
    return found.jobs, found.files


async def job_file(request: Request) -> str:
    """The body. Raises Refusal."""
    try:
        return (await request.body()).decode("utf-8")
    except UnicodeDecodeError:
        raise Refusal(400, "the body must be a job file: TOML in UTF-8") from None


def version_of(text: str) -> str:
    """Of a content: the same for the same content only."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def tagged(request: Request, content: Any, version: str) -> Json:
    """The answer with its ETag; 304 if the client has that version."""
    headers = {"ETag": f'"{version}"', "Cache-Control": "private, no-cache", "Vary": "Authorization"}
    if version in _tags(request, "If-None-Match", weak=True):
        return Json(None, 304, headers)
    return Json(content, 200, headers)


def conditional(request: Request) -> bool:
    """Whether it says which version it wants to change."""
    return "If-Match" in request.headers or "If-None-Match" in request.headers


def check_version(request: Request, name: str, now: str | None) -> None:
    """Whether what the client wants to change is what it knows; `now`: its version, None if it is not there.

    Raises Refusal.
    """
    if "If-Match" in request.headers:
        known = _tags(request, "If-Match", weak=False)
        if now is None or ("*" not in known and now not in known):
            is_now = "is not there" if now is None else f'has version "{now}" now'
            raise Refusal(412, f"{name} {is_now}: somebody has changed it; read it again")
    if "If-None-Match" in request.headers:
        known = _tags(request, "If-None-Match", weak=True)
        if now is not None and ("*" in known or now in known):
            raise Refusal(412, f"{name} is there already; change it with If-Match")


def page(items: Iterable[_Item], key: str, limit: int, cursor: str) -> dict[str, Any]:
    """A part of a list of dictionaries, in the order of `key`: what comes after the cursor."""
    found: Sequence[Any] = sorted((it for it in items if it[key] > cursor), key=lambda it: it[key])  # type: ignore[index]
    more = len(found) > limit
    return {"items": found[:limit], "next": found[limit - 1][key] if more else None}


def _media_type(request: Request) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _tags(request: Request, header: str, *, weak: bool) -> set[str]:
    """Those listed; weak ones count only if `weak`."""
    listed = [it.strip() for it in ",".join(request.headers.getlist(header)).split(",")]
    return {it.removeprefix("W/").strip('"') for it in listed if weak or not it.startswith("W/")}
