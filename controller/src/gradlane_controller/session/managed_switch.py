# SPDX-License-Identifier: Apache-2.0
"""One switch of the fabric: the session with it, the entries that it holds, and the packets that it punts."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from finsy import P4PacketOut, Switch

from gradlane_controller.data_plane import Reason
from gradlane_controller.desired.pipeline import Pipeline
from gradlane_controller.errors import SwitchLostError
from gradlane_controller.network.answers import Answers
from gradlane_controller.network.fabric import Fabric, SwitchAddress
from gradlane_controller.network.links import Links
from gradlane_controller.policy import Entity
from gradlane_controller.policy.ports import VIOLATIONS
from gradlane_controller.session.connection import Connection, FinsyLog
from gradlane_controller.session.convergence import Changes, converge
from gradlane_controller.session.violations import Violations

_LOG = logging.getLogger(__name__)


class ManagedSwitch:
    """Keeps one switch's entries up to date, and answers its packets while this controller is the primary one.

    `on_ready` runs at each session and each time this controller becomes the primary one; `on_late` if the switch could
    not be reached in time at the start.
    """

    def __init__(
        self,
        where: SwitchAddress,
        pipeline: Pipeline,
        on_ready: "Callable[[ManagedSwitch, Switch], Awaitable[None]]",
        on_late: "Callable[[ManagedSwitch], None]",
        finsy_log: FinsyLog,
    ) -> None:
        self.where = where
        self.problem = ""  # why it is not ready
        self.late = False
        self._on_ready = on_ready
        self._on_late = on_late
        self._held: Sequence[Entity] | None = None
        self._writing = asyncio.Lock()
        self.connection = Connection(where, pipeline, self._ready, self._lost, self._be_late, finsy_log)

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
            changes = await converge(switch, entities)
            self._held = entities
            self.problem = ""
            return changes

    def stand_by(self) -> None:
        """Another controller writes to the switch."""
        self._held = None
        self.problem = "another controller is primary; standing by"
        _LOG.warning("%s: %s", self.connection.name, self.problem)

    def serve(self, switch: Switch, fabric: Callable[[], Fabric], links: Links, violations: Violations) -> None:
        """Answers punted packets and takes digests, while this controller is primary in this session."""
        switch.create_task(self._answer(switch, fabric, links))
        switch.create_task(self._listen(switch, fabric, violations))

    async def send(self, frames: Iterable[tuple[int, bytes]]) -> None:
        """Sends frames, each by its port. Raises SwitchError."""
        packets = [P4PacketOut(frame, reserved=0, egress_port=port) for port, frame in frames]

        async def write(switch: Switch) -> None:
            await switch.write(packets)

        if packets:
            await self.connection.execute(write)

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
            if packet["reason"] == Reason.PUNTED_LOCAL and links.hear_probe(self.where.name, port, packet.payload):
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
        self.problem = "is being converged"
        await self._on_ready(self, switch)

    def _lost(self, reason: str) -> None:
        self._held = None
        if reason != self.problem:
            _LOG.warning("%s; trying again", reason)
        self.problem = reason

    def _be_late(self, reason: str) -> None:
        self.late = True
        self.problem = reason
        self._on_late(self)
