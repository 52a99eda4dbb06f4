# SPDX-License-Identifier: Apache-2.0
"""What P4Runtime allows of table entries, and what reads with filters give."""

import json
from typing import Any

import pytest
from finsy.proto import p4r, rpc_code

from gradlane_switch import EntityError, Switch
from gradlane_switch.p4runtime.reconcile import reconcile
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock
from tests.gradlane_switch.small_programs import (
    SEND,
    Json,
    action,
    assign,
    encode,
    entry,
    field,
    p4info,
    param,
    program,
    table,
)

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
TABLE, COUNTED = 0x02000001, 0x02000002
HIT, MISS = 0x01000001, 0x01000002


def document(*, const_default: bool = False, entries: list[Json] | None = None) -> Json:
    """A table `t` with a ternary and an exact field, and a table `u` with an lpm field and a direct counter."""
    hit = action(0, "hit", [16], assign(field("h", "out"), param(0)), SEND)
    miss = action(1, "miss", [], SEND)
    keys = [("ternary", field("h", "a")), ("exact", field("h", "b"))]
    tables = [
        table(0, "t", keys, [hit, miss], miss, following="u"),
        table(1, "u", [("lpm", field("h", "c"))], [hit, miss], hit, (7,)) | {"with_counters": True},
    ]
    tables[0]["default_entry"]["action_entry_const"] = const_default
    if entries is not None:
        tables[0]["entries"] = entries
    return program([("a", 16), ("b", 8), ("c", 32), ("out", 16)], [hit, miss], tables)


def make(source: Json, *, initial: bool = False) -> Switch:
    info = p4info(source)
    counter = info.direct_counters.add(direct_table_id=COUNTED)
    counter.preamble.id, counter.preamble.name = 0x13000001, "u_counter"
    info.tables[1].direct_resource_ids.append(0x13000001)
    info.tables[0].action_refs[1].scope = 2  # DEFAULT_ONLY
    info.tables[0].has_initial_entries = initial
    return Switch(Pipeline(json.dumps(source).encode(), info, Lock()))


@pytest.fixture
def switch() -> Switch:
    return make(document())


def ternary(value: int, mask: int) -> Any:
    return p4r.FieldMatch(field_id=1, ternary=p4r.FieldMatch.Ternary(value=encode(value), mask=encode(mask)))


def exact(value: int) -> Any:
    return p4r.FieldMatch(field_id=2, exact=p4r.FieldMatch.Exact(value=encode(value)))


def row(priority: int = 1, result: int = 1, *match: Any, **parts: Any) -> Any:
    message = entry(1, list(match) or [ternary(0x10, 0xF0), exact(1)], 1, (result,), priority)
    for name, value in parts.items():
        setattr(message.table_entry, name, value)
    return message


def route(network: int, length: int, result: int = 1) -> Any:
    lpm = p4r.FieldMatch(field_id=1, lpm=p4r.FieldMatch.LPM(value=encode(network), prefix_len=length))
    return entry(2, [lpm] if length else [], 1, (result,))


def update(switch: Switch, kind: int, entity: Any) -> None:
    switch.write(p4r.Update(type=kind, entity=entity))


def refused(switch: Switch, kind: int, entity: Any) -> tuple[int, str]:
    with pytest.raises(EntityError) as caught:
        update(switch, kind, entity)
    return caught.value.code, str(caught.value)


def ask(switch: Switch, **parts: Any) -> list[Any]:
    return switch.read(p4r.Entity(table_entry=p4r.TableEntry(**parts)))


def unreadable(switch: Switch, **parts: Any) -> tuple[int, str]:
    with pytest.raises(EntityError) as caught:
        ask(switch, **parts)
    return caught.value.code, str(caught.value)


# Match fields


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ([exact(1)], None, ""),
        ([ternary(0x10, 0xF0)], rpc_code.INVALID_ARGUMENT, "t.k1 is missing: an exact field has no wildcard"),
        ([ternary(0, 0), exact(1)], rpc_code.INVALID_ARGUMENT, "the mask is zero (leave the field out to match all)"),
        ([ternary(0x11, 0xF0), exact(1)], rpc_code.INVALID_ARGUMENT, "0x11 has bits outside its mask 0xf0"),
        ([ternary(0x1_0000, 0x1_0000), exact(1)], rpc_code.OUT_OF_RANGE, "t.k0: 0x10000 does not fit in 16 bits"),
        ([exact(1), exact(1)], rpc_code.INVALID_ARGUMENT, "t.k1 is given twice"),
        (
            [exact(1), p4r.FieldMatch(field_id=9)],
            rpc_code.INVALID_ARGUMENT,
            "t has no match field 9: it has 1 (k0), 2 (k1)",
        ),
        (
            [exact(1), p4r.FieldMatch(field_id=1)],
            rpc_code.INVALID_ARGUMENT,
            "t.k0 is matched as ternary, not as nothing",
        ),
    ],
)
def test_match_fields(switch: Switch, fields: list[Any], code: int | None, text: str) -> None:
    if code is None:
        update(switch, INSERT, row(1, 1, *fields))
        return
    found = refused(switch, INSERT, row(1, 1, *fields))
    assert found[0] == code
    assert text in found[1]
    assert ask(switch) == []


