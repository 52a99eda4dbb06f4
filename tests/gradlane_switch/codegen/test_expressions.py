# SPDX-License-Identifier: Apache-2.0
"""Generated arithmetic and bit fields against Python's unbounded integers."""

import operator
from collections.abc import Callable
from functools import cache

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
    program,
    table,
)

A, B, C = field("h", "a"), field("h", "b"), field("h", "c")
MASK = (1 << 64) - 1
WIDE = const(MASK)
BYTE = const(0xFF)


def binary(op: str, left: Json, right: Json) -> Json:
    return expression(op, left, right)


# a and b have 64 bits, c has 8. Each case: the expression, and what it is.
CASES: list[tuple[Json, Callable[[int, int, int], int]]] = [
    (binary("&", binary("+", A, B), WIDE), lambda a, b, c: a + b),
    (binary("&", binary("-", A, B), WIDE), lambda a, b, c: a - b),
    (binary("&", binary("*", A, B), WIDE), lambda a, b, c: a * b),
    (binary("-", C, B), lambda a, b, c: c - b),
    (binary("&", expression("~", None, A), WIDE), lambda a, b, c: ~a),
    (binary("&", expression("-", None, C), BYTE), lambda a, b, c: -c & 0xFF),
    (binary("+", C, const(0xFF)), lambda a, b, c: c + 0xFF),
    (binary("&", binary("+", C, const(0xFF)), BYTE), lambda a, b, c: (c - 1) & 0xFF),
    (binary("<<", A, C), lambda a, b, c: a << c),
    (binary(">>", A, C), lambda a, b, c: a >> c),
    (binary(">>", A, const(64)), lambda a, b, c: 0),
    (binary("<<", C, const(60)), lambda a, b, c: c << 60),
    (binary(">>", binary("+", C, C), const(1)), lambda a, b, c: c),
    (binary("|", A, B), lambda a, b, c: a | b),
    (binary("^", A, B), lambda a, b, c: a ^ b),
    (binary("|", binary("<<", binary("&", A, const(0xFFFF)), const(8)), C), lambda a, b, c: (a & 0xFFFF) << 8 | c),
    *[
        (expression("b2d", None, binary(op, A, B)), lambda a, b, c, compare=compare: int(compare(a, b)))
        for op, compare in {
            "==": operator.eq,
            "!=": operator.ne,
            "<": operator.lt,
            "<=": operator.le,
            ">": operator.gt,
            ">=": operator.ge,
        }.items()
    ],
    (
        expression("b2d", None, binary("and", expression("d2b", None, A), binary("<", C, const(9)))),
        lambda a, b, c: int(a != 0 and c < 9),
    ),
    (
        expression("b2d", None, binary("or", expression("not", None, expression("d2b", None, C)), binary(">", A, B))),
        lambda a, b, c: int(c == 0 or a > b),
    ),
    (expression("?", A, B, binary("<", C, const(128))), lambda a, b, c: a if c < 128 else b),
    (expression("b2d", None, expression("d2b", None, field("h", "$valid$"))), lambda a, b, c: 1),
]


@cache
def calculator() -> Switch:
    results = [(f"r{number}", 64) for number in range(len(CASES))]
    body = [assign(field("h", name), case) for (name, _), (case, _) in zip(results, CASES, strict=True)]
    run = action(0, "run", [], *body, SEND)
    return load(program([("a", 64), ("b", 64), ("c", 8), *results], [run], [table(0, "t", [], [run], run)]))


edges = st.sampled_from([0, 1, 2, 63, 64, 1 << 31, 1 << 32, 1 << 63, MASK - 1, MASK])
words = st.one_of(edges, st.integers(0, MASK))


@settings(deadline=None)
@given(words, words, st.integers(0, 255))
def test_operators(a: int, b: int, c: int) -> None:
    frame = a.to_bytes(8, "big") + b.to_bytes(8, "big") + bytes([c]) + bytes(8 * len(CASES))
    [(port, out)] = calculator().process(3, frame)
    assert port == 1
    assert out[:17] == frame[:17]
    for number, (_, meaning) in enumerate(CASES):
        result = int.from_bytes(out[17 + 8 * number : 25 + 8 * number], "big")
        assert result == meaning(a, b, c) & MASK, number


WIDTHS = [1, 7, 3, 13, 5, 17, 33, 64, 2, 63, 48, 9, 31, 4, 4, 16]


@cache
def shuffler() -> Switch:
    """Adds one to every field, so that each is read, truncated and written."""
    names = [f"f{number}" for number in range(len(WIDTHS))]
    body = [assign(field("h", name), binary("+", field("h", name), const(1))) for name in names]
    run = action(0, "run", [], *body, SEND)
    return load(program(list(zip(names, WIDTHS, strict=True)), [run], [table(0, "t", [], [run], run)]))


@settings(deadline=None)
@given(st.tuples(*(st.integers(0, (1 << width) - 1) for width in WIDTHS)), st.binary(max_size=20))
def test_fields_of_any_width_and_position(values: tuple[int, ...], payload: bytes) -> None:
    def pack(numbers: list[int]) -> bytes:
        whole = 0
        for value, width in zip(numbers, WIDTHS, strict=True):
            whole = whole << width | value & ((1 << width) - 1)
        return whole.to_bytes(sum(WIDTHS) // 8, "big")

    [(_, out)] = shuffler().process(0, pack(list(values)) + payload)
    assert out == pack([value + 1 for value in values]) + payload


def test_jumps_and_exit() -> None:
    body = [
        {"op": "_jump_if_zero", "parameters": [expression("d2b", None, field("h", "a")), const(3)]},
        assign(field("h", "b"), const(1)),
        {"op": "_jump", "parameters": [const(4)]},
        assign(field("h", "b"), const(2)),
        SEND,
        {"op": "exit", "parameters": []},
    ]
    run = action(0, "run", [], *body)
    late = action(1, "late", [], assign(field("h", "b"), const(9)))
    tables = [table(0, "t", [], [run], run, following="u"), table(1, "u", [], [late], late)]
    switch = load(program([("a", 8), ("b", 8)], [run, late], tables))
    assert switch.process(0, b"\x00\x00") == [(1, b"\x00\x02")]
    assert switch.process(0, b"\x05\x00") == [(1, b"\x05\x01")]


def test_a_loop_in_an_action_runs_as_long_as_its_condition_holds_and_not_forever() -> None:
    again = expression("d2b", None, field("h", "a"))
    body = [
        {"op": "_jump_if_zero", "parameters": [again, const(4)]},
        assign(field("h", "b"), binary("+", field("h", "b"), field("h", "a"))),
        assign(field("h", "a"), binary("-", field("h", "a"), const(1))),
        {"op": "_jump", "parameters": [const(0)]},
        SEND,
    ]
    run = action(0, "run", [], *body)
    switch = load(program([("a", 8), ("b", 16)], [run], [table(0, "t", [], [run], run)]))
    assert switch.process(0, b"\x0a\x00\x00") == [(1, b"\x00\x00\x37")]
    endless = action(0, "run", [], SEND, {"op": "_jump", "parameters": [const(0)]})
    switch = load(program([("a", 8)], [endless], [table(0, "t", [], [endless], endless)]))
    assert switch.process(0, b"x") == []
    assert switch.pipeline.state.losses.endless == 1
