# SPDX-License-Identifier: Apache-2.0
"""The controller: keeps the list of jobs, and makes the switches hold what the jobs and the fabric need."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from finsy import Switch

from gradlane import GradlaneError
from gradlane.job import Job
from gradlane_controller.desired.balance import Balance, State
from gradlane_controller.desired.pipeline import Programs
from gradlane_controller.desired.plan import Plan
from gradlane_controller.desired.planner import Facts, Planner
from gradlane_controller.desired.sources import Sources, parse_jobs
from gradlane_controller.desired.sums_at_switches import SumsAtSwitches
from gradlane_controller.errors import StoreError, SwitchError, SwitchLostError, UnknownJobError
from gradlane_controller.journal import Journal
from gradlane_controller.leadership import Leadership
from gradlane_controller.leading import Leading
from gradlane_controller.maintenance import Maintenance
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.fabric_text import to_toml
from gradlane_controller.network.links import End, Links
from gradlane_controller.network.loads import Loads
from gradlane_controller.policy import Numbers
from gradlane_controller.policy.sums import HeldSums
from gradlane_controller.policy.tuning import NEUTRAL
from gradlane_controller.session.connection import FinsyLog
from gradlane_controller.session.convergence import Changes, holds_state, read_indices, read_sums
from gradlane_controller.session.convergences import Convergences
from gradlane_controller.session.counters import Counters
from gradlane_controller.session.fleet import Fleet
from gradlane_controller.session.link_checks import LinkChecks
from gradlane_controller.session.managed_switch import ManagedSwitch
from gradlane_controller.session.patience import Places
from gradlane_controller.session.preview import previews
from gradlane_controller.session.violations import Violations
from gradlane_controller.status import status, summary
from gradlane_controller.store import Store
from gradlane_controller.store.jobs import StoredJob
from gradlane_controller.timeline import Timeline

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

    Nobody waits for a switch longer than for one operation, and only those who asked for a change.
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
                *(where, programs.of(where), self._on_ready, self._on_drift, self._on_late, self._on_lost),
                *(self._leading.number, self.leadership.outgrow, self._balance.measured),
                *(self.convergences, places, finsy_log),
            ),
            self.convergences,
        )
        self._leading = Leading(
            *(self.leadership, self._managed_switches.values, self._refresh, self._stand_by), self.journal.record
        )
        self._planner = Planner(programs, lambda: self._plan, self._facts)
        self._maintenance = Maintenance(
            *(self._sources.kept, self._leading.check, self._managed_switches),
            *(lambda: self._plan, self._planner.now, self._take),
        )
        self._plan = Plan(fabric, {}, Numbers(), {}, {})
        self._sums = SumsAtSwitches()
        self._timeline = Timeline(self.journal.record)
        self._balance = Balance(Loads(fabric), self._state, self._leave_busy_links)
        self._links = Links(fabric)
        self._violations = Violations(on_new=self._timeline.violation)
        self._lock = asyncio.Lock()  # of fabric and jobs; code that holds a switch's lock must not wait for it
        self._following: set[asyncio.Task[None]] = set()
        self._started = asyncio.Event()
        self._leading_around = False  # a plan is being made that leads sums around switches
        self._indices_known = False  # the plan has the job indices that the switches use
        self._checks = LinkChecks(self._links, self._managed_switches.values(), self._route_around)
        self._check_links = check_links
        self._managed_switches.follow(fabric.switches)
        self._take(self._planner.make(fabric, self._sources.jobs, Numbers()))
        if not (check_links and fabric.link_ports):
            self._checks.known.set()

    async def run(self) -> None:
        """Keeps the switches converged until cancelled; those that can't be reached are waited for."""
        await self._leading.start(self._sources.kept.revision)
        works = [self._managed_switches.run(), self._leading.run(), self._balance.run(), self.journal.run()]
        if self._check_links:
            works.append(self._checks.run())
        tasks = [asyncio.create_task(it) for it in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
        finally:
            for task in (*tasks, *self._following):
                task.cancel()
            await asyncio.wait((*tasks, *self._following))

    async def wait_until_ready(self) -> None:
        """Returns once every switch holds its state, except those that can't be reached in time, but at least one."""
        await self._started.wait()

    @property
    def plan(self) -> Plan:
        """The desired state."""
        return self._plan

    @property
    def _away(self) -> dict[str, str]:
        return {name: managed.problem for name, managed in self._managed_switches.items() if not managed.ready}

    @property
    def summary(self) -> str:
        """One line for people."""
        return summary(self._plan, self._away)

    def status(self) -> dict[str, Any]:
        """What GET /v1/status answers."""
        return {
            "controller": self.leadership.to_json() | {"events": self.journal.problem},
            **status(self._plan, self._managed_switches.values(), self._maintenance.records.drained),
        }

    def links(self) -> dict[str, Any]:
        """What GET /v1/links answers. Of each link, in bit/s and None where that is not known: what its ends send by
        queue class (`sent`) and what of it follows trees; `load` is what follows none, and by which trees are laid."""
        loads = self._balance.measured
        found = self._links.to_json(loads.now(), sent=loads.sent, trees=loads.trees)
        return {"checked": self._check_links and bool(self._plan.fabric.link_ports), "links": found}

    def host_ports(self) -> list[dict[str, Any]]:
        """What switches send to each host, as `links` has it; `name` is the host's, `switch` and `port` where it is."""
        loads = self._balance.measured
        ends = ((port.host, (port.switch, port.number)) for port in self._plan.fabric.ports)
        return [
            {"name": name, "switch": end[0], "port": end[1], "sent": loads.sent(end), "trees": loads.trees(end)}
            for name, end in ends
        ]

    def sent_octets(self) -> Mapping[End, Sequence[int]]:
        """What each port has sent since this controller has known it, as `Loads.octets`."""
        return self._balance.measured.octets

    def violations(self) -> list[dict[str, Any]]:
        """What GET /v1/violations answers."""
        return self._violations.to_json(self._plan.fabric, {it.id: name for name, it in self._plan.jobs.items()})

    async def counters(self) -> Counters:
        """What GET /v1/counters answers. Raises SwitchError if no switch is there."""
        return await self._managed_switches.counters(self._plan)

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
        async with self._lock:
            for it in some:
                check(it)
            number, before, sources = self._leading.check(), self._plan, self._sources
            fabric, jobs = before.fabric, dict(before.jobs)
            read = await sources.read_files(fabric) if files else None
            if read is not None:
                fabric, jobs = read[0], {**read[1], **await asyncio.to_thread(sources.kept.parsed)}
            try:
                async with sources.kept.put(number, {name: it.text for name, it in some.items()}, expected):
                    await self._apply(fabric, {**jobs, **some})
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
        async with self._lock:
            number, before = self._leading.check(), self._plan
            if name not in before.jobs:
                raise UnknownJobError(f"there is no job {name!r}; there are: {', '.join(before.jobs) or 'none'}")
            try:
                async with self._sources.kept.remove(number, name, expected):
                    await self._apply(before.fabric, {other: it for other, it in before.jobs.items() if other != name})
            except StoreError as problem:
                await self._go_back(before, problem)
                raise
        self._timeline.job(name, before.jobs[name].id, put=False)

    async def _go_back(self, before: Plan, problem: StoreError) -> None:
        """What was written to switches could not be kept. Who does not know whether it was leads no more: the next
        leader reads it."""
        if problem.unsure:
            self.leadership.resign()
        elif self._plan is not before:
            try:
                await self._apply(before.fabric, before.jobs)
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
        some, fabric, jobs = await parse_jobs(texts), self._plan.fabric, self._plan.jobs
        if files:
            fabric, of_files = await self._sources.read_files(fabric)
            jobs = {**of_files, **await asyncio.to_thread(self._sources.kept.parsed)}
        jobs = {**jobs, **some}
        plan, _ = await self._planner.apart(fabric, jobs, self._plan.numbers)
        known = self._sums.renumbered(plan)
        if known != plan.numbers:
            plan, _ = await self._planner.apart(fabric, jobs, known)
        schemas = {where.name: self._programs.of(where).schema for where in fabric.switches}
        switches = await previews(self._managed_switches, schemas, self._plan.entities, plan.entities, live=live)
        return {"live": live, "switches": switches, "not_summed": plan.not_summed()}

    @property
    def settled(self) -> bool:
        """Whether every switch that is ready holds what it should."""
        return all(it.holds(self._plan.entities[name]) for name, it in self._managed_switches.items() if it.ready)

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
        async with self._lock:
            before, kept = self._sources.kept.tunings, self._sources.kept
            new = {name: it for name, it in new.items() if it[0] is None or name in self._plan.jobs}
            await kept.keep_tuned(self._leading.check(), {name: state for name, (state, _) in new.items()})
            if kept.tunings != before:
                self._replan("jobs can't be tuned")
            for name, (_, reason) in new.items():
                old, now = (it.get(name, NEUTRAL) for it in (before, kept.tunings))
                if old != now:
                    _LOG.info("job %r is tuned: %s", name, reason)
                    self._timeline.tuning(name, old.to_json(), now.to_json(), reason)

    def export(self) -> dict[str, Any]:
        """What GET /v1/export answers: files that make the same entries, and the switches that are drained."""
        jobs = {name: it.text for name, it in self._plan.jobs.items()}
        drained = sorted(self._maintenance.records.drained)
        return {"fabric": to_toml(self._plan.fabric), "jobs": jobs, "drained": drained}

    async def drain(self, name: str) -> dict[str, Any]:
        """Leads traffic around a switch, also after a restart; see `Maintenance.drain`."""
        async with self._lock:
            return await self._maintenance.drain(name, self._links)

    async def undrain(self, name: str) -> dict[str, Any]:
        """Uses a switch again that was drained; see `Maintenance.undrain`."""
        async with self._lock:
            return await self._maintenance.undrain(name, self._links)

    def _take(self, plan: Plan) -> None:
        """Makes it the desired state, and says which jobs are not summed in a switch, although they ask for it."""
        before = self._plan
        if plan.fabric is not before.fabric:
            new = self._maintenance.follow(plan.fabric, self._links)
            self._sums.lacking &= self._managed_switches.keys()
            self._links.follow(plan.fabric, assumed=not self._check_links, moved=new)
        self._plan = plan
        self._sums.take(plan)
        for name, reason in plan.not_summed().items():
            if before.not_summed().get(name) != reason:
                _LOG.warning("job %r is reduced by its hosts, not by a switch: %s", name, reason)

    async def _apply(self, fabric: Fabric, jobs: Mapping[str, Job]) -> None:
        """Converges the switches to a new desired state and takes it over, or goes back to the old one and raises."""
        new, gone = self._maintenance.moving(fabric, self._links)
        plan, facts = await self._planner.apart(fabric, jobs, self._plan.numbers, new)
        self._sums.leave_out(self._plan, plan, self._away)
        known = self._sums.renumbered(plan)
        if known != plan.numbers or self._planner.facts(new) != facts:
            plan, facts = await self._planner.apart(fabric, jobs, known, new)
        changed = [it for name, it in jobs.items() if it != self._plan.jobs.get(name)]
        stay = [it.name for it in fabric.switches if it in self._plan.fabric.switches]
        needed = set[str]().union(*(plan.switches_of(it) for it in changed)) & set(stay)
        for name in needed:
            self._managed_switches[name].check_ready()
        present = {name: self._managed_switches[name] for name in stay if self._managed_switches[name].ready}
        if stay and not present:
            self._managed_switches[stay[0]].check_ready()
        await self._maintenance.keep(fabric)
        try:
            if gone:
                await self._maintenance.leave(gone)
            results = await asyncio.gather(
                *(managed.converge(plan.entities[name]) for name, managed in present.items()), return_exceptions=True
            )
            for name, result in zip(present, results, strict=True):
                if isinstance(result, SwitchLostError) and name not in needed:
                    continue
                if isinstance(result, BaseException):
                    raise result
        except BaseException:
            self._maintenance.left()
            self._replan("what has failed can't be taken back")
            fleet = self._managed_switches  # what fails here, too, the next session does
            await fleet.write(self._plan.entities, [name for name, it in fleet.items() if it.ready])
            raise
        self._maintenance.left()
        if self._planner.facts(new) != facts:  # meanwhile
            plan = self._planner.make(fabric, jobs, plan.numbers, new)
        self._take(plan)
        self._catch_up()

    async def _converge_or_renew(self, managed: ManagedSwitch) -> None:
        if self._managed_switches.get(managed.where.name) is not managed:
            return  # it has left meanwhile
        try:
            await managed.converge(self._plan.entities[managed.where.name])
            self._note_part(managed.where.name)
        except SwitchError as problem:
            managed.connection.renew(str(problem))

    def _catch_up(self) -> None:
        """Begins to converge the switches that still hold an earlier plan; nobody waits for them."""
        for name, managed in self._managed_switches.items():
            if managed.ready and not managed.holds(self._plan.entities[name]):
                self._begin(self._converge_or_renew(managed))

    def _begin(self, what: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(what)
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _on_ready(self, managed: ManagedSwitch, switch: Switch) -> None:
        if not switch.is_primary:
            leads = self._leading.number() is not None
            managed.stand_by("another client is primary" if leads else f"stands by: {self.leadership.describe()}")
            return
        # Another controller may have numbered the jobs, or this one before a restart.
        name = managed.where.name
        indices = {} if self._indices_known or managed.empty else await read_indices(switch)
        held = HeldSums.of(()) if managed.empty else await read_sums(switch)
        async with self._lock:
            if self._indices_known:
                indices = {}  # another switch has told meanwhile
            self._indices_known |= bool(indices)
            known = self._sums.read(managed.where, held, self._plan, started=self._started.is_set())
            if indices:
                known = replace(known, indices=indices)
            if known != self._plan.numbers:
                self._replan(f"jobs can't keep the numbers that {name} has", known)
            elif name in self._sums.lacking:
                self._lead_sums_around()
        self._catch_up()
        managed.serve(switch, lambda: self._plan.fabric, self._links, self._violations)
        if not (self._checks.known.is_set() or managed.empty) and await holds_state(switch):
            # It forwards, perhaps around a link that is down, which is soon known again.
            await self._checks.known.wait()
        await self._follow(managed, switch)
        self._note_part(name)
        self._note_start()
        self._timeline.ready(managed)
        if name in self._maintenance.joining:
            self._begin(self._maintenance.join(name, self._links, self._lock))

    async def _on_drift(self, managed: ManagedSwitch, switch: Switch) -> None:
        self._timeline.mended(managed, await self._follow(managed, switch, quiet=True))

    async def _follow(self, managed: ManagedSwitch, switch: Switch, *, quiet: bool = False) -> Changes:
        """Converges a switch to the plan, which may change meanwhile. Raises finsy.P4ClientError or SwitchError."""
        changes = Changes(0, 0, 0)
        while not managed.holds(self._plan.entities[managed.where.name]):
            changes += await managed.write(switch, self._plan.entities[managed.where.name], quiet=quiet)
            self._indices_known = True
        return changes

    def _state(self) -> State:
        return self._plan, self._links.down, self._sums.lacking, self._maintenance.avoided

    def _facts(self) -> Facts:
        sums, tunings = frozenset(self._sums.lacking), self._sources.kept.tunings
        return self._links.down, sums, self._balance.loads, self._maintenance.avoided, tunings

    def _replan(self, problem: str, known: Numbers | None = None) -> None:
        """The same jobs with what is known now; nobody waits for the switches."""
        try:
            self._take(self._planner.make(self._plan.fabric, self._plan.jobs, known or self._plan.numbers))
        except GradlaneError as why:
            _LOG.error("%s: %s", problem, why)
        self._catch_up()

    def _lead_sums_around(self) -> None:
        """Other switches lack their part of sums now. One plan is made for all that come until it is ready."""
        if self._plan.summed and not self._leading_around:
            self._leading_around = True
            self._begin(self._make_sums_go_around())

    async def _make_sums_go_around(self) -> None:
        try:
            self._take(await self._planner.now())
        except GradlaneError as why:
            _LOG.error("sums can't go around %s: %s", ", ".join(sorted(self._sums.lacking)), why)
        finally:
            self._leading_around = False
        self._catch_up()

    async def _refresh(self) -> int:
        """Reads the files and the store again, as another controller may have changed jobs; the store's revision. Bad
        files change nothing. Raises StoreError, or JobError for a job of the store."""
        async with self._lock:
            avoided, tunings = self._maintenance.avoided, self._sources.kept.tunings
            fabric, jobs = await self._sources.refresh(self._plan.fabric)
            now = fabric, jobs, self._maintenance.avoided, self._sources.kept.tunings
            if now != (self._plan.fabric, self._plan.jobs, avoided, tunings):
                plan, _ = await self._planner.apart(fabric, jobs, self._plan.numbers)
                self._take(plan)
            return self._sources.kept.revision

    def _stand_by(self) -> None:
        """Another controller writes to the switches from now on."""
        self._indices_known = False
        self._sums.stand_by()
        if self._check_links:
            self._checks.begin_anew()

    def _note_part(self, name: str) -> None:
        """That switch holds what it should, so trees may lead over it again."""
        if name in self._sums.lacking:
            self._sums.lacking.discard(name)
            self._lead_sums_around()

    def _on_lost(self, managed: ManagedSwitch, closed: bool) -> None:
        self._timeline.lost(managed, closed=closed)
        if closed and self._check_links:
            self._checks.examine(managed)

    def _route_around(self) -> None:
        self._replan("can't route around links that are down")
        self._timeline.links(self._links)

    def _leave_busy_links(self) -> None:
        self._replan("trees can't leave busy links")
        self._timeline.trees()

    def _on_late(self, managed: ManagedSwitch) -> None:
        if managed.where.name not in self._sums.lacking:
            self._sums.lacking.add(managed.where.name)
            self._lead_sums_around()
        self._note_start()

    def _note_start(self) -> None:
        switches = self._managed_switches.values()
        if self._started.is_set() or not all(managed.ready or managed.late for managed in switches):
            return
        if any(managed.ready for managed in switches):
            self._started.set()
        else:
            _LOG.warning("waiting for a switch that can be used: %s", "; ".join(self._away.values()))
