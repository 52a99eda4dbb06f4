# SPDX-License-Identifier: Apache-2.0
"""The controller: keeps the list of jobs, and makes the switches hold what the jobs and the fabric need."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from finsy import Switch

from gradlane import GradlaneError, job
from gradlane.job import Job
from gradlane_controller.desired.balance import Balance, State
from gradlane_controller.desired.pipeline import Programs
from gradlane_controller.desired.plan import Plan, load_jobs
from gradlane_controller.desired.planner import Facts, Planner
from gradlane_controller.desired.storage import kept, removed
from gradlane_controller.desired.sums_at_switches import SumsAtSwitches
from gradlane_controller.errors import SwitchError, SwitchLostError, UnknownJobError
from gradlane_controller.maintenance import Maintenance
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.fabric_text import to_toml
from gradlane_controller.network.links import Links
from gradlane_controller.network.loads import Loads
from gradlane_controller.policy import Numbers
from gradlane_controller.session.connection import FinsyLog
from gradlane_controller.session.convergence import Changes, holds_state, read_indices, read_sums
from gradlane_controller.session.counters import Counters
from gradlane_controller.session.fleet import Fleet
from gradlane_controller.session.link_checks import LinkChecks
from gradlane_controller.session.managed_switch import ManagedSwitch
from gradlane_controller.session.preview import previews
from gradlane_controller.session.splits import end_splits
from gradlane_controller.session.violations import Violations
from gradlane_controller.status import status, summary

_LOG = logging.getLogger(__name__)


class Controller:
    """Keeps the desired state and converges the switches to it, at every session and every change.

    Jobs come from files, which are read again on `reload`, and from `put_job`, which keeps them in `job_folder`: they
    survive a restart, and a take-over by a controller with the same folder. Every method that changes something either
    succeeds as a whole, with every connected switch holding it, or leaves the desired state as it was and raises. A
    switch that is away gets its state when it comes back; until then no job that has a rank there is accepted. Switches
    come and go with the fabric file, and are led around while they are drained (see `maintenance`).

    Nobody waits for a switch longer than for one operation, and only those who asked for a change.
    """

    def __init__(
        self,
        programs: Programs,
        fabric_path: Path,
        job_paths: Iterable[Path],
        job_folder: Path,
        *,
        check_links: bool = True,
    ) -> None:
        """Reads every file. Without `check_links` every link is assumed to work.

        Raises FabricError, JobError, PipelineError or StorageError.
        """
        self._programs = programs
        self._fabric_path = fabric_path
        self._job_paths = tuple(job_paths)
        self._job_folder = job_folder
        finsy_log = FinsyLog()
        self._managed_switches = Fleet(
            lambda where: ManagedSwitch(
                *(where, programs.of(where), self._on_ready, self._on_drift, self._on_late, self._on_closed),
                *(self._balance.measured, finsy_log),
            )
        )
        self._planner = Planner(programs, lambda: self._plan, self._facts)
        self._maintenance = Maintenance(
            job_folder, self._managed_switches, lambda: self._plan, self._planner.avoiding, self._take
        )
        fabric = fabric_file.load(fabric_path, self._maintenance.records.indices)
        self._plan = Plan(fabric, {}, Numbers(), {}, {})
        self._sums = SumsAtSwitches()
        self._balance = Balance(Loads(fabric), self._state, lambda: self._replan("trees can't leave busy links"))
        self._links = Links(fabric)
        self._violations = Violations()
        self._lock = asyncio.Lock()  # of fabric and jobs; code that holds a switch's lock must not wait for it
        self._following: set[asyncio.Task[None]] = set()
        self._started = asyncio.Event()
        self._indices_known = False  # the plan has the job indices that the switches use
        self._was_backup = False
        self._checks = LinkChecks(self._links, self._managed_switches.values(), self._route_around)
        self._check_links = check_links
        self._managed_switches.follow(fabric.switches)
        self._take(self._planner.make(fabric, load_jobs(self._job_paths, job_folder), Numbers()))
        if not (check_links and fabric.link_ports):
            self._checks.known.set()

    async def run(self) -> None:
        """Keeps the switches converged until cancelled; those that can't be reached are waited for."""
        fleet = self._managed_switches
        works = [fleet.run(), end_splits(fleet.connections), self._balance.run()]
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
    def _away(self) -> dict[str, str]:
        return {name: managed.problem for name, managed in self._managed_switches.items() if not managed.ready}

    @property
    def summary(self) -> str:
        """One line for people."""
        return summary(self._plan, self._away)

    def status(self) -> dict[str, Any]:
        """What GET /status answers."""
        return status(self._plan, self._managed_switches.values(), self._maintenance.records.drained)

    def links(self) -> dict[str, Any]:
        """What GET /links answers. Of each link, in bit/s and None where that is not known: what its ends send by queue
        class (`sent`) and what of it follows trees; `load` is what follows none, and by which trees are laid."""
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

    def violations(self) -> list[dict[str, Any]]:
        """What GET /violations answers."""
        return self._violations.to_json(self._plan.fabric, {it.id: name for name, it in self._plan.jobs.items()})

    async def counters(self) -> Counters:
        """What GET /counters answers. Raises SwitchError if no switch is there."""
        return await self._managed_switches.counters(self._plan)

    async def put_job(self, text: str) -> Job:
        """Adds a job, or replaces the one of that name; raises as `apply`."""
        return (await self.apply([text]))[0]

    async def apply(self, texts: Sequence[str], *, files: bool = False) -> list[Job]:
        """Adds or replaces the jobs of these job files, and reads the files again if `files`: all of it, or nothing.

        Raises JobError, FabricError, PipelineError, StorageError or SwitchError.
        """
        async with self._lock:
            fabric, jobs, some = await self._wanted(texts, files=files)
            with contextlib.ExitStack() as stack:
                for it in some:
                    stack.enter_context(kept(self._job_folder, it.name, it.text))
                await self._apply(fabric, jobs)
        return some

    async def delete_job(self, name: str) -> None:
        """Removes a job; one of the files given at the start comes back with the next start or reload.

        Raises UnknownJobError, StorageError or SwitchError.
        """
        async with self._lock:
            jobs = self._plan.jobs
            if name not in jobs:
                raise UnknownJobError(f"there is no job {name!r}; there are: {', '.join(jobs) or 'none'}")
            with removed(self._job_folder, name):
                await self._apply(self._plan.fabric, {other: it for other, it in jobs.items() if other != name})

    async def reload(self) -> None:
        """Reads the files again; raises as `apply`."""
        await self.apply([], files=True)
        _LOG.info("files read again: %s", self.summary)

    async def preview(self, texts: Sequence[str], *, files: bool, live: bool) -> dict[str, Any]:
        """What GET and POST /plan answer: what `apply` would change. Compared with what the switches should hold now;
        `live`: with what they do hold. Raises JobError, FabricError or PipelineError."""
        fabric, jobs, _ = await self._wanted(texts, files=files)
        plan, _ = await self._planner.apart(fabric, jobs, self._plan.numbers)
        known = self._sums.renumbered(plan)
        if known != plan.numbers:
            plan, _ = await self._planner.apart(fabric, jobs, known)
        schemas = {where.name: self._programs.of(where).schema for where in fabric.switches}
        switches = await previews(self._managed_switches, schemas, self._plan.entities, plan.entities, live=live)
        return {"live": live, "switches": switches, "not_summed": plan.not_summed()}

    def export(self) -> dict[str, Any]:
        """What GET /export answers: files that make the same entries, and the switches that are drained."""
        jobs = {name: it.text for name, it in self._plan.jobs.items()}
        drained = sorted(self._maintenance.records.drained)
        return {"fabric": to_toml(self._plan.fabric), "jobs": jobs, "drained": drained}

    async def _wanted(self, texts: Sequence[str], *, files: bool) -> tuple[Fabric, dict[str, Job], list[Job]]:
        """The fabric, all jobs, and those of these job files. A large one takes half a second to parse."""
        some = [await asyncio.to_thread(job.parse, text, "job in the request") for text in texts]
        for first, second in itertools.combinations(some, 2):
            if first.name == second.name:
                raise second.error("job.name", f"is {second.name!r}, like that of another in the request")
        fabric, jobs = self._plan.fabric, self._plan.jobs
        if files:
            fabric, jobs = await asyncio.to_thread(self._read_files)
        return fabric, {**jobs, **{it.name: it for it in some}}, some

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

    def _read_files(self) -> tuple[Fabric, dict[str, Job]]:
        known = {it.name: it.index for it in self._plan.fabric.switches}
        fabric = fabric_file.load(self._fabric_path, {**self._maintenance.records.indices, **known})
        return fabric, load_jobs(self._job_paths, self._job_folder)

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
        for managed in self._managed_switches.values():
            managed.connection.check_not_backup()
        for name in needed:
            self._managed_switches[name].check_ready()
        present = {name: self._managed_switches[name] for name in stay if self._managed_switches[name].ready}
        if stay and not present:
            self._managed_switches[stay[0]].check_ready()
        self._maintenance.keep(fabric)
        try:
            if gone:
                await self._maintenance.leave(gone)
            results = await asyncio.gather(
                *(managed.converge(plan.entities[name]) for name, managed in present.items()), return_exceptions=True
            )
            for (name, managed), result in zip(present.items(), results, strict=True):
                if isinstance(result, SwitchLostError) and name not in needed:
                    continue
                if isinstance(result, BaseException):
                    raise result
                _LOG.info("converged %s: %s", managed.where.name, result)
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
            self._was_backup = True
            self._sums.stand_by()
            managed.stand_by()
            return
        # Another controller may have numbered the jobs, or this one before a restart.
        name = managed.where.name
        indices = await read_indices(switch) if self._was_backup or not self._indices_known else {}
        held = await read_sums(switch)
        async with self._lock:
            if self._was_backup:
                self._refresh()
            if not self._was_backup and self._indices_known:
                indices = {}  # another switch has told meanwhile
            self._indices_known |= bool(indices)
            self._was_backup = False
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
        if name in self._maintenance.joining:
            self._begin(self._maintenance.join(name, self._links, self._lock))

    async def _on_drift(self, managed: ManagedSwitch, switch: Switch) -> None:
        managed.mended.add(managed.connection.name, await self._follow(managed, switch))

    async def _follow(self, managed: ManagedSwitch, switch: Switch) -> Changes:
        """Converges a switch to the plan, which may change meanwhile. Raises finsy.P4ClientError or SwitchError."""
        changes = Changes(0, 0, 0)
        while not managed.holds(self._plan.entities[managed.where.name]):
            changes += await managed.write(switch, self._plan.entities[managed.where.name])
            self._indices_known = True
        return changes

    def _state(self) -> State:
        return self._plan, self._links.down, self._sums.lacking, self._maintenance.avoided

    def _facts(self) -> Facts:
        return self._links.down, frozenset(self._sums.lacking), self._balance.loads, self._maintenance.avoided

    def _replan(self, problem: str, known: Numbers | None = None) -> None:
        """The same jobs with what is known now; nobody waits for the switches."""
        try:
            self._take(self._planner.make(self._plan.fabric, self._plan.jobs, known or self._plan.numbers))
        except GradlaneError as why:
            _LOG.error("%s: %s", problem, why)
        self._catch_up()

    def _refresh(self) -> None:
        """Reads the files again, as another controller was primary. Bad ones change nothing."""
        try:
            self._maintenance.load()
            fabric, jobs = self._read_files()
            self._take(self._planner.make(fabric, jobs, self._plan.numbers))
        except GradlaneError as problem:
            _LOG.error("reload failed, nothing has changed: %s", problem)

    def _note_part(self, name: str) -> None:
        """That switch holds what it should, so trees may lead over it again."""
        if name in self._sums.lacking:
            self._sums.lacking.discard(name)
            self._replan(f"sums can't go by {name} again")

    def _on_closed(self, managed: ManagedSwitch) -> None:
        if self._check_links:
            self._checks.examine(managed)

    def _route_around(self) -> None:
        self._replan("can't route around links that are down")

    def _on_late(self, managed: ManagedSwitch) -> None:
        self._sums.lacking.add(managed.where.name)
        self._replan(f"sums can't go around {managed.where.name}")
        self._note_start()

    def _note_start(self) -> None:
        switches = self._managed_switches.values()
        if self._started.is_set() or not all(managed.ready or managed.late for managed in switches):
            return
        if any(managed.ready for managed in switches):
            self._started.set()
        else:
            _LOG.warning("waiting for a switch that can be used: %s", "; ".join(self._away.values()))
