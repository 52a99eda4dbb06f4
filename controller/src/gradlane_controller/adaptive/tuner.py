# SPDX-License-Identifier: Apache-2.0
"""Looks at jobs, and tunes them: the leader alone, while the fabric file has [adaptive], and as far as that says."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from gradlane import GradlaneError
from gradlane_controller.adaptive.decision import State, decide, describe, resumed, undone
from gradlane_controller.adaptive.observing import Window
from gradlane_controller.desired.plan import Plan
from gradlane_controller.errors import UnknownJobError
from gradlane_controller.network.topology import whole
from gradlane_controller.policy.tuning import Tuning, limits_of
from gradlane_controller.policy.usage import Usage
from gradlane_controller.service import Controller
from gradlane_controller.session.counters import Counters

LOOK_SECONDS = 1.0  # between two looks at what agents say
SETTLE_SECONDS = 2.0  # after a change, in which nothing is judged by what is seen

_LOG = logging.getLogger(__name__)


class NotTunedError(GradlaneError):
    """There is nothing to undo, or nothing is tuned at all."""


class Tuner:
    """Of one controller. `of_jobs`: what agents say of jobs, by name, as `Reports.of_jobs` does."""

    def __init__(
        self,
        controller: Controller,
        of_jobs: Callable[[], Mapping[str, Mapping[str, Any]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._controller, self._of_jobs, self._clock = controller, of_jobs, clock
        self._window: Window | None = None
        self._quiet_until = 0.0
        self._usage: tuple[Plan, Usage] | None = None
        self._reasons: dict[str, str] = {}  # of the latest changes

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except GradlaneError as problem:
                self._window = None
                _LOG.debug("jobs are tuned later: %s", problem)

    async def look(self) -> None:
        """Sees what is known now, and decides when an interval is over. Raises StoreError or SwitchError."""
        plan = self._controller.plan
        if plan.fabric.adaptive is None or not self._controller.leads:
            self._window = None
            return
        if gone := self._controller.tuned.keys() - plan.jobs.keys():
            await self._controller.tune(dict.fromkeys(gone, (None, "the job is no more")))
        window, now = self._window, self._clock()
        if window is None or window.plan.jobs != plan.jobs or window.plan.fabric is not plan.fabric:
            self._window = None
            if now >= self._quiet_until and self._controller.settled:
                self._begin(await self._controller.counters())
            return
        window.sample(self._of_jobs(), self._controller.sent)
        if now >= window.begun + plan.fabric.adaptive.interval:
            counters = await self._controller.counters()
            if not await self._decide(window, counters):
                self._begin(counters)

    def state(self) -> dict[str, Any]:
        """What GET /v1/adaptive answers."""
        bounds = self._controller.plan.fabric.adaptive
        jobs = [{"name": name, **self._of_job(name)} for name in sorted(self._controller.plan.jobs)]
        return {"bounds": None if bounds is None else vars(bounds), "jobs": [] if bounds is None else jobs}

    def of_jobs(self) -> dict[str, dict[str, Any]]:
        """For the live state, by name: of jobs that are, or were, tuned."""
        if self._controller.plan.fabric.adaptive is None:
            return {}
        names = self._controller.tuned.keys() & self._controller.plan.jobs.keys()
        return {name: {"tuning": self._of_job(name)} for name in names}

    def tolerated(self, host: str) -> dict[str, float]:
        """By name of a job of that host, what part of its tolerance it has, where that is not all."""
        plan = self._controller.plan
        found: dict[str, float] = {}
        for name in self._controller.tuned:
            if name in plan.jobs and any(member.host == host for member in plan.jobs[name].members):
                tuning = self._tuning(name)
                if tuning.tolerance:
                    found[name] = tuning.tolerated
        return found

    async def undo(self, name: str) -> dict[str, Any]:
        """Takes the latest change of a job back, and changes nothing of it until `resume`. Raises UnknownJobError,
        NotTunedError, NotLeadingError or StoreError."""
        before = self._known(name)
        after = undone(before)
        if after is None:
            raise NotTunedError(f"job {name!r} is tuned as its file says, and was not before: there is nothing to undo")
        return await self._by_hand(name, after, "taken back by hand, and held")

    async def resume(self, name: str) -> dict[str, Any]:
        """Lets it be tuned again. Raises as `undo`."""
        return await self._by_hand(name, resumed(self._known(name)), "")

    async def _by_hand(self, name: str, state: State, reason: str) -> dict[str, Any]:
        self._window = None
        await self._keep({name: (state, reason)})
        return {"name": name, **self._of_job(name)}

    def _known(self, name: str) -> State:
        plan = self._controller.plan
        if name not in plan.jobs:
            raise UnknownJobError(f"there is no job {name!r}; there are: {', '.join(plan.jobs) or 'none'}")
        if plan.fabric.adaptive is None:
            raise NotTunedError(f"{plan.fabric.file} has no [adaptive], so no job is tuned; add it to tune jobs")
        return self._state(name)

    def _state(self, name: str) -> State:
        kept = self._controller.tuned.get(name)
        return State() if kept is None else State.of(kept)

    def _tuning(self, name: str) -> Tuning:
        """As it holds."""
        plan = self._controller.plan
        limits = limits_of(plan.fabric, self._usage_of(plan), plan.jobs[name])
        return limits.clamp(self._state(name).tuning)

    def _of_job(self, name: str) -> dict[str, Any]:
        state, tuning = self._state(name), self._tuning(name)
        return {
            **tuning.to_json(),
            "text": describe(tuning),
            "state": "held" if state.held else "tried" if state.trial else "at rest",
            "undoable": len(state.earlier),
            "reason": self._reasons.get(name, ""),
        }

    def _begin(self, counters: Counters) -> None:
        plan = self._controller.plan
        self._window = Window(plan, self._usage_of(plan), counters, self._clock())

    async def _decide(self, window: Window, counters: Counters) -> bool:
        """Whether anything was changed."""
        plan, changes = window.plan, dict[str, tuple[State, str]]()
        usage = self._usage_of(plan)
        for name, seen in window.end(counters).items():
            state = self._state(name)
            new, reason = decide(state, seen, limits_of(plan.fabric, usage, plan.jobs[name]))
            if new != state:
                changes[name] = new, reason
        await self._keep(changes)
        return any(reason for _, reason in changes.values())

    async def _keep(self, changes: Mapping[str, tuple[State, str]]) -> None:
        if changes:
            await self._controller.tune({name: (state.to_json(), reason) for name, (state, reason) in changes.items()})
        if reasons := {name: reason for name, (_, reason) in changes.items() if reason}:
            self._reasons |= reasons
            self._window, self._quiet_until = None, self._clock() + SETTLE_SECONDS

    def _usage_of(self, plan: Plan) -> Usage:
        if self._usage is None or self._usage[0] is not plan:
            self._usage = plan, Usage(plan.fabric, whole(plan.fabric), plan.jobs.values())
        return self._usage[1]
