# SPDX-License-Identifier: Apache-2.0
"""One switch of the fabric: the session with it, the entries that it holds, and the packets that it punts."""

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass

from finsy import P4PacketOut, Switch

from gradlane_controller.data_plane import Reason
from gradlane_controller.desired.pipeline import Pipeline
from gradlane_controller.errors import SwitchError, SwitchLostError
from gradlane_controller.network.answers import Answers
from gradlane_controller.network.fabric import Fabric, SwitchAddress
from gradlane_controller.network.links import Links
from gradlane_controller.network.loads import Loads
from gradlane_controller.policy import Entity
from gradlane_controller.policy.ports import VIOLATIONS
from gradlane_controller.session.bounds import just_loaded
from gradlane_controller.session.connection import Connection, FinsyLog
from gradlane_controller.session.convergence import (
    Changes,
    converge,
    difference,
    has_program,
    job_indices,
    kind,
    parts,
    read_part,
)
from gradlane_controller.session.counters import read_loads
from gradlane_controller.session.violations import Violations

_QUIET_SECONDS = 60.0

_LOG = logging.getLogger(__name__)


@dataclass
class Mended:
    """What other clients changed and was put right again."""

    times: int = 0
    entities: int = 0
    logged_at: float = -math.inf
    logged: int = 0  # of the times, those that the log has counted

    def add(self, name: str, changes: Changes) -> bool:
        """Another time; the log gets a line at most once in a minute, as another client may go on. Whether it did."""
        if not changes.total:
            return False
        self.times += 1
        self.entities += changes.total
        if (now := time.monotonic()) >= self.logged_at + _QUIET_SECONDS:
            again = f"; {self.times - self.logged} times since this was last said" if self.logged else ""
            _LOG.warning("another client changed what %s holds; put right: %s%s", name, changes, again)
            self.logged_at, self.logged = now, self.times
            return True
        return False


