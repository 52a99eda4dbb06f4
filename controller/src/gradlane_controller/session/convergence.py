# SPDX-License-Identifier: Apache-2.0
"""Makes a switch hold what is desired: writes only the difference to what it holds, which is read if not known."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

from finsy import (
    GRPCStatusCode,
    P4ClientError,
    P4DigestEntry,
    P4MeterConfig,
    P4MeterEntry,
    P4MulticastGroupEntry,
    P4Schema,
    P4TableAction,
    P4TableEntry,
    Switch,
)
from finsy.p4entity import decode_entity
from finsy.proto import p4r

from gradlane_controller.policy import Entity
from gradlane_controller.policy.sums import SUM_TABLES, HeldSums
from gradlane_controller.session.connection import read_all, read_messages
from gradlane_controller.session.counters import reset_counts
from gradlane_controller.session.encoding import Held, encode, encode_held
from gradlane_controller.session.writing import DELETE, INSERT, MODIFY, Refused, order, write

_COMPARING = ThreadPoolExecutor(2, "comparing")
"""Few switches at a time: more would take turns with each other and the event loop, so that none is done soon. So the
first ones are being written while the next ones are compared. Not one alone, as a switch may hold what takes long."""


@dataclass(frozen=True)
class Changes:
    """What one convergence wrote, in entities."""

    inserted: int
    modified: int
    deleted: int

    @property
    def total(self) -> int:
        """Every entity written."""
        return self.inserted + self.modified + self.deleted

    def __add__(self, other: "Changes") -> "Changes":
        return Changes(self.inserted + other.inserted, self.modified + other.modified, self.deleted + other.deleted)

    def __str__(self) -> str:
        return f"{self.inserted} inserted, {self.modified} modified, {self.deleted} deleted"


def parts(schema: P4Schema) -> list[Entity]:
    """What a switch holds, in parts that can be read by themselves: an entity of each kind, which stands for all."""
    found: list[Entity] = []
    for table in schema.tables:
        # Without a configuration in the request there is none in the answer.
        meter = P4MeterConfig(cir=0, cburst=0, pir=0, pburst=0) if table.direct_meter else None
        found.append(P4TableEntry(table.alias, meter_config=meter))
    found.append(P4MulticastGroupEntry())
    found += [P4MeterEntry(meter.alias) for meter in schema.meters]
    found += [P4DigestEntry(digest.alias) for digest in schema.digests]
    return found


def kind(entity: Entity) -> str:
    """The part to which an entity belongs: the name of a table, meter or digest, or "multicast_groups"."""
    match entity:
        case P4TableEntry():
            return entity.table_id
        case P4MulticastGroupEntry():
            return "multicast_groups"
        case P4MeterEntry():
            return entity.meter_id
        case P4DigestEntry():
            return entity.digest_id


async def read_parts(switch: Switch, some: Collection[Entity]) -> list[p4r.Entity]:
    """Every entity of these kinds that the switch holds. Raises finsy.P4ClientError or SwitchError."""
    digests = [part for part in some if isinstance(part, P4DigestEntry)]
    others = [part for part in some if not isinstance(part, P4DigestEntry)]
    found = await read_messages(switch, *others) if others else []
    for digest in digests:
        try:
            found += await read_messages(switch, digest)
        except P4ClientError as problem:
            if problem.code != GRPCStatusCode.NOT_FOUND:  # BMv2's answer while it is not configured
                raise
    return found


def difference(schema: P4Schema, held: Iterable[Held], desired: Iterable[Entity]) -> list[p4r.Update]:
    """The updates that turn `held` into `desired`, in the order in which they are to be written."""
    return [update for update, _ in compared(schema, held, desired)]


def compared(
    schema: P4Schema, held: Iterable[Held], desired: Iterable[Entity]
) -> list[tuple[p4r.Update, p4r.Entity | None]]:
    """As `difference`, each update with what is held in its place, None: nothing."""
    wanted = encode(schema, desired)
    present = encode_held(schema, held, wanted)
    updates: list[tuple[p4r.Update, p4r.Entity | None]] = []

    def add(kind: p4r.Update.Type.ValueType, message: p4r.Entity, old: p4r.Entity | None) -> None:
        updates.append((p4r.Update(type=kind, entity=message), old))

    for key, coded in wanted.items():
        old = present.get(key)
        if old is None:
            message = coded.message
            add(MODIFY if message.HasField("meter_entry") else INSERT, message, None)
        elif old.octets != coded.octets:
            add(MODIFY, coded.message, old.message)
    for key, coded in present.items():
        if key in wanted:
            continue
        message = coded.message
        if message.HasField("meter_entry"):  # a meter is never deleted; without a config it is at its default again
            default = coded.message
            default.meter_entry.ClearField("config")
            add(MODIFY, default, message)
        else:
            add(DELETE, message, message)
    return sorted(updates, key=lambda it: order(schema, it[0]))


async def converge(
    switch: Switch,
    desired: Sequence[Entity],
    held: Sequence[Held] | None = None,
    counted: Collection[int] | None = None,
) -> tuple[Changes, list[Refused]]:
    """Makes the switch hold exactly `desired`; writes nothing if it does already. What it refuses is tried again, once
    it was read what the switch holds; then that is all that is missing, or too much.

    `held`: what this controller has written before; None: it is read. `counted`: the job indices for which the switch
    may have counted; None: all.

    Raises finsy.P4ClientError.
    """
    changes = Changes(0, 0, 0)
    if held is not None:
        try:
            changes, refused = await _change(switch, held, desired, counted)
        except P4ClientError as problem:
            if problem.code == GRPCStatusCode.DEADLINE_EXCEEDED:
                raise
            refused = None  # another client has changed it
        if refused is not None and not refused:
            return changes, refused
    else:
        changes, refused = await _change(switch, await read_parts(switch, parts(switch.p4info)), desired, counted)
        if not refused:
            return changes, refused
    more, refused = await _change(switch, await read_parts(switch, parts(switch.p4info)), desired, counted)
    return changes + more, refused


async def _change(
    switch: Switch, held: Sequence[Held], desired: Sequence[Entity], counted: Collection[int] | None
) -> tuple[Changes, list[Refused]]:
    # Of a whole switch it takes a while, in which others are to be heard.
    loop = asyncio.get_running_loop()
    held, desired = apart(held, desired)
    updates = await loop.run_in_executor(_COMPARING, difference, switch.p4info, held, desired)
    known = job_indices(held, switch.p4info)
    # An index that another job had before counts from zero again. To read all its cells takes longer than all else.
    new = [number for job, number in job_indices(desired).items() if known.get(job) != number]
    await reset_counts(switch, [number for number in new if counted is None or number in counted])
    done, refused = await write(switch, updates)
    kinds = [update.type for update in done]
    return Changes(kinds.count(INSERT), kinds.count(MODIFY), kinds.count(DELETE)), refused


def apart(held: Sequence[Held], desired: Sequence[Entity]) -> tuple[Sequence[Held], Sequence[Entity]]:
    """Both without the entities that are in both themselves, and without what they begin and end with alike, kind by
    kind: of a large fabric a job changes little."""
    if any(isinstance(it, p4r.Entity) for it in held):
        return held, desired
    old, new = set(map(id, held)), set(map(id, desired))
    held, desired = [it for it in held if id(it) not in new], [it for it in desired if id(it) not in old]
    kinds: dict[str, tuple[list[Any], list[Any]]] = {}
    for side, entities in enumerate((held, desired)):
        for entity in cast(Sequence[Entity], entities):
            kinds.setdefault(kind(entity), ([], []))[side].append(entity)
    rest: tuple[list[Any], list[Any]] = [], []

    def unlike(a: object, b: object) -> bool:
        return a is not b and a != b

    for one, other in kinds.values():
        shorter = min(len(one), len(other))
        first = next((n for n in range(shorter) if unlike(one[n], other[n])), shorter)
        last = next((n for n in range(shorter - first) if unlike(one[-1 - n], other[-1 - n])), shorter - first)
        rest[0].extend(one[first : len(one) - last])
        rest[1].extend(other[first : len(other) - last])
    return rest


async def read_indices(switch: Switch) -> dict[int, int]:
    """The index by which the switch knows each job, by job id. Raises finsy.P4ClientError."""
    return job_indices(await read_all(switch, P4TableEntry("jobs")))


async def read_sums(switch: Switch) -> HeldSums:
    """What the switch holds for sums. Raises finsy.P4ClientError."""
    tables = [P4TableEntry(name) for name in SUM_TABLES if switch.p4info.tables.get(name) is not None]
    return HeldSums.of([entry for table in tables for entry in await read_all(switch, table)])


async def has_program(switch: Switch) -> bool:
    """Whether the switch has loaded the program that this controller means. Raises finsy.P4ClientError."""
    try:
        reply = await switch._get_pipeline_config_request()  # pyright: ignore[reportPrivateUsage]
    except P4ClientError as problem:
        if problem.is_pipeline_missing:
            return False
        raise
    return reply.config.cookie.cookie == switch.p4info.p4cookie


async def holds_state(switch: Switch) -> bool:
    """Whether the switch has routes already. Raises finsy.P4ClientError or SwitchError."""
    return bool(await read_messages(switch, P4TableEntry("ipv4_routes")))


def job_indices(entities: Iterable[Held], schema: P4Schema | None = None) -> dict[int, int]:
    """The indices in the entries of `jobs` among entities, by job id; `schema`: of those that were read."""
    found: dict[int, int] = {}
    for entity in entities:
        it: object = entity
        if isinstance(entity, p4r.Entity):
            if schema is None or entity.table_entry.table_id != schema.tables["jobs"].id:
                continue
            it = decode_entity(entity, schema)
        if isinstance(it, P4TableEntry) and it.table_id == "jobs" and it.match and isinstance(it.action, P4TableAction):
            found[it.match["job"]] = it.action.args["job_index"]
    return found