@pytest.mark.parametrize(("priority", "text"), [(0, "needs a priority above 0"), (-1, "priority -1 is negative")])
def test_an_entry_with_a_ternary_field_needs_a_priority(switch: Switch, priority: int, text: str) -> None:
    assert text in refused(switch, INSERT, row(priority))[1]


def test_the_same_match_with_another_priority_is_another_entry(switch: Switch) -> None:
    update(switch, INSERT, row(1))
    update(switch, INSERT, row(2))
    assert refused(switch, INSERT, row(2, 9))[0] == rpc_code.ALREADY_EXISTS
    update(switch, DELETE, row(1))
    assert ask(switch) == [row(2)]


# Updates


def test_a_delete_looks_at_nothing_but_the_key(switch: Switch) -> None:
    update(switch, INSERT, row())
    whole = row(idle_timeout_ns=5, metadata=b"x")
    whole.table_entry.action.action.action_id = 99
    whole.table_entry.counter_data.packet_count = -1
    update(switch, DELETE, whole)
    assert ask(switch) == []


def test_a_modify_without_an_action_keeps_the_action(switch: Switch) -> None:
    update(switch, INSERT, row(1, 5, metadata=b"m"))
    keyed = row()
    keyed.table_entry.ClearField("action")
    update(switch, MODIFY, keyed)
    assert ask(switch) == [row(1, 5, metadata=b"m")]
    assert (
        refused(switch, INSERT, p4r.Entity(table_entry=p4r.TableEntry(table_id=COUNTED)))[0]
        == rpc_code.INVALID_ARGUMENT
    )


def test_an_update_with_one_bad_part_does_nothing(switch: Switch) -> None:
    bad = route(1 << 24, 8)
    bad.table_entry.counter_data.packet_count = -1
    assert refused(switch, INSERT, bad) == (rpc_code.INVALID_ARGUMENT, "a counter can't be negative")
    default = p4r.TableEntry(table_id=COUNTED, is_default_action=True, action=bad.table_entry.action)
    default.counter_data.byte_count = -1
    assert refused(switch, MODIFY, p4r.Entity(table_entry=default))[0] == rpc_code.INVALID_ARGUMENT
    assert ask(switch) == []
    assert ask(switch, table_id=COUNTED, is_default_action=True)[0].table_entry.action.action.params[0].value == b"\x07"


def test_resources_that_a_table_lacks_are_refused_by_name(switch: Switch) -> None:
    for name, text in (
        ("meter_config", "t has no direct meter"),
        ("counter_data", "t has no direct counter"),
        ("time_since_last_hit", "t: time_since_last_hit can only be read"),
    ):
        message = row()
        getattr(message.table_entry, name).SetInParent()
        assert text in refused(switch, INSERT, message)[1]
    assert "t has no idle timeout" in refused(switch, INSERT, row(idle_timeout_ns=1))[1]


# Default entries


def test_a_default_entry_is_modified_and_reset(switch: Switch) -> None:
    [initial] = ask(switch, table_id=COUNTED, is_default_action=True)
    changed = p4r.TableEntry(table_id=COUNTED, is_default_action=True, metadata=b"m", controller_metadata=3)
    changed.action.action.action_id = MISS
    update(switch, MODIFY, p4r.Entity(table_entry=changed))
    counted = p4r.DirectCounterEntry(table_entry=changed, data=p4r.CounterData(packet_count=5))
    update(switch, MODIFY, p4r.Entity(direct_counter_entry=counted))
    assert ask(switch, table_id=COUNTED, is_default_action=True)[0].table_entry == changed
    update(switch, MODIFY, p4r.Entity(table_entry=p4r.TableEntry(table_id=COUNTED, is_default_action=True)))
    assert ask(switch, table_id=COUNTED, is_default_action=True) == [initial]
    [reset] = ask(switch, table_id=COUNTED, is_default_action=True, counter_data=p4r.CounterData())
    assert reset.table_entry.counter_data == p4r.CounterData()


