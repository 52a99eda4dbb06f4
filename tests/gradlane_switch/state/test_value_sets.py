# SPDX-License-Identifier: Apache-2.0
"""Parser value sets as controllers write them, and what packets then meet."""

import json
from typing import Any

import pytest
from finsy.proto import p4i, p4r, rpc_code

from gradlane_switch import EntityError, ProgramError, Switch
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock
from tests.gradlane_switch.small_programs import SEND, Json, action, encode, field, p4info, program, table

NUMBER = 0x03000001
MODIFY = p4r.Update.MODIFY


def document() -> Json:
    """A packet whose (a, b) is in the value set leaves with out = 1."""
    send = action(0, "send", [], SEND)
    source = program([("a", 16), ("b", 8), ("out", 8)], [send], [table(0, "t", [], [send], send)])
    source["parse_vsets"] = [{"name": "vs", "id": 0, "compressed_bitwidth": 24, "max_size": 3}]
    set_out = {"op": "set", "parameters": [field("h", "out"), {"type": "hexstr", "value": "0x1"}]}
    done = {"type": "default", "value": None, "mask": None, "next_state": None}
    states = source["parsers"][0]["parse_states"]
    states[0]["transition_key"] = [field("h", "a"), field("h", "b")]
    member = {"type": "parse_vset", "value": "vs", "mask": None, "next_state": "member"}
    states[0]["transitions"] = [member, done]
    states.append({"name": "member", "id": 1, "parser_ops": [set_out], "transition_key": [], "transitions": [done]})
    return source


def info(source: Json, kind: int = p4i.MatchField.EXACT) -> Any:
    made = p4info(source)
    found = made.value_sets.add(size=3)
    found.preamble.id, found.preamble.name = NUMBER, "vs"
    found.match.add(id=1, name="a", bitwidth=16, match_type=kind)
    found.match.add(id=2, name="b", bitwidth=8, match_type=p4i.MatchField.EXACT)
    return made


@pytest.fixture
def switch() -> Switch:
    source = document()
    return Switch(Pipeline(json.dumps(source).encode(), info(source), Lock()))


def members(*pairs: tuple[int, int], number: int = NUMBER) -> Any:
    message = p4r.ValueSetEntry(value_set_id=number)
    for a, b in pairs:
        member = message.members.add()
        for index, value in enumerate((a, b), 1):
            member.match.add(field_id=index).exact.value = encode(value)
    return p4r.Entity(value_set_entry=message)


def write(switch: Switch, entity: Any, kind: int = MODIFY) -> None:
    switch.write(p4r.Update(type=kind, entity=entity))


def is_member(switch: Switch, a: int, b: int) -> bool:
    [(_, out)] = switch.process(0, a.to_bytes(2, "big") + bytes([b, 0]))
    return out[3] == 1


def test_packets_meet_the_members(switch: Switch) -> None:
    assert not is_member(switch, 0, 0)
    write(switch, members((0x22F3, 1), (0x22F3, 2)))
    assert is_member(switch, 0x22F3, 2)
    assert not is_member(switch, 0x22F3, 3)
    write(switch, members((0x22F3, 3)))
    assert not is_member(switch, 0x22F3, 2)
    assert is_member(switch, 0x22F3, 3)
    write(switch, members())
    assert not is_member(switch, 0x22F3, 3)


def test_members_read_back(switch: Switch) -> None:
    assert switch.read(members()) == [members()]
    wanted = members((1, 2), (0xFFFF, 0))
    write(switch, wanted)
    assert switch.read(members()) == switch.read(members(number=0)) == [wanted]


