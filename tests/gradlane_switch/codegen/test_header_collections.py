# SPDX-License-Identifier: Apache-2.0
"""Header stacks, header unions, stacks of unions, variable-length fields and parser value sets."""

from typing import Any

import pytest

from gradlane_switch import Switch
from gradlane_switch.ir.tables import FieldKey
from tests.gradlane_switch.small_programs import (
    SEND,
    STANDARD,
    Json,
    action,
    assign,
    const,
    expression,
    field,
    load,
    program,
    table,
)

ERRORS = ["NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds", "HeaderTooShort", "ParserTimeout"]
ERRORS += ["ParserInvalidArgument"]


def state(name: str, operations: list[Json], keys: list[Json], *transitions: tuple[str | None, str | None]) -> Json:
    return {
        "name": name,
        "id": 0,
        "parser_ops": operations,
        "transition_key": keys,
        "transitions": [
            {"type": "default" if value is None else "hexstr", "value": value, "mask": None, "next_state": following}
            for value, following in transitions
        ],
    }


def extract(kind: str, value: Any, length: Json | None = None) -> Json:
    parameters: list[Json] = [{"type": kind, "value": value}]
    if length is None:
        return {"op": "extract", "parameters": parameters}
    return {"op": "extract_VL", "parameters": [*parameters, {"type": "expression", "value": length}]}


def build(
    types: dict[str, list[Any]],
    headers: list[tuple[str, str]],
    states: list[Json],
    body: list[Json],
    **parts: Any,
) -> Switch:
    """A program with headers of its own: types by name, and (instance, type) in the order in which they are deparsed.

    A header's index is its place in `headers` plus 2. A variable-length field is ["name", "*", most bytes].
    """
    run = action(0, "run", [], *body)
    document = program([], [run], [table(0, "t", [], [run], run)])
    kinds = [
        {"name": "scalars_0", "id": 0, "fields": [["m0", 64, False], ["m1", 32, False]]},
        {"name": "standard_metadata", "id": 1, "fields": [[name, width, False] for name, width in STANDARD]},
    ]
    for number, (name, fields) in enumerate(types.items(), 2):
        kind: Json = {"name": name, "id": number, "fields": [[*item[:2], False] for item in fields]}
        fixed = sum(item[1] for item in fields if item[1] != "*") // 8
        for item in fields:
            if item[1] == "*":
                kind["max_length"] = fixed + item[2]
        kinds.append(kind)
    instances = document["headers"][:2] + [
        {"name": name, "id": number, "header_type": kind, "metadata": False}
        for number, (name, kind) in enumerate(headers, 2)
    ]
    document.update(
        header_types=kinds,
        headers=instances,
        errors=[[name, number] for number, name in enumerate(ERRORS)],
        parsers=[{"name": "parser", "id": 0, "init_state": "start", "parse_states": states}],
        deparsers=[{"name": "deparser", "id": 0, "order": [name for name, _ in headers], "primitives": []}],
    )
    document.update(parts)
    return load(document)


def stack_of(name: str, kind: str, ids: list[int], number: int = 0) -> Json:
    return {"name": name, "id": number, "header_type": kind, "size": len(ids), "header_ids": ids}


LABEL = [["label", 7], ["bottom", 1]]
REPORT = [["error", 8], ["last", 8]]
STACK = [("report", "report_t"), *((f"s[{n}]", "label_t") for n in range(3))]
LABELS = {"report_t": REPORT, "label_t": LABEL}
LAST = {"type": "stack_field", "value": ["s", "bottom"]}
TELL = [
    {"op": "add_header", "parameters": [{"type": "header", "value": "report"}]},
    assign(field("report", "error"), field("standard_metadata", "parser_error")),
    assign(field("report", "last"), field("scalars", "m0")),
    SEND,
]
LAST_INDEX = {
    "type": "expression",
    "value": {"op": "last_stack_index", "left": None, "right": {"type": "header_stack", "value": "s"}},
}


def labels(*body: Json) -> Switch:
    """Labels up to one with the bottom bit; the report tells the parser's error and the last index."""
    read_last = {"op": "set", "parameters": [field("scalars", "m0"), LAST_INDEX]}
    states = [state("start", [extract("stack", "s"), read_last], [LAST], ("0x00", "start"), (None, None))]
    return build(LABELS, STACK, states, [*body, *TELL], header_stacks=[stack_of("s", "label_t", [3, 4, 5])])