class ManagedSwitch:
    """Keeps one switch's entries up to date, and answers its packets while this controller is the primary one.

    `on_ready` runs at each session and each time this controller becomes the primary one, `on_drift` when the switch no
    longer holds what was written, `on_late` if the switch could not be reached in time at the start, `on_lost` when its
    session has ended after it was ready, and whether the switch has closed it. `loads` hears at each heartbeat what the
    switch has counted. `number` and `on_outbid` are those of `Arbitration`.
    """

    def __init__(
        self,
        where: SwitchAddress,
        pipeline: Pipeline,
        on_ready: "Callable[[ManagedSwitch, Switch], Awaitable[None]]",
        on_drift: "Callable[[ManagedSwitch, Switch], Coroutine[None, None, None]]",
        on_late: "Callable[[ManagedSwitch], None]",
        on_lost: "Callable[[ManagedSwitch, bool], None]",
        number: Callable[[], int | None],
        on_outbid: Callable[[int], None],
        loads: Loads,
        finsy_log: FinsyLog,
    ) -> None:
        self.where = where
        self.schema = pipeline.schema
        self.problem = ""  # why it is not ready
        self.late = False
        self.mended = Mended()
        self._on_ready = on_ready
        self._on_drift = on_drift
        self._on_late = on_late
        self._on_lost = on_lost
        self._loads = loads
        self._held: Sequence[Entity] | None = None
        self._known = False  # nothing else has been written since
        self._counted: set[int] | None = (
            None  # job indices that were used since the program was loaded, if that is known
        )
        self._writing = asyncio.Lock()
        self._parts = itertools.cycle(parts(pipeline.schema))
        self._sending: asyncio.Task[None] | None = None
        self.connection = Connection(
            *(where, pipeline, self._ready, self._heartbeat, self._lost, self._be_late),
            *(number, on_outbid, finsy_log),
        )

    @property
    def ready(self) -> bool:
        """Whether the switch was converged in this session."""
        return self._held is not None

    def holds(self, entities: Sequence[Entity]) -> bool:
        """Whether these entities were the last that were written."""
        return self._held is entities

    def check_ready(self) -> None:
        """Raises SwitchError unless the switch is connected and converged."""
        if not self.ready:
            why = self.problem if self.connection.connected else "is not connected"
            raise SwitchLostError(f"{self.connection.name} {why}")

    async def converge(self, entities: Sequence[Entity]) -> Changes:
        """Makes the switch hold these entities. Raises SwitchError."""

        async def write(switch: Switch) -> Changes:
            return await self.write(switch, entities)

        return await self.connection.execute(write)

    async def write(self, switch: Switch, entities: Sequence[Entity]) -> Changes:
        """As `converge`, in that session. Raises finsy.P4ClientError."""
        async with self._writing:
            known, self._known = self._held if self._known else None, False
            counted = None if self._counted is None else frozenset(self._counted)
            if self._counted is not None:
                self._counted.update(job_indices(entities).values())
            changes = await converge(switch, entities, known, counted)
            self._held, self._known = entities, True
            self.problem = ""
            return changes

    def stand_by(self, reason: str) -> None:
        """Another one writes to the switch, or nobody."""
        self._held = None
        if self.problem != reason:
            self.problem = reason
            _LOG.warning("%s: %s", self.connection.name, reason)

    def serve(self, switch: Switch, fabric: Callable[[], Fabric], links: Links, violations: Violations) -> None:
        """Answers punted packets and takes digests, while this controller is primary in this session."""
        switch.create_task(self._answer(switch, fabric, links))
        switch.create_task(self._listen(switch, fabric, violations))

    def send(self, frames: Iterable[tuple[int, bytes]]) -> None:
        """Sends frames, each by its port, unless the switch has not yet taken those before: then these are lost."""
        packets = [P4PacketOut(frame, reserved=0, egress_port=port) for port, frame in frames]
        if packets and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._send(packets))

    async def _send(self, packets: list[P4PacketOut]) -> None:
        try:
            await self.connection.execute(lambda switch: switch.write(packets))
        except SwitchLostError as problem:
            _LOG.debug("not sent: %s", problem)
        except SwitchError as problem:
            self.connection.renew(str(problem))

    async def _heartbeat(self, switch: Switch) -> None:
        """Reads a part of what the switch holds, the next one each time: whether another client has changed it. And how
        much traffic its links have had."""
        if not switch.is_primary and not await has_program(switch):
            return
        self._loads.take(self.where.name, await read_loads(switch, self._loads.ports(self.where.name)))
        if not switch.is_primary:
            return
        expected, part = self._held, next(self._parts)
        found = await read_part(switch, part)
        if expected is None or self._held is not expected or self._writing.locked():
            return  # it was changed here meanwhile
        name = kind(part)
        wrong = difference(switch.p4info, found, [entity for entity in expected if kind(entity) == name])
        if wrong:
            self._held = None
            self.problem = f"does not hold what was written to {name}; it is written again"
            switch.create_task(self._on_drift(self, switch))

    async def _answer(self, switch: Switch, fabric: Callable[[], Fabric], links: Links) -> None:
        known: Fabric | None = None
        answers: Answers | None = None
        async for packet in switch.read_packets():
            if answers is None or known is not fabric():
                known = fabric()
                answers = Answers(known, self.where.name)
            port = packet["ingress_port"]
            if packet["reason"] == Reason.PUNTED_LLDP:
                links.hear(self.where.name, port, packet.payload)
                continue
            if packet["reason"] == Reason.PUNTED_PROBE:
                links.hear_probe(self.where.name, port, packet.payload)
                continue
            answer = answers.answer(packet["reason"], port, packet.payload)
            if answer is not None:
                await switch.write([P4PacketOut(answer, reserved=0, egress_port=port)])

    async def _listen(self, switch: Switch, fabric: Callable[[], Fabric], violations: Violations) -> None:
        async for digests in switch.read_digests(VIOLATIONS):
            violations.add(self.where.name, digests, fabric())
            await switch.write([digests.ack()])

    async def _ready(self, switch: Switch) -> None:
        self._held = None
        self._counted = set() if just_loaded(switch) else None
        self.problem = "is being converged"
        await self._on_ready(self, switch)

    def _lost(self, reason: str, closed: bool) -> None:
        was_ready, self._held = self.ready, None
        if reason != self.problem:
            _LOG.warning("%s; trying again", reason)
        self.problem = reason
        if was_ready:
            self._on_lost(self, closed)

    def _be_late(self, reason: str) -> None:
        self.late = True
        self.problem = reason
        self._on_late(self)
