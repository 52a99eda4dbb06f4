# SPDX-License-Identifier: Apache-2.0
"""What the routes share: the controller, the tokens, the live state and its history, what is measured, and how much
may be at work."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gradlane_controller.adaptive.tuner import Tuner
from gradlane_controller.api.errors import Refusal
from gradlane_controller.api.history import History
from gradlane_controller.api.idempotency import Answers
from gradlane_controller.api.live_state import LiveState
from gradlane_controller.api.tokens import Tokens
from gradlane_controller.api.traffic import Traffic
from gradlane_controller.metrics.exposition import Metrics, Seen
from gradlane_controller.metrics.lag import LoopLag
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
    traffic: Traffic
    metrics: Metrics
    tuner: Tuner
    _at_work: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_AT_WORK))

    @staticmethod
    def of(
        controller: Controller, store: Store, templates: Templates | None = None, grace: float = DEFAULT_GRACE
    ) -> "Context":
        """Of a controller and its store; `templates` and `grace` as `Trainings` takes them."""
        trainings = Trainings(controller, store, templates, grace)
        tuner = Tuner(controller, trainings.known_of_jobs)

        def of_jobs() -> Mapping[str, Mapping[str, Any]]:
            said, tuned = trainings.known_of_jobs(), tuner.of_jobs()
            return {name: {**said.get(name, {}), **tuned.get(name, {})} for name in said.keys() | tuned.keys()}

        live = LiveState(controller, of_jobs)
        traffic, lag = Traffic(), LoopLag()
        history, answers = History(controller, store, live), Answers(store)

        def look() -> Seen:
            agents, slices = trainings.known_of_jobs(), trainings.slices()
            ports = controller.host_ports(), dict(controller.sent_octets())  # which changes while metrics are made
            return Seen(controller.status(), controller.links(), *ports, live.counters, agents, slices)

        journal = controller.journal
        own = (*controller.convergences.collectors, *traffic.collectors, lag.seconds, store.seconds)
        metrics = Metrics(look, (*own, journal.recorded, journal.lost), lag)
        return Context(controller, Tokens(store), live, history, answers, trainings, traffic, metrics, tuner)

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncGenerator[None, None]:
        """Around what involves switches. Raises Refusal if too much does."""
        if self._at_work.locked():
            text = f"{MAX_AT_WORK} requests that involve switches are at work; try again"
            raise Refusal(503, text, {"Retry-After": "1"}, reason="busy")
        async with self._at_work:
            yield

    async def run(self) -> None:
        """What goes on beside requests, until it is cancelled."""
        works = (self.tokens, self.live, self.history, self.trainings, self.metrics, self.tuner)
        await asyncio.gather(*(each.run() for each in works))
