# SPDX-License-Identifier: Apache-2.0
"""Fields and registers of 65 to 2048 bits, at bytes and between them, against Python's integers.

Long fields are computed in place, read and written by loops, and copied only if they have been set: what short ones and
those of `test_wide_values` do not show.
"""

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane_switch import Switch
from tests.gradlane_switch.codegen.test_wide_values import binary, cut, numbers
from tests.gradlane_switch.small_programs import (
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
from tests.support.effort import tries

# Bits of a value, and in front of it: short ones, the first that is long, whole words and bytes, and neither.
PLACES = [(65, 3), (256, 0), (257, 0), (320, 3), (1000, 0), (1024, 0), (1027, 3), (2047, 0), (2048, 0), (2048, 3)]
A, B, C, T = field("h", "a"), field("h", "b"), field("h", "c"), field("h", "t")

Meaning = Callable[[int, int, int, int], int]
Case = tuple[Json, Meaning]


def inverted(value: int, width: int) -> int:
    return ~value & ((1 << width) - 1)


def cases(width: int) -> list[Case]:
    """What `t`, which is `a` at first, becomes. a, b and t have that width, c has 12 bits."""
    whole, half = (1 << width) - 1, width // 2
    low = (1 << half) - 1
    return [
        (cut(binary("+", T, B), width), lambda t, b, c, w: t + b),
        (cut(binary("+", B, T), width), lambda t, b, c, w: t + b),
        (cut(binary("+", T, T), width), lambda t, b, c, w: 2 * t),
        (binary("+", T, const(1)), lambda t, b, c, w: t + 1),
        (cut(binary("+", T, C), width), lambda t, b, c, w: t + c),
        (cut(binary("+", binary("+", T, B), binary("+", T, C)), width), lambda t, b, c, w: 2 * t + b + c),
        (cut(binary("-", T, B), width), lambda t, b, c, w: t - b),
        (cut(binary("-", B, T), width), lambda t, b, c, w: b - t),
        (cut(binary("-", C, T), width), lambda t, b, c, w: c - t),
        (cut(binary("*", T, B), width), lambda t, b, c, w: t * b),
        (binary("&", T, B), lambda t, b, c, w: t & b),
        (binary("|", B, T), lambda t, b, c, w: t | b),
        (binary("^", T, B), lambda t, b, c, w: t ^ b),
        (binary("^", T, expression("~", None, B)), lambda t, b, c, w: t ^ inverted(b, w)),
        (expression("~", None, T), lambda t, b, c, w: ~t),
        (expression("-", None, T), lambda t, b, c, w: -t),
        (cut(binary("<<", T, C), width), lambda t, b, c, w: t << c),
        (binary(">>", T, C), lambda t, b, c, w: t >> c),
        (binary(">>", T, const(half)), lambda t, b, c, w: t >> half),
        # A slice is read, and one is assigned: t = b[half-1:0], and t[width-1:half] = b[..], as p4c writes them.
        (cut(B, half), lambda t, b, c, w: b & low),
        (
            binary("|", binary("&", T, const(low)), binary("&", binary("<<", B, const(half)), const(whole ^ low))),
            lambda t, b, c, w: t & low | b << half,
        ),
        (expression("?", T, B, binary("<", T, B)), lambda t, b, c, w: min(t, b)),
        (expression("?", T, B, binary(">=", T, B)), lambda t, b, c, w: max(t, b)),
        (expression("b2d", None, binary("==", T, B)), lambda t, b, c, w: int(t == b)),
        (binary("usat_cast", binary("+", T, B), const(width)), lambda t, b, c, w: min(t + b, (1 << w) - 1)),
        (binary("usat_cast", binary("-", T, B), const(width)), lambda t, b, c, w: max(t - b, 0)),
        (cut(T, width), lambda t, b, c, w: t),
        (B, lambda t, b, c, w: b),
    ]


def register(name: str) -> Json:
    return {"type": "register_array", "value": name}


def read(target: Json, name: str, index: Json) -> Json:
    return {"op": "register_read", "parameters": [target, register(name), index]}


def write(name: str, index: Json, value: Json) -> Json:
    return {"op": "register_write", "parameters": [register(name), index, value]}


def arrays(*sizes: tuple[str, int, int]) -> list[Json]:
    """Registers: name, cells, bits of each."""
    return [
        {"name": name, "id": number, "size": size, "bitwidth": width}
        for number, (name, size, width) in enumerate(sizes)
    ]


def filled(width: int, shift: int) -> list[tuple[str, int]]:
    """The header: a, b, t and c, behind so many bits, and as many as make whole bytes of it."""
    fields = [("front", shift)] if shift else []
    fields += [("a", width), ("b", width), ("t", width), ("c", 12)]
    pad = -sum(bits for _, bits in fields) % 8
    return [*fields, ("pad", pad)] if pad else fields


def packed(fields: list[tuple[str, int]], values: dict[str, int]) -> bytes:
    whole = 0
    for name, width in fields:
        whole = whole << width | values.get(name, (1 << width) - 1)
    return whole.to_bytes(sum(width for _, width in fields) // 8, "big")


@cache
def calculator(width: int, shift: int) -> Switch:
    """Puts each case into a cell of register `r`, and the last one into the packet."""
    found = cases(width)
    body = [
        statement
        for number, (case, _) in enumerate(found)
        for statement in (assign(T, A), assign(T, case), write("r", const(number), T))
    ]
    run = action(0, "run", [], *body, assign(field("standard_metadata", "egress_spec"), const(1)))
    fields = filled(width, shift)
    return load(
        program(fields, [run], [table(0, "t", [], [run], run)], register_arrays=arrays(("r", len(found), width)))
    )


@pytest.mark.parametrize(("width", "shift"), PLACES)
@settings(deadline=None, max_examples=tries(12, 125))
@given(data=st.data())
def test_values_of_every_width_are_those_of_integers(width: int, shift: int, data: st.DataObject) -> None:
    a, b = data.draw(numbers(width)), data.draw(numbers(width))
    c = data.draw(st.integers(0, 4095))
    switch, fields = calculator(width, shift), filled(width, shift)
    frame = packed(fields, {"a": a, "b": b, "c": c}) + b"payload"
    [(_, out)] = switch.process(0, frame)
    assert out == packed(fields, {"a": a, "b": b, "c": c, "t": b}) + b"payload"
    for number, (_, meaning) in enumerate(cases(width)):
        assert switch.read_register("r", number) == meaning(a, b, c, width) & ((1 << width) - 1), number


@cache
def pool(width: int) -> Switch:
    """Adds `a` to cell c of register `r`, and puts the sum into `a`; `b` gets the cell as it was, t the sum cut."""
    body = [
        read(T, "r", C),
        read(B, "r", C),
        assign(A, cut(binary("+", A, T), width)),
        write("r", C, A),
        write("n", C, A),
        read(T, "n", C),
        assign(field("standard_metadata", "egress_spec"), const(1)),
    ]
    run = action(0, "run", [], *body)
    registers = arrays(("r", 4, width), ("n", 4, width - 1))
    return load(program(filled(width, 0), [run], [table(0, "t", [], [run], run)], register_arrays=registers))


@pytest.mark.parametrize("width", [200, 512, 1024, 1027, 2048])
@settings(deadline=None, max_examples=tries(12, 125))
@given(data=st.data())
def test_a_register_is_read_added_to_and_written(width: int, data: st.DataObject) -> None:
    whole, fields, switch = (1 << width) - 1, filled(width, 0), pool(width)
    cells = [0] * 4
    for index in range(4):
        switch.write_register("r", index, 0)
    for _ in range(6):
        a, t, c = data.draw(numbers(width)), data.draw(numbers(width)), data.draw(st.integers(0, 5))
        [(_, out)] = switch.process(0, packed(fields, {"a": a, "b": 5, "t": t, "c": c}))
        if c < 4:
            was, cells[c] = cells[c], (cells[c] + a) & whole
            assert out == packed(fields, {"a": cells[c], "b": was, "t": cells[c] & whole >> 1, "c": c})
        else:  # beyond the end nothing is read or written
            assert out == packed(fields, {"a": (a + t) & whole, "b": 5, "t": t, "c": c})
        assert [switch.read_register("r", index) for index in range(4)] == cells
