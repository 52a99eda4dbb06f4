# SPDX-License-Identifier: Apache-2.0
"""The sessions with all switches of the fabric; they come and go with the switches."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gradlane_controller.desired.plan import Plan
from gradlane_controller.errors import SwitchError
from gradlane_controller.network.fabric import SwitchAddress
from gradlane_controller.policy import Entity
from gradlane_controller.session.connection import Connection
from gradlane_controller.session.convergences import Convergences
from gradlane_controller.session.counters import Counters, Glances, SwitchCounters, collect, read_counters
from gradlane_controller.session.managed_switch import ManagedSwitch

_GLANCED_AT = 4  # switches at a time: of all at once the answers would keep the event loop from what is urgent

_LOG = logging.getLogger(__name__)


class Fleet(Mapping[str, ManagedSwitch]):
    """By name, in the order of the fabric. `make` is how one begins; `connections`: theirs, always the present ones;
    `convergences`: what becomes of theirs."""

    def __init__(self, make: Callable[[SwitchAddress], ManagedSwitch], convergences: Convergences) -> None:
        self._make, self._convergences = make, convergences
        self._switches: dict[str, ManagedSwitch] = {}
        self._sessions: dict[str, tuple[ManagedSwitch, asyncio.Task[None]]] = {}
        self._failed: asyncio.Future[None] | None = None  # while this runs
        self.connections: list[Connection] = []

    def __getitem__(self, name: str) -> ManagedSwitch:
        return self._switches[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._switches)

    def __len__(self) -> int:
        return len(self._switches)

    @property
    def away(self) -> dict[str, str]:
        """Those that can't be used now, and why."""
        return {name: managed.problem for name, managed in self.items() if not managed.ready}

    def silent(self) -> str:
        """One that has not answered for long what was written to it, for people; empty: none."""
        return next((it.connection.name for it in self.values() if it.connection.silent), "")

    async def counters(self, plan: Plan, glances: Glances | None = None) -> Counters:
        """The counters of every switch that is there, as `read_counters` has it. Raises SwitchError if none is."""
        present = [managed for managed in self.values() if managed.ready]
        places = asyncio.Semaphore(_GLANCED_AT if glances else len(self))

        async def read(managed: ManagedSwitch) -> SwitchCounters:
            async with places:
                return await managed.connection.execute(lambda switch: read_counters(switch, plan, glances))

        results = await asyncio.gather(*map(read, present), return_exceptions=True)
        found = [it for it in results if isinstance(it, SwitchCounters)]
        for problem in results:
            if isinstance(problem, BaseException) and not (isinstance(problem, SwitchError) and found):
                raise problem
        if not found:
            next(iter(self.values())).check_ready()
        return collect(found, away=[name for name in self if name not in {it.switch for it in found}])

    async def write(self, entities: Mapping[str, Sequence[Entity]], names: Iterable[str]) -> list[str]:
        """Converges these switches; returns what has prevented that. A session that fails so begins anew, and then the
        switch gets what it lacks."""

        async def write(name: str) -> str:
            managed = self[name]
            try:
                managed.check_ready()
                if not managed.holds(entities[name]):
                    await managed.converge(entities[name])
            except SwitchError as problem:
                if managed.ready:
                    managed.connection.renew(str(problem))
                return str(problem)
            return ""

        return [problem for problem in await asyncio.gather(*map(write, sorted(names))) if problem]

    def follow(self, switches: Iterable[SwitchAddress]) -> None:
        """The fabric has these switches now: sessions with all others end, also with those that are somewhere else now.
        What a switch holds stays as it is."""
        before, self._switches = self._switches, {}
        for where in switches:
            managed = before.get(where.name)
            if managed is None or managed.where != where:
                managed = self._make(where)
            self._switches[where.name] = managed
        self._convergences.follow(self._switches)
        self.connections[:] = [it.connection for it in self._switches.values()]
        for name, managed in before.items():
            if self._switches.get(name) is not managed:
                _LOG.warning("%s: the session has ended, and the switch keeps what it holds", managed.connection.name)
        if self._failed is not None:
            self._begin()

    async def run(self) -> None:
        """Keeps the sessions until cancelled."""
        self._failed = asyncio.get_running_loop().create_future()
        try:
            self._begin()
            await self._failed
        finally:
            self._failed, tasks = None, [task for _, task in self._sessions.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self) -> None:
        """Has a session with each switch that has none, and with no others."""
        for name, managed in self._switches.items():
            before, task = self._sessions.get(name, (None, None))
            if before is not managed:
                task = asyncio.create_task(self._session(managed, task))
                task.add_done_callback(self._note)
                self._sessions[name] = managed, task
        for name in self._sessions.keys() - self._switches.keys():
            _, task = self._sessions.pop(name)
            task.cancel()

    async def _session(self, managed: ManagedSwitch, before: asyncio.Task[None] | None) -> None:
        """After the one before has ended: two for one switch would bid against each other."""
        if before is not None:
            before.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((before,))
        await managed.connection.run()

    def _note(self, task: asyncio.Task[None]) -> None:
        if self._failed is not None and not self._failed.done() and not task.cancelled():
            problem = task.exception()
            self._failed.set_exception(problem or RuntimeError("a session has ended by itself"))
