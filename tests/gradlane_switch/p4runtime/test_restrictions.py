# SPDX-License-Identifier: Apache-2.0
"""What the annotations of a program forbid is refused, and nothing of it is written."""

import json
from typing import Any

import pytest
from finsy.proto import p4i, p4r, rpc_code
from google.protobuf import text_format

from gradlane_switch import EntityError, ProgramError, Switch
from gradlane_switch.p4runtime.reconcile import reconcile
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock
from tests.gradlane_switch.compiled_programs import delete, modify
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
from tests.gradlane_switch.switch_process import Controller, failures
from tests.support.paths import P4INFO, PROGRAM

TABLE = '@entry_restriction("k0::mask == 0xFF -> k0::value != 0; ::priority < 100;")'
ACTION = '@action_restriction("p0 <= p1")'


def document() -> Json:
    hit = action(0, "hit", [16, 16], assign(field("h", "out"), param(0)), SEND)
    miss = action(1, "miss", [], SEND)
    tables = [table(0, "t", [("ternary", field("h", "k"))], [hit, miss], miss)]
    return program([("k", 8), ("out", 16)], [hit, miss], tables)


def load(*tables: str, actions: tuple[str, ...] = ()) -> Switch:
    info = p4info(document())
    info.tables[0].preamble.annotations.extend(tables)
    info.actions[0].preamble.annotations.extend(actions)
    return Switch(Pipeline(json.dumps(document()).encode(), info, Lock()))


@pytest.fixture
def restricted() -> Switch:
    return load(TABLE, actions=(ACTION,))


def row(value: int, mask: int = 0xFF, arguments: tuple[int, int] = (1, 2), priority: int = 1) -> Any:
    match = p4r.FieldMatch(field_id=1, ternary=p4r.FieldMatch.Ternary(value=encode(value), mask=encode(mask)))
    return entry(1, [match], 1, arguments, priority)


def written(switch: Switch) -> list[Any]:
    return list(switch.read(p4r.Entity(table_entry=p4r.TableEntry())))


FORBIDDEN = [
    (row(0), 't: "k0::mask == 0xFF -> k0::value != 0" does not hold for k0 = 0x0 &&& 0xff'),
    (row(1, priority=100), 't: "::priority < 100" does not hold for priority = 100'),
    (row(1, arguments=(3, 2)), 't: hit: "p0 <= p1" does not hold for p0 = 3, p1 = 2'),
]


@pytest.mark.parametrize(("forbidden", "told"), FORBIDDEN)
def test_an_entry_that_is_forbidden_is_refused(restricted: Switch, forbidden: Any, told: str) -> None:
    with pytest.raises(EntityError) as raised:
        restricted.insert(forbidden)
    assert (raised.value.code, str(raised.value)) == (rpc_code.INVALID_ARGUMENT, told)
    assert written(restricted) == []


def test_what_is_permitted_is_written(restricted: Switch) -> None:
    permitted = [row(1), row(0, mask=0x0F), row(2, arguments=(2, 2), priority=99)]
    for it in permitted:
        restricted.insert(it)
    assert len(written(restricted)) == len(permitted)
    # Without its annotations the program takes the others, too.
    for it, _ in FORBIDDEN:
        load().insert(it)


def test_a_change_of_an_entry_is_looked_at_too(restricted: Switch) -> None:
    restricted.insert(row(1))
    with pytest.raises(EntityError, match="p0 <= p1"):
        modify(restricted, row(1, arguments=(9, 8)))
    assert written(restricted) == [row(1)]
    modify(restricted, row(1, arguments=(8, 9)))
    delete(restricted, row(1, arguments=(9, 8)))
    assert written(restricted) == []


def test_a_default_action_is_restricted_and_a_default_entry_is_no_entry(restricted: Switch) -> None:
    default = p4r.TableEntry(table_id=0x02000001, is_default_action=True)
    for arguments in ((5, 4), (4, 5)):
        default.action.CopyFrom(row(1, arguments=arguments).table_entry.action)
        if arguments == (5, 4):
            with pytest.raises(EntityError, match='t: hit: "p0 <= p1" does not hold for p0 = 5, p1 = 4'):
                modify(restricted, p4r.Entity(table_entry=default))
        else:
            modify(restricted, p4r.Entity(table_entry=default))


@pytest.mark.parametrize(
    ("tables", "actions", "told"),
    [
        (('@entry_restriction("k1 == 0")',), (), "@entry_restriction of t: there is no k1, only k0"),
        (('@entry_restriction("k0")',), (), "@entry_restriction of t: 'k0' is neither true nor false"),
        (("@entry_restriction(k0 == 0)",), (), "@entry_restriction of t: 'k0 == 0' is not a string"),
        ((), ('@action_restriction("p2 == 0")',), "@action_restriction of hit: there is no p2, only p0, p1"),
    ],
)
def test_a_program_with_a_restriction_that_says_nothing_is_refused(
    tables: tuple[str, ...], actions: tuple[str, ...], told: str
) -> None:
    with pytest.raises(ProgramError) as raised:
        load(*tables, actions=actions)
    assert told in str(raised.value)


def test_reconciling_keeps_nothing_that_the_new_program_forbids(restricted: Switch) -> None:
    before = load()
    before.insert(row(1))
    reconcile(before.pipeline, restricted.pipeline)
    assert written(restricted) == [row(1)]
    before.insert(row(0))
    with pytest.raises(EntityError, match=r"the new program can't keep the state: t: .* does not hold for k0"):
        reconcile(before.pipeline, load(TABLE).pipeline)


def test_a_controller_is_told_which_update_is_forbidden(controller: Controller) -> None:
    """Over gRPC, with the project's own program."""
    controller.set_pipeline(PROGRAM, P4INFO)
    info = text_format.Parse(P4INFO.read_text(), p4i.P4Info())
    ids = {item.preamble.alias: item.preamble.id for item in (*info.tables, *info.actions)}

    def port(number: int) -> Any:
        message = p4r.TableEntry(table_id=ids["ports"])
        message.match.add(field_id=1, exact=p4r.FieldMatch.Exact(value=encode(number)))
        message.action.action.action_id = ids["edge"]
        message.action.action.params.add(param_id=1, value=b"\x01")
        return p4r.Entity(table_entry=message)

    errors = failures(controller.insert, port(3), port(0), port(4))
    told = 'GradlaneIngress.admission.ports: "ingress_port != 0" does not hold for ingress_port = 0'
    assert errors == [(rpc_code.OK, ""), (rpc_code.INVALID_ARGUMENT, told), (rpc_code.OK, "")]
