# SPDX-License-Identifier: Apache-2.0
"""Multicast groups, as P4Runtime writes and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r, rpc_code

from gradlane_switch.bytestrings import encode, invalid
from gradlane_switch.errors import EntityError
from gradlane_switch.pipeline import Pipeline
from gradlane_switch.state import Group, Replica
from gradlane_switch.updates import DELETE, INSERT

_MAX_INSTANCE = (1 << 16) - 1
_MAX_GROUP = (1 << 16) - 1


def write_replication(pipeline: Pipeline, kind: int, message: Any) -> None:
    """Applies an update of a multicast group. Raises EntityError."""
    if message.WhichOneof("type") != "multicast_group_entry":
        raise EntityError(rpc_code.UNIMPLEMENTED, "clone sessions are not supported")
    group = message.multicast_group_entry
    number = group.multicast_group_id
    if not 0 < number <= _MAX_GROUP:
        raise invalid(f"multicast group {number} is not in 1..{_MAX_GROUP}")
    exists = number in pipeline.state.groups
    if kind == INSERT and exists:
        raise EntityError(rpc_code.ALREADY_EXISTS, f"multicast group {number} exists already")
    if kind != INSERT and not exists:
        raise EntityError(rpc_code.NOT_FOUND, f"there is no multicast group {number}")
    if kind == DELETE:
        pipeline.state.set_group(number, None)
        return
    replicas = tuple(_replica(number, item) for item in group.replicas)
    if len(set(replicas)) != len(replicas):
        raise invalid(f"multicast group {number} has the same (port, instance) twice")
    pipeline.state.set_group(number, Group(replicas, group.metadata))


def _replica(number: int, item: Any) -> Replica:
    if item.backup_replicas:
        raise EntityError(rpc_code.UNIMPLEMENTED, f"multicast group {number}: backup replicas are not supported")
    port = int.from_bytes(item.port, "big") if item.WhichOneof("port_kind") == "port" else item.egress_port
    if not 0 < port < 511:
        raise invalid(f"multicast group {number}: {port} is not a port number (1..510)")
    if item.instance > _MAX_INSTANCE:
        raise invalid(f"multicast group {number}: instance {item.instance} is above {_MAX_INSTANCE}")
    return Replica(port, item.instance)


def read_replication(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The multicast groups that a request asks for. Raises EntityError."""
    if request.HasField("clone_session_entry") and request.clone_session_entry.session_id == 0:
        return  # Every clone session: there are none.
    if request.WhichOneof("type") != "multicast_group_entry":
        raise EntityError(rpc_code.UNIMPLEMENTED, "clone sessions are not supported")
    wanted = request.multicast_group_entry.multicast_group_id
    for number, group in list(pipeline.state.groups.items()):
        if wanted in (0, number):
            message = p4r.PacketReplicationEngineEntry()
            message.multicast_group_entry.multicast_group_id = number
            message.multicast_group_entry.metadata = group.metadata
            for item in group.replicas:
                message.multicast_group_entry.replicas.add(port=encode(item.port), instance=item.instance)
            yield message