def test_what_a_default_entry_can_not_have(switch: Switch) -> None:
    good = p4r.TableEntry(table_id=TABLE, is_default_action=True)
    good.action.action.action_id = MISS
    for kind in (INSERT, DELETE):
        assert refused(switch, kind, p4r.Entity(table_entry=good))[0] == rpc_code.INVALID_ARGUMENT
    for name, value in (("priority", 1), ("idle_timeout_ns", 1)):
        bad = p4r.TableEntry()
        bad.CopyFrom(good)
        setattr(bad, name, value)
        assert refused(switch, MODIFY, p4r.Entity(table_entry=bad))[0] == rpc_code.INVALID_ARGUMENT
    bad.CopyFrom(good)
    bad.match.append(exact(1))
    assert refused(switch, MODIFY, p4r.Entity(table_entry=bad))[0] == rpc_code.INVALID_ARGUMENT
    assert unreadable(switch, table_id=TABLE, is_default_action=True, priority=1)[0] == rpc_code.INVALID_ARGUMENT


def test_an_action_keeps_to_its_scope(switch: Switch) -> None:
    message = row()
    message.table_entry.action.CopyFrom(p4r.TableAction(action=p4r.Action(action_id=MISS)))
    code, text = refused(switch, INSERT, message)
    assert (code, text) == (rpc_code.PERMISSION_DENIED, "miss is not allowed in entries of t")
    message.table_entry.action.action.action_id = 5
    assert refused(switch, INSERT, message) == (
        rpc_code.INVALID_ARGUMENT,
        "t has no action 0x5: it has hit (0x1000001), miss (0x1000002)",
    )


def test_a_constant_default_entry_is_read_only() -> None:
    switch = make(document(const_default=True))
    default = p4r.TableEntry(table_id=TABLE, is_default_action=True)
    assert refused(switch, MODIFY, p4r.Entity(table_entry=default)) == (
        rpc_code.PERMISSION_DENIED,
        "the default entry of t is constant",
    )
    assert ask(switch, table_id=TABLE, is_default_action=True)[0].table_entry.is_const


# Entries of the program

ENTRIES = [
    {
        "match_key": [{"match_type": "ternary", "key": key, "mask": "0xffff"}, {"match_type": "exact", "key": "0x1"}],
        "action_entry": {"action_id": 0, "action_data": ["0x5"]},
        "priority": number,
    }
    for number, key in ((1, "0x1"), (2, "0x2"))
]


def test_entries_of_the_program_are_read_in_the_order_of_their_priorities() -> None:
    switch = make(document(entries=ENTRIES))
    found = ask(switch)
    assert [(item.table_entry.priority, item.table_entry.is_const) for item in found] == [(2, True), (1, True)]
    assert found[0].table_entry.match == [ternary(1, 0xFFFF), exact(1)]


def test_a_constant_table_takes_no_updates_but_of_its_default_entry() -> None:
    switch = make(document(entries=ENTRIES))
    [first, _] = ask(switch)
    for kind in (MODIFY, DELETE):
        assert refused(switch, kind, first)[0] == rpc_code.PERMISSION_DENIED
    assert refused(switch, INSERT, row())[0] == rpc_code.PERMISSION_DENIED
    first.table_entry.ClearField("action")
    update(switch, MODIFY, first)
    assert "no direct counter" in refused(switch, MODIFY, with_counter(first))[1]
    default = p4r.TableEntry(table_id=TABLE, is_default_action=True)
    default.action.action.action_id = HIT
    default.action.action.params.add(param_id=1, value=b"\x01")
    update(switch, MODIFY, p4r.Entity(table_entry=default))


def test_entries_that_a_table_only_begins_with_are_like_any_others() -> None:
    switch = make(document(entries=ENTRIES), initial=True)
    first, second = ask(switch)
    assert not first.table_entry.is_const
    first.table_entry.action.action.params[0].value = b"\x09"
    update(switch, MODIFY, first)
    update(switch, DELETE, second)
    update(switch, INSERT, row())
    assert ask(switch) == [first, row()]
    after = make(document(entries=ENTRIES), initial=True)
    reconcile(switch.pipeline, after.pipeline)
    assert ask(after) == [first, row()]


def with_counter(entity: Any) -> Any:
    copy = p4r.Entity()
    copy.CopyFrom(entity)
    copy.table_entry.counter_data.packet_count = 1
    return copy


# Reads


@pytest.fixture
def full(switch: Switch) -> Switch:
    for number, priority in enumerate((1, 1, 2, 3)):
        update(switch, INSERT, row(priority, number, ternary(number, 0xFF), exact(1)))
    update(switch, INSERT, row(9, 9, ternary(0, 0xFF), exact(1), metadata=b"m", controller_metadata=4))
    update(switch, INSERT, route(0, 0))
    update(switch, INSERT, route(1 << 24, 8))
    return switch


