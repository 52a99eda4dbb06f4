# SPDX-License-Identifier: Apache-2.0
"""One switch of the fabric: the session with it, the entries that it holds, and the packets that it punts."""

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass

from finsy import P4MeterEntry, P4PacketOut, Switch
from finsy.p4entity import decode_entity

from gradlane_controller.data_plane import Reason
from gradlane_controller.desired.pipeline import Pipeline
from gradlane_controller.errors import SwitchError, SwitchLostError
from gradlane_controller.network.answers import Answers
from gradlane_controller.network.fabric import Fabric, SwitchAddress
from gradlane_controller.network.links import Links
from gradlane_controller.network.loads import Loads
from gradlane_controller.policy import Entity
from gradlane_controller.policy.ports import VIOLATIONS
from gradlane_controller.session.bounds import just_loaded, send_frames, take_frames
from gradlane_controller.session.connection import Connection, FinsyLog
from gradlane_controller.session.convergence import (
    Changes,
    converge,
    difference,
    has_program,
    job_indices,
    kind,
    parts,
    read_parts,
)
from gradlane_controller.session.convergences import Convergences
from gradlane_controller.session.encoding import Key, key_of
from gradlane_controller.session.patience import Places
from gradlane_controller.session.port_counts import read_port_counts
from gradlane_controller.session.violations import Violations

