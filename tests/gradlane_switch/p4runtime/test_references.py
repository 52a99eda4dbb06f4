# SPDX-License-Identifier: Apache-2.0
"""`@refers_to`: an entry can't refer to what is not there, and what is referred to can't go."""

import json
from collections import Counter
from typing import Any

import pytest
from finsy.proto import p4i, p4r, rpc_code
from hypothesis import given
from hypothesis import strategies as st

from gradlane_switch import EntityError, ProgramError, Switch
from gradlane_switch.p4runtime.reconcile import reconcile
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock
from tests.gradlane_switch import batches as batch
from tests.gradlane_switch.compiled_programs import delete, group, modify
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
from tests.gradlane_switch.state.test_action_profiles import Profiles

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
ROLLBACK, ATOMIC = p4r.WriteRequest.ROLLBACK_ON_ERROR, p4r.WriteRequest.DATAPLANE_ATOMIC
GROUPS = "builtin : : multicast_group_table , multicast_group_id"  # as p4c writes it


def document() -> Json:
    """`routes` choose a hop by a pair of numbers, or a multicast group; `hops` are these pairs."""
    use = action(0, "use", [16, 16], assign(field("h", "out"), param(0)), SEND)
    copy = action(1, "copy", [16], assign(field("h", "out"), param(0)), SEND)
    miss = action(2, "miss", [], SEND)
    hops = [("exact", field("h", "k")), ("exact", field("h", "out"))]
    tables = [
        table(0, "routes", [("exact", field("h", "k"))], [use, copy, miss], miss, following="hops"),
        table(1, "hops", hops, [miss], miss),
    ]
    return program([("k", 16), ("out", 16)], [use, copy, miss], tables)


def annotated(*, of_hops: tuple[str, str] = ("hops, k0", "hops, k1"), of_group: str = GROUPS, of_key: str = "") -> Any:
    info = p4info(document())
    for item in info.tables:
        item.preamble.alias = item.preamble.name.rpartition(".")[2]
    declared = [*zip(info.actions[0].params, of_hops, strict=True), (info.actions[1].params[0], of_group)]
    for item, names in (*declared, (info.tables[0].match_fields[0], of_key)):
        if names:
            item.annotations.append(f"@refers_to({names})")
    return info


def made(info: Any) -> Switch:
    return Switch(Pipeline(json.dumps(document()).encode(), info, Lock()))


@pytest.fixture
def switch() -> Switch:
    return made(annotated())


def exact(*values: int) -> list[Any]:
    return [
        p4r.FieldMatch(field_id=n, exact=p4r.FieldMatch.Exact(value=encode(value))) for n, value in enumerate(values, 1)
    ]


def hop(one: int, other: int) -> Any:
    return entry(2, exact(one, other), 3)


def route(key: int, one: int, other: int) -> Any:
    return entry(1, exact(key), 1, (one, other))


def copied(key: int, number: int) -> Any:
    return entry(1, exact(key), 2, (number,))


def updates(*changes: tuple[int, Any]) -> list[Any]:
    return [p4r.Update(type=kind, entity=entity) for kind, entity in changes]


def refused(call: Any, *args: Any) -> tuple[int, str]:
    with pytest.raises(EntityError) as raised:
        call(*args)
    return raised.value.code, str(raised.value)


def test_an_entry_comes_after_what_it_refers_to_and_goes_before_it(switch: Switch) -> None:
    told = "use refers to hops with k0 = 1, k1 = 2, and there is none"
    assert refused(switch.insert, route(7, 1, 2)) == (rpc_code.NOT_FOUND, told)
    switch.insert(hop(1, 3))
    switch.insert(hop(2, 2))
    assert refused(switch.insert, route(7, 1, 2))[0] == rpc_code.NOT_FOUND, "the pair is what it refers to"
    switch.insert(hop(1, 2))
    switch.insert(route(7, 1, 2))
    switch.insert(route(8, 1, 2))
    told = "2 entries refer to hops with k0 = 1, k1 = 2, so it can't be deleted"
    assert refused(delete, switch, hop(1, 2)) == (rpc_code.FAILED_PRECONDITION, told)
    delete(switch, hop(1, 3))
    delete(switch, route(7, 1, 2))
    assert refused(delete, switch, hop(1, 2))[1].startswith("1 entry refers to")
    delete(switch, route(8, 1, 2))
    delete(switch, hop(1, 2))


