# SPDX-License-Identifier: Apache-2.0
"""Writes and reads of P4Runtime entities on a pipeline. The gRPC service and `Switch` both use this.

Each kind of entity has a writer, called with the pipeline, the update's type and the message, and a reader, called with
the pipeline and the request, which gives the messages asked for. Both raise EntityError. What may take long is done in
steps: a writer gives what is to be run to its end, a reader gives None now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from finsy.proto import p4r, rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.p4info.bytestrings import invalid
from gradlane_switch.p4runtime.entities import (
    cells,
    digests,
    direct_resources,
    profiles,
    replication,
    table_entries,
    value_sets,
)
from gradlane_switch.p4runtime.entities.updates import DELETE, INSERT, MODIFY
from gradlane_switch.state.pipeline import Pipeline

_WRITERS: dict[str, Callable[[Pipeline, int, Any], Iterator[None] | None]] = {
    "table_entry": table_entries.write_table_entry,
    "direct_counter_entry": direct_resources.write_direct_counter,
    "direct_meter_entry": direct_resources.write_direct_meter,
    "counter_entry": cells.write_counter,
    "meter_entry": cells.write_meter,
    "register_entry": cells.write_register,
    "packet_replication_engine_entry": replication.write_replication,
    "action_profile_member": profiles.write_member,
    "action_profile_group": profiles.write_group,
    "digest_entry": digests.write_digest,
    "value_set_entry": value_sets.write_value_set,
}
_READERS: dict[str, Callable[[Pipeline, Any], Iterator[Any]]] = {
    "table_entry": table_entries.read_table_entries,
    "direct_counter_entry": direct_resources.read_direct_counters,
    "direct_meter_entry": direct_resources.read_direct_meters,
    "counter_entry": cells.read_counters,
    "meter_entry": cells.read_meters,
    "register_entry": cells.read_registers,
    "packet_replication_engine_entry": replication.read_replication,
    "action_profile_member": profiles.read_members,
    "action_profile_group": profiles.read_groups,
    "digest_entry": digests.read_digests,
    "value_set_entry": value_sets.read_value_sets,
}
# What an update finds, where a read with the same key may find more.
_SNAPSHOTS: dict[str, Callable[[Pipeline, Any], Iterator[Any]]] = {
    "table_entry": table_entries.snapshot_entry,
    "direct_counter_entry": direct_resources.snapshot_direct_counter,
    "direct_meter_entry": direct_resources.snapshot_direct_meter,
}


def write(pipeline: Pipeline, update: Any) -> None:
    """Applies one p4.v1.Update, whole or not at all. Raises EntityError."""
    apply(pipeline, update.type, update.entity)


def apply(pipeline: Pipeline, change: int, entity: Any) -> None:
    """Does to a p4.v1.Entity what an update of a type says, whole or not at all. Raises EntityError."""
    for _ in steps(pipeline, change, entity):
        pass


def steps(pipeline: Pipeline, change: int, entity: Any) -> Iterator[None]:
    """As `apply`, in short steps. Raises EntityError in the first one, and then does nothing."""
    if change not in (INSERT, MODIFY, DELETE):
        raise invalid("the update has no type: INSERT, MODIFY or DELETE is wanted")
    kind = entity.WhichOneof("entity")
    if kind is None:
        raise invalid("the update has no entity")
    if kind not in _WRITERS:
        raise EntityError(rpc_code.UNIMPLEMENTED, f"writing {_article(kind)} is not supported")
    pipeline.names.settle()
    yield from _WRITERS[kind](pipeline, change, getattr(entity, kind)) or ()


def read(pipeline: Pipeline, entity: Any) -> Iterator[Any]:
    """The entities (p4.v1.Entity) that a request asks for. Raises EntityError."""
    return (found for found in read_steps(pipeline, entity) if found is not None)


def read_steps(pipeline: Pipeline, entity: Any) -> Iterator[Any]:
    """As `read`, in short steps: None where there is nothing yet. The state may change between them."""
    kind = entity.WhichOneof("entity")
    if kind is None:
        raise invalid("the request has no entity")
    if kind == "extern_entry" and not entity.extern_entry.extern_type_id:
        return  # Every entity of a kind that no pipeline here can have: there are none.
    if kind not in _READERS:
        raise EntityError(rpc_code.UNIMPLEMENTED, f"reading {_article(kind)} is not supported")
    pipeline.names.settle()
    for message in _READERS[kind](pipeline, getattr(entity, kind)):
        yield None if message is None else p4r.Entity(**{kind: message})


def inverse(pipeline: Pipeline, update: Any) -> list[tuple[int, Any]]:
    """What undoes an update that has not been applied yet, for `apply`; nothing if it can't be applied."""
    kind = update.entity.WhichOneof("entity")
    if kind not in _WRITERS or update.type not in (INSERT, MODIFY, DELETE):
        return []
    look = _SNAPSHOTS.get(kind) or _READERS[kind]
    try:
        before = list(look(pipeline, getattr(update.entity, kind)))
    except EntityError:
        return []
    if update.type == INSERT:
        return [(DELETE, update.entity)]
    back = INSERT if update.type == DELETE else MODIFY
    return [(back, p4r.Entity(**{kind: item})) for item in before if item is not None]


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
