# SPDX-License-Identifier: Apache-2.0
"""What would change at a switch, entity by entity, without changing it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from finsy import P4Schema, Switch
from finsy.p4entity import decode_entity
from finsy.proto import p4r

from gradlane_controller.desired.describing import describe
from gradlane_controller.errors import SwitchError
from gradlane_controller.policy import Entity
from gradlane_controller.session.convergence import apart, compared, kind, parts, read_parts
from gradlane_controller.session.encoding import Held
from gradlane_controller.session.managed_switch import ManagedSwitch

_KINDS = {p4r.Update.INSERT: "insert", p4r.Update.MODIFY: "modify", p4r.Update.DELETE: "delete"}


async def previews(
    switches: Mapping[str, ManagedSwitch],
    schemas: Mapping[str, P4Schema],
    now: Mapping[str, Sequence[Entity]],
    then: Mapping[str, Sequence[Entity]],
    *,
    live: bool,
) -> list[dict[str, Any]]:
    """The answer's switches: those that are there, and those that would come, which have `schemas`."""
    found = [
        await preview(managed, None if live else now[name], then[name])
        if name in then
        else {"name": name, "changes": [], "problem": "it would leave the fabric, with what it holds"}
        for name, managed in switches.items()
    ]
    for name in then.keys() - switches.keys():
        changes = await asyncio.to_thread(describe_changes, schemas[name], (), then[name])
        found.append({"name": name, "changes": changes, "problem": ""})
    return found


async def preview(managed: ManagedSwitch, held: Sequence[Entity] | None, desired: Sequence[Entity]) -> dict[str, Any]:
    """One switch of the answer to GET /plan. `held`: what it holds; None: that is read, and `problem` says why it could
    not be, or is empty."""
    changes, problem = list[dict[str, str]](), ""
    try:
        if held is None:
            for part in parts(managed.schema):
                changes += await managed.connection.execute(lambda switch, part=part: _compare(switch, part, desired))
        elif held is not desired:
            changes = await asyncio.to_thread(describe_changes, managed.schema, held, desired)
    except SwitchError as why:
        changes, problem = [], str(why)
    return {"name": managed.where.name, "changes": changes, "problem": problem}


async def _compare(switch: Switch, part: Entity, desired: Sequence[Entity]) -> list[dict[str, str]]:
    """Of one part: a switch may answer anything, and as much as it is allowed to, but not for all parts at once."""
    wanted = [entity for entity in desired if kind(entity) == kind(part)]
    return await asyncio.to_thread(describe_changes, switch.p4info, await read_parts(switch, [part]), wanted)


def describe_changes(schema: P4Schema, held: Sequence[Held], desired: Sequence[Entity]) -> list[dict[str, str]]:
    """What turns `held` into `desired`, in the order in which it would be written: the kind of each change, the table
    and key, and what is there `before` and `after`, empty: nothing."""
    found: list[dict[str, str]] = []
    for update, old in compared(schema, *apart(held, desired)):
        table, key, after = describe(decode_entity(update.entity, schema))
        before = "" if old is None else describe(decode_entity(old, schema))[2]
        if update.type == p4r.Update.DELETE:
            after = ""
        found.append({"change": _KINDS[update.type], "table": table, "key": key, "before": before, "after": after})
    return found
