# SPDX-License-Identifier: Apache-2.0
"""Trainings: jobs that the controller makes when all their ranks have asked for them, and removes when they are over.

The job itself is one like any other. Whose it is, and of which template, is kept in the store beside it, before the job
is put and until it is removed: so after a crash at any moment there is no job that nobody removes. Who waits, and what
agents report, is in the memory of the controller that leads; ranks and agents ask again, and find the next one.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from gradlane import GradlaneError
from gradlane.errors import listed
from gradlane.job import Job, JobError
from gradlane.job.file import Slots
from gradlane.toml_file import Address
from gradlane_controller.background import Background
from gradlane_controller.errors import BusyError, ChangedMeanwhileError, NotLeadingError, UnknownJobError
from gradlane_controller.network.fabric import Port
from gradlane_controller.network.racks import racks
from gradlane_controller.service import Controller
from gradlane_controller.store import Store
from gradlane_controller.store import trainings as rows
from gradlane_controller.store.jobs import ABSENT
from gradlane_controller.store.trainings import Training
from gradlane_controller.trainings.allocation import allocate
from gradlane_controller.trainings.gathering import Ask, ConflictError, Gathering, Gatherings, OwnerError
from gradlane_controller.trainings.leases import DEFAULT_GRACE, LOOK_SECONDS, Leases
from gradlane_controller.trainings.reports import Report, Reports
from gradlane_controller.trainings.templates import Given, Template, Templates

HOLD_SECONDS = 8.0  # that an answer waits for the last rank
MAX_HELD = 16  # requests that wait so at a time; others are told to ask again
ASK_AGAIN_SECONDS = 1.0
REPORTS_PER_SECOND = 100  # of all agents: with more of them each reports less often
ATTEMPTS = 3  # to give a job what nobody else has taken meanwhile


class UnknownHostError(GradlaneError):
    """The fabric has no such host, or not so many."""


_PLACEHOLDER = Given(1, "1".zfill(32), Slots(0, 4095))
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Waiting:
    """The job is not there yet: ask again after `seconds`. `missing`: who is not there, for people; `patience`: seconds
    that the job waits for a late rank."""

    missing: str
    seconds: float
    patience: int


class Trainings:
    """Of one controller. `grace`: seconds that a job stays without a report of an agent. `templates`, and the grace of
    `leases`, may be replaced."""

    def __init__(
        self, controller: Controller, store: Store, templates: Templates | None = None, grace: float = DEFAULT_GRACE
    ) -> None:
        self._controller, self._store = controller, store
        self.templates = templates or Templates()
        self.reports = Reports(time.monotonic)
        self._gatherings = Gatherings(time.monotonic)
        self.leases = Leases(grace)
        self._known: Mapping[str, Training] = {}
        self._making = asyncio.Lock()  # one job at a time gets what is free
        self._removing: dict[str, asyncio.Task[None]] = {}
        self._background = Background()
        self._held = 0

    async def join(self, ask: Ask, *, admin: bool) -> Job | Waiting:
        """The job, once all its ranks are there; with `admin` also another token's.

        Raises ConflictError, OwnerError, CrowdedError, FullError, JobError, UnknownHostError, SwitchError, StoreError
        or NotLeadingError; nothing is left of the rank then, nor of the job.
        """
        self._check_leads()
        port = self._check(ask)
        patience = None
        while True:
            while (removing := self._removing.get(ask.name)) is not None:
                await asyncio.wait((removing,))
            gathering = self._gatherings.find(ask.name)
            if gathering is None and ask.name in self._controller.plan.jobs:
                return await self._again(ask, port, admin)
            if gathering is not None:
                patience = gathering.patience
            if patience is not None:
                break
            patience = await asyncio.to_thread(self._rehearse, ask)
        had = sum(it.owner == ask.owner for it in self._known.values())
        gathering = self._gatherings.join(ask, patience=patience, had=had, admin=admin)
        if gathering.whole and not gathering.making:
            gathering.making = True
            self._background.begin(self._make(gathering))
        held = self._held < MAX_HELD
        self._held += held
        try:
            if held:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(gathering.over.wait(), HOLD_SECONDS)
        finally:
            self._held -= held
        if not gathering.over.is_set():
            again = max(ASK_AGAIN_SECONDS, len(gathering.members) / REPORTS_PER_SECOND)
            return Waiting(gathering.missing(), again, gathering.patience)
        it = gathering.result()
        self.leases.given(ask.name, port.host)
        return it

    def template(self, asked: str | None) -> Template:
        """What a rank asks for: a name, the text of one, or None. Raises TemplateError."""
        return self.templates.find(asked)

    def check_owner(self, name: str, owner: str, *, admin: bool) -> None:
        """Raises OwnerError if the job of that name is another token's."""
        known = self._known.get(name)
        if known is not None and known.owner != owner and not admin:
            raise OwnerError(f"job {name!r} belongs to another token; take another name")

    def host_of(self, text: str) -> Port:
        """The host of that name or address. Raises UnknownHostError that says which there are."""
        fabric = self._controller.plan.fabric
        port = fabric.port_of(text) or next((it for it in fabric.ports if text in map(str, it.addresses)), None)
        if port is None:
            raise UnknownHostError(f"no host {text[:63]!r} in {fabric.file}; {_hosts(fabric.ports)}")
        return port

    def report(self, port: Port, report: Report) -> float:
        """Takes what the agent of that host says; after how many seconds it should do so again. Raises
        NotLeadingError."""
        self._check_leads()
        plan = self._controller.plan
        own = self.reports.put(port.host, report, datetime.now(timezone.utc), plan.jobs)
        self.leases.reported(port.host, [it.name for it in own])
        return max(LOOK_SECONDS, self.reports.count / REPORTS_PER_SECOND)

    def known_of_jobs(self) -> Mapping[str, Mapping[str, Any]]:
        """What agents say of jobs, by name, for the live state."""
        return self.reports.of_jobs(self._controller.plan.jobs)

    def slices(self) -> Mapping[str, tuple[int, int]]:
        """What agents have repaired and lost, as `Reports.slices`."""
        return self.reports.slices(self._controller.plan.jobs)

    async def run(self) -> None:
        """Removes jobs that are over, until it is cancelled."""
        looked = time.monotonic()
        try:
            while True:
                now = time.monotonic()
                try:
                    await self._look(now - looked)
                except GradlaneError as problem:
                    _LOG.debug("trainings are looked at later: %s", problem)
                looked = now
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            for task in self._background.tasks:
                task.cancel()
            await asyncio.gather(*self._background.tasks, return_exceptions=True)

    async def _look(self, elapsed: float) -> None:
        self._gatherings.forget()
        if not self._leads:
            self.leases.clear()
            self.reports.clear()
            return
        async with self._making:  # which adds to them
            self._known = await self._store.run(self._store.read, rows.every)
        plan = self._controller.plan
        self.reports.keep({port.host: port for port in plan.fabric.ports})
        here = {name: plan.jobs[name] for name in self._known if name in plan.jobs}
        self.leases.follow({name: [member.host for member in it.members] for name, it in here.items()})
        for name in self.leases.look(elapsed):
            if name not in self._removing:
                self._removing[name] = task = self._background.begin(self._remove(name))
                task.add_done_callback(lambda _, name=name: self._removing.pop(name, None))
        if self._known.keys() - plan.jobs.keys():
            await self._tidy()

    async def _tidy(self) -> None:
        """Forgets whose jobs were that are not there, or never came to be."""
        async with self._making:
            for name in self._known.keys() - self._controller.plan.jobs.keys():
                if name not in self._removing:
                    await self._store.run(self._store.update, rows.remove, name)

    async def _remove(self, name: str) -> None:
        try:
            with suppress(UnknownJobError):
                await self._controller.delete_job(name)
            await self._store.run(self._store.update, rows.remove, name)
            _LOG.info("job %s: removed, as its hosts have left it or none reports it", name)
        except GradlaneError as problem:
            _LOG.error("job %s: can't be removed yet: %s", name, problem)

    async def _again(self, ask: Ask, port: Port, admin: bool) -> Job:
        """The job that is there, for one of its ranks that has been restarted."""
        known = (await self._store.run(self._store.read, rows.every)).get(ask.name)
        it = self._controller.plan.jobs.get(ask.name)
        if it is None:
            raise ConflictError(f"job {ask.name!r} has just ended; ask again")
        if known is None:
            raise ConflictError(f"there is a job {ask.name!r} already, that was put as a job file; take another name")
        if known.owner != ask.owner and not admin:
            raise OwnerError(f"job {ask.name!r} belongs to another token; take another name")
        over = "which is there until all its hosts have left it, or none has reported it for the grace time"
        ask.check_like(f"the job, {over},", len(it.workers), it.processes, known.template)
        member = it.member(ask.rank)
        if member.address != ask.address:
            raise ConflictError(
                f"rank {ask.rank} of job {ask.name!r}, {over}, is at {member.address}, not at {ask.address}"
            )
        self.leases.given(ask.name, port.host)
        return it

    async def _make(self, gathering: Gathering) -> None:
        """The job of those who have gathered. Whatever becomes of those who asked, it is made, or is not there."""
        try:
            async with self._making:
                gathering.end(await self._put(gathering), time.monotonic())
            self._gatherings.remove(gathering.first.name)
        except GradlaneError as problem:
            gathering.end(problem, time.monotonic())
        except BaseException:
            gathering.end(JobError("the controller", "", "could not make the job; its log says more"), time.monotonic())
            raise

    async def _put(self, gathering: Gathering) -> Job:
        first = gathering.first
        addresses = [gathering.members[rank][0] for rank in range(first.workers)]
        ports = [self.host_of(str(address)) for address in addresses]
        near = await asyncio.to_thread(racks, self._controller.plan.fabric, ports)
        key = secrets.token_hex(16)
        attempt = 0
        while True:
            attempt += 1
            jobs = self._controller.plan.jobs

            def made(given: Given) -> Job:
                return first.template.fill(first.name, ports, addresses, near, first.processes, given)

            wanted = await asyncio.to_thread(made, _PLACEHOLDER)
            found = allocate(jobs.values(), wanted)
            it = await asyncio.to_thread(made, Given(found.id, key, found.slots, found.multicast))
            row = Training(it.name, first.owner, first.template.digest, datetime.now(timezone.utc))
            await self._store.run(self._store.write, rows.keep, row)
            self._known = {**self._known, it.name: row}
            try:
                return await self._put_patiently(it.text)
            except ChangedMeanwhileError:
                raise ConflictError(f"somebody has put another job {it.name!r} meanwhile") from None
            except JobError:
                if attempt == ATTEMPTS or self._controller.plan.jobs == jobs:
                    raise  # otherwise somebody else may have taken what it was given

    async def _put_patiently(self, text: str) -> Job:
        while True:
            with suppress(BusyError):
                return await self._controller.put_job(text, ABSENT)

    def _rehearse(self, ask: Ask) -> int:
        """The patience of the job that is asked for. Raises JobError if its template makes none, whoever its ranks are;
        UnknownHostError if there are not so many hosts."""
        version = ask.address.version
        ports = [it for it in self._controller.plan.fabric.ports if _own(it, version) is not None][: ask.workers]
        if len(ports) < ask.workers:
            raise UnknownHostError(f"workers is {ask.workers}, but the fabric has {len(ports)} hosts with IPv{version}")
        addresses = [own for it in ports if (own := _own(it, version)) is not None]
        near = racks(self._controller.plan.fabric, ports)
        return ask.template.fill(ask.name, ports, addresses, near, ask.processes, _PLACEHOLDER).patience

    def _check(self, ask: Ask) -> Port:
        """Its host. Raises UnknownHostError for an address that is not a host's first one of its family."""
        ports = self._controller.plan.fabric.ports
        port = next((it for it in ports if _own(it, ask.address.version) == ask.address), None)
        if port is None:
            raise UnknownHostError(
                f"rank {ask.rank} of job {ask.name!r} has address {ask.address}, which no host has as its first one of "
                f"the family; {_hosts(ports)}"
            )
        return port

    @property
    def _leads(self) -> bool:
        return self._controller.leads

    def _check_leads(self) -> None:
        if not self._leads:
            it = self._controller.leadership
            raise NotLeadingError(f"this controller ({it.name}) stands by: {it.describe()}")


def _own(port: Port, version: int) -> Address | None:
    """Which address of a host can be a rank's."""
    return port.address if version == 4 else port.address6


def _hosts(ports: Collection[Port]) -> str:
    return f"its hosts are {listed([f'{it.host} ({it.address})' for it in ports])}"
