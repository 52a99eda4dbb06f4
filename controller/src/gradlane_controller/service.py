# SPDX-License-Identifier: Apache-2.0
"""The controller: keeps the list of jobs, and makes the switches hold what the jobs and the fabric need."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradlane import GradlaneError
from gradlane.job import Job
from gradlane_controller.background import Background
from gradlane_controller.desired.balance import Balance, State
from gradlane_controller.desired.keys import keeping_keys, without_key
from gradlane_controller.desired.pipeline import Programs
from gradlane_controller.desired.plan import Plan
from gradlane_controller.desired.planner import Facts, Planner
from gradlane_controller.desired.sources import Sources, parse_jobs
from gradlane_controller.desired.sums_at_switches import SumsAtSwitches
from gradlane_controller.desired_state import DesiredState
from gradlane_controller.errors import StoreError, UnknownJobError
from gradlane_controller.journal import Journal
from gradlane_controller.leadership import Leadership
from gradlane_controller.leading import Leading
from gradlane_controller.maintenance import Maintenance
from gradlane_controller.network.fabric_text import to_toml
from gradlane_controller.network.links import End, Links
from gradlane_controller.network.loads import Loads
from gradlane_controller.policy import Numbers
from gradlane_controller.policy.tuning import NEUTRAL
from gradlane_controller.session.connection import FinsyLog
from gradlane_controller.session.convergences import Convergences
from gradlane_controller.session.counters import Counters, Glances
from gradlane_controller.session.fleet import Fleet
from gradlane_controller.session.link_checks import LinkChecks
from gradlane_controller.session.managed_switch import ManagedSwitch
from gradlane_controller.session.patience import Places
from gradlane_controller.session.preview import previews
from gradlane_controller.session.violations import Violations
from gradlane_controller.status import status, summary
from gradlane_controller.store import Store
from gradlane_controller.store.jobs import StoredJob
from gradlane_controller.switch_events import SwitchEvents
from gradlane_controller.timeline import Timeline
from gradlane_controller.turns import Turns

WHOLE_AT_ONCE = 8  # switches that are read or written as a whole
WHOLE_SECONDS = 1.0  # after which others begin, too

_LOG = logging.getLogger(__name__)


class Controller:
    """Keeps the desired state and converges the switches to it, at every session and every change.

    Jobs come from files, which are read again on `reload`, and from `put_job`, which keeps them in the store: they
    survive a restart, and a take-over by a controller with the same store. Of these one leads, and the others write
    nothing to switches. Every method that changes something either succeeds as a whole, with every connected switch
    holding it, or leaves the desired state as it was and raises. A switch that is away gets its state when it comes
    back; until then no job that has a rank there is accepted. Switches come and go with the fabric file, and are led
    around while they are drained (see `maintenance`).

    Nobody waits for a switch longer than for one operation, and only those who asked for a change: to others who want
    to change something BusyError names it.
    """

    def __init__(
        self,
        programs: Programs,
        fabric_path: Path,
        job_paths: Iterable[Path],
        store: Store,
        *,
        name: str = "controller",
        check_links: bool = True,
    ) -> None:
        """Reads every file, and the store. Without `check_links` every link is assumed to work. By its name people tell
        this controller from others.

        Raises FabricError, JobError, PipelineError or StoreError.
        """
        self._programs = programs
        self._sources = Sources(fabric_path, job_paths, store)
        fabric = self._sources.fabric
        self.journal = Journal(store, name)
        self.leadership = Leadership(store, name)
        places, finsy_log = Places(WHOLE_AT_ONCE, WHOLE_SECONDS), FinsyLog()
        self.convergences = Convergences()
        self._managed_switches = Fleet(
            lambda where: ManagedSwitch(
                *(where, programs.of(where), self._events.on_ready, self._events.on_drift),
                *(self._events.on_late, self._events.on_lost),
                *(self._leading.number, self.leadership.outgrow, self._balance.measured),
                *(self.convergences, places, finsy_log),
            ),
            self.convergences,
        )
        self._leading = Leading(
            *(self.leadership, self._managed_switches.values, self._refresh, self._stand_by), self.journal.record
        )
        self._planner = Planner(programs, lambda: self.plan, self._facts)
        self._maintenance = Maintenance(
            *(self._sources.kept, self._leading.check, self._managed_switches),
            *(lambda: self.plan, self._planner.now, self._take),
        )
        self._sums = SumsAtSwitches()
        self._timeline = Timeline(self.journal.record)
        self._balance = Balance(Loads(fabric), self._state, self._leave_busy_links)
        self._links = Links(fabric)
        self._violations = Violations(on_new=self._timeline.violation)
        self._begun = asyncio.Event()
        self._turns = Turns(self._managed_switches.silent)
        self._background = Background()
        self._desired = DesiredState(
            *(Plan(fabric, {}, Numbers(), {}, {}), self._planner, self._managed_switches, self._maintenance),
            *(self._links, self._sums, self._background),
            check_links=check_links,
        )
        self._checks = LinkChecks(self._links, self._managed_switches.values(), self._route_around)
        self._check_links = check_links
        self._events = SwitchEvents(
            *(self._desired, self._managed_switches, self._leading, self._maintenance, self._sums, self._links),
            *(self._checks, self._violations, self._timeline, self._background, self._turns),
            check_links=check_links,
        )
        self._managed_switches.follow(fabric.switches)
        self._desired.take(self._planner.make(fabric, self._sources.jobs, Numbers()))
        if not (check_links and fabric.link_ports):
            self._checks.known.set()

    async def run(self) -> None:
        """Keeps the switches converged until cancelled; those that can't be reached are waited for."""
        await self._leading.start(self._sources.kept.revision)
        self._begun.set()
        works = [self._managed_switches.run(), self._leading.run(), self._balance.run(), self.journal.run()]
        if self._check_links:
            works.append(self._checks.run())
        tasks = [asyncio.create_task(it) for it in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            for task in (*tasks, *self._background.tasks):
                task.cancel()
            await asyncio.wait((*tasks, *self._background.tasks))

    async def wait_until_ready(self) -> None:
        """Returns once every switch holds its state, except those that can't be reached in time, but at least one."""
        await self._events.started.wait()

    async def wait_until_tried(self) -> None:
        """Returns once it is known whether this controller leads and, if it does, which switches can be reached."""
        await self._begun.wait()
        if self.leads:
            await self._events.tried.wait()

    @property
    def plan(self) -> Plan:
        """The desired state."""
        return self._desired.plan

    @property
    def summary(self) -> str:
        """One line for people."""
        return summary(self.plan, self._managed_switches.away)

    def status(self) -> dict[str, Any]:
        """What GET /v1/status answers."""
        return {
            "controller": self.leadership.to_json() | {"events": self.journal.problem},
            **status(self.plan, self._managed_switches.values(), self._maintenance.records.drained),
        }

    def links(self) -> dict[str, Any]:
        """What GET /v1/links answers. Of each link, in bit/s and None where that is not known: what its ends send by
        queue class (`sent`) and what of it follows trees; `load` is what follows none, and by which trees are laid."""
        loads = self._balance.measured
        found = self._links.to_json(loads.now(), sent=loads.sent, trees=loads.trees)
        return {"checked": self._check_links and bool(self.plan.fabric.link_ports), "links": found}

    def host_ports(self) -> list[dict[str, Any]]:
        """What switches send to each host, as `links` has it; `name` is the host's, `switch` and `port` where it is."""
        loads = self._balance.measured
        ends = ((port.host, (port.switch, port.number)) for port in self.plan.fabric.ports)
        return [
            {"name": name, "switch": end[0], "port": end[1], "sent": loads.sent(end), "trees": loads.trees(end)}
            for name, end in ends
        ]

    def sent_octets(self) -> Mapping[End, Sequence[int]]:
        """What each port has sent since this controller has known it, as `Loads.octets`."""
        return self._balance.measured.octets

    def violations(self) -> list[dict[str, Any]]:
        """What GET /v1/violations answers."""
        return self._violations.to_json(self.plan.fabric, {it.id: name for name, it in self.plan.jobs.items()})

    async def counters(self, glances: Glances | None = None) -> Counters:
        """What GET /v1/counters answers; less, and sooner, for who glances at them. Raises SwitchError if no switch is
        there."""
        return await self._managed_switches.counters(self.plan, glances)

    @property
    def leads(self) -> bool:
        """Whether this controller may write, and knows what the one before has kept."""
        return self._leading.number() is not None

    @property
    def stored_jobs(self) -> Mapping[str, StoredJob]:
        """The jobs of the store, by name."""
        return self._sources.kept.jobs

    async def put_job(
        self,
        text: str,
        expected: int | None = None,
        name: str | None = None,
        check: Callable[[str], None] = lambda _name: None,
    ) -> Job:
        """Adds a job, or replaces the one of that name, if its version in the store is `expected` (None: whatever it
        is; 0: it must not be there). `name`, if it is given, must be its name; `check` gets that, and may raise. Raises
        as `apply`, or ChangedMeanwhileError."""
        (it,) = await self.apply([text], expected=expected, name=name, check=check)
        return it

    async def apply(
        self,
        texts: Sequence[str],
        *,
        files: bool = False,
        expected: int | None = None,
        name: str | None = None,
        check: Callable[[str], None] = lambda _name: None,
    ) -> list[Job]:
        """Adds or replaces the jobs of these job files, and reads the files again if `files`: all of it, or nothing;
        `expected`, `name` and `check` as `put_job` takes them.

        Raises JobError, FabricError, PipelineError, StoreError or SwitchError.
        """
        some = await parse_jobs(texts, name)
        async with self._turns.turn():
            for it in some:
                check(it)
            number, before, sources = self._leading.check(), self.plan, self._sources
            some = await keeping_keys(some, before.jobs)
            fabric, jobs = before.fabric, dict(before.jobs)
            read = await sources.read_files(fabric) if files else None
            if read is not None:
                fabric, jobs = read[0], {**read[1], **await asyncio.to_thread(sources.kept.parsed)}
            try:
                async with sources.kept.put(number, {name: it.text for name, it in some.items()}, expected):
                    await self._desired.apply(fabric, {**jobs, **some})
            except StoreError as problem:
                await self._go_back(before, problem)
                raise
            if read is not None:
                sources.take(*read)
        for name, it in some.items():
            self._timeline.job(name, it.id, put=True)
        return list(some.values())

    async def delete_job(self, name: str, expected: int | None = None) -> None:
        """Removes a job, if its version in the store is `expected`, as `put_job` takes it; one of the files given at
        the start comes back with the next start or reload.

        Raises UnknownJobError, ChangedMeanwhileError, StoreError or SwitchError.
        """
        async with self._turns.turn():
            number, before = self._leading.check(), self.plan
            if name not in before.jobs:
                raise UnknownJobError(f"there is no job {name!r}; there are: {', '.join(before.jobs) or 'none'}")
            others = {other: it for other, it in before.jobs.items() if other != name}
            try:
                async with self._sources.kept.remove(number, name, expected):
                    await self._desired.apply(before.fabric, others)
            except StoreError as problem:
                await self._go_back(before, problem)
                raise
        self._timeline.job(name, before.jobs[name].id, put=False)

    async def _go_back(self, before: Plan, problem: StoreError) -> None:
        """What was written to switches could not be kept. Who does not know whether it was leads no more: the next
        leader reads it."""
        if problem.unsure:
            self.leadership.resign()
        elif self.plan is not before:
            try:
                await self._desired.apply(before.fabric, before.jobs)
            except GradlaneError as why:
                _LOG.error("what can't be kept can't be taken back: %s", why)
                self.leadership.resign()

    async def reload(self, job_paths: Iterable[Path] | None = None) -> None:
        """Reads the files again, those job files from now on if they are given; raises as `apply`."""
        if job_paths is not None:
            self._sources.job_paths = tuple(job_paths)
        await self.apply([], files=True)
        _LOG.info("files read again: %s", self.summary)

    async def preview(self, texts: Sequence[str], *, files: bool, live: bool) -> dict[str, Any]:
        """What GET and POST /v1/plan answer: what `apply` would change. Compared with what the switches should hold
        now; `live`: with what they do hold. Raises JobError, FabricError or PipelineError."""
        some, fabric, jobs = await parse_jobs(texts), self.plan.fabric, self.plan.jobs
        if files:
            fabric, of_files = await self._sources.read_files(fabric)
            jobs = {**of_files, **await asyncio.to_thread(self._sources.kept.parsed)}
        jobs = {**jobs, **some}
        plan, _ = await self._planner.apart(fabric, jobs, self.plan.numbers)
        known = self._sums.renumbered(plan)
        if known != plan.numbers:
            plan, _ = await self._planner.apart(fabric, jobs, known)
        schemas = {where.name: self._programs.of(where).schema for where in fabric.switches}
        switches = await previews(self._managed_switches, schemas, self.plan.entities, plan.entities, live=live)
        return {"live": live, "switches": switches, "not_summed": plan.not_summed()}

    @property
    def settled(self) -> bool:
        """Whether every switch that is ready holds what it should."""
        return all(it.holds(self.plan.entities[name]) for name, it in self._managed_switches.items() if it.ready)

    def sent(self, end: End) -> list[int] | None:
        """What leaves by a port, in bit/s by queue class; None: not known."""
        return self._balance.measured.sent(end)

    @property
    def tuned(self) -> Mapping[str, Mapping[str, Any]]:
        """What is kept of how jobs are tuned, by name."""
        return self._sources.kept.tuned

    async def tune(self, new: Mapping[str, tuple[Mapping[str, Any] | None, str]]) -> None:
        """Keeps how these jobs are tuned (None: not any more), with the reason for people, empty if that has not
        changed. Nobody waits for the switches. Raises NotLeadingError or StoreError."""
        async with self._turns.turn():
            before, kept = self._sources.kept.tunings, self._sources.kept
            new = {name: it for name, it in new.items() if it[0] is None or name in self.plan.jobs}
            await kept.keep_tuned(self._leading.check(), {name: state for name, (state, _) in new.items()})
            if kept.tunings != before:
                self._desired.replan("jobs can't be tuned")
            for name, (_, reason) in new.items():
                old, now = (it.get(name, NEUTRAL) for it in (before, kept.tunings))
                if old != now:
                    _LOG.info("job %r is tuned: %s", name, reason)
                    self._timeline.tuning(name, old.to_json(), now.to_json(), reason)

    async def export(self) -> dict[str, Any]:
        """What GET /v1/export answers: files that make the same entries, and the switches that are drained."""
        jobs = {name: await asyncio.to_thread(without_key, it.text) for name, it in self.plan.jobs.items()}
        drained = sorted(self._maintenance.records.drained)
        return {"fabric": to_toml(self.plan.fabric), "jobs": jobs, "drained": drained}

    async def drain(self, name: str) -> dict[str, Any]:
        """Leads traffic around a switch, also after a restart; see `Maintenance.drain`."""
        async with self._turns.turn():
            return await self._maintenance.drain(name, self._links)

    async def undrain(self, name: str) -> dict[str, Any]:
        """Uses a switch again that was drained; see `Maintenance.undrain`."""
        async with self._turns.turn():
            return await self._maintenance.undrain(name, self._links)

    def _take(self, plan: Plan) -> None:
        self._desired.take(plan)

    def _stand_by(self) -> None:
        self._events.stand_by()

    def _state(self) -> State:
        return self.plan, self._links.down, self._sums.lacking, self._maintenance.avoided

    def _facts(self) -> Facts:
        sums, tunings = frozenset(self._sums.lacking), self._sources.kept.tunings
        return self._links.down, sums, self._balance.loads, self._maintenance.avoided, tunings

    async def _refresh(self) -> int:
        """Reads the files and the store again, as another controller may have changed jobs; the store's revision. Bad
        files change nothing. Raises StoreError, or JobError for a job of the store."""
        async with self._turns.turn(patient=True):
            avoided, tunings = self._maintenance.avoided, self._sources.kept.tunings
            fabric, jobs = await self._sources.refresh(self.plan.fabric)
            now = fabric, jobs, self._maintenance.avoided, self._sources.kept.tunings
            if now != (self.plan.fabric, self.plan.jobs, avoided, tunings):
                plan, _ = await self._planner.apart(fabric, jobs, self.plan.numbers)
                self._desired.take(plan)
            return self._sources.kept.revision

    def _route_around(self) -> None:
        self._desired.replan("can't route around links that are down")
        self._timeline.links(self._links)

    def _leave_busy_links(self) -> None:
        self._desired.replan("trees can't leave busy links")
        self._timeline.trees()
