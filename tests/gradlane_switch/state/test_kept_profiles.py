# SPDX-License-Identifier: Apache-2.0
"""Reconciling and rolling back what has members and groups of action profiles in it."""

from typing import Any

from finsy.proto import p4r, rpc_code

from gradlane_switch import Switch
from gradlane_switch.p4runtime.reconcile import reconcile
from tests.gradlane_switch import batches as batch
from tests.gradlane_switch.compiled_programs import load
from tests.gradlane_switch.state.test_action_profiles import Profiles

EVERYTHING = (
    p4r.Entity(action_profile_member=p4r.ActionProfileMember()),
    p4r.Entity(action_profile_group=p4r.ActionProfileGroup()),
    p4r.Entity(table_entry=p4r.TableEntry(meter_config=p4r.MeterConfig())),
)


def everything(switch: Switch) -> list[Any]:
    return [item for wanted in EVERYTHING for item in switch.read(wanted)]


def filled() -> Profiles:
    made = Profiles()
    for number, port in ((5, 10), (3, 11)):
        made.switch.insert(made.member(number, port))
    made.switch.insert(made.group(7, (5, 1), (3, 2)))
    made.switch.insert(made.entry(9, action_profile_group_id=7))
    made.switch.insert(made.entry(8, action_profile_member_id=3))
    return made


def test_reconcile_keeps_members_groups_and_the_entries_that_use_them() -> None:
    made, after = filled(), Profiles()
    reconcile(made.switch.pipeline, after.switch.pipeline)
    assert everything(after.switch) == everything(made.switch)
    assert len(everything(after.switch)) == 5
    assert after.ports() == made.ports()


def test_a_rollback_puts_back_members_groups_and_entries_that_were_gone() -> None:
    made = filled()
    before, ports = everything(made.switch), made.ports()
    gone = [made.entry(9), made.group(7), made.member(5)]
    updates = [p4r.Update(type=p4r.Update.DELETE, entity=item) for item in gone]
    updates.append(p4r.Update(type=p4r.Update.MODIFY, entity=made.member(3, 20)))
    updates.append(p4r.Update(type=p4r.Update.DELETE, entity=made.member(77)))
    errors = batch.write(made.switch.pipeline, updates, p4r.WriteRequest.ROLLBACK_ON_ERROR)
    assert [error.canonical_code for error in errors] == [rpc_code.ABORTED] * 4 + [rpc_code.NOT_FOUND]

    def sort(items: list[Any]) -> list[bytes]:
        return sorted(item.SerializeToString(deterministic=True) for item in items)

    assert sort(everything(made.switch)) == sort(before)
    assert made.ports() == ports


def test_a_program_that_is_loaded_anew_has_none_of_it() -> None:
    assert everything(load("attached")) == []