def test_what_an_entry_refers_to_changes_with_it(switch: Switch) -> None:
    switch.insert(hop(1, 1))
    switch.insert(hop(2, 2))
    switch.insert(route(7, 1, 1))
    assert refused(modify, switch, route(7, 3, 3))[0] == rpc_code.NOT_FOUND
    assert refused(delete, switch, hop(1, 1))[0] == rpc_code.FAILED_PRECONDITION, "it refers to what it did"
    modify(switch, route(7, 2, 2))
    delete(switch, hop(1, 1))
    assert refused(delete, switch, hop(2, 2))[0] == rpc_code.FAILED_PRECONDITION
    modify(switch, hop(2, 2))


def test_a_multicast_group_is_referred_to_by_its_number(switch: Switch) -> None:
    told = "copy refers to multicast groups with id = 5, and there is none"
    assert refused(switch.insert, copied(7, 5)) == (rpc_code.NOT_FOUND, told)
    switch.insert(group(5, [(1, 0)]))
    switch.insert(copied(7, 5))
    modify(switch, group(5, [(2, 0)]))
    told = "1 entry refers to multicast groups with id = 5, so it can't be deleted"
    assert refused(delete, switch, group(5, [])) == (rpc_code.FAILED_PRECONDITION, told)
    delete(switch, copied(7, 5))
    delete(switch, group(5, []))


def test_a_key_refers_too() -> None:
    it = made(annotated(of_hops=("", ""), of_key="hops, k1"))
    told = "routes refers to hops with k1 = 4, and there is none"
    assert refused(it.insert, route(4, 0, 0)) == (rpc_code.NOT_FOUND, told)
    it.insert(hop(1, 4))
    it.insert(hop(2, 4))
    it.insert(route(4, 0, 0))
    delete(it, hop(1, 4))
    assert refused(delete, it, hop(2, 4))[0] == rpc_code.FAILED_PRECONDITION, "the last one that it may mean"


def test_a_default_action_refers_too(switch: Switch) -> None:
    default = p4r.TableEntry(table_id=0x02000001, is_default_action=True, action=route(0, 1, 1).table_entry.action)
    entity = p4r.Entity(table_entry=default)
    assert refused(modify, switch, entity)[0] == rpc_code.NOT_FOUND
    switch.insert(hop(1, 1))
    modify(switch, entity)
    assert refused(delete, switch, hop(1, 1))[0] == rpc_code.FAILED_PRECONDITION
    default.ClearField("action")
    modify(switch, p4r.Entity(table_entry=default))
    delete(switch, hop(1, 1))


@pytest.mark.parametrize("atomicity", [ROLLBACK, ATOMIC])
def test_a_batch_is_looked_at_in_its_order_and_undone_whole(switch: Switch, atomicity: int) -> None:
    wanted = updates((INSERT, hop(1, 1)), (INSERT, route(7, 1, 1)), (INSERT, route(8, 2, 2)), (INSERT, hop(2, 2)))
    errors = batch.write(switch.pipeline, wanted, atomicity)
    codes = [error.canonical_code for error in errors]
    assert codes == [rpc_code.ABORTED, rpc_code.ABORTED, rpc_code.NOT_FOUND, rpc_code.ABORTED]
    # Nothing is left, neither entries nor references.
    switch.insert(hop(1, 1))
    delete(switch, hop(1, 1))
    assert not batch.write(switch.pipeline, [wanted[n] for n in (0, 1, 3, 2)], atomicity)
    back = updates((DELETE, route(7, 1, 1)), (DELETE, hop(1, 1)), (DELETE, hop(2, 2)))
    errors = batch.write(switch.pipeline, back, atomicity)
    assert [error.canonical_code for error in errors][2] == rpc_code.FAILED_PRECONDITION
    assert refused(delete, switch, hop(1, 1))[0] == rpc_code.FAILED_PRECONDITION, "its route is there again"


def test_reconciling_keeps_references_in_whatever_order_entries_come(switch: Switch) -> None:
    for it in (hop(1, 1), group(5, [(1, 0)]), route(7, 1, 1), copied(8, 5)):
        switch.insert(it)
    after = made(annotated())
    reconcile(switch.pipeline, after.pipeline)
    assert refused(delete, after, hop(1, 1))[0] == rpc_code.FAILED_PRECONDITION
    assert refused(delete, after, group(5, []))[0] == rpc_code.FAILED_PRECONDITION
    delete(after, route(7, 1, 1))
    delete(after, hop(1, 1))


