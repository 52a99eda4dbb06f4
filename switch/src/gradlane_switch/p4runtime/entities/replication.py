# SPDX-License-Identifier: Apache-2.0
"""Multicast groups and clone sessions, as P4Runtime writes and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r, rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.ir.program import DROP_PORT
from gradlane_switch.p4info.bytestrings import encode, invalid
from gradlane_switch.p4runtime.entities.updates import DELETE, check_existence
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.replicas import CloneSession, Group, Replica

_MAX_INSTANCE = (1 << 16) - 1
_MAX_GROUP = (1 << 16) - 1
_MAX_SESSION = (1 << 15) - 1
_MAX_CLASS = 7
_MAX_LENGTH = (1 << 16) - 1


def write_replication(pipeline: Pipeline, kind: int, message: Any) -> None:
    """Applies an update of a multicast group or a clone session. Raises EntityError."""
    which = message.WhichOneof("type")
    if which == "multicast_group_entry":
        _write_group(pipeline, kind, message.multicast_group_entry)
    elif which == "clone_session_entry":
        _write_session(pipeline, kind, message.clone_session_entry)
    else:
        raise invalid("a packet replication engine entry is a multicast group or a clone session")


def _write_group(pipeline: Pipeline, kind: int, group: Any) -> None:
    number = group.multicast_group_id
    what = f"multicast group {number}"
    _check_range(what, number, 1, _MAX_GROUP)
    exists = number in pipeline.state.groups
    check_existence(kind, what, exists=exists)
    made = None if kind == DELETE else Group(_replicas(what, group.replicas), group.metadata)
    with pipeline.references.group(number, old=exists, new=made is not None):
        pipeline.state.set_group(number, made)


def _write_session(pipeline: Pipeline, kind: int, session: Any) -> None:
    number = session.session_id
    what = f"clone session {number}"
    _check_range(what, number, 1, _MAX_SESSION)
    check_existence(kind, what, exists=number in pipeline.state.sessions)
    if kind == DELETE:
        pipeline.state.set_session(number, None)
        return
    length, priority = session.packet_length_bytes, session.class_of_service
    _check_range(f"{what}: class_of_service = {priority}", priority, 0, _MAX_CLASS)
    _check_range(f"{what}: packet_length_bytes = {length}", length, 0, _MAX_LENGTH)
    pipeline.state.set_session(number, CloneSession(_replicas(what, session.replicas), length, priority))


def _check_range(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise invalid(f"{what} is not in {least}..{most}")


def _replicas(what: str, items: Any) -> tuple[Replica, ...]:
    replicas = tuple(_replica(what, item) for item in items)
    if len(set(replicas)) != len(replicas):
        raise invalid(f"{what} has the same (port, instance) twice")
    return replicas


def _replica(what: str, item: Any) -> Replica:
    if item.backup_replicas:
        raise EntityError(rpc_code.UNIMPLEMENTED, f"{what}: backup replicas are not supported")
    numbered = item.WhichOneof("port_kind") == "egress_port"
    if not numbered and not item.port:
        raise invalid(f"{what}: a replica has no port")
    port = item.egress_port if numbered else int.from_bytes(item.port, "big")
    if port >= DROP_PORT:
        raise invalid(f"{what}: {port} is not a port number (0..{DROP_PORT - 1}; v1model drops by {DROP_PORT})")
    if item.instance > _MAX_INSTANCE:
        raise invalid(f"{what}: instance {item.instance} is above {_MAX_INSTANCE}")
    return Replica(port, item.instance, numbered)


def read_replication(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The multicast groups and clone sessions that a request asks for. Raises EntityError."""
    which = request.WhichOneof("type")
    if which in (None, "multicast_group_entry"):
        yield from _read_groups(pipeline, request.multicast_group_entry.multicast_group_id)
    if which in (None, "clone_session_entry"):
        yield from _read_sessions(pipeline, request.clone_session_entry.session_id)


def _read_groups(pipeline: Pipeline, wanted: int) -> Iterator[Any]:
    for number, group in list(pipeline.state.groups.items()):
        if wanted in (0, number):
            message = p4r.PacketReplicationEngineEntry()
            message.multicast_group_entry.multicast_group_id = number
            message.multicast_group_entry.metadata = group.metadata
            _add_replicas(message.multicast_group_entry, group.replicas)
            yield message


def _read_sessions(pipeline: Pipeline, wanted: int) -> Iterator[Any]:
    for number, session in list(pipeline.state.sessions.items()):
        if wanted in (0, number):
            message = p4r.PacketReplicationEngineEntry()
            message.clone_session_entry.session_id = number
            message.clone_session_entry.packet_length_bytes = session.length
            message.clone_session_entry.class_of_service = session.priority
            _add_replicas(message.clone_session_entry, session.replicas)
            yield message


def _add_replicas(message: Any, replicas: tuple[Replica, ...]) -> None:
    for item in replicas:
        replica = message.replicas.add(instance=item.instance)
        if item.numbered:
            replica.egress_port = item.port
        else:
            replica.port = encode(item.port)
