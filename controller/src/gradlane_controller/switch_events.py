# SPDX-License-Identifier: Apache-2.0
"""What follows from what the sessions with the switches tell."""

import asyncio
import logging
from dataclasses import replace

from finsy import Switch

from gradlane_controller.background import Background
from gradlane_controller.desired.sums_at_switches import SumsAtSwitches
from gradlane_controller.desired_state import DesiredState
from gradlane_controller.leading import Leading
from gradlane_controller.maintenance import Maintenance
from gradlane_controller.network.links import Links
from gradlane_controller.policy.sums import HeldSums
from gradlane_controller.session.convergence import Changes, holds_state, read_indices, read_sums
from gradlane_controller.session.fleet import Fleet
from gradlane_controller.session.link_checks import LinkChecks
from gradlane_controller.session.managed_switch import ManagedSwitch
from gradlane_controller.session.violations import Violations
from gradlane_controller.timeline import Timeline
from gradlane_controller.turns import Turns

_LOG = logging.getLogger(__name__)


class SwitchEvents:
    """`tried`: once every switch holds its state, except those that can't be reached in time, or this one leads no
    more; `started`: as that, and at least one holds it."""

    def __init__(
        self,
        desired: DesiredState,
        switches: Fleet,
        leading: Leading,
        maintenance: Maintenance,
        sums: SumsAtSwitches,
        links: Links,
        checks: LinkChecks,
        violations: Violations,
        timeline: Timeline,
        background: Background,
        turns: Turns,
        *,
        check_links: bool,
    ) -> None:
        """`check_links`: whether `checks` run."""
        self.tried, self.started = asyncio.Event(), asyncio.Event()
        self._desired, self._switches, self._leading, self._maintenance = desired, switches, leading, maintenance
        self._sums, self._links, self._checks, self._check_links = sums, links, checks, check_links
        self._violations, self._timeline = violations, timeline
        self._background, self._turns = background, turns
        self._indices_known = False  # the plan has the job indices that the switches use

    def stand_by(self) -> None:
        """Another controller writes to the switches from now on."""
        self.tried.set()
        self._indices_known = False
        self._sums.stand_by()
        if self._check_links:
            self._checks.begin_anew()

    async def on_ready(self, managed: ManagedSwitch, switch: Switch) -> None:
        """A session has begun, or this controller is the primary one now. Raises finsy.P4ClientError or SwitchError."""
        if not switch.is_primary:
            leads = self._leading.number() is not None
            why = "another client is primary" if leads else f"stands by: {self._leading.leadership.describe()}"
            managed.stand_by(why)
            return
        # Another controller may have numbered the jobs, or this one before a restart.
        name = managed.where.name
        indices = {} if self._indices_known or managed.empty else await read_indices(switch)
        held = HeldSums.of(()) if managed.empty else await read_sums(switch)
        # Without a turn, and so in one: a switch that comes back is not to wait for a change, which waits for others.
        plan = self._desired.plan
        if self._indices_known:
            indices = {}  # another switch has told meanwhile
        self._indices_known |= bool(indices)
        known = self._sums.read(managed.where, held, plan, started=self.started.is_set())
        if indices:
            known = replace(known, indices=indices)
        if known != plan.numbers:
            self._desired.replan(f"jobs can't keep the numbers that {name} has", known)
        elif name in self._sums.lacking:
            self._desired.lead_sums_around()
        self._desired.catch_up()
        managed.serve(switch, lambda: self._desired.plan.fabric, self._links, self._violations)
        if not (self._checks.known.is_set() or managed.empty) and await holds_state(switch):
            # It forwards, perhaps around a link that is down, which is soon known again.
            await self._checks.known.wait()
        await self._follow(managed, switch)
        self._desired.has_part(name)
        self._note_start()
        self._timeline.ready(managed)
        if name in self._maintenance.joining:
            self._background.begin(self._maintenance.join(name, self._links, self._turns))

    async def on_drift(self, managed: ManagedSwitch, switch: Switch) -> None:
        """Another client has changed what it holds. Raises as `on_ready`."""
        self._timeline.mended(managed, await self._follow(managed, switch, quiet=True))

    def on_late(self, managed: ManagedSwitch) -> None:
        """It could not be reached in time."""
        self._desired.lacks_part(managed.where.name)
        self._note_start()

    def on_lost(self, managed: ManagedSwitch, closed: bool) -> None:
        """The session has ended; `closed`: by the switch."""
        self._timeline.lost(managed, closed=closed)
        if closed and self._check_links:
            self._checks.examine(managed)

    async def _follow(self, managed: ManagedSwitch, switch: Switch, *, quiet: bool = False) -> Changes:
        """Converges a switch to the plan, which may change meanwhile; what it refuses is for later. Raises
        finsy.P4ClientError or SwitchError."""
        changes, written, name = Changes(0, 0, 0), None, managed.where.name
        while (wanted := self._desired.plan.entities[name]) is not written and not managed.holds(wanted):
            changes += await managed.write(switch, wanted, quiet=quiet)
            written, self._indices_known = wanted, True
        return changes

    def _note_start(self) -> None:
        switches = self._switches.values()
        if self.started.is_set() or not all(managed.ready or managed.late for managed in switches):
            return
        self.tried.set()
        if any(managed.ready for managed in switches):
            self.started.set()
        else:
            _LOG.warning("waiting for a switch that can be used: %s", "; ".join(self._switches.away.values()))