def test_reconciling_refuses_what_would_refer_to_nothing() -> None:
    before = made(p4info(document()))
    before.insert(route(7, 1, 1))
    told = "the new program can't keep the state: 1 entry refers to hops with k0 = 1, k1 = 1, and there is none"
    assert refused(reconcile, before.pipeline, made(annotated()).pipeline) == (rpc_code.INVALID_ARGUMENT, told)


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"of_hops": ("nowhere, k0", "")}, "use refers to nowhere, and there is no such table"),
        ({"of_hops": ("hops, k7", "")}, "use refers to hops.k7, and there is no such exact field"),
        ({"of_hops": ("hops", "")}, "use.p0: @refers_to(hops) is not @refers_to(table, field)"),
        ({"of_group": "builtin::multicast_group_table, instance"}, "and there is no such table"),
    ],
)
def test_a_program_that_refers_to_what_there_is_not_is_refused(declared: dict[str, Any], told: str) -> None:
    with pytest.raises(ProgramError) as raised:
        made(annotated(**declared))
    assert told in str(raised.value)


_INFO = annotated()

Change = tuple[int, str, tuple[int, int, int]]
changes = st.lists(
    st.tuples(
        st.sampled_from([INSERT, MODIFY, DELETE]),
        st.sampled_from(["hop", "route"]),
        st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 1)),
    ),
    max_size=40,
)


@given(changes)
def test_after_any_writes_every_route_has_its_hop(wanted: list[Change]) -> None:
    """And a write is refused because of references only where it would break one."""
    switch = made(_INFO)
    hops: set[tuple[int, int]] = set()
    routes: dict[int, tuple[int, int]] = {}
    for kind, what, (key, one, other) in wanted:
        pair = one, other
        if what == "hop":
            known = pair in hops
            used = Counter(routes.values())[pair]
            fits = not known if kind == INSERT else known and not (kind == DELETE and used)
        else:
            fits = (key in routes) is (kind != INSERT) and (kind == DELETE or pair in hops)
        update = p4r.Update(type=kind, entity=hop(*pair) if what == "hop" else route(key, *pair))
        assert (not batch.write(switch.pipeline, [update])) is fits
        if fits and what == "hop":
            (hops.discard if kind == DELETE else hops.add)(pair)
        elif fits and kind == DELETE:
            del routes[key]
        elif fits:
            routes[key] = pair
    assert set(routes.values()) <= hops


@pytest.fixture
def profiles() -> Profiles:
    """The program `attached`, where the port of an action is that of a multicast group's number."""
    found = Profiles()
    old = found.switch.pipeline
    info = p4i.P4Info()
    info.CopyFrom(old.info)
    send = next(item for item in info.actions if item.preamble.alias == "send")
    send.params[0].annotations.append(f"@refers_to({GROUPS})")
    found.switch = Switch(Pipeline(old.device_config, info, Lock()))
    return found


def test_a_member_of_an_action_profile_refers_for_all_that_use_it(profiles: Profiles) -> None:
    switch = profiles.switch
    assert refused(switch.insert, profiles.member(1, 5))[0] == rpc_code.NOT_FOUND
    for number in (5, 6):
        switch.insert(group(number, [(1, 0)]))
    switch.insert(profiles.member(1, 5))
    switch.insert(profiles.entry(9, action_profile_member_id=1))
    modify(switch, profiles.member(1, 6))
    delete(switch, group(5, []))
    assert refused(delete, switch, group(6, []))[0] == rpc_code.FAILED_PRECONDITION
    delete(switch, profiles.entry(9))
    delete(switch, profiles.member(1))
    delete(switch, group(6, []))


def test_each_action_of_a_set_refers(profiles: Profiles) -> None:
    switch = profiles.switch
    switch.insert(group(5, [(1, 0)]))
    both = profiles.entry(9, action_profile_action_set=profiles.action_set((5, 1), (6, 1)))
    assert refused(switch.insert, both)[0] == rpc_code.NOT_FOUND
    switch.insert(group(6, [(1, 0)]))
    switch.insert(both)
    for number in (5, 6):
        assert refused(delete, switch, group(number, []))[0] == rpc_code.FAILED_PRECONDITION
    delete(switch, profiles.entry(9))
    delete(switch, group(5, []))
