# SPDX-License-Identifier: Apache-2.0
"""Members and groups of action profiles, and what entries take from them, as P4Runtime writes and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r, rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.ir.tables import ActionCall
from gradlane_switch.p4info.bytestrings import encode, invalid
from gradlane_switch.p4info.schema import ProfileSchema, TableSchema
from gradlane_switch.p4runtime.entities.actions import decode_action, encode_action
from gradlane_switch.p4runtime.entities.updates import DELETE, INSERT, check_existence, find, select
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.profiles import (
    ActionSet,
    Chosen,
    GroupMember,
    GroupOf,
    MemberOf,
    ProfileGroup,
    ProfileState,
    Watch,
    WeightedAction,
)


def _profile(pipeline: Pipeline, number: int) -> tuple[ProfileSchema, ProfileState]:
    schema = find(pipeline.schema.profiles, "action profile", number)
    return schema, pipeline.state.profiles[schema.index]


def _check_mode(schema: ProfileSchema, profile: ProfileState) -> None:
    if profile.sets:
        raise invalid(f"{schema.name}: entries have action sets of their own, so it can't have members and groups too")


# Members


def write_member(pipeline: Pipeline, kind: int, message: Any) -> None:
    """Applies an update of a member. Raises EntityError."""
    schema, profile = _profile(pipeline, message.action_profile_id)
    number = message.member_id
    if not number:
        raise invalid(f"{schema.name}: a member's id is not 0")
    check_existence(kind, f"member {number} of {schema.name}", exists=number in profile.members)
    if kind == DELETE:
        uses = profile.member_uses(number)
        if uses:
            text = f"member {number} of {schema.name} is used by {uses} entries and groups"
            raise EntityError(rpc_code.FAILED_PRECONDITION, text)
        with pipeline.references.member(profile.members[number], None):
            profile.delete_member(number)
        return
    call = decode_action(schema.table, p4r.TableAction(action=message.action), default=False)
    if kind == INSERT:
        _check_mode(schema, profile)
        _check_room(schema, profile, 1)
        with pipeline.references.member(None, call):
            profile.insert_member(number, call)
    else:
        with pipeline.references.member(profile.members[number], call):
            profile.modify_member(number, call)


def _check_room(schema: ProfileSchema, profile: ProfileState, more: int) -> None:
    if schema.size and profile.member_count + more > schema.size:
        raise EntityError(rpc_code.RESOURCE_EXHAUSTED, f"{schema.name} is full: {schema.size} members")


def read_members(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The members that a request asks for. Raises EntityError."""
    for schema, profile in _selected(pipeline, request.action_profile_id):
        for number, call in list(profile.members.items()):
            if request.member_id in (0, number):
                yield p4r.ActionProfileMember(
                    action_profile_id=schema.id,
                    member_id=number,
                    action=encode_action(schema.table, call).action,
                )


def _selected(pipeline: Pipeline, number: int) -> Iterator[tuple[ProfileSchema, ProfileState]]:
    for schema in select(pipeline.schema.profiles, "action profile", number):
        yield schema, pipeline.state.profiles[schema.index]


# Groups


def write_group(pipeline: Pipeline, kind: int, message: Any) -> None:
    """Applies an update of a group. Raises EntityError."""
    schema, profile = _profile(pipeline, message.action_profile_id)
    if not schema.with_selector:
        raise invalid(f"{schema.name} has no selector, so it has no groups")
    number = message.group_id
    if not number:
        raise invalid(f"{schema.name}: a group's id is not 0")
    what = f"group {number} of {schema.name}"
    check_existence(kind, what, exists=number in profile.groups)
    if kind == DELETE:
        uses = profile.group_uses(number)
        if uses:
            raise EntityError(rpc_code.FAILED_PRECONDITION, f"{what} is used by {uses} entries")
        profile.delete_group(number)
        return
    _check_mode(schema, profile)
    group = _decode_group(pipeline, schema, profile, what, message)
    if kind != INSERT and group.max_size != profile.groups[number].max_size:
        raise invalid(f"{what}: max_size can't change from {profile.groups[number].max_size} to {group.max_size}")
    if kind != INSERT and not group.members and profile.group_uses(number):
        raise invalid(f"{what} is used by entries, so it can't become empty")
    profile.set_group(number, group)


def _decode_group(
    pipeline: Pipeline, schema: ProfileSchema, profile: ProfileState, what: str, message: Any
) -> ProfileGroup:
    if message.max_size < 0 or (schema.max_group_size and message.max_size > schema.max_group_size):
        raise invalid(f"{what}: max_size = {message.max_size} is not in 0..{schema.max_group_size}")
    members: list[GroupMember] = []
    for item in message.members:
        if item.member_id not in profile.members:
            raise EntityError(rpc_code.NOT_FOUND, f"{what}: there is no member {item.member_id}")
        if any(other.member == item.member_id for other in members):
            raise invalid(f"{what} has member {item.member_id} twice: give it a weight instead")
        members.append(GroupMember(item.member_id, _weight(what, item), _watch(pipeline, what, item)))
    group = ProfileGroup(tuple(members), message.max_size)
    _check_size(schema, what, group.size, message.max_size)
    return group