def test_bad_members_are_refused_and_change_nothing(switch: Switch) -> None:
    write(switch, members((1, 2)))
    partial = members((5, 6))
    partial.value_set_entry.members[0].match.pop()
    twice = members((5, 6))
    twice.value_set_entry.members[0].match[1].field_id = 1
    for entity, kind, code, text in (
        (members((1, 1)), p4r.Update.INSERT, rpc_code.INVALID_ARGUMENT, "a value set can only be modified"),
        (members((1, 1)), p4r.Update.DELETE, rpc_code.INVALID_ARGUMENT, "a value set can only be modified"),
        (members((1, 1), (1, 1)), MODIFY, rpc_code.ALREADY_EXISTS, "vs: a member is given twice"),
        (members(*((n, n) for n in range(4))), MODIFY, rpc_code.RESOURCE_EXHAUSTED, "room for 3 members, not for 4"),
        (members((0x10000, 1)), MODIFY, rpc_code.OUT_OF_RANGE, "vs.a: 0x10000 does not fit in 16 bits"),
        (partial, MODIFY, rpc_code.INVALID_ARGUMENT, "vs.b is missing"),
        (twice, MODIFY, rpc_code.INVALID_ARGUMENT, "vs.a is given twice"),
        (
            members(number=5),
            MODIFY,
            rpc_code.NOT_FOUND,
            "there is no value set with the id 0x5: there are vs (0x3000001)",
        ),
    ):
        with pytest.raises(EntityError) as caught:
            write(switch, entity, kind)
        assert caught.value.code == code
        assert text in str(caught.value)
    assert switch.read(members()) == [members((1, 2))]


def member(kind: int, **values: int) -> p4r.ValueSetMember:
    """A member whose first field is matched by `kind`, from values of P4Runtime's fields; none: anything."""
    result = p4r.ValueSetMember()
    if values:
        name = p4i.MatchField.MatchType.Name(kind).lower()
        part = getattr(result.match.add(field_id=1), name)
        for key, value in values.items():
            setattr(part, key, value if key == "prefix_len" else encode(value))
    result.match.add(field_id=2).exact.value = encode(1)
    return result


@pytest.mark.parametrize(
    ("kind", "values", "inside", "outside"),
    [
        (p4i.MatchField.TERNARY, {"value": 0x0100, "mask": 0x0F00}, (0x0100, 0xF1FF), (0x0200, 0x0000)),
        (p4i.MatchField.LPM, {"value": 0xAB00, "prefix_len": 8}, (0xAB00, 0xABFF), (0xAC00, 0x2B00)),
        (p4i.MatchField.RANGE, {"low": 5, "high": 0x1234}, (5, 0x1234), (4, 0x1235)),
        (p4i.MatchField.OPTIONAL, {"value": 9}, (9,), (8,)),
    ],
)
def test_members_match_as_p4info_says(
    kind: int, values: dict[str, int], inside: tuple[int, ...], outside: tuple[int, ...]
) -> None:
    source = document()
    switch = Switch(Pipeline(json.dumps(source).encode(), info(source, kind), Lock()))
    wanted = members()
    wanted.value_set_entry.members.append(member(kind, **values))
    write(switch, wanted)
    assert switch.read(members()) == [wanted]
    assert [is_member(switch, a, 1) for a in (*inside, *outside)] == [True] * len(inside) + [False] * len(outside)
    assert not is_member(switch, inside[0], 2)
    anything = members()
    anything.value_set_entry.members.append(member(kind))
    write(switch, anything)
    assert is_member(switch, outside[0], 1)
    assert not is_member(switch, outside[0], 2)


def test_a_value_set_of_two_prefixes_matches_both() -> None:
    source = document()
    described = info(source, p4i.MatchField.LPM)
    described.value_sets[0].match[1].match_type = p4i.MatchField.LPM
    switch = Switch(Pipeline(json.dumps(source).encode(), described, Lock()))
    wanted = members()
    made = wanted.value_set_entry.members.add()
    for number, (value, length) in enumerate(((0xAB00, 8), (0x80, 1)), 1):
        part = made.match.add(field_id=number).lpm
        part.value, part.prefix_len = encode(value), length
    write(switch, wanted)
    assert is_member(switch, 0xAB12, 0xFF)
    assert not is_member(switch, 0xAB12, 0x7F)
    assert not is_member(switch, 0xAC12, 0xFF)


def test_a_value_set_whose_fields_differ_from_the_select_is_refused_by_name() -> None:
    source = document()
    described = info(source)
    del described.value_sets[0].match[1:]
    with pytest.raises(ProgramError, match="P4Info and the program disagree on the fields of vs"):
        Pipeline(json.dumps(source).encode(), described, Lock())
