# SPDX-License-Identifier: Apache-2.0
"""Plans with the links and switches as they are known to be, which changes while a large one is made."""

import asyncio
from collections.abc import Callable, Collection, Mapping

from gradlane.job import Job
from gradlane_controller.desired.pipeline import Programs
from gradlane_controller.desired.plan import Plan, make_plan
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.links import End
from gradlane_controller.policy import Numbers
from gradlane_controller.policy.tuning import Tuning

Facts = tuple[Collection[End], Collection[str], Mapping[End, float], Collection[str], Mapping[str, Tuning]]
"""What a plan depends on beside files and numbers: which links are down, which switches lack their part of sums, the
loads, which switches are avoided, how jobs are tuned."""


class Planner:
    """`plan` is that of now, `facts` what is known now. Everything raises JobError or PipelineError."""

    def __init__(self, programs: Programs, plan: Callable[[], Plan], facts: Callable[[], Facts]) -> None:
        self._programs, self._plan, self._facts = programs, plan, facts

    def facts(self, new: Collection[str] = ()) -> Facts:
        """What is known now, with more switches that are avoided."""
        down, lacking, loads, avoided, tunings = self._facts()
        return down, lacking, loads, frozenset(avoided).union(new), tunings

    def make(self, fabric: Fabric, jobs: Mapping[str, Job], known: Numbers, new: Collection[str] = ()) -> Plan:
        """Of these files, with `new` switches avoided."""
        return make_plan(self._programs, fabric, jobs, known, *self.facts(new)).beside(self._plan())

    async def apart(
        self, fabric: Fabric, jobs: Mapping[str, Job], known: Numbers, new: Collection[str] = ()
    ) -> tuple[Plan, Facts]:
        """As `make`, while switches are answered; and of which facts it is made."""
        facts = self.facts(new)
        plan = await asyncio.to_thread(make_plan, self._programs, fabric, jobs, known, *facts)
        return plan.beside(self._plan()), facts

    async def now(self, avoided: Collection[str] | None = None) -> Plan:
        """What that of now would be by what is known now, and if just these switches were `avoided`, where that is
        given; as `apart`."""
        while True:
            now, facts = self._plan(), self._avoiding(avoided)
            plan = await asyncio.to_thread(make_plan, self._programs, now.fabric, now.jobs, now.numbers, *facts)
            if self._plan() is now and self._avoiding(avoided) == facts:
                return plan.beside(now)

    def _avoiding(self, avoided: Collection[str] | None) -> Facts:
        down, lacking, loads, now, tunings = self._facts()
        return down, lacking, loads, now if avoided is None else avoided, tunings
