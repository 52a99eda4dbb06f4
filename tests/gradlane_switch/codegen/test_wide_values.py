# SPDX-License-Identifier: Apache-2.0
"""Values of more than 64 bits, signed values and saturation, against Python's unbounded integers."""

import operator
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane_switch import Switch
from tests.gradlane_switch.small_programs import (
    SEND,
    Json,
    action,
    assign,
    const,
    expression,
    field,
    load,
    param,
    program,
    table,
)
from tests.support.effort import tries

A, B, C = field("h", "a"), field("h", "b"), field("h", "c")
WIDTH = 200
MASK = (1 << WIDTH) - 1
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def binary(op: str, left: Json, right: Json) -> Json:
    return expression(op, left, right)


def cut(value: Json, width: int = WIDTH) -> Json:
    return binary("&", value, const((1 << width) - 1))


def wrap(value: Json, width: int) -> Json:
    return binary("two_comp_mod", value, const(width))


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def quotient(a: int, b: int) -> int:
    return a // b if b else 0


Case = tuple[Json, Callable[[int, int, int], int]]

# a and b have 200 bits, c has 8.
UNSIGNED: list[Case] = [
    (cut(binary("+", A, B)), lambda a, b, c: a + b),
    (cut(binary("-", A, B)), lambda a, b, c: a - b),
    (cut(binary("*", A, B)), lambda a, b, c: a * b),
    (binary("-", C, B), lambda a, b, c: c - b),
    (expression("~", None, A), lambda a, b, c: ~a),
    (expression("-", None, A), lambda a, b, c: -a),
    (binary("&", A, B), lambda a, b, c: a & b),
    (binary("|", A, B), lambda a, b, c: a | b),
    (binary("^", A, B), lambda a, b, c: a ^ b),
    (cut(binary("<<", A, C)), lambda a, b, c: a << c),
    (binary(">>", A, C), lambda a, b, c: a >> c),
    (binary(">>", A, const(64)), lambda a, b, c: a >> 64),
    (binary(">>", binary("*", A, B), const(200)), lambda a, b, c: (a * b) >> 200),
    (cut(binary(">>", A, const(77)), 13), lambda a, b, c: (a >> 77) & 0x1FFF),
    (binary("|", binary("<<", cut(A, 100), const(100)), cut(B, 100)), lambda a, b, c: a << 100 | b & ((1 << 100) - 1)),
    (binary("+", C, const(1 << 130)), lambda a, b, c: c + (1 << 130)),
    (expression("?", A, B, binary("<", A, B)), lambda a, b, c: a if a < b else b),
    (binary("/", A, binary("+", C, const(3))), lambda a, b, c: a // (c + 3)),
    (binary("%", A, B), lambda a, b, c: a % b if b else 0),
    (binary("/", A, B), lambda a, b, c: quotient(a, b)),
    (binary("usat_cast", binary("+", A, B), const(WIDTH)), lambda a, b, c: min(a + b, MASK)),
    (binary("usat_cast", binary("-", A, B), const(WIDTH)), lambda a, b, c: max(a - b, 0)),
    (binary("usat_cast", binary("-", A, B), const(70)), lambda a, b, c: clamp(a - b, 0, (1 << 70) - 1)),
    (binary("usat_cast", binary("+", A, B), const(40)), lambda a, b, c: min(a + b, (1 << 40) - 1)),
    *[
        (expression("b2d", None, binary(op, A, B)), lambda a, b, c, compare=compare: int(compare(a, b)))
        for op, compare in COMPARISONS.items()
    ],
    (expression("b2d", None, expression("d2b", None, A)), lambda a, b, c: int(a != 0)),
    (expression("b2d", None, binary("<", A, C)), lambda a, b, c: int(a < c)),
]


def calculator(cases: list[Case], operands: list[tuple[str, int]], results: int, *, negative: bool) -> Switch:
    """A program that puts every case into a field of its own; `negative` makes operands and results signed."""
    names = [(f"r{number}", results) for number in range(len(cases))]
    body = [assign(field("h", name), case) for (name, _), (case, _) in zip(names, cases, strict=True)]
    run = action(0, "run", [], *body, SEND)
    document = program([*operands, *names], [run], [table(0, "t", [], [run], run)])
    for definition in document["header_types"][2]["fields"]:
        definition[2] = negative and definition[0] != "c"
    return load(document)


def evaluate(switch: Switch, cases: list[Case], operands: list[tuple[int, int]], results: int) -> list[int]:
    whole = total = 0
    for value, width in operands:
        whole, total = whole << width | value & ((1 << width) - 1), total + width
    size = len(cases) * results
    frame = (whole << size).to_bytes((total + size) // 8, "big")
    [(_, out)] = switch.process(3, frame)
    numbers = int.from_bytes(out, "big")
    assert numbers >> size == whole
    return [numbers >> (size - (n + 1) * results) & ((1 << results) - 1) for n in range(len(cases))]


@cache
def unsigned_calculator() -> Switch:
    return calculator(UNSIGNED, [("a", WIDTH), ("b", WIDTH), ("c", 8)], WIDTH, negative=False)


def numbers(width: int) -> st.SearchStrategy[int]:
    top = (1 << width) - 1
    ends = sorted({1 << shift for shift in range(0, width, 8)} | {0, 2, top - 1, top, top >> 1, (top >> 1) + 1})
    return st.one_of(st.sampled_from(ends), st.integers(0, top), st.integers(0, min(top, 1 << 65)))


@settings(deadline=None)
@given(numbers(WIDTH), numbers(WIDTH), st.integers(0, 255))
def test_operators_on_wide_values(a: int, b: int, c: int) -> None:
    found = evaluate(unsigned_calculator(), UNSIGNED, [(a, WIDTH), (b, WIDTH), (c, 8)], WIDTH)
    for number, ((_, meaning), result) in enumerate(zip(UNSIGNED, found, strict=True)):
        assert result == meaning(a, b, c) & MASK, number


def signed_cases(width: int) -> list[Case]:
    """As p4c writes int<width>; a and b have that type, c is bit<8>."""
    low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
    return [
        (wrap(binary("+", A, B), width), lambda a, b, c: a + b),
        (wrap(binary("-", A, B), width), lambda a, b, c: a - b),
        (wrap(binary("*", A, B), width), lambda a, b, c: a * b),
        (wrap(binary(">>", A, C), width), lambda a, b, c: a >> c),
        (wrap(binary("<<", A, C), width), lambda a, b, c: a << c),
        (wrap(expression("-", None, A), width), lambda a, b, c: -a),
        (wrap(expression("~", None, A), width), lambda a, b, c: ~a),
        (binary("&", A, B), lambda a, b, c: a & b),
        (binary("^", A, B), lambda a, b, c: a ^ b),
        (binary("sat_cast", binary("+", A, B), const(width)), lambda a, b, c: clamp(a + b, low, high)),
        (binary("sat_cast", binary("-", A, B), const(width)), lambda a, b, c: clamp(a - b, low, high)),
        (binary("sat_cast", binary("*", A, const(-3)), const(5)), lambda a, b, c: clamp(-3 * a, -16, 15)),
        (wrap(binary("+", A, const(-7)), width), lambda a, b, c: a - 7),
        (cut(A, width - 1), lambda a, b, c: a & ((1 << (width - 1)) - 1)),
        (expression("?", A, B, binary("<", A, B)), lambda a, b, c: min(a, b)),
        *[
            (expression("b2d", None, binary(op, A, B)), lambda a, b, c, compare=compare: int(compare(a, b)))
            for op, compare in COMPARISONS.items()
        ],
        (expression("b2d", None, binary("<", A, const(0))), lambda a, b, c: int(a < 0)),
        (expression("b2d", None, binary(">=", A, const(-2))), lambda a, b, c: int(a >= -2)),
        (expression("b2d", None, binary(">", C, A)), lambda a, b, c: int(c > a)),
    ]


@cache
def signed_calculator(width: int) -> tuple[Switch, list[Case]]:
    cases = signed_cases(width)
    return calculator(cases, [("a", width), ("b", width), ("c", 8)], width, negative=True), cases


@pytest.mark.parametrize("width", [8, 32, 64, 72, 200])
@settings(deadline=None, max_examples=tries(30, 300))
@given(data=st.data())
def test_signed_values_wrap_saturate_and_compare(width: int, data: st.DataObject) -> None:
    a, b, c = data.draw(numbers(width)), data.draw(numbers(width)), data.draw(st.integers(0, 255))
    switch, cases = signed_calculator(width)
    found = evaluate(switch, cases, [(a, width), (b, width), (c, 8)], width)
    for number, ((_, meaning), result) in enumerate(zip(cases, found, strict=True)):
        assert result == meaning(signed(a, width), signed(b, width), c) & ((1 << width) - 1), number


WIDTHS = [1, 65, 7, 128, 3, 100, 64, 511, 9, 2048, 33, 71, 8, 96]


@cache
def shuffler() -> Switch:
    """Adds one to every field, so that each is read, truncated and written."""
    names = [f"f{number}" for number in range(len(WIDTHS))]
    body = [assign(field("h", name), binary("+", field("h", name), const(1))) for name in names]
    run = action(0, "run", [], *body, SEND)
    fields = [*zip(names, WIDTHS, strict=True), ("pad", -sum(WIDTHS) % 8 or 8)]
    return load(program(fields, [run], [table(0, "t", [], [run], run)]))


@settings(deadline=None, max_examples=tries(25, 250))
@given(st.tuples(*(numbers(width) for width in WIDTHS)))
def test_wide_fields_at_any_position(values: tuple[int, ...]) -> None:
    padding = -sum(WIDTHS) % 8 or 8

    def pack(fields: list[int]) -> bytes:
        whole = 0
        for value, width in zip(fields, WIDTHS, strict=True):
            whole = whole << width | value & ((1 << width) - 1)
        return (whole << padding).to_bytes((sum(WIDTHS) + padding) // 8, "big")

    [(_, out)] = shuffler().process(0, pack(list(values)) + b"payload")
    assert out == pack([value + 1 for value in values]) + b"payload"


def test_wide_action_parameters_default_arguments_and_registers() -> None:
    register = {"type": "register_array", "value": "r"}
    body = [
        assign(field("h", "a"), binary("+", param(1), param(0))),
        {"op": "register_read", "parameters": [field("h", "b"), register, param(0)]},
        {"op": "register_write", "parameters": [register, param(0), param(1)]},
    ]
    run = action(0, "run", [8, 130, 16], *body, assign(field("standard_metadata", "egress_spec"), param(2)))
    value = (1 << 130) - 5
    switch = load(
        program(
            [("a", 136), ("b", 136)],
            [run],
            [table(0, "t", [], [run], run, (3, value, 2))],
            register_arrays=[{"name": "r", "id": 0, "size": 4, "bitwidth": 130}],
        )
    )
    first, second = (switch.process(0, bytes(34)) for _ in range(2))
    sent = (value + 3).to_bytes(17, "big")
    assert first == [(2, sent + bytes(17))]
    assert second == [(2, sent + value.to_bytes(17, "big"))]
    assert switch.read_register("r", 3) == value
    switch.write_register("r", 3, 1 << 129)
    assert switch.process(0, bytes(34))[0][1][17:] == (1 << 129).to_bytes(17, "big")
