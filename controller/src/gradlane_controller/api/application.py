# SPDX-License-Identifier: Apache-2.0
"""The whole API as one ASGI application."""

from fastapi import FastAPI
from starlette.types import ASGIApp

from gradlane_controller.api.context import Context
from gradlane_controller.api.errors import handle_errors
from gradlane_controller.api.front import Front
from gradlane_controller.api.models.common import Error
from gradlane_controller.api.routes import (
    adaptive,
    agents,
    desired,
    jobs,
    live,
    page,
    plain,
    reading,
    tokens,
    trainings,
)
from gradlane_controller.api.security import Doorkeeper


def make_application(context: Context, host: str) -> ASGIApp:
    """`host` is where it listens: by which name it answers, beside addresses and this machine's name."""
    # The interactive pages of FastAPI load scripts from elsewhere.
    application = FastAPI(
        title="gradlane-controller",
        version="1",
        description='What is refused is answered by {"error": what is wrong, and what would be right}.',
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={422: {"model": Error}, "default": {"model": Error}},
    )
    handle_errors(application)
    for subject in (reading, jobs, desired, adaptive, trainings, agents, live, tokens, plain):
        application.include_router(subject.routes(context))
    page.add(application)
    return Front(application, Doorkeeper(context.tokens, host), context.traffic)
