# SPDX-License-Identifier: Apache-2.0
"""What the switch does not support is refused at load, by name and place; what is malformed never gets further."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradlane_switch import ProgramError
from gradlane_switch.bmv2_json.program import load
from gradlane_switch.codegen.program import generate
from gradlane_switch.p4info.join import join
from gradlane_switch.p4runtime.files import read_p4info
from tests.gradlane_switch.compiled_programs import wrapped
from tests.gradlane_switch.small_programs import (
    SEND,
    Json,
    action,
    assign,
    const,
    expression,
    field,
    p4info,
    param,
    program,
    table,
)

SET = action(0, "set", [16], assign(field("h", "out"), param(0)), SEND)
MISS = action(1, "miss", [], SEND)


def base() -> Json:
    keys = [("exact", field("h", "k"))]
    return program([("k", 16), ("out", 16)], [SET, MISS], [table(0, "t", keys, [SET, MISS], MISS)])


def primitive(op: str, *parameters: Json) -> Callable[[Json], None]:
    def change(document: Json) -> None:
        item = {"op": op, "parameters": list(parameters), "source_info": {"filename": "small.p4", "line": 42}}
        document["actions"][1]["primitives"] = [item]

    return change


def part(key: str, *items: Json) -> Callable[[Json], None]:
    return lambda document: document.update({key: list(items)})


def in_table(**changes: Any) -> Callable[[Json], None]:
    return lambda document: document["pipelines"][0]["tables"][0].update(changes)


def header_field(*definition: Any) -> Callable[[Json], None]:
    return lambda document: document["header_types"][2]["fields"].append(list(definition))


def in_header(*fields: Any, max_length: int) -> Callable[[Json], None]:
    def change(document: Json) -> None:
        document["header_types"][2]["fields"] += fields
        document["header_types"][2]["max_length"] = max_length

    return change


REFUSALS: list[tuple[Callable[[Json], None], str]] = [
    (part("header_stacks", {"name": "s", "id": 0, "header_ids": []}), r"header stack s has 0 elements"),
    (
        part("parse_vsets", {"name": "ports", "compressed_bitwidth": 2049}),
        r"a value set of 2049 bits is not supported: ports",
    ),
    (part("extern_instances", {"name": "e"}), r"extern instances are not supported: e"),
    (header_field("address", 2049, False), r"fields of 2049 bits are not supported \(1 to 2048 are\): h.address"),
    (in_header(["options", "*"], ["more", "*"], max_length=9), r"two variable-length fields is not supported: h.more"),
    (
        in_header(["half", 4, False], ["options", "*"], max_length=9),
        r"header h has 36 bits: a whole number of bytes is needed",
    ),
    (in_header(["options", "*"], max_length=3000), r"field of up to 23968 bits is not supported: h.options"),
    (
        lambda document: document["deparsers"][0].update(
            primitives=[{"op": "add_header", "parameters": [{"type": "header", "value": "h"}]}]
        ),
        r"add_header in the deparser is not supported",
    ),
    (header_field("odd", 3, False), r"header h has 35 bits: a whole number of bytes is needed"),
    (
        primitive("clone_ingress_pkt_to_egress", const(1), const(7)),
        r"field list 7 does not exist \(small.p4:42\)",
    ),
    (primitive("resubmit", const(0)), r"field list 0 does not exist \(small.p4:42\)"),
    (primitive("recirculate", field("h", "k")), r"a computed field list is not supported \(small.p4:42\)"),
    (primitive("generate_digest", const(1), const(3)), r"learn list 3 does not exist \(small.p4:42\)"),
    (
        part("learn_lists", {"name": "l", "id": 1, "elements": [{"type": "header", "value": "h"}]}),
        r"a header in the list l is not supported",
    ),
    (primitive("push", const(1), const(1)), r"a header stack is wanted, not a hexstr \(small.p4:42\)"),
    (
        primitive("assign", field("h", "out"), expression("two_comp_mod", const(1), const(0))),
        r"a cast to a width that is not a constant in 1..2048 is not supported \(small.p4:42\)",
    ),
    (primitive("assign", field("h", "nothing"), const(1)), r"field h.nothing does not exist \(small.p4:42\)"),
    (
        primitive("assign", field("h", "out"), expression(">>", expression("<<", const(1), field("h", "k")), const(1))),
        r"a value that may have more than 4096 bits, in a right shift, is not supported \(small.p4:42\)",
    ),
    (
        primitive("assign", field("h", "out"), expression("/", expression("-", const(1), field("h", "k")), const(3))),
        r"/ of a value that may be negative is not supported \(small.p4:42\)",
    ),
    (primitive("assign", field("h", "out"), const(1 << 2048)), r"a constant of 2049 bits is not supported"),
    (primitive("_jump", const(2)), r"a jump to 2, in an action of 1 primitives \(small.p4:42\)"),
    (primitive("count", {"type": "counter_array", "value": "c"}, const(0)), r"counter_array c does not exist"),
    (in_table(type="indirect", action_profile="p"), r"action_profile p does not exist \(small.p4:11\)"),
    (in_table(type="strange"), r"tables of type 'strange' are not supported: t \(small.p4:11\)"),
    (in_table(direct_meters="m"), r"direct meter m of t does not exist \(small.p4:11\)"),
    (in_table(next_tables={"set": "t", "miss": None}), r"loops in the ingress are not supported"),
    (
        part("meter_arrays", {"name": "m", "size": 1, "is_direct": True, "rate_count": 3, "type": "bytes"}),
        r"meters of 3 rates are not supported",
    ),
    (
        part("register_arrays", {"name": "r", "size": 1, "bitwidth": 2049}),
        r"registers of 2049 bits are not supported \(1 to 2048 are\): r",
    ),
    (
        part("calculations", {"name": "c", "algo": "xxh64", "input": []}),
        r"hash algorithm 'xxh64' is not supported",
    ),
    (part("pipelines"), r"the program has no pipeline 'ingress': is it a v1model program\?"),
    (lambda document: document.update({"__meta__": {"version": [3, 0]}}), r"BMv2 JSON version \[3, 0\]"),
]


@pytest.mark.parametrize(("change", "message"), REFUSALS, ids=[message for _, message in REFUSALS])
def test_refused_by_name(change: Callable[[Json], None], message: str) -> None:
    document = base()
    load(json.dumps(document))
    change(document)
    with pytest.raises(ProgramError, match=message):
        load(json.dumps(document))


def test_a_program_may_be_wrapped_as_older_clients_do() -> None:
    program = json.dumps(base()).encode()
    assert load(wrapped(program)) == load(program)
    with pytest.raises(ProgramError, match=r"the program is not JSON"):
        load(wrapped(b"no JSON" + bytes(1 << 14)))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[" * 100_000, "{}", '{"__meta__": 3}', '{"__meta__": {"version": [2, 0]}}']
)
def test_what_is_no_program_is_refused(text: str) -> None:
    with pytest.raises(ProgramError):
        load(text)


def test_every_truncation_of_the_structure_is_refused_or_loads(program_json: Path) -> None:
    """Dropping any one key anywhere gives a program or a ProgramError, nothing else."""
    whole = json.loads(program_json.read_text())

    def drop(value: Any, depth: int) -> None:
        if isinstance(value, dict):
            for key in list(value):
                kept = value.pop(key)
                with contextlib.suppress(ProgramError):
                    load(json.dumps(whole))
                value[key] = kept
                if depth:
                    drop(kept, depth - 1)
        elif isinstance(value, list) and value:
            drop(value[0], depth)

    drop(whole, 3)


def test_p4info_of_another_program_is_refused(program_p4info: Path) -> None:
    with pytest.raises(ProgramError, match=r"P4Info is of another program: that has none of the tables .*senders"):
        join(read_p4info(program_p4info), load(json.dumps(base())))
    info = p4info(base())
    info.tables[0].match_fields[0].bitwidth = 8
    with pytest.raises(ProgramError, match=r"P4Info and the program disagree on t.k0"):
        join(info, load(json.dumps(base())))


def test_no_name_of_the_program_reaches_the_generated_code() -> None:
    document = base()
    marker = 'x"; } int system(const char *); //'
    text = json.dumps(document).replace('"out"', json.dumps(marker)).replace('"t"', json.dumps(marker + "t"))
    source = generate(load(text))
    assert "system" not in source
    assert marker not in source
