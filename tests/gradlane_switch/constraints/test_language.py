# SPDX-License-Identifier: Apache-2.0
"""The language of restrictions: what it means, against an oracle, and what is refused."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlane_switch.constraints.annotations import bodies, declared_references, declared_restrictions
from gradlane_switch.constraints.restrictions import Field, parse_restrictions
from gradlane_switch.constraints.syntax import ConstraintError, parse
from gradlane_switch.ir.tables import FieldKey, MatchKind

FIELDS = (
    Field("port", MatchKind.EXACT, 9),
    Field("hdr.ipv4.dst", MatchKind.LPM, 32),
    Field("dscp", MatchKind.TERNARY, 6),
    Field("layer", MatchKind.RANGE, 16),
    Field("vlan", MatchKind.OPTIONAL, 12),
)
ENTRY = (FieldKey(5), FieldKey(0x0A000000, 8), FieldKey(0b001010, 0b001110), FieldKey(3, 9), FieldKey(0, 0))


def holds(text: str, values: tuple[FieldKey, ...] = ENTRY, priority: int = 7) -> bool:
    return not declared_restrictions("r", [f'@r("{text}")'], FIELDS).violation(values, priority)


@pytest.mark.parametrize(
    "text",
    [
        "port == 5",
        "port::value == 5",
        "port != 4 && port < 6 && port <= 5 && port > 4 && port >= 5",
        "port == 0x5; port == 0b101; port == 0o5; port == 0d5; port == 0X05",
        "hdr.ipv4.dst::prefix_length == 8; hdr.ipv4.dst::value == ipv4('10.0.0.0')",
        "hdr.ipv4.dst != ipv4('10.0.0.0')",
        "dscp::mask == 0xE; dscp::value == 10; dscp != 10",
        "layer::low < layer::high; layer::high == 9; layer != 3",
        "vlan::mask == 0; vlan != 0",
        "::priority == 7",
        "false || (port == 5; // as in SONiC's\n dscp != 10)",
        "!(port == 5; port == 4)",
        "true; !false; true != false",
        "port == 4 -> false",
        "port == 5 -> port != 4",
        "false || true && true",
        "true || true && false",
        "!(true -> false)",
        "port == 4 || port == 5 -> true",
        "-port == 507",
        "port == -507",
        "-1 < 0; --1 == 1",
        "-1 == dscp::value || true",
        "mac('00:00:00:00:00:05') == port",
        "ipv6('::5') == port",
        "/* not so\n*/ port == 5 // and so on\n ;",
    ],
)
def test_it_holds(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("port != 5", '"port != 5" does not hold for port = 5'),
        ("true; port\n  ==   6; port == 7", '"port == 6" does not hold for port = 5'),
        ("layer::low >= layer::high", '"layer::low >= layer::high" does not hold for layer = 3..9'),
        ("dscp::mask == -1", '"dscp::mask == -1" does not hold for dscp = 0xa &&& 0xe'),
        ("hdr.ipv4.dst == 1", '"hdr.ipv4.dst == 1" does not hold for hdr.ipv4.dst = 0xa000000/8'),
        ("vlan != 0 -> port == 1", '"vlan != 0 -> port == 1" does not hold for port = 5, vlan = 0x0 &&& 0x0'),
        ("::priority < 5", '"::priority < 5" does not hold for priority = 7'),
        ("true -> false", '"true -> false" does not hold'),
    ],
)  # fmt: skip
def test_what_does_not_hold_is_told_with_its_values(text: str, told: str) -> None:
    assert declared_restrictions("r", [f'@r("{text}")'], FIELDS).violation(ENTRY, 7) == told


@pytest.mark.parametrize(
    ("field", "key"),
    [(1, FieldKey(5, 32)), (2, FieldKey(5, 63)), (3, FieldKey(5, 5)), (4, FieldKey(5, 4095))],
    ids=["lpm", "ternary", "range", "optional"],
)
def test_a_field_that_is_not_exact_equals_a_number_if_it_matches_that_alone(field: int, key: FieldKey) -> None:
    name = FIELDS[field].name
    values = tuple(key if n == field else it for n, it in enumerate(ENTRY))
    assert holds(f"{name} == 5", values)
    assert not holds(f"{name} != 5", values)
    assert not holds(f"{name} == 5")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the end where a key, a number or a parenthesis is wanted"),
        ("port ==", "the end where a key"),
        ("port == 1 == 2", "that do not associate"),
        ("true -> true -> true", "that do not associate"),
        ("(port == 1", r"the end where '\)' is wanted"),
        ("port == 1)", r"'\)' at 9 where the end is wanted"),
        ("port = 1", "is nothing of the constraint language"),
        ("port == 1x", "is nothing of the constraint language"),
        ("port == 'x'", "is nothing of the constraint language"),
        ("port == ipv4('10.0.0')", "is no address"),
        ("port == mac('0:0')", "is no address"),
        ("port:: == 1", "where a name is wanted"),
        ("ports == 1", "there is no ports, only port, hdr.ipv4.dst, dscp, layer, vlan"),
        ("port::mask == 1", "port is exact: it has value, but no mask"),
        ("layer::value == 1", "layer is range: it has low and high, but no value"),
        ("::cookie == 1", "there is no ::cookie"),
        ("port", "is neither true nor false, but a bits<9>"),
        ("port && true", "&& is for what is true or false, not for a bits<9>"),
        ("!port", "! is for what is true or false"),
        ("-true == 1", "- is for numbers, not for a bool"),
        ("true < false", "< is for numbers, not for a bool"),
        ("dscp < 3", "< is for numbers, not for a ternary<6>"),
        ("port == true", "a bits<9> can't be compared with a bool"),
        ("port == dscp::value", "can't be compared"),
        ("dscp == layer", "can't be compared"),
        ("(" * 1000 + "true" + ")" * 1000, "more than 64"),
        ("!" * 1000 + "true", "more than 64"),
        ("port == " + "9" * 5000, "is too long a number"),
    ],
)
def test_what_says_nothing_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConstraintError, match=told):
        parse_restrictions(text, FIELDS)


def test_an_annotation_is_one_string_or_several_in_a_row() -> None:
    declared = ['@entry_restriction("port\\n == 1;" "port != 2")', "@other(x)", '@entry_restriction("true")', "@name"]
    found = declared_restrictions("entry_restriction", declared, FIELDS)
    assert [it.text for it in found.constraints] == ["port == 1", "port != 2", "true"]
    assert bodies("other", declared) == ["x"]
    for body in ("port == 1", '"true" x', ""):
        with pytest.raises(ConstraintError, match="is not a string"):
            declared_restrictions("entry_restriction", [f"@entry_restriction({body})"], FIELDS)


def test_a_reference_names_a_table_and_a_field() -> None:
    declared = ["@refers_to(next_hops , group)", "@refers_to(builtin : : groups,id)", "@id(1)"]
    assert declared_references(declared) == [("next_hops", "group"), ("builtin::groups", "id")]
    with pytest.raises(ConstraintError, match=r"@refers_to\(x\) is not @refers_to\(table, field\)"):
        declared_references(["@refers_to(x)"])


Values = tuple[FieldKey, ...]
Meaning = Callable[[Values, int], Any]
Sample = tuple[str, Meaning]
"""A constraint as it may be written, and what it means."""

numbers: st.SearchStrategy[Sample] = st.one_of(
    st.integers(0, 600).flatmap(
        lambda value: st.sampled_from([str(value), hex(value), bin(value), f"0o{value:o}", f"-{(1 << 9) - value}"]).map(
            lambda text: (text, lambda values, priority: value % 512)
        )
    ),
    st.sampled_from(["port", "port::value", "( port )"]).map(
        lambda text: (text, lambda values, priority: values[0].value)
    ),
    st.just(("-port", lambda values, priority: -values[0].value % 512)),
)  # fmt: skip


def _compared(operator: str, left: Sample, right: Sample) -> Sample:
    meanings = {
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }
    mean = meanings[operator]
    return f"{left[0]} {operator} {right[0]}", lambda values, priority: mean(
        left[1](values, priority), right[1](values, priority)
    )


# One side is a field of 9 bits, beside which every number is one of 9 bits.
comparisons: st.SearchStrategy[Sample] = st.builds(
    _compared,
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    st.just(("port", lambda values, priority: values[0].value)),
    numbers,
)
leaves: st.SearchStrategy[Sample] = st.one_of(
    comparisons,
    st.sampled_from([("true", lambda values, priority: True), ("false", lambda values, priority: False)]),
    st.integers(0, 9).map(
        lambda n: (f"::priority>{n}", lambda values, priority: priority > n),
    ),
    st.integers(0, 32).map(
        lambda n: (f"hdr.ipv4.dst::prefix_length<={n}", lambda values, priority: values[1].operand <= n),
    ),
    st.integers(0, 63).map(lambda n: (f"dscp=={n}", lambda values, priority: values[2] == (n, 63))),
)


def _joined(operator: str, left: Sample, right: Sample) -> Sample:
    one, other = left[1], right[1]
    text = f"({left[0]}) {operator} ({right[0]})"
    match operator:
        case "&&":
            return text, lambda values, priority: one(values, priority) and other(values, priority)
        case "||":
            return text, lambda values, priority: one(values, priority) or other(values, priority)
        case _:
            return text, lambda values, priority: other(values, priority) if one(values, priority) else True


samples: st.SearchStrategy[Sample] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(_joined, st.sampled_from(["&&", "||", "->"]), inner, inner),
        inner.map(lambda it: (f"!({it[0]})", lambda values, priority: not it[1](values, priority))),
    ),
    max_leaves=12,
)
entries = st.tuples(
    st.integers(0, 511).map(FieldKey),
    st.integers(0, 32).map(lambda length: FieldKey(0, length)),
    st.tuples(st.integers(0, 63), st.sampled_from([63, 62, 0])).map(lambda it: FieldKey(it[0] & it[1], it[1])),
    st.just(FieldKey(0, 65535)),
    st.just(FieldKey(0, 0)),
)


@given(samples, entries, st.integers(0, 9))
def test_a_constraint_holds_where_its_meaning_does(sample: Sample, values: Values, priority: int) -> None:
    assert holds(sample[0], values, priority) is bool(sample[1](values, priority))


@given(st.lists(comparisons, min_size=2, max_size=6), st.data(), entries)
def test_precedence_needs_no_parentheses(parts: list[Sample], data: st.DataObject, values: Values) -> None:
    """`&&` is stronger than `||`, which is stronger than `->`, as Python's `and`, `or` and `<=` of two truths are."""
    operators = [data.draw(st.sampled_from(["&&", "||"])) for _ in parts[1:]]
    arrow = data.draw(st.integers(0, len(operators)))
    text, python = parts[0][0], str(parts[0][1](values, 0))
    for number, (operator, part) in enumerate(zip(operators, parts[1:], strict=True), 1):
        written = "->" if number == arrow else operator
        text += f" {written} {part[0]}"
        python += {"&&": " and ", "||": " or ", "->": ") <= ("}[written] + str(part[1](values, 0))
    assert holds(text, values) is eval(f"({python})")


@given(st.text(st.sampled_from(list("port=!<>&|-;:()0x1 truefals'ipv4.\n/*\"")), max_size=30))
def test_any_text_is_understood_or_refused(text: str) -> None:
    with suppress(ConstraintError):
        assert parse(text)
