# SPDX-License-Identifier: Apache-2.0
"""What the routes share: the controller, the tokens, the live state and its history, and how much may be at work."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from gradlane_controller.api.errors import Refusal
from gradlane_controller.api.history import History
from gradlane_controller.api.idempotency import Answers
from gradlane_controller.api.live_state import LiveState
from gradlane_controller.api.tokens import Tokens
from gradlane_controller.service import Controller
from gradlane_controller.store import Store
from gradlane_controller.trainings.leases import DEFAULT_GRACE
from gradlane_controller.trainings.templates import Templates
from gradlane_controller.trainings.trainings import Trainings

MAX_AT_WORK = 8  # requests that involve switches


@dataclass(frozen=True)
class Context:
    """Of one running controller."""

    controller: Controller
    tokens: Tokens
    live: LiveState
    history: History
    answers: Answers
    trainings: Trainings
    _at_work: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_AT_WORK))

    @staticmethod
    def of(
        controller: Controller, store: Store, templates: Templates | None = None, grace: float = DEFAULT_GRACE
    ) -> "Context":
        """Of a controller and its store; `templates` and `grace` as `Trainings` takes them."""
        trainings = Trainings(controller, store, templates, grace)
        live = LiveState(controller, trainings.known_of_jobs)
        return Context(controller, Tokens(store), live, History(controller, store, live), Answers(store), trainings)

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncGenerator[None, None]:
        """Around what involves switches. Raises Refusal if too much does."""
        if self._at_work.locked():
            raise Refusal(
                503, f"{MAX_AT_WORK} requests that involve switches are at work; try again", {"Retry-After": "1"}
            )
        async with self._at_work:
            yield

    async def run(self) -> None:
        """What goes on beside requests, until it is cancelled."""
        await asyncio.gather(self.tokens.run(), self.live.run(), self.history.run(), self.trainings.run())
