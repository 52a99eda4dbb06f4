# SPDX-License-Identifier: Apache-2.0
"""Tables that share a selector, each with copies of its actions (tests/differential/programs/shared_profile.p4)."""

from finsy.proto import p4r

from gradlane_switch import Switch
from tests.gradlane_switch.compiled_programs import ids
from tests.support.paths import CORPUS


def test_each_table_may_have_action_sets_of_its_own() -> None:
    switch = Switch.load(CORPUS / "shared_profile.json", CORPUS / "shared_profile.p4info.txtpb")
    numbers = ids(switch)
    written: list[p4r.Entity] = []
    for name, values in (("choose_a", b"\x11\x12"), ("choose_b", b"\x21\x22")):
        message = p4r.TableEntry(table_id=numbers[name])
        message.match.add(field_id=1).exact.value = b"\x07"
        chosen = message.action.action_profile_action_set.action_profile_actions.add(weight=1)
        chosen.action.action_id = numbers["set_both"]
        for number, value in enumerate(values, 1):
            chosen.action.params.add(param_id=number, value=bytes([value]))
        written.append(p4r.Entity(table_entry=message))
        switch.insert(written[-1])

    def results(a: int, b: int) -> tuple[int, int]:
        [(_, left)] = switch.process(1, bytes(12) + b"\x12\x34" + bytes([a, b]) + bytes(6))
        return left[-2], left[-1]

    # After a hit the program changes the highest bit of the other result.
    assert results(7, 0) == (0x11, 0x12 ^ 0x80)
    assert results(0, 7) == (0x21 ^ 0x80, 0x22)
    assert switch.read(p4r.Entity(table_entry=p4r.TableEntry())) == written