def test_a_stack_is_parsed_in_a_loop_until_it_is_full() -> None:
    switch = labels()
    assert switch.process(0, b"\x01rest") == [(1, b"\x00\x00\x01rest")]
    assert switch.process(0, b"\x02\x04\x07rest") == [(1, b"\x00\x02\x02\x04\x07rest")]
    assert switch.process(0, b"\x02\x04\x06\x08\x01") == [(1, b"\x03\x02\x02\x04\x06\x08\x01")]
    assert switch.process(0, b"\x02\x04") == [(1, b"\x01\x01\x02\x04")]


@pytest.mark.parametrize(
    ("op", "count", "left"),
    [
        ("push", 1, b"\x02\x04"),
        ("push", 2, b"\x02"),
        ("push", 7, b""),
        ("pop", 1, b"\x04\x07"),
        ("pop", 2, b"\x07"),
        ("pop", 3, b""),
        ("pop", 9, b""),
    ],
)
def test_push_and_pop_move_all_elements(op: str, count: int, left: bytes) -> None:
    stack = {"type": "header_stack", "value": "s"}
    switch = labels({"op": op, "parameters": [stack, const(count)]})
    assert switch.process(0, b"\x02\x04\x07rest") == [(1, b"\x00\x02" + left + b"rest")]


def test_an_element_that_was_pushed_is_invalid_until_it_is_set_valid() -> None:
    stack = {"type": "header_stack", "value": "s"}
    push = {"op": "push", "parameters": [stack, const(1)]}
    make = {"op": "add_header", "parameters": [{"type": "header", "value": "s[0]"}]}
    switch = labels(push, make, assign(field("s[0]", "label"), const(0x7F)))
    assert switch.process(0, b"\x03rest") == [(1, b"\x00\x00\xfe\x03rest")]


def element(index: Json, position: int) -> Json:
    """s[index], field number `position`."""
    stack = {"type": "header_stack", "value": "s"}
    found = {"type": "expression", "value": {"op": "dereference_header_stack", "left": stack, "right": index}}
    return {"type": "expression", "value": {"op": "access_field", "left": found, "right": position}}


def test_an_element_by_a_computed_index_and_none_beyond_the_end() -> None:
    index = expression("&", field("s[0]", "label"), const(3))
    switch = labels(
        assign(field("s[1]", "label"), element(index, 0)),
        assign({"type": "expression", "value": element(index, 0)}, const(0x55)),
    )
    # Index 2 is read and written; 3 does not exist.
    assert switch.process(0, b"\x04\x02\x0frest") == [(1, b"\x00\x02\x04\x0e\xabrest")]
    assert switch.process(0, b"\x06\x02\x0frest") == [(1, b"\x00\x02\x06\x00\x0frest")]


def test_a_stack_is_assigned_as_a_whole() -> None:
    other = [(f"o[{n}]", "label_t") for n in range(3)]
    read_last = {"op": "set", "parameters": [field("scalars", "m0"), LAST_INDEX]}
    states = [state("start", [extract("stack", "s"), read_last], [LAST], ("0x00", "start"), (None, None))]
    copy = {"op": "assign_header_stack", "parameters": [{"type": "header_stack", "value": name} for name in ("o", "s")]}
    stacks = [stack_of("s", "label_t", [3, 4, 5]), stack_of("o", "label_t", [6, 7, 8], 1)]
    switch = build(LABELS, [*STACK, *other], states, [copy, *TELL], header_stacks=stacks)
    assert switch.process(0, b"\x02\x05rest") == [(1, b"\x00\x01\x02\x05\x02\x05rest")]


def test_the_last_element_of_an_empty_stack_is_a_parser_error() -> None:
    states = [state("start", [], [LAST], ("0x00", "start"), (None, None))]
    switch = build(LABELS, STACK, states, TELL, header_stacks=[stack_of("s", "label_t", [3, 4, 5])])
    assert switch.process(0, b"x") == [(1, b"\x03\x00x")]


def test_a_parser_that_makes_no_progress_times_out() -> None:
    states = [state("start", [], [], (None, "start"))]
    switch = build(LABELS, STACK, states, TELL, header_stacks=[stack_of("s", "label_t", [3, 4, 5])])
    assert switch.process(0, b"x") == [(1, b"\x05\x00x")]


# Unions

UNION_TYPES = {"report_t": REPORT, "short_t": [["a", 8]], "long_t": [["b", 24]]}
UNION = [("report", "report_t"), ("u.short", "short_t"), ("u.long", "long_t")]
UNION_PARTS: dict[str, Any] = {
    "header_union_types": [{"name": "u_t", "id": 0, "headers": [["short", "short_t"], ["long", "long_t"]]}],
    "header_unions": [{"name": "u", "id": 0, "union_type": "u_t", "header_ids": [3, 4]}],
}
UNION_VALID = expression("b2d", None, expression("valid_union", None, {"type": "header_union", "value": "u"}))


