# SPDX-License-Identifier: Apache-2.0
"""Jobs without a job file on the hosts: their ranks ask for it."""

from fastapi import APIRouter, Request

from gradlane.job import Job
from gradlane_controller.api.context import Context
from gradlane_controller.api.errors import Json
from gradlane_controller.api.models.trainings import NewTraining, TrainingAnswer, TrainingWaits
from gradlane_controller.api.negotiation import accepts, takes_json
from gradlane_controller.api.security import bearer, needs
from gradlane_controller.api.tokens import Scope, Token
from gradlane_controller.trainings.gathering import Ask


def routes(context: Context) -> APIRouter:
    """All need the scope jobs."""
    trainings = context.trainings
    router = APIRouter(prefix="/v1/trainings", dependencies=[bearer, needs(Scope.JOBS), accepts("application/json")])

    @router.post(
        "",
        response_model=TrainingAnswer,
        responses={202: {"model": TrainingWaits}},
        dependencies=[takes_json],
    )
    async def join(request: Request, wanted: NewTraining) -> Json:
        """The file of a job, once all its ranks have asked for it; until then 202 after some seconds. A rank that asks
        again gets the same file, as long as the job is there."""
        token: Token = request.scope["state"]["token"]
        template = trainings.template(wanted.template)
        asked = wanted.name, wanted.rank, wanted.workers, wanted.processes, wanted.address
        found = await trainings.join(Ask(*asked, template, token.id), admin=token.scope >= Scope.ADMIN)
        if isinstance(found, Job):
            return Json({"job": found.name, "id": found.id, "text": found.text})
        return Json({"missing": found.missing, "seconds": found.seconds, "patience": found.patience}, 202)

    return router
