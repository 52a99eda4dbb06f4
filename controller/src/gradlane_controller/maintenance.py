# SPDX-License-Identifier: Apache-2.0
"""Switches that traffic avoids: those that are drained, and those that have just come. Make before break.

Who leaves: first all others get entries that lead around it; when what was on its way has arrived, it gets its own.
Who comes: first it gets its entries, then all others those that lead through it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

from gradlane_controller.desired.kept import Kept
from gradlane_controller.desired.plan import Plan
from gradlane_controller.errors import DrainError, SwitchError, UnknownSwitchError
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.links import RETURN, ROUND, Links
from gradlane_controller.network.topology import Topology
from gradlane_controller.session.fleet import Fleet
from gradlane_controller.store.switches import SwitchRecords
from gradlane_controller.turns import Turns

_LOG = logging.getLogger(__name__)

# In which all that is on its way through a switch leaves it, more where ports are slow. Its counters can't tell: it
# also sends what checks its links, and a leaf what its hosts do; they miss what waits in a queue; and Tofino has none.
SETTLE_SECONDS = 1.0
MOST_SETTLE_SECONDS = 10.0
PATIENCE = 4  # times as long as links of a switch take to be known to work


class Maintenance:
    """`joining`: switches that have come while the controller ran; nothing leads through them until they are ready."""

    def __init__(
        self,
        kept: Kept,
        number: Callable[[], int],
        switches: Fleet,
        plan: Callable[[], Plan],
        make_plan: Callable[[Collection[str]], Awaitable[Plan]],
        take: Callable[[Plan], None],
    ) -> None:
        """`number`: that of the leader, or raises NotLeadingError; `plan`: that of now; `make_plan`: as it would be if
        these switches were avoided; `take`: makes it the plan."""
        self._kept, self._number = kept, number
        self._switches, self._plan, self._make_plan, self._take = switches, plan, make_plan, take
        self._leaving: frozenset[str] = frozenset()
        self.joining: set[str] = set()

    @property
    def records(self) -> SwitchRecords:
        """What is kept of switches."""
        return self._kept.switches

    @property
    def avoided(self) -> frozenset[str]:
        """All of them."""
        return self.records.drained | self.joining | self._leaving

    async def keep(self, fabric: Fabric) -> None:
        """What must survive a restart with that fabric. Raises StoreError."""
        drained = self.records.of([it.name for it in fabric.switches]).drained
        as_in_file = all(it.index == place for place, it in enumerate(fabric.switches, 1))
        indices = {} if as_in_file and not drained else {it.name: it.index for it in fabric.switches}
        await self._kept.keep_switches(self._number(), SwitchRecords(drained, indices))

    def without_cut(self, fabric: Fabric, names: Collection[str], links: Links) -> frozenset[str]:
        """These switches; none if two others that reach each other now would not, if these were avoided."""
        before = Topology(self._plan().fabric, links.down, self.avoided)
        cut = Topology(fabric, links.down, {*self.avoided, *names}).cut_off(before)
        return frozenset() if cut else frozenset(names)

    async def drain(self, name: str, links: Links) -> dict[str, Any]:
        """What POST /v1/switches/NAME/drain answers.

        Raises UnknownSwitchError, DrainError, StoreError or SwitchError.
        """
        self._check(name)
        fabric = self._plan().fabric
        before = Topology(fabric, links.down, self.avoided - {name})
        if cut := Topology(fabric, links.down, self.avoided | {name}).cut_off(before):
            raise DrainError(
                f"switch {name!r} can't be drained: there is no other way now between {cut[0]!r} and {cut[1]!r}; "
                "undrain a switch between them, or mend a link (gradlane-controller links)"
            )
        await self._drain(self.records.drained | {name})
        waits = await self._lead_away([name])
        plan = await self._make_plan(self.avoided)
        self._take(plan)
        await self._write([name])
        hosts = [port.host for port in fabric.ports_at(name)]
        return {
            "switch": name,
            "may_go": not waits and not hosts,
            "waits_for": waits,
            "hosts": hosts,
            "jobs": [it.name for it in plan.jobs.values() if name in plan.switches_of(it)],
            "not_summed": plan.not_summed(),
        }

    async def undrain(self, name: str, links: Links) -> dict[str, Any]:
        """What POST /v1/switches/NAME/undrain answers. Raises UnknownSwitchError, StoreError or SwitchError."""
        self._check(name)
        if name in self.records.drained:
            self._switches[name].check_ready()
            await self._wait_for_links(name, links)
            await self._prepare(name)
            await self._drain(self.records.drained - {name})
        return {"switch": name, "waits_for": await self._rewrite()}

    def moving(self, fabric: Fabric, links: Links) -> tuple[frozenset[str], frozenset[str]]:
        """The switches of a new fabric that are not there yet, and those that will not be there any more, as far as
        they can be avoided. One that has moved is both."""
        now = self._plan().fabric
        new, gone = ({it.name for it in a.switches if it not in b.switches} for a, b in ((fabric, now), (now, fabric)))
        return self.without_cut(fabric, new, links), self.without_cut(now, gone, links)

    def follow(self, fabric: Fabric, links: Links) -> set[str]:
        """The fabric is about to be this one: has sessions with its switches. Returns those that have come or moved."""
        new, _ = self.moving(fabric, links)
        before = set(self._plan().fabric.switches)
        self._switches.follow(fabric.switches)
        self.joining = (self.joining | new) & self._switches.keys()
        return {it.name for it in fabric.switches if it not in before}

    async def join(self, name: str, links: Links, turns: Turns) -> None:
        """A switch that has come is ready: it is used as soon as its links work. If it is lost meanwhile, at its next
        session."""
        await self._wait_for_links(name, links)
        async with turns.turn(patient=True):
            if name in self.joining and self._switches[name].ready:
                try:
                    await self._prepare(name)
                except SwitchError as problem:
                    _LOG.warning("not used yet: %s", problem)
                    return
                self.joining.discard(name)
                await self._rewrite()

    async def leave(self, names: Collection[str]) -> None:
        """They are about to leave the fabric, with what they hold."""
        self._leaving = frozenset(names)
        await self._lead_away(names)

    def left(self) -> None:
        """... and have, or stay after all."""
        self._leaving = frozenset()

    async def _lead_away(self, names: Collection[str]) -> list[str]:
        """All others get around these, which are avoided now. Returns who could not."""
        plan, held = await self._make_plan(self.avoided), self._plan().entities
        self._take(replace(plan, entities={**plan.entities, **{name: held[name] for name in names}}))
        waits = await self._write(self._switches.keys() - set(names))
        await asyncio.sleep(settle_seconds(plan.fabric, names))
        return waits

    async def _wait_for_links(self, name: str, links: Links) -> None:
        """Until all of a switch work, or it is clear that some do not."""
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE * RETURN * links.rounds * ROUND
        while any(switch == name for switch, _ in links.down) and loop.time() < end:
            await asyncio.sleep(ROUND)

    async def _prepare(self, name: str) -> None:
        """It alone holds what it should when it is not avoided any more. Raises SwitchError."""
        plan = await self._make_plan(self.avoided - {name})
        now = self._plan()
        self._take(replace(now, entities={**now.entities, name: plan.entities[name]}))
        if problems := await self._write([name]):
            raise SwitchError(problems[0])

    async def _rewrite(self) -> list[str]:
        self._take(await self._make_plan(self.avoided))
        return await self._write(self._switches)

    async def _write(self, names: Iterable[str]) -> list[str]:
        return await self._switches.write(self._plan().entities, names)

    def _check(self, name: str) -> None:
        self._number()
        if name not in self._switches:
            raise UnknownSwitchError(f"there is no switch {name!r}; there are: {', '.join(self._switches)}")

    async def _drain(self, names: frozenset[str]) -> None:
        await self._kept.keep_switches(self._number(), replace(self.records, drained=names))


def settle_seconds(fabric: Fabric, names: Collection[str]) -> float:
    """Until what is on its way through these switches has left them: a packet waits at a port that leads to one, and at
    one of its own, behind a full buffer at most."""
    links = [it for it in fabric.link_ports if it.switch in names or it.peer in names]
    hosts = [port for name in names for port in fabric.ports_at(name)]
    slowest = max((8 * it.buffer / it.rate for it in (*links, *hosts)), default=0.0)
    return min(max(SETTLE_SECONDS, 2 * slowest), MOST_SETTLE_SECONDS)