def union(*body: Json) -> Switch:
    """The short header of a union if the packet begins with 1, the long one for 2, none otherwise."""
    first = {"type": "lookahead", "value": [0, 8]}
    states = [
        state("start", [], [first], ("0x01", "short"), ("0x02", "long"), (None, None)),
        state("short", [extract("regular", "u.short")], [], (None, None)),
        state("long", [extract("regular", "u.long")], [], (None, None)),
    ]
    valid = assign(field("scalars", "m0"), UNION_VALID)
    return build(UNION_TYPES, UNION, states, [*body, valid, *TELL], **UNION_PARTS)


def header_op(op: str, name: str) -> Json:
    return {"op": op, "parameters": [{"type": "header", "value": name}]}


def test_a_union_is_valid_if_one_of_its_headers_is() -> None:
    switch = union()
    assert switch.process(0, b"\x01rest") == [(1, b"\x00\x01\x01rest")]
    assert switch.process(0, b"\x02bcrest") == [(1, b"\x00\x01\x02bcrest")]
    assert switch.process(0, b"\x03rest") == [(1, b"\x00\x00\x03rest")]


def test_setting_one_header_of_a_union_valid_makes_the_others_invalid() -> None:
    switch = union(header_op("add_header", "u.long"), assign(field("u.long", "b"), const(0x616263)))
    assert switch.process(0, b"\x01rest") == [(1, b"\x00\x01abcrest")]
    assert union(header_op("remove_header", "u.short")).process(0, b"\x01rest") == [(1, b"\x00\x00rest")]


def test_unions_are_equal_if_the_same_header_is_valid_and_equal_in_both() -> None:
    other = [("w.short", "short_t"), ("w.long", "long_t")]
    parts = UNION_PARTS | {
        "header_unions": [
            {"name": "u", "id": 0, "union_type": "u_t", "header_ids": [3, 4]},
            {"name": "w", "id": 1, "union_type": "u_t", "header_ids": [5, 6]},
        ]
    }
    states = [state("start", [extract("regular", "u.short"), extract("regular", "w.short")], [], (None, None))]
    both = [{"type": "header_union", "value": name} for name in ("u", "w")]
    same = assign(field("scalars", "m0"), expression("b2d", None, expression("==", *both)))
    switch = build(UNION_TYPES, [*UNION, *other], states, [same, *TELL], **parts)
    assert switch.process(0, b"aa") == [(1, b"\x00\x01aa")]
    assert switch.process(0, b"ab") == [(1, b"\x00\x00ab")]
    copy = {"op": "assign_union", "parameters": both}
    switch = build(UNION_TYPES, [*UNION, *other], states, [copy, same, *TELL], **parts)
    assert switch.process(0, b"ab") == [(1, b"\x00\x01bb")]


def test_a_stack_of_unions_is_parsed_by_kind_and_popped() -> None:
    members = [(f"u[{n}].{name}", f"{name}_t") for n in range(2) for name in ("short", "long")]
    parts = {
        "header_union_types": UNION_PARTS["header_union_types"],
        "header_unions": [
            {"name": f"u[{n}]", "id": n, "union_type": "u_t", "header_ids": [3 + 2 * n, 4 + 2 * n]} for n in range(2)
        ],
        "header_union_stacks": [{"name": "u", "id": 0, "union_type": "u_t", "size": 2, "header_union_ids": [0, 1]}],
    }
    first = {"type": "lookahead", "value": [0, 8]}
    last = {"type": "union_stack_field", "value": ["u", "long", "b"]}
    states = [
        state("start", [], [first], ("0x01", "short"), ("0x02", "long"), (None, None)),
        state("short", [extract("union_stack", ["u", "short"])], [], (None, "start")),
        state("long", [extract("union_stack", ["u", "long"])], [last], ("0x020202", None), (None, "start")),
    ]
    pop = {"op": "pop", "parameters": [{"type": "header_union_stack", "value": "u"}, const(1)]}
    switch = build(UNION_TYPES, [UNION[0], *members], states, [pop, *TELL], **parts)
    assert switch.process(0, b"\x01\x02ab\x09") == [(1, b"\x00\x00\x02ab\x09")]
    switch = build(UNION_TYPES, [UNION[0], *members], states, TELL, **parts)
    assert switch.process(0, b"\x01\x02ab\x09") == [(1, b"\x00\x00\x01\x02ab\x09")]
    assert switch.process(0, b"\x02\x02\x02\x01") == [(1, b"\x00\x00\x02\x02\x02\x01")]
    assert switch.process(0, b"\x01\x01\x01") == [(1, b"\x03\x00\x01\x01\x01")]


