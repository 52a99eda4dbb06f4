# SPDX-License-Identifier: Apache-2.0
"""Members of parser value sets, as P4Runtime writes and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r, rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.p4runtime.entities.match import decode_match, encode_match
from gradlane_switch.p4runtime.entities.updates import find, modify_only, select
from gradlane_switch.state.pipeline import Pipeline


def write_value_set(pipeline: Pipeline, kind: int, message: Any) -> None:
    """Replaces the members of a value set. Raises EntityError."""
    modify_only(kind, "value set")
    schema = find(pipeline.schema.value_sets, "value set", message.value_set_id)
    if len(message.members) > schema.size:
        text = f"{schema.name} has room for {schema.size} members, not for {len(message.members)}"
        raise EntityError(rpc_code.RESOURCE_EXHAUSTED, text)
    members = tuple(decode_match(schema, item.match) for item in message.members)
    if len(set(members)) != len(members):
        raise EntityError(rpc_code.ALREADY_EXISTS, f"{schema.name}: a member is given twice")
    pipeline.state.value_sets[schema.index].replace(members)


def changed(pipeline: Pipeline, message: Any) -> int:
    """How many members an update may change; 0 if there is no such value set."""
    schema = pipeline.schema.value_sets.get(message.value_set_id)
    present = 0 if schema is None else len(pipeline.state.value_sets[schema.index].members)
    return len(message.members) + present


def read_value_sets(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The value sets that a request asks for; id 0: all. Raises EntityError."""
    for schema in select(pipeline.schema.value_sets, "value set", request.value_set_id):
        message = p4r.ValueSetEntry(value_set_id=schema.id)
        for member in pipeline.state.value_sets[schema.index].members:
            message.members.add(match=encode_match(schema, member))
        yield message