def test_reads_are_narrowed_by_each_field(full: Switch) -> None:
    def results(**parts: Any) -> list[int]:
        return [item.table_entry.action.action.params[0].value[0] for item in ask(full, **parts)]

    assert len(ask(full)) == 7
    assert results(table_id=TABLE) == [0, 1, 2, 3, 9]
    assert results(table_id=TABLE, priority=1) == [0, 1]
    assert results(table_id=TABLE, metadata=b"m") == [9]
    assert results(table_id=TABLE, controller_metadata=4) == [9]
    assert results(table_id=TABLE, match=[ternary(0, 0xFF), exact(1)]) == [0, 9]
    assert results(table_id=TABLE, match=[ternary(0, 0xFF), exact(1)], priority=9) == [9]
    assert results(table_id=TABLE, match=[ternary(0, 0xFF), exact(1)], priority=8) == []
    by_hit = p4r.TableAction(action=p4r.Action(action_id=HIT))
    by_miss = p4r.TableAction(action=p4r.Action(action_id=MISS))
    assert results(table_id=TABLE, action=by_hit) == [0, 1, 2, 3, 9]
    assert ask(full, table_id=TABLE, action=by_miss) == []
    assert len(ask(full, table_id=COUNTED)) == 2
    assert len(ask(full, is_default_action=True)) == 2


def test_bad_filters_are_refused(full: Switch) -> None:
    member = p4r.TableAction(action_profile_member_id=1)
    for parts, text in (
        ({"priority": 1}, "a read of every table"),
        ({"match": [exact(1)]}, "a read of every table"),
        ({"table_id": COUNTED, "priority": 1}, "priority 1 in a table whose fields are all exact or lpm"),
        ({"table_id": TABLE, "priority": -1}, "priority -1 is negative"),
        ({"table_id": TABLE, "match": [ternary(1, 1)]}, "t.k1 is missing"),
        ({"table_id": TABLE, "action": member}, "not by action_profile_member_id"),
        ({"table_id": TABLE, "action": p4r.TableAction(action=p4r.Action(action_id=3))}, "t has no action 0x3"),
        ({"table_id": TABLE, "time_since_last_hit": p4r.TableEntry.IdleTimeout()}, "t has no idle timeout"),
    ):
        code, found = unreadable(full, **parts)
        assert code == rpc_code.INVALID_ARGUMENT
        assert text in found
    assert unreadable(full, table_id=77)[0] == rpc_code.NOT_FOUND


def test_counters_come_with_entries_when_they_are_asked_for(full: Switch) -> None:
    counted = p4r.DirectCounterEntry(table_entry=route(1 << 24, 8).table_entry, data=p4r.CounterData(packet_count=3))
    update(full, MODIFY, p4r.Entity(direct_counter_entry=counted))
    every = ask(full, counter_data=p4r.CounterData())
    assert [item.table_entry.HasField("counter_data") for item in every] == [False] * 5 + [True] * 2
    assert every[-1].table_entry.counter_data.packet_count == 3
    assert not any(item.table_entry.HasField("counter_data") for item in ask(full))


def test_direct_counters_are_read_by_entry_by_table_and_all(full: Switch) -> None:
    def direct(**parts: Any) -> list[Any]:
        return full.read(p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(**parts)))

    assert len(direct()) == 2
    assert len(direct(table_entry=p4r.TableEntry(table_id=COUNTED))) == 2
    one = p4r.TableEntry(table_id=COUNTED, match=route(1 << 24, 8).table_entry.match)
    assert [item.direct_counter_entry.table_entry for item in direct(table_entry=one)] == [one]
    default = p4r.TableEntry(table_id=COUNTED, is_default_action=True)
    assert [item.direct_counter_entry.table_entry for item in direct(table_entry=default)] == [default]
    for bad, code in (
        (p4r.TableEntry(table_id=COUNTED, match=route(2 << 24, 8).table_entry.match), rpc_code.NOT_FOUND),
        (p4r.TableEntry(table_id=TABLE), rpc_code.INVALID_ARGUMENT),
        (p4r.TableEntry(match=one.match), rpc_code.INVALID_ARGUMENT),
    ):
        with pytest.raises(EntityError) as caught:
            direct(table_entry=bad)
        assert caught.value.code == code


def test_a_count_beyond_the_signed_range_reads_as_the_largest(full: Switch) -> None:
    most = (1 << 63) - 1
    message = p4r.DirectCounterEntry(table_entry=route(0, 0).table_entry, data=p4r.CounterData(byte_count=most))
    update(full, MODIFY, p4r.Entity(direct_counter_entry=message))
    full.process(0, bytes(9))
    wildcard = p4r.TableEntry(table_id=COUNTED, counter_data=p4r.CounterData())
    [found, _] = full.read(p4r.Entity(table_entry=wildcard))
    assert found.table_entry.counter_data.byte_count == most
    assert found.table_entry.counter_data.packet_count == 1