def _weight(what: str, item: Any) -> int:
    """The weight of a member or an action. Raises EntityError if it is not above 0."""
    if item.weight <= 0:
        raise invalid(f"{what}: a weight of {item.weight} is not above 0")
    return item.weight


def _watch(pipeline: Pipeline, what: str, item: Any) -> Watch | None:
    """The port that a member or an action depends on. Raises EntityError if there is no such port."""
    kind = item.WhichOneof("watch_kind")
    if kind is None or (kind == "watch_port" and not item.watch_port):
        return None
    port = item.watch if kind == "watch" else int.from_bytes(item.watch_port, "big")
    if not pipeline.state.has_port(port):
        raise invalid(f"{what}: there is no port {port} to watch")
    return Watch(port, kind == "watch")


def _add_watch(message: Any, watch: Watch | None) -> None:
    if watch is not None and watch.numbered:
        message.watch = watch.port
    elif watch is not None:
        message.watch_port = encode(watch.port)


def _check_size(schema: ProfileSchema, what: str, size: int, own: int = 0) -> None:
    limit = own or schema.max_group_size
    if limit and size > limit:
        raise EntityError(rpc_code.RESOURCE_EXHAUSTED, f"{what}: the weights add up to {size}, and at most {limit} fit")


def read_groups(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The groups that a request asks for. Raises EntityError."""
    for schema, profile in _selected(pipeline, request.action_profile_id):
        for number, group in list(profile.groups.items()):
            if request.group_id in (0, number):
                message = p4r.ActionProfileGroup(action_profile_id=schema.id, group_id=number, max_size=group.max_size)
                for item in group.members:
                    _add_watch(message.members.add(member_id=item.member, weight=item.weight), item.watch)
                yield message


# Entries


def decode_entry_action(pipeline: Pipeline, schema: TableSchema, message: Any) -> ActionCall | Chosen:
    """What an entry does: an action, or where the table has a profile, what it takes from that. Raises EntityError."""
    if schema.profile is None:
        return decode_action(schema, message, default=False)
    profile_schema, profile = _profile(pipeline, schema.profile)
    kind = message.WhichOneof("type")
    if kind == "action_profile_member_id":
        number = message.action_profile_member_id
        if number not in profile.members:
            raise EntityError(rpc_code.NOT_FOUND, f"there is no member {number} of {profile_schema.name}")
        return MemberOf(number)
    if not profile_schema.with_selector:
        raise invalid(f"{schema.name}: an entry needs an action_profile_member_id of {profile_schema.name}, not {kind}")
    if kind == "action_profile_group_id":
        number = message.action_profile_group_id
        if number not in profile.groups:
            raise EntityError(rpc_code.NOT_FOUND, f"there is no group {number} of {profile_schema.name}")
        if not profile.groups[number].members:
            raise invalid(f"group {number} of {profile_schema.name} is empty, so no entry can use it")
        return GroupOf(number)
    if kind == "action_profile_action_set":
        return _decode_set(pipeline, schema, profile_schema, profile, message.action_profile_action_set)
    raise invalid(f"{schema.name}: an entry needs a member, a group or a set of actions of {profile_schema.name}")


def _decode_set(
    pipeline: Pipeline, schema: TableSchema, profile_schema: ProfileSchema, profile: ProfileState, message: Any
) -> ActionSet:
    what = f"{schema.name}: an action set"
    if profile.members or profile.groups:
        raise invalid(f"{profile_schema.name} has members and groups, so entries can't have action sets of their own")
    actions: list[WeightedAction] = []
    for item in message.action_profile_actions:
        call = decode_action(schema, p4r.TableAction(action=item.action), default=False)
        actions.append(WeightedAction(call, _weight(what, item), _watch(pipeline, what, item)))
    if not actions:
        raise invalid(f"{what} has no actions")
    _check_size(profile_schema, what, sum(item.weight for item in actions))
    _check_room(profile_schema, profile, len(actions))
    return ActionSet(tuple(actions))


def encode_entry_action(schema: TableSchema, call: ActionCall | Chosen) -> Any:
    """The p4.v1.TableAction of an entry, as it was written, values in canonical form."""
    match call:
        case MemberOf(number):
            return p4r.TableAction(action_profile_member_id=number)
        case GroupOf(number):
            return p4r.TableAction(action_profile_group_id=number)
        case ActionSet(actions):
            message = p4r.TableAction()
            message.action_profile_action_set.SetInParent()
            for item in actions:
                added = message.action_profile_action_set.action_profile_actions.add(weight=item.weight)
                added.action.CopyFrom(encode_action(schema, item.call).action)
                _add_watch(added, item.watch)
            return message
        case ActionCall():
            return encode_action(schema, call)
