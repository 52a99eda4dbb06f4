# SPDX-License-Identifier: Apache-2.0
"""The difference between two states: complete, minimal, and in an order that never breaks forwarding."""

from collections.abc import Callable
from pathlib import Path

import pytest
from finsy import (
    Action,
    Match,
    P4DigestEntry,
    P4IndirectAction,
    P4MeterConfig,
    P4MeterEntry,
    P4MulticastGroupEntry,
    P4TableEntry,
)
from finsy.proto import p4r
from hypothesis import given
from hypothesis import strategies as st

from gradlane_controller.desired import pipeline
from gradlane_controller.errors import PipelineError
from gradlane_controller.policy import Entity
from gradlane_controller.session.convergence import apart, difference, parts
from tests.support.paths import PIPELINE

SCHEMA = pipeline.load(pipeline.DEFAULT_FOLDER).schema


def entity(kind: str, number: int, value: int) -> Entity:
    if kind == "route":
        action = Action("replicate", group=value)
        return P4TableEntry("ipv4_routes", match=Match(destination=f"10.0.{number}.0/24"), action=action)
    if kind == "queue_class":
        action = Action("set_queue_class", queue_class=value)
        return P4TableEntry("queue_classes", match=Match(job=1, layer=(number, number)), action=action, priority=1)
    if kind == "group":
        return P4MulticastGroupEntry(number + 1, replicas=tuple(range(1, value + 2)))
    if kind == "next_hops":
        return next_hops(number, *((1 + member % 2, member + 1) for member in range(value + 1)))
    config = P4MeterConfig(cir=value + 1, cburst=1, pir=value + 1, pburst=1)
    if kind == "share":
        match, action = Match(job_index=number, egress_port=1), Action("set_share", queue_class_of_excess=1)
        return P4TableEntry("job_shares", match=match, action=action, meter_config=config)
    if kind == "digest":
        return P4DigestEntry("guard_violation_t", max_list_size=value)
    return P4MeterEntry("virtual_queue", index=number, config=config)


def next_hops(group: int, *members: tuple[int, int]) -> Entity:
    """`members` as (weight, port)."""
    mac = "02:00:00:00:00:01"
    actions = [(member, Action("forward", port=member[1], next_hop=mac, own=mac)) for member in members]
    return P4TableEntry("next_hops", match=Match(group=group), action=P4IndirectAction(actions))


KINDS = ("route", "queue_class", "group", "meter", "next_hops", "share", "digest")
States = st.dictionaries(st.tuples(st.sampled_from(KINDS), st.integers(0, 4)), st.integers(0, 6)).map(
    lambda state: [
        entity(kind, number, value) for (kind, number), value in state.items() if kind != "digest" or not number
    ]
)


def apply(held: list[Entity], updates: list[p4r.Update]) -> list[Entity]:
    """What a switch holds after the updates; it refuses what a switch would refuse."""
    state = {(it.encode(SCHEMA).WhichOneof("entity"), identity(it.encode(SCHEMA))): it for it in held}
    for update in updates:
        key = (update.entity.WhichOneof("entity"), identity(update.entity))
        it = decode(update.entity)
        if update.type == p4r.Update.INSERT:
            assert key not in state
            state[key] = it
        elif update.type == p4r.Update.DELETE:
            del state[key]
        elif isinstance(it, P4MeterEntry):
            state[key] = it
        else:
            assert key in state
            state[key] = it
    return list(state.values())


def identity(message: p4r.Entity) -> object:
    if message.HasField("table_entry"):
        match = [field.SerializeToString(deterministic=True) for field in message.table_entry.match]
        return message.table_entry.table_id, tuple(match)
    if message.HasField("meter_entry"):
        return message.meter_entry.index.index
    if message.HasField("digest_entry"):
        return message.digest_entry.digest_id
    return message.packet_replication_engine_entry.multicast_group_entry.multicast_group_id


def decode(message: p4r.Entity) -> Entity:
    kinds: dict[str, type[Entity]] = {
        "table_entry": P4TableEntry,
        "meter_entry": P4MeterEntry,
        "digest_entry": P4DigestEntry,
        "packet_replication_engine_entry": P4MulticastGroupEntry,
    }
    return kinds[message.WhichOneof("entity") or ""].decode(message, SCHEMA)


@given(States, States)
def test_what_both_begin_and_end_with_needs_no_update(held: list[Entity], desired: list[Entity]) -> None:
    def listed(one: list[Entity], other: list[Entity]) -> list[bytes]:
        return sorted(it.SerializeToString(deterministic=True) for it in difference(SCHEMA, one, other))

    assert listed(*apart(held, desired)) == listed(held, desired)
    assert apart(desired, desired) == ([], [])


@pytest.mark.parametrize("place", [0, 2, 5])
def test_of_one_more_entry_all_others_are_left_alone(place: int) -> None:
    held = [entity("group", number, 0) for number in range(5)]
    routes = [entity("route", number, number) for number in range(5)]
    new = entity("route", 9, 9)
    assert apart(held + routes, [*routes[:place], new, *routes[place:], *held]) == ([], [new])


