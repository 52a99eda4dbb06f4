# SPDX-License-Identifier: Apache-2.0
"""Entities as bytes, by which what a switch holds is compared with what it should: made once for each entity."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from finsy import P4Schema
from finsy.p4entity import decode_entity
from finsy.proto import p4r

from gradlane_controller.policy import Entity

MAX_KEPT = 1 << 18  # entities; each takes some 700 bytes, and many switches have the same

Key = tuple[object, ...]

Held = Entity | p4r.Entity
"""What a switch holds: as this controller has written it, or as it was read."""


class Coded(NamedTuple):
    """`key` as of `key_of`; `octets` are the same for entities that are equal."""

    key: Key
    octets: bytes

    @property
    def message(self) -> p4r.Entity:
        """For a switch."""
        return p4r.Entity.FromString(self.octets)


class _Question:
    """What an entity is in the program of a switch that speaks some version of P4Runtime. Entities are equal to
    themselves alone: to compare two takes as long as to encode them."""

    __slots__ = ("entity", "schema")

    def __init__(self, schema: P4Schema, entity: Entity) -> None:
        self.schema, self.entity = schema, entity

    def __hash__(self) -> int:
        return id(self.entity)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Question) or other.entity is not self.entity:
            return False
        one, two = self.schema, other.schema
        return one is two or (one.p4cookie, one.p4runtime_version) == (two.p4cookie, two.p4runtime_version)


def encode(schema: P4Schema, entities: Iterable[Entity]) -> dict[Key, Coded]:
    """By key, but for what is there without anyone having written it."""
    coded = (_encode(_Question(schema, entity)) for entity in entities)
    return {it.key: it for it in coded if it is not None}


def encode_held(schema: P4Schema, entities: Iterable[Held], wanted: Mapping[Key, Coded]) -> dict[Key, Coded]:
    """As `encode`. Most of what was read is `wanted`, and then known by its bytes alone.

    What can't be decoded raises whatever finsy raises.
    """
    by_octets = {it.octets: it for it in wanted.values()}
    found: dict[Key, Coded] = {}
    for entity in entities:
        if not isinstance(entity, p4r.Entity):
            coded = _encode(_Question(schema, entity))
        elif _is_state(entity):
            octets = entity.SerializeToString(deterministic=True)
            coded = by_octets.get(octets) or _code(decode_entity(entity, schema).encode(schema))
        else:
            coded = None
        if coded is not None:
            found[coded.key] = coded
    return found


@lru_cache(maxsize=MAX_KEPT)
def _encode(it: _Question) -> Coded | None:
    return _code(it.entity.encode(it.schema))


def _code(message: p4r.Entity) -> Coded | None:
    """Of a message that nobody else has, which it changes. None: it is there without anyone having written it."""
    if not _is_state(message):
        return None
    _sort(message)
    return Coded(key_of(message), message.SerializeToString(deterministic=True))


def _is_state(message: p4r.Entity) -> bool:
    """Not a meter at its default, nor a default action."""
    if message.HasField("meter_entry"):
        return message.meter_entry.HasField("config")
    return not message.table_entry.is_default_action


def key_of(message: p4r.Entity) -> Key:
    """Of an entity: the same for those of which a switch has only one at a time."""
    if message.HasField("table_entry"):
        entry = message.table_entry
        match = sorted((field.field_id, field.SerializeToString(deterministic=True)) for field in entry.match)
        return ("table", entry.table_id, entry.priority, tuple(match))
    if message.HasField("meter_entry"):
        return ("meter", message.meter_entry.meter_id, message.meter_entry.index.index)
    if message.HasField("digest_entry"):
        return ("digest", message.digest_entry.digest_id)
    return ("group", message.packet_replication_engine_entry.multicast_group_entry.multicast_group_id)


def _sort(message: p4r.Entity) -> None:
    """Puts its lists into a fixed order."""
    if message.HasField("table_entry"):
        message.table_entry.match.sort(key=attrgetter("field_id"))
        action = message.table_entry.action
        for call in (action.action, *(item.action for item in action.action_profile_action_set.action_profile_actions)):
            call.params.sort(key=attrgetter("param_id"))
    elif message.HasField("packet_replication_engine_entry"):
        group = message.packet_replication_engine_entry.multicast_group_entry
        group.replicas.sort(key=lambda replica: replica.SerializeToString(deterministic=True))
