# SPDX-License-Identifier: Apache-2.0
"""Writes updates so that forwarding never lacks what it refers to, and so that one which is refused keeps no other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from finsy import GRPCStatusCode, P4ClientError, P4Schema, Switch
from finsy.p4entity import decode_entity
from finsy.proto import p4r

from gradlane_controller.desired.describing import describe as describe_entity
from gradlane_controller.session.connection import plain

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
AT_ONCE = 2000  # updates of one request: a message of half a megabyte, of the 4 that gRPC takes
_ROUTES = ("ipv4_routes", "ipv6_routes")
_MAYBE_NO_ROOM = (GRPCStatusCode.RESOURCE_EXHAUSTED, GRPCStatusCode.UNKNOWN)  # the latter is BMv2's
_KINDS = {INSERT: "insert", MODIFY: "modify", DELETE: "delete"}


@dataclass(frozen=True)
class Refused:
    """An update that a switch does not take, and why."""

    update: p4r.Update
    code: GRPCStatusCode
    message: str

    def describe(self, schema: P4Schema) -> str:
        """One line for people."""
        table, key, _ = describe_entity(decode_entity(self.update.entity, schema))
        place = " ".join(filter(None, (table, key)))
        return f"{_KINDS[self.update.type]} of {place}: {plain(f'{self.code.name}: {self.message}')}"


def order(schema: P4Schema, update: p4r.Update) -> int:
    """In which stage it is written: groups (multicast or ECMP) before the routes that use them, new entries before old
    ones go, groups that nothing uses last."""
    is_group = _is_group(schema, update)
    if update.type == DELETE:
        return 3 if is_group else 2
    return 0 if is_group else 1


async def write(switch: Switch, updates: Iterable[p4r.Update]) -> tuple[list[p4r.Update], list[Refused]]:
    """Writes updates that are in this order; those that were done, and those that were not.

    While a group is refused, the routes that use it wait, and while a route is, old routes and groups stay, unless
    there was no room: what is there goes on to work. They count as refused, for that reason.

    Raises finsy.P4ClientError if a request fails as a whole.
    """
    schema = switch.p4info
    routes = {schema.tables[name].id for name in _ROUTES}
    stages: list[list[p4r.Update]] = [[], [], [], []]
    for update in updates:
        stages[order(schema, update)].append(update)
    done: list[p4r.Update] = []
    refused: list[Refused] = []
    for number, stage in enumerate(stages):
        groups = {_group(schema, it.update) for it in refused if _is_group(schema, it.update)}
        stuck = any(it.update.entity.table_entry.table_id in routes and it.code not in _MAYBE_NO_ROOM for it in refused)
        ready: list[p4r.Update] = []
        for update in stage:
            table = update.entity.table_entry.table_id
            if number == 1 and table in routes and _group(schema, update) in groups:
                refused.append(Refused(update, GRPCStatusCode.FAILED_PRECONDITION, "its group was refused"))
            elif stuck and ((number == 2 and table in routes) or number == 3):
                refused.append(Refused(update, GRPCStatusCode.FAILED_PRECONDITION, "a new route was refused"))
            else:
                ready.append(update)
        for first in range(0, len(ready), AT_ONCE):
            batch = ready[first : first + AT_ONCE]
            failed = await _write(switch, batch)
            refused += failed.values()
            done += [update for place, update in enumerate(batch) if place not in failed]
    return done, refused


async def _write(switch: Switch, batch: Sequence[p4r.Update]) -> dict[int, Refused]:
    """By their places, the updates that were refused (P4Runtime, section 12.3). Raises finsy.P4ClientError."""
    try:
        await switch.write(batch)
    except P4ClientError as problem:
        details = problem.details
        if problem.code != GRPCStatusCode.UNKNOWN or not details or max(details) >= len(batch):
            raise
        return {place: Refused(batch[place], it.canonical_code, it.message) for place, it in details.items()}
    return {}


def _is_group(schema: P4Schema, update: p4r.Update) -> bool:
    entity = update.entity
    next_hops = schema.tables["next_hops"].id
    return entity.HasField("packet_replication_engine_entry") or entity.table_entry.table_id == next_hops


def _group(schema: P4Schema, update: p4r.Update) -> tuple[bool, int]:
    """Of a group or of what uses one: whether it is a multicast group, and its number."""
    entity = update.entity
    if entity.HasField("packet_replication_engine_entry"):
        return True, entity.packet_replication_engine_entry.multicast_group_entry.multicast_group_id
    if _is_group(schema, update):
        return False, int.from_bytes(entity.table_entry.match[0].exact.value, "big")
    action = entity.table_entry.action.action
    value = int.from_bytes(action.params[0].value, "big") if action.params else 0
    return action.action_id == schema.actions["replicate"].id, value
