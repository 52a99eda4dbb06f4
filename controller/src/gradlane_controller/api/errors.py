# SPDX-License-Identifier: Apache-2.0
"""What is refused, and how it is said: {"error": "what is wrong, and what would be right"}."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from gradlane import GradlaneError
from gradlane_controller.adaptive.tuner import NotTunedError
from gradlane_controller.api.tokens import TokenConflictError, UnknownTokenError
from gradlane_controller.errors import (
    BusyError,
    ChangedMeanwhileError,
    DrainError,
    NotLeadingError,
    StoreError,
    SwitchError,
    SwitchLostError,
    UnknownJobError,
    UnknownSwitchError,
)
from gradlane_controller.trainings.allocation import FullError
from gradlane_controller.trainings.gathering import ConflictError, CrowdedError, OwnerError
from gradlane_controller.trainings.trainings import UnknownHostError

MAX_ERROR = 1000  # characters, as it may quote what was asked

_STATUS: dict[type[GradlaneError], int] = {
    UnknownJobError: 404,
    SwitchError: 503,
    SwitchLostError: 503,
    NotLeadingError: 503,
    BusyError: 503,
    ConflictError: 409,
    CrowdedError: 429,
    FullError: 409,
    OwnerError: 403,
    UnknownHostError: 404,
    StoreError: 503,
    ChangedMeanwhileError: 412,
    UnknownSwitchError: 404,
    DrainError: 409,
    NotTunedError: 409,
    UnknownTokenError: 404,
    TokenConflictError: 409,
}


class Refusal(GradlaneError):
    """A request is refused with that status; the message says why, and what would be right. `reason`: that of
    `Traffic.refused`, if it counts as refused there."""

    def __init__(
        self, status: int, message: str, headers: Mapping[str, str] | None = None, *, reason: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers
        self.reason = reason


def render(content: Any) -> bytes:
    """JSON in ASCII: nothing that a client has sent can't be quoted."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


class Json(Response):
    """A JSON answer."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """To bytes."""
        return render(content)


def error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Json:
    """The answer that says so."""
    return Json({"error": message[:MAX_ERROR]}, status, headers)


def answer_to(problem: GradlaneError) -> Json:
    """The answer that says what an error says."""
    if isinstance(problem, Refusal):
        return error(problem.status, str(problem), problem.headers)
    headers = {"Retry-After": "1"} if isinstance(problem, BusyError) else None
    return error(_STATUS.get(type(problem), 400), str(problem), headers)


def handle_errors(application: FastAPI) -> None:
    """Makes the application say errors so."""

    async def known(request: Request, problem: Exception) -> Json:
        assert isinstance(problem, GradlaneError)
        request.scope["state"]["problem"] = problem
        return answer_to(problem)

    async def invalid(_request: Request, problem: Exception) -> Json:
        assert isinstance(problem, RequestValidationError)
        found = problem.errors()
        if found[0]["type"] == "json_invalid":
            return error(400, f"the body is no JSON: {found[0]['ctx']['error']}")
        return error(422, "; ".join(map(_invalid, found)))

    async def unknown(request: Request, problem: Exception) -> Json:
        assert isinstance(problem, HTTPException)
        paths: dict[str, dict[str, Any]] = application.openapi()["paths"]
        path = request.url.path
        if problem.status_code == 405:
            methods = sorted({it.upper() for known, its in paths.items() if _fits(known, path) for it in its})
            return error(
                405, f"{path} has no {request.method}, but {' and '.join(methods)}", {"Allow": ", ".join(methods)}
            )
        if problem.status_code == 404:
            return error(404, f"no {path[:100]} here; there are {', '.join(paths)}")
        return error(problem.status_code, str(problem.detail), problem.headers)

    application.add_exception_handler(GradlaneError, known)
    application.add_exception_handler(RequestValidationError, invalid)
    application.add_exception_handler(HTTPException, unknown)


def _invalid(it: dict[str, Any]) -> str:
    """Where a request is not as it should be, as pydantic says it."""
    where = ".".join(map(str, it["loc"][1:])) or "the body"
    message = it["msg"][:1].lower() + it["msg"][1:]
    return (
        f"{where}: {message}" if isinstance(it["input"], dict) else f"{where} is {str(it['input'])[:100]!r}: {message}"
    )


def _fits(known: str, path: str) -> bool:
    """Whether a path is one of those known, like /v1/jobs/{name}."""
    words, wanted = path.split("/"), known.split("/")
    return len(words) == len(wanted) and all(a == b or b.startswith("{") for a, b in zip(words, wanted, strict=True))
