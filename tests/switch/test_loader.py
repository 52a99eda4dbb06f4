# SPDX-License-Identifier: Apache-2.0
"""What the switch does not support is refused at load, by name and place; what is malformed never gets further."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_programs import SEND, Json, action, assign, const, expression, field, p4info, param, program, table

from gradlane_switch import ProgramError
from gradlane_switch.codegen import generate
from gradlane_switch.loader import load
from gradlane_switch.schema import join
from gradlane_switch.switch import read_p4info

SET = action(0, "set", [16], assign(field("h", "out"), param(0)), SEND)
MISS = action(1, "miss", [], SEND)


def base() -> Json:
    keys = [("exact", field("h", "k"))]
    return program([("k", 16), ("out", 16)], [SET, MISS], [table(0, "t", keys, [SET, MISS], MISS)])


def refusal(document: Json) -> str:
    with pytest.raises(ProgramError) as caught:
        load(json.dumps(document))
    return str(caught.value)


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


REFUSALS: list[tuple[Callable[[Json], None], str]] = [
    (part("header_stacks", {"name": "vlans"}), r"header stacks are not supported: vlans"),
    (part("header_unions", {"name": "l4"}), r"header unions are not supported: l4"),
    (part("learn_lists", {"name": "mac_learn"}), r"digests are not supported: mac_learn"),
    (part("parse_vsets", {"name": "ports"}), r"parser value sets are not supported: ports"),
    (part("extern_instances", {"name": "e"}), r"extern instances are not supported: e"),
    (header_field("address", 128, False), r"fields of more than 64 bits are not supported: h.address \(128 bits\)"),
    (header_field("options", "*"), r"variable-length fields are not supported: h.options"),
    (header_field("delta", 8, True), r"signed fields are not supported: h.delta"),
    (header_field("odd", 3, False), r"header h has 35 bits: a whole number of bytes is needed"),
    (primitive("clone_ingress_pkt_to_egress"), r"primitive 'clone_ingress_pkt_to_egress' .* \(small.p4:42\)"),
    (primitive("push", const(1)), r"primitive 'push' is not supported \(small.p4:42\)"),
    (
        primitive("assign", field("h", "out"), expression("two_comp_mod", const(1), const(8))),
        r"operator 'two_comp_mod' is not supported \(small.p4:42\)",
    ),
    (
        primitive("assign", field("h", "out"), field("standard_metadata", "deq_qdepth")),
        r"queue metadata \(standard_metadata.deq_qdepth\) is not supported.*\(small.p4:42\)",
    ),
    (primitive("assign", field("h", "nothing"), const(1)), r"field h.nothing does not exist \(small.p4:42\)"),
    (
        primitive("assign", field("h", "out"), expression(">>", expression("-", const(1), const(2)), const(1))),
        r"arithmetic of more than 64 bits, or on signed values, in a right shift is not supported",
    ),
    (primitive("assign", field("h", "out"), const(1 << 64)), r"a constant of 65 bits is not supported"),
    (primitive("_jump", const(0)), r"loops in actions are not supported \(small.p4:42\)"),
    (primitive("count", {"type": "counter_array", "value": "c"}, const(0)), r"counter_array c does not exist"),
    (in_table(type="indirect"), r"tables with an action profile are not supported: t \(small.p4:11\)"),
    (in_table(support_timeout=True), r"idle timeouts are not supported: t \(small.p4:11\)"),
    (in_table(direct_meters="m"), r"direct meters are not supported: t \(small.p4:11\)"),
    (in_table(next_tables={"set": "t", "miss": None}), r"loops in the ingress are not supported"),
    (
        part("meter_arrays", {"name": "m", "size": 1, "is_direct": True, "rate_count": 2, "type": "bytes"}),
        r"direct meters are not supported: m",
    ),
    (
        part("register_arrays", {"name": "r", "size": 1, "bitwidth": 128}),
        r"registers of 128 bits are not supported \(at most 64\): r",
    ),
    (
        part("calculations", {"name": "c", "algo": "crc32_custom", "input": []}),
        r"hash algorithm 'crc32_custom' is not supported",
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


def test_a_parser_that_never_ends_is_refused() -> None:
    document = base()
    document["parsers"][0]["parse_states"][0]["transitions"][0]["next_state"] = "start"
    assert refusal(document) == "loops in the parser are not supported"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"__meta__": 3}', '{"__meta__": {"version": [2, 0]}}'])
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
    with pytest.raises(ProgramError, match=r"P4Info names a table that the program lacks: .*senders"):
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
