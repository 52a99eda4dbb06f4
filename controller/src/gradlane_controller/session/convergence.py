# SPDX-License-Identifier: Apache-2.0
"""Makes a switch hold what is desired: writes only the difference to what it holds, which is read if not known."""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass

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
from finsy.proto import p4r

from gradlane_controller.policy import Entity
from gradlane_controller.policy.sums import SUM_TABLES, HeldSums
from gradlane_controller.session.connection import read_all
from gradlane_controller.session.counters import reset_counts

_INSERT, _MODIFY, _DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE


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
    """What a switch holds, in parts that are read one by one: an entity of each kind, which stands for all of them."""
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


async def read_part(switch: Switch, part: Entity) -> list[Entity]:
    """Every entity of that kind that the switch holds. Raises finsy.P4ClientError or SwitchError."""
    try:
        return await read_all(switch, part)
    except P4ClientError as problem:
        if isinstance(part, P4DigestEntry) and problem.code == GRPCStatusCode.NOT_FOUND:
            return []  # BMv2's answer while it is not configured
        raise


def difference(schema: P4Schema, held: Iterable[Entity], desired: Iterable[Entity]) -> list[p4r.Update]:
    """The updates that turn `held` into `desired`, ordered so that forwarding never lacks what it refers to:
    groups (multicast or ECMP) before the routes that use them, new entries before old ones go, groups that nothing uses
    last."""
    return [update for update, _ in compared(schema, held, desired)]


def compared(
    schema: P4Schema, held: Iterable[Entity], desired: Iterable[Entity]
) -> list[tuple[p4r.Update, p4r.Entity | None]]:
    """As `difference`, each update with what is held in its place, None: nothing."""
    present = {_key(message): message for message in _encode(schema, held) if _is_state(message)}
    wanted = {_key(message): message for message in _encode(schema, desired)}
    updates: list[tuple[int, p4r.Update, p4r.Entity | None]] = []

    def add(kind: p4r.Update.Type.ValueType, message: p4r.Entity, old: p4r.Entity | None) -> None:
        updates.append((_order(schema, kind, message), p4r.Update(type=kind, entity=message), old))

    for key, message in wanted.items():
        old = present.get(key)
        if old is None and not message.HasField("meter_entry"):
            add(_INSERT, message, None)
        elif old is None or _canonical(old) != _canonical(message):
            add(_MODIFY, message, old)
    for key, message in present.items():
        if key in wanted:
            continue
        if message.HasField("meter_entry"):  # a meter is never deleted; without a config it is at its default again
            default = p4r.Entity()
            default.CopyFrom(message)
            default.meter_entry.ClearField("config")
            add(_MODIFY, default, message)
        else:
            add(_DELETE, message, message)
    return [(update, old) for _, update, old in sorted(updates, key=lambda it: it[0])]


async def converge(
    switch: Switch,
    desired: Iterable[Entity],
    held: Iterable[Entity] | None = None,
    counted: Collection[int] | None = None,
) -> Changes:
    """Makes the switch hold exactly `desired`; writes nothing if it does already. `held`: what this controller has
    written before; None: it is read, as it is where the switch refuses what does not fit to that. `counted`: the job
    indices for which the switch may have counted; None: all.

    Raises finsy.P4ClientError.
    """
    desired = list(desired)
    if held is not None:
        try:
            return await _change(switch, list(held), desired, counted)
        except P4ClientError:
            pass  # another client has changed it
    found = [entity for part in parts(switch.p4info) for entity in await read_part(switch, part)]
    return await _change(switch, found, desired, counted)


async def _change(
    switch: Switch, held: list[Entity], desired: list[Entity], counted: Collection[int] | None
) -> Changes:
    # Of a whole switch it takes a while, in which others are to be heard.
    updates = await asyncio.to_thread(difference, switch.p4info, *apart(held, desired))
    known = job_indices(held)
    # An index that another job had before counts from zero again. To read all its cells takes longer than all else.
    new = [number for job, number in job_indices(desired).items() if known.get(job) != number]
    await reset_counts(switch, [number for number in new if counted is None or number in counted])
    await switch.write(updates)
    kinds = [update.type for update in updates]
    return Changes(kinds.count(_INSERT), kinds.count(_MODIFY), kinds.count(_DELETE))


def apart(held: Iterable[Entity], desired: Iterable[Entity]) -> tuple[list[Entity], list[Entity]]:
    """Both without what they begin and end with alike, kind by kind: of a large fabric a job changes little, and to
    encode an entity takes ten times as long as to compare it."""
    kinds: dict[str, tuple[list[Entity], list[Entity]]] = {}
    for side, entities in enumerate((held, desired)):
        for entity in entities:
            kinds.setdefault(kind(entity), ([], []))[side].append(entity)
    rest: tuple[list[Entity], list[Entity]] = [], []
    for one, other in kinds.values():
        shorter = min(len(one), len(other))
        first = next((n for n in range(shorter) if one[n] != other[n]), shorter)
        last = next((n for n in range(shorter - first) if one[-1 - n] != other[-1 - n]), shorter - first)
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
    """Whether the switch has routes already. Raises finsy.P4ClientError."""
    return bool(await read_all(switch, P4TableEntry("ipv4_routes")))


def job_indices(entities: Iterable[Entity]) -> dict[int, int]:
    """The indices in the entries of `jobs` among entities, by job id."""
    found: dict[int, int] = {}
    for it in entities:
        if isinstance(it, P4TableEntry) and it.table_id == "jobs" and it.match and isinstance(it.action, P4TableAction):
            found[it.match["job"]] = it.action.args["job_index"]
    return found


def _encode(schema: P4Schema, entities: Iterable[Entity]) -> list[p4r.Entity]:
    return [entity.encode(schema) for entity in entities]


def _is_state(message: p4r.Entity) -> bool:
    """Not a meter at its default, nor a default action: those two are there without anyone having written them."""
    if message.HasField("meter_entry"):
        return message.meter_entry.HasField("config")
    return not message.table_entry.is_default_action


def _key(message: p4r.Entity) -> tuple[object, ...]:
    if message.HasField("table_entry"):
        entry = message.table_entry
        match = sorted((field.field_id, field.SerializeToString(deterministic=True)) for field in entry.match)
        return ("table", entry.table_id, entry.priority, tuple(match))
    if message.HasField("meter_entry"):
        return ("meter", message.meter_entry.meter_id, message.meter_entry.index.index)
    if message.HasField("digest_entry"):
        return ("digest", message.digest_entry.digest_id)
    return ("group", message.packet_replication_engine_entry.multicast_group_entry.multicast_group_id)


def _canonical(message: p4r.Entity) -> bytes:
    """The entity's bytes with its lists in a fixed order."""
    copy = p4r.Entity()
    copy.CopyFrom(message)
    if copy.HasField("table_entry"):
        copy.table_entry.match.sort(key=lambda field: field.field_id)
        action = copy.table_entry.action
        for call in (action.action, *(item.action for item in action.action_profile_action_set.action_profile_actions)):
            call.params.sort(key=lambda param: param.param_id)
    elif copy.HasField("packet_replication_engine_entry"):
        group = copy.packet_replication_engine_entry.multicast_group_entry
        group.replicas.sort(key=lambda replica: replica.SerializeToString(deterministic=True))
    return copy.SerializeToString(deterministic=True)


def _order(schema: P4Schema, kind: int, message: p4r.Entity) -> int:
    table = message.table_entry.table_id
    is_group = message.HasField("packet_replication_engine_entry") or table == schema.tables["next_hops"].id
    if kind == _DELETE:
        return 3 if is_group else 2
    return 0 if is_group else 1