# Variable length

OPTIONS = [["size", 8], ["data", "*", 4], ["after", 8]]
VARIABLE = {"report_t": REPORT, "options_t": OPTIONS}


def options(*body: Json, factor: int = 8, **parts: Any) -> Switch:
    """A size, so many bytes (at most 4), and a byte more."""
    size = {"type": "lookahead", "value": [0, 8]}
    read = {"op": "set", "parameters": [field("scalars", "m1"), size]}
    length = {"type": "expression", "value": {"op": "*", "left": field("scalars", "m1"), "right": const(factor)}}
    states = [state("start", [read, extract("regular", "o", length)], [], (None, None))]
    instances = [("report", "report_t"), ("o", "options_t"), ("p", "options_t")]
    return build(VARIABLE, instances, states, [*body, *TELL], **parts)


def test_a_variable_length_field_keeps_its_length() -> None:
    switch = options(assign(field("o", "after"), const(0x21)))
    for size in range(5):
        data = b"data"[:size]
        frame = bytes([size]) + data + b"?rest"
        assert switch.process(0, frame) == [(1, b"\x00\x00" + bytes([size]) + data + b"!rest")]


def test_a_variable_length_field_beyond_its_size_or_the_packet_is_a_parser_error() -> None:
    assert options().process(0, b"\x05dataX?rest") == [(1, b"\x04\x00\x05dataX?rest")]
    assert options().process(0, b"\x04dat") == [(1, b"\x01\x00\x04dat")]
    assert options(factor=4).process(0, b"\x01dat") == [(1, b"\x06\x00\x01dat")]


def test_headers_and_fields_of_variable_length_are_copied() -> None:
    header = [{"type": "header", "value": name} for name in ("p", "o")]
    switch = options({"op": "assign_header", "parameters": header})
    assert switch.process(0, b"\x02ab?rest") == [(1, b"\x00\x00\x02ab?\x02ab?rest")]
    assert switch.process(0, b"\x00?rest") == [(1, b"\x00\x00\x00?\x00?rest")]
    fields = [{"type": "field", "value": [name, "data"]} for name in ("p", "o")]
    switch = options(header_op("add_header", "p"), {"op": "assign_VL", "parameters": fields})
    assert switch.process(0, b"\x02ab?rest") == [(1, b"\x00\x00\x02ab?\x00ab\x00rest")]


# Value sets


def test_a_value_set_decides_by_its_members_of_the_moment() -> None:
    keys = [field("k", "a"), field("k", "b")]
    states = [
        state("start", [extract("regular", "k")], keys, (None, None)),
        state("member", [{"op": "set", "parameters": [field("scalars", "m0"), const(1)]}], [], (None, None)),
    ]
    states[0]["transitions"].insert(0, {"type": "parse_vset", "value": "v", "mask": None, "next_state": "member"})
    types = {"report_t": REPORT, "k_t": [["a", 12], ["b", 68]]}
    sets = [{"name": "v", "id": 0, "compressed_bitwidth": 80, "max_size": 4}]
    switch = build(types, [("report", "report_t"), ("k", "k_t")], states, TELL, parse_vsets=sets)
    numbers = [int.from_bytes(text, "big") for text in (b"0123456789", b"ABCDEFGHIJ")]
    one, two = ((FieldKey(number >> 68), FieldKey(number & ((1 << 68) - 1))) for number in numbers)

    def found(frame: bytes) -> int:
        return switch.process(0, frame)[0][1][1]

    assert (found(b"0123456789"), found(b"ABCDEFGHIJ")) == (0, 0)
    state_of = switch.pipeline.state
    state_of.value_sets[0].replace([one])
    assert (found(b"0123456789"), found(b"ABCDEFGHIJ"), found(b"012345678:")) == (1, 0, 0)
    state_of.value_sets[0].replace([one, two])
    assert (found(b"0123456789"), found(b"ABCDEFGHIJ")) == (1, 1)
    state_of.value_sets[0].replace([two])
    assert state_of.value_sets[0].members == (two,)
    assert (found(b"0123456789"), found(b"ABCDEFGHIJ")) == (0, 1)
