# SPDX-License-Identifier: Apache-2.0
"""Action profiles: members, groups with a selector, and sets of actions, as controllers write and packets see them."""

import threading
from collections import Counter
from typing import Any

import pytest
from finsy.proto import p4r, rpc_code

from gradlane_switch.errors import EntityError
from tests.gradlane_switch import batches as batch
from tests.gradlane_switch.compiled_programs import delete, ids, load, modify


def crc16(data: bytes) -> int:
    """CRC-16/ARC."""
    remainder = 0
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0xA001 if remainder & 1 else 0)
    return remainder


class Profiles:
    """Entities of the program `attached`, by numbers and ports."""

    def __init__(self) -> None:
        self.switch = load("attached")
        self.ids = ids(self.switch)

    def send(self, port: int) -> Any:
        action = p4r.Action(action_id=self.ids["send"])
        action.params.add(param_id=1, value=port.to_bytes(1 + port // 256, "big"))
        return action

    def member(self, number: int, port: int = 1, profile: str = "members") -> Any:
        profile_id = self.ids[profile]
        message = p4r.ActionProfileMember(action_profile_id=profile_id, member_id=number, action=self.send(port))
        return p4r.Entity(action_profile_member=message)

    def group(self, number: int, *members: tuple[int, int], max_size: int = 0, profile: str = "members") -> Any:
        message = p4r.ActionProfileGroup(action_profile_id=self.ids[profile], group_id=number, max_size=max_size)
        for member, weight in members:
            message.members.add(member_id=member, weight=weight)
        return p4r.Entity(action_profile_group=message)

    def entry(self, key: int, table: str = "routes", **action: Any) -> Any:
        message = p4r.TableEntry(table_id=self.ids[table], action=p4r.TableAction(**action))
        message.match.add(field_id=1, exact=p4r.FieldMatch.Exact(value=bytes([key])))
        return p4r.Entity(table_entry=message)

    def action_set(self, *actions: tuple[int, int]) -> Any:
        message = p4r.ActionProfileActionSet()
        for port, weight in actions:
            message.action_profile_actions.add(action=self.send(port), weight=weight)
        return message

    def ports(self, flows: int = 64, op: int = 1) -> list[int | None]:
        """Where packets of the flows 0, 1 ... leave."""
        out = (self.switch.process(2, bytes([op, 9]) + flow.to_bytes(2, "big") + bytes(10)) for flow in range(flows))
        return [sent[0][0] if sent else None for sent in out]


@pytest.fixture
def made() -> Profiles:
    return Profiles()


def chosen(ports: list[int], flows: int = 64) -> list[int]:
    return [ports[crc16(flow.to_bytes(2, "big")) % len(ports)] for flow in range(flows)]


def test_a_group_spreads_flows_by_the_hash_of_the_selector_fields(made: Profiles) -> None:
    for number, port in ((5, 10), (3, 11), (4, 12)):
        made.switch.insert(made.member(number, port))
    made.switch.insert(made.group(1, (3, 1), (4, 1), (5, 1)))
    made.switch.insert(made.entry(9, action_profile_group_id=1))
    # In the order in which the members were made.
    assert made.ports() == chosen([10, 11, 12])


def test_a_weight_gives_a_member_as_many_places(made: Profiles) -> None:
    for number, port in ((1, 10), (2, 11)):
        made.switch.insert(made.member(number, port))
    made.switch.insert(made.group(1, (1, 3), (2, 1)))
    made.switch.insert(made.entry(9, action_profile_group_id=1))
    # Members come first, and then the copies that weights want.
    assert made.ports() == chosen([10, 11, 10, 10])
    modify(made.switch, made.group(1, (1, 1), (2, 1)))
    assert made.ports() == chosen([10, 11])


def test_changes_of_members_and_groups_reach_the_entries(made: Profiles) -> None:
    for number, port in ((1, 10), (2, 11)):
        made.switch.insert(made.member(number, port))
    made.switch.insert(made.group(1, (1, 1)))
    made.switch.insert(made.entry(9, action_profile_group_id=1))
    assert set(made.ports()) == {10}
    modify(made.switch, made.member(1, 300))
    assert set(made.ports()) == {300}
    modify(made.switch, made.group(1, (2, 1)))
    assert set(made.ports()) == {11}
    modify(made.switch, made.entry(9, action_profile_member_id=1))
    assert set(made.ports()) == {300}


def test_an_entry_can_have_a_set_of_actions_of_its_own(made: Profiles) -> None:
    actions = made.action_set((10, 2), (11, 1))
    made.switch.insert(made.entry(9, action_profile_action_set=actions))
    assert made.ports() == chosen([10, 10, 11])
    wanted = p4r.Entity(table_entry=p4r.TableEntry(table_id=made.ids["routes"]))
    [found] = made.switch.read(wanted)
    assert found.table_entry.action.action_profile_action_set == actions
    modify(made.switch, made.entry(9, action_profile_action_set=made.action_set((12, 1))))
    assert set(made.ports()) == {12}
    delete(made.switch, made.entry(9))
    assert set(made.ports()) == {0}
    # The profile is empty again, so members may be made.
    made.switch.insert(made.member(1))


def test_a_profile_without_selector_shares_members(made: Profiles) -> None:
    made.switch.insert(made.member(1, 10, "shared"))
    made.switch.insert(made.entry(9, "named", action_profile_member_id=1))
    assert set(made.ports(op=2)) == {10}
    modify(made.switch, made.member(1, 11, "shared"))
    assert set(made.ports(op=2)) == {11}


def test_members_and_groups_read_back(made: Profiles) -> None:
    members = [made.member(1, 10), made.member(2, 11)]
    group = made.group(7, (1, 3), (2, 1), max_size=5)
    for entity in (*members, group):
        made.switch.insert(entity)
    assert made.switch.read(p4r.Entity(action_profile_member=p4r.ActionProfileMember())) == members
    assert made.switch.read(made.member(2)) == members[1:]
    assert made.switch.read(p4r.Entity(action_profile_group=p4r.ActionProfileGroup())) == [group]


def test_what_is_used_stays_and_what_does_not_fit_is_refused(made: Profiles) -> None:
    for number in (1, 2):
        made.switch.insert(made.member(number))
    made.switch.insert(made.group(1, (1, 1)))
    made.switch.insert(made.group(2))
    made.switch.insert(made.entry(9, action_profile_group_id=1))
    made.switch.insert(made.member(1, profile="shared"))
    made.switch.insert(made.entry(9, "named", action_profile_member_id=1))

    def refusal(write: Any, *args: Any) -> int:
        with pytest.raises(EntityError) as caught:
            write(*args)
        return caught.value.code

    switch = made.switch
    used = [made.member(1), made.group(1), made.member(1, profile="shared")]
    assert {refusal(delete, switch, entity) for entity in used} == {rpc_code.FAILED_PRECONDITION}
    missing = [made.group(3, (4, 1)), made.entry(8, action_profile_group_id=4)]
    missing += [made.entry(8, action_profile_member_id=4)]
    assert {refusal(switch.insert, entity) for entity in missing} == {rpc_code.NOT_FOUND}
    wrong = [
        made.member(0),
        made.group(0),
        made.group(3, (1, 0)),
        made.group(3, (1, 1), (1, 1)),
        made.group(3, max_size=9),
        made.group(3, profile="shared"),
        made.entry(8, action_profile_group_id=2),
        made.entry(8, action=made.send(1)),
        made.entry(8, "named", action_profile_group_id=1),
        made.entry(8, action_profile_action_set=made.action_set((1, 1))),
    ]
    assert Counter(refusal(switch.insert, entity) for entity in wrong) == {rpc_code.INVALID_ARGUMENT: len(wrong)}
    assert refusal(modify, switch, made.group(1)) == rpc_code.INVALID_ARGUMENT
    assert refusal(switch.insert, made.group(3, (1, 5), (2, 4))) == rpc_code.RESOURCE_EXHAUSTED
    assert refusal(switch.insert, made.group(3, (1, 3), max_size=2)) == rpc_code.RESOURCE_EXHAUSTED
    assert refusal(switch.insert, made.member(1)) == rpc_code.ALREADY_EXISTS
    # What was refused left no trace, and what is not used any more goes.
    delete(switch, made.entry(9))
    delete(switch, made.group(1))
    delete(switch, made.member(1))
    for number in range(2, 5):
        switch.insert(made.member(number, profile="shared"))
    assert refusal(switch.insert, made.member(5, profile="shared")) == rpc_code.RESOURCE_EXHAUSTED


def test_a_miss_of_a_table_with_a_profile_does_nothing(made: Profiles) -> None:
    assert set(made.ports()) == {0}


def test_an_atomic_batch_takes_a_group_and_its_members_away_while_packets_use_them(made: Profiles) -> None:
    switch = made.switch
    create = [made.member(1, 1), made.member(2, 2), made.group(1, (1, 1), (2, 1))]
    create.append(made.entry(9, action_profile_group_id=1))
    mode = p4r.WriteRequest.DATAPLANE_ATOMIC
    ended = threading.Event()
    seen: set[int | None] = set()

    def forward() -> None:
        while not ended.is_set():
            seen.update(made.ports(4))

    thread = threading.Thread(target=forward)
    thread.start()
    try:
        for _ in range(200):
            updates = [p4r.Update(type=p4r.Update.INSERT, entity=item) for item in create]
            assert batch.write(switch.pipeline, updates, mode) == []
            updates = [p4r.Update(type=p4r.Update.DELETE, entity=item) for item in reversed(create)]
            assert batch.write(switch.pipeline, updates, mode) == []
    finally:
        ended.set()
        thread.join()
    assert seen == {0, 1, 2}
    assert made.ports(4) == [0] * 4


# Watched ports


def watching(entity: Any, *ports: int | None) -> Any:
    """A group whose members depend on ports."""
    for member, port in zip(entity.action_profile_group.members, ports, strict=True):
        if port is not None:
            member.watch_port = port.to_bytes(1 + port // 256, "big")
    return entity


@pytest.fixture
def guarded(made: Profiles) -> Profiles:
    """Members 1, 2 and 3 send to these ports; 1 and 2 depend on them."""
    for number in (1, 2, 3):
        made.switch.insert(made.member(number, number))
    made.switch.insert(watching(made.group(1, (1, 1), (2, 1), (3, 1)), 1, 2, None))
    made.switch.insert(made.entry(9, action_profile_group_id=1))
    return made


def test_a_member_is_left_out_while_the_port_it_depends_on_is_down(guarded: Profiles) -> None:
    assert guarded.ports() == chosen([1, 2, 3])
    guarded.switch.set_port(2, up=False)
    assert guarded.ports() == chosen([1, 3])
    guarded.switch.set_port(3, up=False)
    assert guarded.ports() == chosen([1, 3])
    guarded.switch.set_port(1, up=False)
    assert guarded.ports() == [3] * 64
    guarded.switch.set_port(2, up=True)
    assert guarded.ports() == chosen([2, 3])
    modify(guarded.switch, guarded.group(1, (1, 1), (2, 1), (3, 1)))
    assert guarded.ports() == chosen([1, 2, 3])
    modify(guarded.switch, watching(guarded.group(1, (1, 1), (2, 1)), 1, 1))
    # A group of which no member can be chosen does nothing, and the packet goes on.
    assert guarded.ports() == [0] * 64
    delete(guarded.switch, guarded.entry(9))
    delete(guarded.switch, guarded.group(1))
    delete(guarded.switch, guarded.member(1))
    guarded.switch.set_port(1, up=True)
    assert guarded.ports(1) == [0]


def test_an_entrys_own_actions_are_left_out_as_well(made: Profiles) -> None:
    actions = made.action_set((1, 1), (2, 1))
    actions.action_profile_actions[1].watch = 2
    made.switch.insert(made.entry(9, action_profile_action_set=actions))
    assert made.ports() == chosen([1, 2])
    made.switch.set_port(2, up=False)
    assert made.ports() == [1] * 64
    [found] = made.switch.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=made.ids["routes"])))
    assert found == made.entry(9, action_profile_action_set=actions)
    delete(made.switch, found)
    made.switch.set_port(2, up=True)
    assert made.ports(1) == [0]


def test_what_is_watched_reads_back_in_canonical_form_and_must_be_a_port(guarded: Profiles) -> None:
    group = watching(guarded.group(1, (1, 1), (2, 1), (3, 1)), 1, 2, None)
    assert guarded.switch.read(guarded.group(1)) == [group]
    padded = watching(guarded.group(1, (1, 1), (2, 1), (3, 1)), 1, 2, None)
    padded.action_profile_group.members[0].watch_port = b"\0\0\1"
    padded.action_profile_group.members[2].watch_port = b""
    modify(guarded.switch, padded)
    assert guarded.switch.read(guarded.group(1)) == [group]
    with pytest.raises(EntityError, match=r"group 1 of .*members: there is no port 511 to watch") as caught:
        modify(guarded.switch, watching(guarded.group(1, (1, 1)), 511))
    assert caught.value.code == rpc_code.INVALID_ARGUMENT