@given(held=States, desired=States)
def test_the_difference_leads_to_what_is_desired_and_then_there_is_none(
    held: list[Entity], desired: list[Entity]
) -> None:
    updates = difference(SCHEMA, held, desired)
    after = apply(held, updates)
    assert difference(SCHEMA, after, desired) == []
    # Nothing is written that was right already.
    same = [it.encode(SCHEMA) for it in held if it in desired]
    assert not [update for update in updates if update.entity in same]


@pytest.mark.parametrize("kind", ["group", "next_hops"])
def test_groups_come_before_the_routes_that_use_them_and_go_after_them(kind: str) -> None:
    route, group = entity("route", 1, 3), entity(kind, 2, 2)
    uses, used = route.encode(SCHEMA), group.encode(SCHEMA)
    assert [update.entity for update in difference(SCHEMA, [], [route, group])] == [used, uses]
    assert [update.entity for update in difference(SCHEMA, [route, group], [])] == [uses, used]


def test_what_nobody_wrote_is_left_alone() -> None:
    unset = P4MeterEntry("virtual_queue", index=9)
    default = P4TableEntry("queue_classes", action=Action("set_queue_class", queue_class=0), is_default_action=True)
    assert difference(SCHEMA, [unset, default], []) == []


def test_the_order_of_fields_and_parameters_means_nothing() -> None:
    mac = "02:00:00:00:00:01"
    forward = Action("forward", own=mac, next_hop=mac, port=1), Action("forward", port=1, next_hop=mac, own=mac)
    actions = Action("set_queue_class", queue_class=3)
    ranges = {"job": 1, "layer": (2, 2)}, {"layer": (2, 2), "job": 1}
    held, desired = (
        [
            P4TableEntry("next_hops", match=Match(group=1), action=P4IndirectAction([((1, 1), forward[n])])),
            P4TableEntry("queue_classes", match=Match(ranges[n]), action=actions, priority=1),
        ]
        for n in (0, 1)
    )
    assert [it.encode(SCHEMA) for it in held] != [it.encode(SCHEMA) for it in desired]
    assert difference(SCHEMA, held, desired) == []


def test_an_entry_of_another_priority_is_another_entry() -> None:
    match, action = Match(job=1, layer=(2, 2)), Action("set_queue_class", queue_class=3)
    held, desired = (P4TableEntry("queue_classes", match=match, action=action, priority=n) for n in (2, 1))
    updates = difference(SCHEMA, [held], [desired])
    assert [(it.type, it.entity.table_entry.priority) for it in updates] == [
        (p4r.Update.INSERT, 1),
        (p4r.Update.DELETE, 2),
    ]


def test_meters_of_entries_are_read_with_them() -> None:
    found = [it for it in parts(SCHEMA) if isinstance(it, P4TableEntry) and it.meter_config is not None]
    assert [it.table_id for it in found] == ["job_shares"]


def test_the_order_of_replicas_means_nothing() -> None:
    a, b = P4MulticastGroupEntry(1, replicas=(1, 2)), P4MulticastGroupEntry(1, replicas=(2, 1))
    assert difference(SCHEMA, [a], [b]) == []


def test_a_missing_pipeline_names_the_folder_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=rf"{tmp_path}: no gradlane.p4info.txtpb there; compile p4src"):
        pipeline.load(tmp_path)
    (tmp_path / "gradlane.p4info.txtpb").write_text("tables { what }")
    (tmp_path / "gradlane.json").write_text("{}")
    with pytest.raises(PipelineError, match="can't be read"):
        pipeline.load(tmp_path)
    assert pipeline.load(PIPELINE).cookie == pipeline.load(pipeline.DEFAULT_FOLDER).cookie


def test_a_table_that_is_too_small_is_named(make_many: Callable[[int], list[Entity]]) -> None:
    it = pipeline.load(pipeline.DEFAULT_FOLDER)
    pipeline.check_capacity(it, "s1", make_many(1024))
    with pytest.raises(
        PipelineError, match="table queue_classes of switch 's1' holds 1024 entries and 1025 are needed"
    ):
        pipeline.check_capacity(it, "s1", make_many(1025))


def test_members_of_groups_count_by_their_weight() -> None:
    it = pipeline.load(pipeline.DEFAULT_FOLDER)
    pipeline.check_capacity(it, "s1", [next_hops(5, (1000, 1), (24, 2))])
    with pytest.raises(PipelineError, match="members of switch 's1' holds 1024 entries and 1025 are needed"):
        pipeline.check_capacity(it, "s1", [next_hops(5, (1000, 1), (24, 2)), next_hops(6, (1, 1))])


@pytest.fixture
def make_many() -> Callable[[int], list[Entity]]:
    return lambda count: [entity("queue_class", number, 1) for number in range(count)]