AUDITED_AT_ONCE = 250  # entities, in a heartbeat: some ms; but a part is read as a whole
_QUIET_SECONDS = 60.0
_NAMED = 3  # of many entries that are refused

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
    switch has counted. In `places` a switch is read or written as a whole. `number` and `on_outbid` are those of
    `Arbitration`.
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
        convergences: Convergences,
        places: Places,
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
        self._loads, self._convergences, self._places = loads, convergences, places
        self._held: Sequence[Entity] | None = None
        self._known = False  # nothing else has been written since
        self.empty = False  # it has loaded the program in this session, and got nothing yet
        self._counted: set[int] | None = (
            None  # job indices that were used since the program was loaded, if that is known
        )
        self._writing = asyncio.Lock()
        self.refused: dict[Key, str] = {}  # why, of each entry
        self._other: int | None = None  # the election id of who was primary in between
        self._parts = parts(pipeline.schema)
        self._audited = 0
        self._sorted: Sequence[Entity] | None = None  # what `_by_kind` has
        self._by_kind: dict[str, list[Entity]] = {}
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
        """Whether these entities were the last that were written, all of them."""
        return self._held is entities and self._known

    def check_ready(self) -> None:
        """Raises SwitchError unless the switch is connected and converged."""
        if not self.ready:
            why = self.problem if self.connection.connected else "is not connected"
            raise SwitchLostError(f"{self.connection.name} {why}")

    async def converge(self, entities: Sequence[Entity]) -> Changes:
        """Makes the switch hold these entities. Raises SwitchError, also if it refuses one that it did not refuse
        before; it has all others then."""
        before = self.refused

        async def write(switch: Switch) -> Changes:
            changes = await self.write(switch, entities)
            if new := [line for key, line in self.refused.items() if key not in before]:
                raise SwitchError(f"refused: {_some(new)}")
            return changes

        return await self.connection.execute(write, leading=True)

    async def write(self, switch: Switch, entities: Sequence[Entity], *, quiet: bool = False) -> Changes:
        """As `converge`, in that session; what the switch refuses is `refused`. The log says it, but where it is to be
        `quiet`. Raises finsy.P4ClientError."""
        async with self._writing:
            begun = time.monotonic()
            known, self._known = self._held if self._known else () if self.empty else None, False
            self.empty = False
            counted = None if self._counted is None else frozenset(self._counted)
            if self._counted is not None:
                self._counted.update(job_indices(entities).values())
            try:
                if known is None or (entities and not known):
                    changes, refused = await self._places.run(lambda: converge(switch, entities, known, counted))
                else:
                    changes, refused = await converge(switch, entities, known, counted)
            except BaseException:  # also cancelled, as the session was lost
                self._convergences.failed(self.where.name)
                raise
            self._held, self._known = entities, not refused
            self.problem = ""
            self._note_refused({key_of(it.update.entity): it.describe(switch.p4info) for it in refused})
            if changes.total and self._other is not None:
                what = "%s: put right what the client with election id %d left, which was primary before: %s"
                _LOG.warning(what, self.connection.name, self._other, changes)
            self._other = None
            self._convergences.took(*(self.where.name, changes, len(refused), time.monotonic() - begun), quiet=quiet)
            return changes

    def _note_refused(self, refused: dict[Key, str]) -> None:
        """Says what is new."""
        if new := [line for key, line in refused.items() if key not in self.refused]:
            _LOG.error("%s: refused, and tried again now and then: %s", self.connection.name, _some(new))
        elif self.refused and not refused:
            _LOG.info("%s takes all entries now", self.connection.name)
        self.refused = refused
        if refused:
            self.problem = f"refuses {len(refused)} of its entries: {_some(list(refused.values()))}"

    def stand_by(self, reason: str) -> None:
        """Another one writes to the switch, or nobody."""
        self._held = None
        self._other = self.connection.primary_id
        if self.problem != reason:
            self.problem = reason
            _LOG.warning("%s: %s", self.connection.name, reason)

    def serve(self, switch: Switch, fabric: Callable[[], Fabric], links: Links, violations: Violations) -> None:
        """Answers punted packets and takes digests, while this controller is primary in this session."""

        def hear(reason: int, port: int, frame: bytes) -> None:
            (links.hear if reason == Reason.PUNTED_LLDP else links.hear_probe)(self.where.name, port, frame)

        take_frames(switch, (Reason.PUNTED_LLDP, Reason.PUNTED_PROBE), hear)
        switch.create_task(self._answer(switch, fabric))
        switch.create_task(self._listen(switch, fabric, violations))

    def send(self, frames: Sequence[tuple[int, bytes]]) -> asyncio.Task[None] | None:
        """Sends frames, each by its port; None: there are none, or the switch has not yet taken those before, and these
        are lost."""
        if not frames or (self._sending is not None and not self._sending.done()):
            return None
        self._sending = asyncio.create_task(self._send(frames))
        return self._sending

    async def _send(self, frames: Iterable[tuple[int, bytes]]) -> None:
        try:
            await self.connection.execute(lambda switch: send_frames(switch, frames))
        except SwitchLostError as problem:
            _LOG.debug("not sent: %s", problem)
        except SwitchError as problem:
            self.connection.renew(str(problem))

    async def _heartbeat(self, switch: Switch) -> None:
        """Reads how much traffic the ports of the switch have had, and some parts of what it holds, the next ones each
        time: whether another client has changed it."""
        if not switch.is_primary and not await has_program(switch):
            return
        name = self.where.name
        counts = await read_port_counts(switch, self._loads.ports(name), self._loads.all_ports(name))
        self._loads.take(name, counts.routed)
        self._loads.take_sent(name, counts.sent)
        if switch.is_primary and self._held is not None and not self._writing.locked():
            await self._audit(switch, self._held)

    async def _audit(self, switch: Switch, expected: Sequence[Entity]) -> None:
        """Whether the switch still holds what was written of the next parts, and nothing else."""
        if self._sorted is not expected:
            self._sorted, self._by_kind = expected, defaultdict(list)
            for entity in expected:
                self._by_kind[kind(entity)].append(entity)
        some = self._next_parts()
        found = await read_parts(switch, some)
        if self._held is not expected or self._writing.locked():
            return  # it was changed here meanwhile
        again = some[-1] is self._parts[-1] and self.refused
        self._audited = (self._audited + len(some)) % len(self._parts)
        wrong = difference(switch.p4info, found, [it for part in some for it in self._by_kind[kind(part)]])
        unknown = next((update for update in wrong if key_of(update.entity) not in self.refused), None)
        if again or unknown is not None:
            self._held, self._known = None, False
            if unknown is not None:
                name = kind(decode_entity(unknown.entity, switch.p4info))
                self.problem = f"does not hold what was written to {name}; it is written again"
            switch.create_task(self._on_drift(self, switch))

    def _next_parts(self) -> list[Entity]:
        """Those of one question: one at least, none of the next round."""
        some, left = list[Entity](), AUDITED_AT_ONCE
        for part in self._parts[self._audited :]:
            left -= self.schema.meters[kind(part)].size if isinstance(part, P4MeterEntry) else 0
            left -= len(self._by_kind[kind(part)])
            if some and left < 0:
                break
            some.append(part)
        return some

    async def _answer(self, switch: Switch, fabric: Callable[[], Fabric]) -> None:
        known: Fabric | None = None
        answers: Answers | None = None
        async for packet in switch.read_packets():
            if answers is None or known is not fabric():
                known = fabric()
                answers = Answers(known, self.where.name)
            port = packet["ingress_port"]
            answer = answers.answer(packet["reason"], port, packet.payload)
            if answer is not None:
                await switch.write([P4PacketOut(answer, reserved=0, egress_port=port)])

    async def _listen(self, switch: Switch, fabric: Callable[[], Fabric], violations: Violations) -> None:
        async for digests in switch.read_digests(VIOLATIONS):
            violations.add(self.where.name, digests, fabric())
            await switch.write([digests.ack()])

    async def _ready(self, switch: Switch) -> None:
        self._held = None
        self.empty = just_loaded(switch)
        self._counted = set() if self.empty else None
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


def _some(lines: Sequence[str]) -> str:
    more = f"; and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
    return f"{'; '.join(lines[:_NAMED])}{more}"
