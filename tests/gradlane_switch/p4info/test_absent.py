# SPDX-License-Identifier: Apache-2.0
"""What p4c describes in P4Info and then takes out of the program, because no packet can reach it."""

from collections.abc import Callable
from typing import Any

import pytest
from finsy.proto import p4r, rpc_code

from gradlane_switch import EntityError, ProgramError, Switch
from gradlane_switch.bmv2_json.program import load as load_program
from gradlane_switch.p4info.join import join
from gradlane_switch.p4runtime.files import read_p4info
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock
from tests.gradlane_switch.compiled_programs import ids
from tests.gradlane_switch.small_programs import action, field, load, program, table
from tests.support.paths import CORPUS

JSON, P4INFO = CORPUS / "optimised_away.json", CORPUS / "optimised_away.p4info.txtpb"


@pytest.fixture
def switch() -> Switch:
    return Switch.load(JSON, P4INFO)


def entry(switch: Switch, name: str) -> Any:
    message = p4r.TableEntry(table_id=ids(switch)[name])
    message.match.add(field_id=1).exact.value = b"\x01"
    message.action.action.action_id = ids(switch)["set"]
    message.action.action.params.add(param_id=1, value=b"\x21")
    return p4r.Entity(table_entry=message)


def member(switch: Switch) -> Any:
    message = p4r.ActionProfileMember(action_profile_id=ids(switch)["unused_members"], member_id=1)
    message.action.CopyFrom(entry(switch, "used").table_entry.action.action)
    return p4r.Entity(action_profile_member=message)


def digest(switch: Switch) -> Any:
    return p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=ids(switch)["learned_t"]))


@pytest.mark.parametrize(
    ("entity", "what"),
    [
        (lambda switch: entry(switch, "unused"), "table I.unused"),
        (lambda switch: entry(switch, "unused_choice"), "table I.unused_choice"),
        (member, "action profile I.unused_members"),
        (digest, "digest learned_t"),
    ],
)
def test_what_the_program_lacks_is_refused_by_name_when_it_is_written_or_read(
    switch: Switch, entity: Callable[[Switch], Any], what: str
) -> None:
    for access in (switch.insert, switch.read):
        with pytest.raises(EntityError, match=f"{what} is in P4Info, but the program lacks it") as caught:
            access(entity(switch))
        assert caught.value.code == rpc_code.NOT_FOUND


def test_the_rest_of_the_program_works(switch: Switch) -> None:
    switch.insert(entry(switch, "used"))
    frame = bytes(12) + b"\x12\x34\x01\x00"
    assert switch.process(1, frame) == [(1, frame[:-1] + b"\x21")]
    everything = [p4r.Entity(table_entry=p4r.TableEntry()), p4r.Entity(digest_entry=p4r.DigestEntry())]
    everything.append(p4r.Entity(action_profile_member=p4r.ActionProfileMember()))
    assert [found for wanted in everything for found in switch.read(wanted)] == [entry(switch, "used")]


def test_a_reference_to_it_refers_to_nothing() -> None:
    info = read_p4info(P4INFO)
    used = next(item for item in info.tables if item.preamble.name == "I.used")
    used.match_fields[0].annotations.append("@refers_to(unused , h.subject.a)")
    switch = Switch(Pipeline(JSON.read_bytes(), info, Lock()))
    switch.insert(entry(switch, "used"))
    used.match_fields[0].annotations[:] = ["@refers_to(nothing , h.subject.a)"]
    with pytest.raises(ProgramError, match="there is no such table"):
        Pipeline(JSON.read_bytes(), info, Lock())


def test_a_p4info_without_any_table_of_the_program_is_refused() -> None:
    run = action(0, "run", [])
    other = load(program([("a", 8)], [run], [table(0, "t", [("exact", field("h", "a"))], [run], run)]))
    with pytest.raises(
        ProgramError, match=r"P4Info is of another program: that has none of the tables I\.used, I\.unused"
    ):
        join(read_p4info(P4INFO), other.pipeline.program)


def test_a_header_of_packet_ins_whose_length_nobody_knows_is_left_out() -> None:
    info = read_p4info(CORPUS / "controller_headers.p4info.txtpb")
    other = load_program((CORPUS / "controller_headers.json").read_bytes())
    assert join(info, other).packet_headers["packet_in"].octets == 3
    field = info.controller_packet_metadata[0].metadata[1]
    field.bitwidth, field.type_name.name = 0, "name_t"
    info.type_info.new_types["name_t"].translated_type.sdn_string.SetInParent()
    assert join(info, other).packet_headers == {}
