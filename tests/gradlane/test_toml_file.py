# SPDX-License-Identifier: Apache-2.0
"""TOML from anybody: what would take tomllib very long, or break it, is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlane import toml_file
from gradlane.toml_file import FileError, Table


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ok = 1\n" + "a." * 40_000 + "a = 1", "line 2 has a key of more than 16 parts"),
        ("[" + "'a' . " * 16 + "b]", "line 1 has a key of more than 16 parts"),
        ('"a"."b.c"' * 2 + ".d" * 16 + " = 1", "a key of more than 16 parts"),
        ("a = " + "[" * 5000 + "]" * 5000, "it is nested too deeply"),
        ("a = " + "9" * 5000, "not valid TOML: Exceeds the limit"),
        ("a = [{b = 0x" + "f" * 5000 + "}]", "has an integer of more than 64 bits"),
        ("a = -9223372036854775809", "has an integer of more than 64 bits"),
    ],
)
def test_documents_that_cost_too_much_are_named(text: str, reason: str) -> None:
    with pytest.raises(FileError) as raised:
        toml_file.parse(FileError, text, "f.toml")
    assert str(raised.value).startswith("f.toml: ")
    assert reason in str(raised.value)


@given(st.lists(st.from_regex(r"[a-z0-9-]{1,4}", fullmatch=True), min_size=1, max_size=16))
def test_keys_of_some_parts_are_keys(parts: list[str]) -> None:
    it = toml_file.parse(FileError, f"{'.'.join(parts)} = 18446744073709551615", "f.toml")
    for part in parts[:-1]:
        it = it.table(part)
    assert it.integer(parts[-1], 0, 2**64 - 1) == 2**64 - 1


def test_arrays_of_tables_have_a_length() -> None:
    def of(text: str) -> list[Table]:
        return toml_file.parse(FileError, text, "f.toml").tables("a", most=2)

    assert len(of("a = [{}, {}]")) == 2
    with pytest.raises(FileError, match="a: has 3 tables; at most 2 are possible"):
        of("a = [{}, {}, {}]")
