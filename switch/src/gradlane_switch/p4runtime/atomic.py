# SPDX-License-Identifier: Apache-2.0
"""Which batches can be applied between two packets.

Packets wait meanwhile, so a batch must be short. A packet goes through egress only when it leaves its queue, so a batch
must not change what both ingress and egress look at: a packet in a queue would see the old state in ingress and the new
one in egress.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from finsy.proto import rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.ir.program import Program
from gradlane_switch.ir.statements import Clone, Count, ExecuteMeter, RegisterRead, RegisterWrite
from gradlane_switch.p4runtime.entities import cells, table_entries, value_sets
from gradlane_switch.state.pipeline import Pipeline

MOST = 1024
"""What a batch may cost: then packets wait for less than a millisecond."""

_ARRAYS = ("counter_entry", "meter_entry", "register_entry")


def require_atomic(pipeline: Pipeline, updates: Iterable[Any]) -> None:
    """Raises EntityError (UNIMPLEMENTED) if a packet could see some of the updates but not all."""
    total = 0
    halves: set[str] = set()
    users = _users(pipeline.program)
    for update in updates:
        kind = update.entity.WhichOneof("entity")
        if kind is not None:
            message = getattr(update.entity, kind)
            halves |= _halves(pipeline, users, kind, message)
            total += _cost(pipeline, kind, message)
        else:
            total += 1
    if total > MOST:
        text = (
            f"this DATAPLANE_ATOMIC batch is too large: packets would have to wait {total / MOST:.1f} times as long as "
            f"allowed (for {MOST} exact entries, {MOST // 2} LPM entries, fewer of other kinds): split it, or use "
            "ROLLBACK_ON_ERROR"
        )
        raise EntityError(rpc_code.UNIMPLEMENTED, text)
    if len(halves) > 1:
        text = (
            "a DATAPLANE_ATOMIC batch can't change both what ingress uses and what egress uses, because a packet may "
            "wait in a queue between them: split it, or use ROLLBACK_ON_ERROR"
        )
        raise EntityError(rpc_code.UNIMPLEMENTED, text)


def _cost(pipeline: Pipeline, kind: str, message: Any) -> int:
    """How long packets wait, at most, while an entity is written: an exact entry is 1, and takes 0.3 us at most."""
    match kind:
        case "table_entry":
            return table_entries.cost(pipeline, message)
        case "counter_entry" | "register_entry":
            return 1 + cells.size(pipeline, kind, message) // 16
        case "meter_entry":
            return 1 + cells.size(pipeline, kind, message)
        case "action_profile_group":
            return 1 + sum(abs(item.weight) for item in message.members)
        case "packet_replication_engine_entry":
            replicas = (message.multicast_group_entry.replicas, message.clone_session_entry.replicas)
            return 1 + sum(map(len, replicas))
        case "value_set_entry":
            return 1 + value_sets.changed(pipeline, message)
        case _:
            return 1


def _users(program: Program) -> dict[tuple[str, int], set[str]]:
    """By kind and index: which of ingress and egress look at a table, an array, or (index 0) clone sessions."""
    found: dict[tuple[str, int], set[str]] = {}
    for half, control in (("ingress", program.ingress), ("egress", program.egress)):
        for index in control.tables.values():
            found.setdefault(("table", index), set()).add(half)
            for statement in (
                item for number in program.tables[index].actions for item in program.actions[number].body
            ):
                match statement:
                    case Count(counter):
                        used = "counter_entry", counter
                    case ExecuteMeter(meter):
                        used = "meter_entry", meter
                    case RegisterRead(_, register) | RegisterWrite(register):
                        used = "register_entry", register
                    case Clone():
                        used = "session", 0
                    case _:
                        continue
                found.setdefault(used, set()).add(half)
    return found


def _halves(pipeline: Pipeline, users: dict[tuple[str, int], set[str]], kind: str, message: Any) -> set[str]:
    """Which of ingress and egress look at an entity; none if there is no such entity."""
    schema = pipeline.schema
    match kind:
        case "table_entry" | "direct_counter_entry" | "direct_meter_entry":
            entry = message if kind == "table_entry" else message.table_entry
            table = schema.tables.get(entry.table_id)
            return set() if table is None else users.get(("table", table.index), set())
        case "action_profile_member" | "action_profile_group":
            profile = schema.profiles.get(message.action_profile_id)
            tables = [n for n, item in enumerate(pipeline.program.tables) if profile and item.profile == profile.index]
            return {half for number in tables for half in users.get(("table", number), set())}
        case "packet_replication_engine_entry":
            cloning = message.WhichOneof("type") == "clone_session_entry"
            return users.get(("session", 0), set()) if cloning else {"ingress"}
        case "value_set_entry":
            return {"ingress"}
        case _ if kind in _ARRAYS:
            array = cells.array(pipeline, kind, message)
            return set() if array is None else users.get((kind, array.index), set())
        case _:
            return set()
