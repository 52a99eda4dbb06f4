# SPDX-License-Identifier: Apache-2.0
"""The desired state of the switches, and how they get from one to another, or back."""

import asyncio
import logging
from collections.abc import Mapping

from gradlane import GradlaneError
from gradlane.job import Job
from gradlane_controller.background import Background
from gradlane_controller.desired.plan import Plan
from gradlane_controller.desired.planner import Planner
from gradlane_controller.desired.sums_at_switches import SumsAtSwitches
from gradlane_controller.errors import NotLeadingError, SwitchError, SwitchLostError
from gradlane_controller.maintenance import Maintenance
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.links import Links
from gradlane_controller.policy import Numbers
from gradlane_controller.session.fleet import Fleet
from gradlane_controller.session.managed_switch import ManagedSwitch

_LOG = logging.getLogger(__name__)


class DesiredState:
    """`plan`: what every switch should hold. Jobs and fabric change by `apply`, which waits for the switches; what is
    known of links, sums and loads changes it by itself, and nobody waits."""

    def __init__(
        self,
        plan: Plan,
        planner: Planner,
        switches: Fleet,
        maintenance: Maintenance,
        links: Links,
        sums: SumsAtSwitches,
        background: Background,
        *,
        check_links: bool,
    ) -> None:
        """`plan`: the first one. Without `check_links` links are assumed to work."""
        self.plan = plan
        self._planner, self._switches, self._maintenance = planner, switches, maintenance
        self._links, self._sums, self._check_links = links, sums, check_links
        self._background = background
        self._leading_around = False  # a plan is being made that leads sums around switches

    def take(self, plan: Plan) -> None:
        """Makes it the desired state, and says which jobs are not summed in a switch, although they ask for it."""
        before = self.plan
        if plan.fabric is not before.fabric:
            new = self._maintenance.follow(plan.fabric, self._links)
            self._sums.lacking &= self._switches.keys()
            self._links.follow(plan.fabric, assumed=not self._check_links, moved=new)
        self.plan = plan
        self._sums.take(plan)
        for name, reason in plan.not_summed().items():
            if before.not_summed().get(name) != reason:
                _LOG.warning("job %r is reduced by its hosts, not by a switch: %s", name, reason)

    async def apply(self, fabric: Fabric, jobs: Mapping[str, Job]) -> None:
        """Converges the switches to a new desired state and takes it over, or goes back to the old one and raises.

        Raises JobError, PipelineError, StoreError or SwitchError. Callers have a turn; meanwhile the plan may change by
        what is found out, but not its fabric or jobs.
        """
        new, gone = self._maintenance.moving(fabric, self._links)
        numbers = self.plan.numbers
        plan, facts = await self._planner.apart(fabric, jobs, self.plan.numbers, new)
        self._sums.leave_out(self.plan, plan, self._switches.away)
        known = self._sums.renumbered(plan)
        if known != plan.numbers or self._planner.facts(new) != facts:
            plan, facts = await self._planner.apart(fabric, jobs, known, new)
        changed = [it for name, it in jobs.items() if it != self.plan.jobs.get(name)]
        stay = [it.name for it in fabric.switches if it in self.plan.fabric.switches]
        needed = set[str]().union(*(plan.switches_of(it) for it in changed)) & set(stay)
        for name in needed:
            self._switches[name].check_ready()
        present = {name: self._switches[name] for name in stay if self._switches[name].ready}
        if stay and not present:
            self._switches[stay[0]].check_ready()
        await self._maintenance.keep(fabric)
        try:
            if gone:
                await self._maintenance.leave(gone)
            results = await asyncio.gather(
                *(managed.converge(plan.entities[name]) for name, managed in present.items()), return_exceptions=True
            )
            for name, result in zip(present, results, strict=True):
                lost = isinstance(result, SwitchLostError) and not isinstance(result, NotLeadingError)
                if lost and name not in needed:
                    continue
                if isinstance(result, BaseException):
                    raise result
            self._maintenance.left()
            if self.plan.numbers != numbers:  # meanwhile, as a switch has told others
                plan = self._planner.make(fabric, jobs, self.plan.numbers, new)
                plan = self._planner.make(fabric, jobs, self._sums.renumbered(plan), new)
            elif self._planner.facts(new) != facts:
                plan = self._planner.make(fabric, jobs, plan.numbers, new)
        except BaseException:
            self._maintenance.left()
            self.replan("what has failed can't be taken back")
            fleet = self._switches  # what fails here, too, the next session does
            await fleet.write(self.plan.entities, [name for name, it in fleet.items() if it.ready])
            raise
        self.take(plan)
        self.catch_up()

    def replan(self, problem: str, known: Numbers | None = None) -> None:
        """The same jobs with what is known now; nobody waits for the switches. `problem`: if that can't be."""
        try:
            self.take(self._planner.make(self.plan.fabric, self.plan.jobs, known or self.plan.numbers))
        except GradlaneError as why:
            _LOG.error("%s: %s", problem, why)
        self.catch_up()

    def catch_up(self) -> None:
        """Begins to converge the switches that still hold an earlier plan; nobody waits for them."""
        for name, managed in self._switches.items():
            if managed.ready and not managed.holds(self.plan.entities[name]):
                self._background.begin(self._converge_or_renew(managed))

    async def _converge_or_renew(self, managed: ManagedSwitch) -> None:
        if self._switches.get(managed.where.name) is not managed:
            return  # it has left meanwhile
        try:
            await managed.converge(self.plan.entities[managed.where.name])
            self.has_part(managed.where.name)
        except SwitchError as problem:
            managed.connection.renew(str(problem))

    def has_part(self, name: str) -> None:
        """That switch holds what it should, so trees may lead over it again."""
        if name in self._sums.lacking:
            self._sums.lacking.discard(name)
            self.lead_sums_around()

    def lacks_part(self, name: str) -> None:
        """That switch does not hold what it should, so trees must not lead over it."""
        if name not in self._sums.lacking:
            self._sums.lacking.add(name)
            self.lead_sums_around()

    def lead_sums_around(self) -> None:
        """Other switches lack their part of sums now. One plan is made for all that come until it is ready."""
        if self.plan.summed and not self._leading_around:
            self._leading_around = True
            self._background.begin(self._make_sums_go_around())

    async def _make_sums_go_around(self) -> None:
        try:
            self.take(await self._planner.now())
        except GradlaneError as why:
            _LOG.error("sums can't go around %s: %s", ", ".join(sorted(self._sums.lacking)), why)
        finally:
            self._leading_around = False
        self.catch_up()
