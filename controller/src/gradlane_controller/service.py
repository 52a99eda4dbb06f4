# SPDX-License-Identifier: Apache-2.0
"""The controller: keeps the list of jobs, and makes the switches hold what the jobs and the fabric need."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from finsy import Switch

from gradlane import GradlaneError, job
from gradlane.job import Job
from gradlane_controller.desired.balance import Balance, State
from gradlane_controller.desired.kept_jobs import KeptJobs
from gradlane_controller.desired.pipeline import Programs
from gradlane_controller.desired.plan import Plan, load_jobs, make_plan
from gradlane_controller.desired.sums_at_switches import SumsAtSwitches
from gradlane_controller.errors import StoreError, SwitchError, SwitchLostError, UnknownJobError
from gradlane_controller.journal import Journal
from gradlane_controller.leadership import Leadership
from gradlane_controller.leading import Leading
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.links import End, Links
from gradlane_controller.network.loads import Loads
from gradlane_controller.policy import Numbers
from gradlane_controller.session.connection import FinsyLog
from gradlane_controller.session.convergence import Changes, holds_state, read_indices, read_sums
from gradlane_controller.session.counters import Counters, SwitchCounters, collect, read_counters
from gradlane_controller.session.link_checks import LinkChecks
from gradlane_controller.session.managed_switch import ManagedSwitch
from gradlane_controller.session.preview import preview
from gradlane_controller.session.violations import Violations
from gradlane_controller.status import status
from gradlane_controller.store import Store
from gradlane_controller.store.jobs import StoredJob

_LOG = logging.getLogger(__name__)

MadeOf = tuple[Collection[End], Collection[str], Mapping[End, float]]
"""What else a plan depends on: which links are down, which switches lack their part of sums, the loads."""


class Controller:
    """Keeps the desired state and converges the switches to it, at every session and every change.

    Jobs come from files, which are read again on `reload`, and from `put_job`, which keeps them in the store: they
    survive a restart, and a take-over by a controller with the same store. Of these one leads, and the others write
    nothing to switches. Every method that changes something either
    succeeds as a whole, with every connected switch holding it, or leaves the desired state as it was and raises. A
    switch that is away gets its state when it comes back; until then no job that has a rank there is accepted.

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
        self._fabric_path = fabric_path
        self._job_paths = tuple(job_paths)
        self._kept = KeptJobs(store)
        fabric = fabric_file.load(fabric_path)
        self._plan = Plan(fabric, {}, Numbers(), {}, {})
        self._sums = SumsAtSwitches()
        self.journal = Journal(store, name)
        self._balance = Balance(Loads(fabric), self._state, self._leave_busy_links)
        self._jobs_of_files = load_jobs(self._job_paths)
        self._take(make_plan(programs, fabric, {**self._jobs_of_files, **self._kept.parsed()}))
        self._links = Links(fabric)
        self._links_up: dict[str, bool] = {}  # as the journal has it
        self._violations = Violations(on_new=lambda where, what: self.journal.record("violation", where, what))
        self._lock = asyncio.Lock()  # of fabric and jobs; code that holds a switch's lock must not wait for it
        self._following: set[asyncio.Task[None]] = set()
        self._started = asyncio.Event()
        self._none_reachable = asyncio.Event()
        self._indices_known = False  # the plan has the job indices that the switches use
        finsy_log = FinsyLog()
        self.leadership = Leadership(store, name)
        self._leading = Leading(self.leadership, self._switches, self._refresh, self._stand_by, self.journal.record)
        self._managed_switches = {
            where.name: ManagedSwitch(
                *(where, programs.of(where), self._on_ready, self._on_drift, self._on_late, self._on_lost),
                *(self._leading.number, self.leadership.outgrow, self._balance.measured, finsy_log),
            )
            for where in fabric.switches
        }
        self._checks = LinkChecks(self._links, self._managed_switches.values(), self._route_around)
        self._check_links = check_links and bool(fabric.link_ports)
        if not self._check_links:
            self._checks.known.set()

    async def run(self) -> None:
        """Keeps the switches converged until cancelled.

        Raises SwitchError if at the start all can't be reached, or refuse the program or their first state.
        """
        await self._leading.start()
        tasks = [asyncio.create_task(managed.connection.run()) for managed in self._managed_switches.values()]
        tasks += [asyncio.create_task(self._leading.run()), asyncio.create_task(self._balance.run())]
        tasks.append(asyncio.create_task(self.journal.run()))
        if self._check_links:
            tasks.append(asyncio.create_task(self._checks.run()))
        none_reachable = asyncio.create_task(self._none_reachable.wait())
        try:
            done, _ = await asyncio.wait((*tasks, none_reachable), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                await task
            raise SwitchError("; ".join(managed.problem for managed in self._managed_switches.values()))
        finally:
            for task in (*tasks, none_reachable, *self._following):
                task.cancel()
            await asyncio.wait((*tasks, none_reachable, *self._following))

    async def wait_until_ready(self) -> None:
        """Returns once every switch holds its state, except those that can't be reached in time."""
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
        if len(self._managed_switches) == 1:
            (where,) = self._plan.fabric.switches
            switches = f"switch {where.name} at {where.address}"
        else:
            switches = f"switches {', '.join(self._managed_switches)}"
        entries = sum(len(entities) for entities in self._plan.entities.values())
        absent = f", not ready: {'; '.join(self._away.values())}" if self._away else ""
        return f"{switches}, jobs: {len(self._plan.jobs)}, entries: {entries}{absent}"

    def status(self) -> dict[str, Any]:
        """What GET /status answers."""
        return {
            "controller": self.leadership.to_json() | {"events": self.journal.problem},
            **status(self._plan, self._managed_switches.values()),
        }

    def links(self) -> dict[str, Any]:
        """What GET /links answers."""
        return {"checked": self._check_links, "links": self._links.to_json(self._balance.measured.now())}

    def violations(self) -> list[dict[str, Any]]:
        """What GET /violations answers."""
        return self._violations.to_json(self._plan.fabric, {it.id: name for name, it in self._plan.jobs.items()})

    async def counters(self) -> Counters:
        """The counters of every switch that is there. Raises SwitchError if none is."""
        plan = self._plan
        present = [managed for managed in self._managed_switches.values() if managed.ready]

        async def read(managed: ManagedSwitch) -> SwitchCounters:
            return await managed.connection.execute(lambda switch: read_counters(switch, plan))

        results = await asyncio.gather(*map(read, present), return_exceptions=True)
        found = [it for it in results if isinstance(it, SwitchCounters)]
        for problem in results:
            if isinstance(problem, BaseException) and not (isinstance(problem, SwitchError) and found):
                raise problem
        if not found:
            next(iter(self._managed_switches.values())).check_ready()
        return collect(found, away=[name for name in self._managed_switches if name not in {it.switch for it in found}])

    @property
    def leads(self) -> bool:
        """Whether this controller may write, and knows what the one before has kept."""
        return self._leading.number() is not None

    @property
    def stored_jobs(self) -> Mapping[str, StoredJob]:
        """The jobs of the store, by name."""
        return self._kept.stored

    async def put_job(
        self,
        text: str,
        expected: int | None = None,
        name: str | None = None,
        check: Callable[[str], None] = lambda _name: None,
    ) -> Job:
        """Adds a job, or replaces the one of that name, if its version in the store is `expected` (None: whatever it
        is; 0: it must not be there). `name`, if it is given, must be its name; `check` gets that, and may raise.

        Raises JobError, PipelineError, ChangedMeanwhileError, StoreError or SwitchError.
        """
        it = await asyncio.to_thread(job.parse, text, "job in the request")  # a large one takes half a second
        if name is not None and it.name != name:
            raise job.JobError("job in the request", "job.name", f"is {it.name!r}; it must be {name!r}, as in the path")
        async with self._lock:
            check(it.name)
            number, before = self._leading.check(), self._plan
            try:
                async with self._kept.put(number, it.name, text, expected):
                    await self._apply(before.fabric, {**before.jobs, it.name: it})
            except StoreError as problem:
                await self._go_back(before, problem)
                raise
        self.journal.record("job", it.name, f"job {it.name!r} was put", id=it.id, put=True)
        return it

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
                async with self._kept.remove(number, name, expected):
                    await self._apply(before.fabric, {other: it for other, it in before.jobs.items() if other != name})
            except StoreError as problem:
                await self._go_back(before, problem)
                raise
        self.journal.record("job", name, f"job {name!r} was deleted", id=before.jobs[name].id, put=False)

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

    async def reload(self) -> None:
        """Reads the files again. Raises FabricError, JobError, PipelineError or SwitchError."""
        async with self._lock:
            self._leading.check()
            fabric, jobs = await asyncio.to_thread(self._read_files)
            await self._apply(fabric, {**jobs, **self._kept.parsed()})
            self._jobs_of_files = jobs
        _LOG.info("files read again: %s", self.summary)

    async def preview(self, text: str | None, *, live: bool) -> dict[str, Any]:
        """What GET and POST /plan answer: what would change, if the job of `text` were put, or (None) the files read
        again. Compared with what the switches should hold now; `live`: with what they do hold.

        Raises JobError, FabricError or PipelineError.
        """
        if text is None:
            fabric, jobs = await asyncio.to_thread(self._read_files)
            jobs |= self._kept.parsed()
        else:
            it = await asyncio.to_thread(job.parse, text, "job in the request")
            fabric, jobs = self._plan.fabric, {**self._plan.jobs, it.name: it}
        plan, _ = await self._plan_apart(fabric, jobs, self._plan.numbers)
        known = self._sums.renumbered(plan)
        if known != plan.numbers:
            plan, _ = await self._plan_apart(fabric, jobs, known)
        now = self._plan.entities
        return {
            "live": live,
            "switches": [
                await preview(managed, None if live else now[name], plan.entities[name])
                for name, managed in self._managed_switches.items()
            ],
            "not_summed": plan.not_summed(),
        }

    def _take(self, plan: Plan) -> None:
        """Makes it the desired state, and says which jobs are not summed in a switch, although they ask for it."""
        before, self._plan = self._plan.not_summed(), plan
        self._sums.take(plan)
        for name, reason in plan.not_summed().items():
            if before.get(name) != reason:
                _LOG.warning("job %r is reduced by its hosts, not by a switch: %s", name, reason)

    def _read_files(self) -> tuple[Fabric, dict[str, Job]]:
        fabric = fabric_file.load(self._fabric_path)
        if fabric.switches != self._plan.fabric.switches:
            raise fabric_file.FabricError(
                fabric.file, "switch", "changed; a running controller keeps its switches, so restart it to change them"
            )
        return fabric, load_jobs(self._job_paths)

    async def _apply(self, fabric: Fabric, jobs: Mapping[str, Job]) -> None:
        """Converges the switches to a new desired state and takes it over, or goes back to the old one and raises."""
        plan, made_of = await self._plan_apart(fabric, jobs, self._plan.numbers)
        self._sums.leave_out(self._plan, plan, self._away)
        known = self._sums.renumbered(plan)
        if known != plan.numbers or self._made_of() != made_of:
            plan, made_of = await self._plan_apart(fabric, jobs, known)
        changed = [it for name, it in jobs.items() if it != self._plan.jobs.get(name)]
        needed = set[str]().union(*(plan.switches_of(it) for it in changed))
        for name in needed:
            self._managed_switches[name].check_ready()
        present = {name: managed for name, managed in self._managed_switches.items() if managed.ready}
        if not present:
            next(iter(self._managed_switches.values())).check_ready()
        results = await asyncio.gather(
            *(managed.converge(plan.entities[name]) for name, managed in present.items()), return_exceptions=True
        )
        for (name, managed), result in zip(present.items(), results, strict=True):
            if isinstance(result, SwitchLostError) and name not in needed:
                continue
            if isinstance(result, BaseException):
                await self._restore()
                raise result
            _LOG.info("converged %s: %s", managed.where.name, result)
        if self._made_of() != made_of:  # meanwhile
            plan = self._make_plan(fabric, jobs, plan.numbers)
        self._take(plan)
        self._links.follow(fabric)
        self._catch_up()

    async def _restore(self) -> None:
        """Takes back what a failed change has written. If that fails too, the next session does it."""
        await asyncio.gather(*(self._converge_or_renew(it) for it in self._managed_switches.values() if it.ready))

    async def _converge_or_renew(self, managed: ManagedSwitch) -> None:
        try:
            changes = await managed.converge(self._plan.entities[managed.where.name])
            _LOG.info("converged %s: %s", managed.where.name, changes)
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
        indices = await read_indices(switch) if not self._indices_known else {}
        held = await read_sums(switch)
        async with self._lock:
            if self._indices_known:
                indices = {}  # another switch has told meanwhile
            self._indices_known |= bool(indices)
            known = self._sums.read(managed.where, held, self._plan, started=self._started.is_set())
            if indices:
                known = replace(known, indices=indices)
            if known != self._plan.numbers or name in self._sums.lacking:
                self._replan(f"jobs can't keep the numbers that {name} has", known)
        self._catch_up()
        managed.serve(switch, lambda: self._plan.fabric, self._links, self._violations)
        if not self._checks.known.is_set() and await holds_state(switch):
            # It forwards, perhaps around a link that is down, which is soon known again.
            await self._checks.known.wait()
        _LOG.info("converged %s: %s", managed.where.name, await self._follow(managed, switch))
        self._note_part(name)
        self._note_start()
        self.journal.record("switch", name, f"{managed.connection.name} is ready", state="ready")

    async def _on_drift(self, managed: ManagedSwitch, switch: Switch) -> None:
        changes, where = await self._follow(managed, switch), managed.connection.name
        if managed.mended.add(where, changes):
            text = f"another client changed what {where} holds; put right: {changes}"
            self.journal.record("drift", managed.where.name, text, entities=changes.total)

    async def _follow(self, managed: ManagedSwitch, switch: Switch) -> Changes:
        """Converges a switch to the plan, which may change meanwhile. Raises finsy.P4ClientError or SwitchError."""
        changes = Changes(0, 0, 0)
        while not managed.holds(self._plan.entities[managed.where.name]):
            changes += await managed.write(switch, self._plan.entities[managed.where.name])
            self._indices_known = True
        return changes

    def _state(self) -> State:
        return self._plan, self._links.down, self._sums.lacking

    def _make_plan(self, fabric: Fabric, jobs: Mapping[str, Job], known: Numbers) -> Plan:
        """With the links and switches as they are known to be. Raises JobError or PipelineError."""
        return make_plan(self._programs, fabric, jobs, known, *self._made_of()).beside(self._plan)

    async def _plan_apart(self, fabric: Fabric, jobs: Mapping[str, Job], known: Numbers) -> tuple[Plan, MadeOf]:
        """As `_make_plan`, while switches are answered; and of what it is made, which may change meanwhile."""
        made_of = self._made_of()
        plan = await asyncio.to_thread(make_plan, self._programs, fabric, jobs, known, *made_of)
        return plan.beside(self._plan), made_of

    def _made_of(self) -> MadeOf:
        return self._links.down, frozenset(self._sums.lacking), self._balance.loads

    def _replan(self, problem: str, known: Numbers | None = None) -> None:
        """The same jobs with what is known now; nobody waits for the switches."""
        try:
            self._take(self._make_plan(self._plan.fabric, self._plan.jobs, known or self._plan.numbers))
        except GradlaneError as why:
            _LOG.error("%s: %s", problem, why)
        self._catch_up()

    def _switches(self) -> Collection[ManagedSwitch]:
        return self._managed_switches.values()

    async def _refresh(self) -> int:
        """Reads the files and the store again, as another controller may have changed jobs; the store's revision. Bad
        files change nothing. Raises StoreError, or JobError for a job of the store."""
        async with self._lock:
            await self._kept.read()
            fabric, jobs = self._plan.fabric, self._jobs_of_files
            try:
                fabric, jobs = await asyncio.to_thread(self._read_files)
            except GradlaneError as problem:
                _LOG.error("reload failed, nothing has changed: %s", problem)
            self._jobs_of_files = jobs
            jobs = {**jobs, **await asyncio.to_thread(self._kept.parsed)}
            if (fabric, jobs) != (self._plan.fabric, self._plan.jobs):
                plan, _ = await self._plan_apart(fabric, jobs, self._plan.numbers)
                self._take(plan)
                self._links.follow(fabric)
            return self._kept.revision

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
            self._replan(f"sums can't go by {name} again")

    def _on_lost(self, managed: ManagedSwitch, closed: bool) -> None:
        state = "closed" if closed else "lost"
        self.journal.record("switch", managed.where.name, managed.problem, state=state)
        if closed and self._check_links:
            self._begin(self._checks.examine(managed))

    def _route_around(self) -> None:
        self._replan("can't route around links that are down")
        for link in self._links.to_json({}):
            name, up = " - ".join(link["ends"]), link["up"]
            if self._links_up.get(name, True) != up:
                text = f"link {name} {'works' if up else 'is down'}"
                self.journal.record("link", name, text, up=up, deaf=link["deaf"])
            self._links_up[name] = up

    def _leave_busy_links(self) -> None:
        self._replan("trees can't leave busy links")
        self.journal.record("trees", "", "trees are laid anew, by what other traffic takes of links")

    def _on_late(self, managed: ManagedSwitch) -> None:
        self._sums.lacking.add(managed.where.name)
        self._replan(f"sums can't go around {managed.where.name}")
        self._note_start()

    def _note_start(self) -> None:
        managed_switches = self._managed_switches.values()
        if self._started.is_set() or not all(managed.ready or managed.late for managed in managed_switches):
            return
        (self._started if any(managed.ready for managed in managed_switches) else self._none_reachable).set()
