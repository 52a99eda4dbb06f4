# SPDX-License-Identifier: Apache-2.0
"""What the control plane writes, as the programs' TOML files have it: lists of entities, by their kinds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from finsy import (
    P4ActionProfileGroup,
    P4ActionProfileMember,
    P4CloneSessionEntry,
    P4CounterData,
    P4CounterEntry,
    P4DigestEntry,
    P4DirectCounterEntry,
    P4DirectMeterEntry,
    P4Member,
    P4MeterConfig,
    P4MeterEntry,
    P4MulticastGroupEntry,
    P4RegisterEntry,
    P4Schema,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
    P4ValueSetEntry,
)
from finsy.p4entity import P4IndirectAction, P4ValueSetMember
from finsy.proto import p4r

KINDS = {
    "member",
    "group",
    "multicast",
    "clone",
    "default",
    "entry",
    "meter",
    "direct_meter",
    "counter",
    "direct_counter",
    "digest",
    "value_set",
    "register",
}
_VERBS = {"insert": p4r.Update.INSERT, "modify": p4r.Update.MODIFY, "delete": p4r.Update.DELETE}


@dataclass(frozen=True)
class Writes:
    """What is written at one time.

    `value_sets`: the members of each, as the values of its fields. `registers`: cells as (register, index, value).
    BMv2's P4Runtime knows neither, so they are apart.
    """

    updates: tuple[p4r.Update, ...] = ()
    value_sets: Mapping[str, list[tuple[int, ...]]] = field(default_factory=dict[str, list[tuple[int, ...]]])
    registers: tuple[tuple[str, int, int], ...] = ()

    def all_updates(self, schema: P4Schema) -> list[p4r.Update]:
        """Everything as P4Runtime has it."""
        entities: list[Any] = []
        for name, members in self.value_sets.items():
            fields = [item.alias for item in schema.value_sets[name].match]
            made = [P4ValueSetMember(dict(zip(fields, member, strict=True))) for member in members]
            entities.append(P4ValueSetEntry(name, members=made))
        entities += [P4RegisterEntry(name, index=index, data=value) for name, index, value in self.registers]
        modify = p4r.Update.MODIFY
        return [*self.updates, *(p4r.Update(type=modify, entity=entity.encode(schema)) for entity in entities)]


def writes(settings: Mapping[str, Any], schema: P4Schema, verb: str = "insert") -> Writes:
    """What a TOML table asks for. Entities that can only be modified are, whatever the verb."""
    updates = [
        p4r.Update(type=p4r.Update.MODIFY if modify_only else _VERBS[verb], entity=entity.encode(schema))
        for modify_only, entity in _entities(settings)
    ]
    if verb == "delete":
        updates.reverse()  # what refers to something goes before it
    value_sets = {item["name"]: [tuple(member) for member in item["members"]] for item in settings.get("value_set", [])}
    registers = tuple((item["name"], item["index"], item["value"]) for item in settings.get("register", []))
    return Writes(tuple(updates), value_sets, registers)


def _entities(settings: Mapping[str, Any]) -> Iterator[tuple[bool, Any]]:
    """Whether it can only be modified, and the entity, in an order in which they can be inserted."""
    for item in settings.get("member", []):
        yield False, P4ActionProfileMember(item["profile"], member_id=item["id"], action=_action(item))
    for item in settings.get("group", []):
        members = [P4Member(member, weight=weight) for member, weight in item.get("members", [])]
        yield False, P4ActionProfileGroup(item["profile"], group_id=item["id"], max_size=8, members=members)
    for item in settings.get("multicast", []):
        yield False, P4MulticastGroupEntry(item["id"], replicas=_replicas(item))
    for item in settings.get("clone", []):
        length = item.get("length", 0)
        yield False, P4CloneSessionEntry(item["id"], packet_length_bytes=length, replicas=_replicas(item))
    for item in settings.get("default", []):
        yield True, P4TableEntry(item["table"], action=_action(item), is_default_action=True)
    for item in settings.get("entry", []):
        yield False, _entry(item, _action(item))
    for item in settings.get("meter", []):
        yield True, P4MeterEntry(item["name"], index=item["index"], config=_rates(item["rates"]))
    for item in settings.get("direct_meter", []):
        yield True, P4DirectMeterEntry(table_entry=_entry(item), config=_rates(item["rates"]))
    for item in settings.get("counter", []):
        yield True, P4CounterEntry(item["name"], index=item["index"], data=_counted(item))
    for item in settings.get("direct_counter", []):
        yield True, P4DirectCounterEntry(item["counter"], table_entry=_entry(item), data=_counted(item))
    for name in settings.get("digest", []):
        yield False, P4DigestEntry(name, max_list_size=1)


def _entry(item: Mapping[str, Any], action: Any = None) -> P4TableEntry:
    return P4TableEntry(
        item["table"], match=P4TableMatch(item["match"]), action=action, priority=item.get("priority", 0)
    )


def _replicas(item: Mapping[str, Any]) -> list[tuple[int, int]]:
    return [(port, instance) for port, instance in item.get("replicas", [])]


def _action(item: Mapping[str, Any]) -> Any:
    if "member_id" in item:
        return P4IndirectAction(member_id=item["member_id"])
    if "group_id" in item:
        return P4IndirectAction(group_id=item["group_id"])
    if "one_shot" in item:
        return P4IndirectAction([(weight, P4TableAction(name, **args)) for weight, name, args in item["one_shot"]])
    return P4TableAction(item["action"], **item.get("args", {})) if "action" in item else None


def _rates(numbers: Sequence[int]) -> P4MeterConfig:
    cir, cburst, pir, pburst = numbers
    return P4MeterConfig(cir=cir, cburst=cburst, pir=pir, pburst=pburst)


def _counted(item: Mapping[str, Any]) -> P4CounterData:
    return P4CounterData(packet_count=item.get("packets", 0), byte_count=item.get("bytes", 0))
