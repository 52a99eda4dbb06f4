# SPDX-License-Identifier: Apache-2.0
"""The page of the wire format has the fields, flags, kinds and types of gradlane.wire, where they are."""

import re

import pytest

from gradlane import wire
from tests.support.paths import DOCS

PAGE = (DOCS / "wire-format.md").read_text()
ROWS = re.findall(r"^\| (\d+) \| `(\w+)` \| (\d+) \|", PAGE, re.MULTILINE)


def rows(fields: tuple[tuple[str, int], ...]) -> list[tuple[str, str, str]]:
    """Lines of a table: the first byte of a field, its name, its bits."""
    found: list[tuple[str, str, str]] = []
    at = 0
    for name, bits in fields:
        found.append((str(at // 8), name, str(bits)))
        at += bits
    return found


def test_every_field_is_on_the_page_where_it_is() -> None:
    assert rows(wire.FIELDS) + rows(wire.HOP_FIELDS) + rows(wire.REPORT_FIELDS) + rows(wire.SUM_FIELDS) == ROWS


def test_every_flag_is_on_the_page() -> None:
    assert re.findall(r"^\| (\d) \((\d+)\) \| ([A-Z]+) \|", PAGE, re.MULTILINE) == [
        (str(flag.bit_length() - 1), str(flag.value), flag.name) for flag in wire.Flag
    ]


def test_every_kind_is_on_the_page() -> None:
    kinds = dict(re.findall(r"^\| (\d) \| ([A-Z]+) \|", PAGE, re.MULTILINE))
    assert kinds == {str(kind.value): kind.name for kind in wire.Kind}


def test_every_type_is_on_the_page() -> None:
    types = dict(re.findall(r"^\| (\d) \| (\w+\d) \|", PAGE, re.MULTILINE))
    assert types == {str(type.value): type.name.lower() for type in wire.ElementType}
    for lanes in wire.Lanes:
        assert f"{lanes.value} ({lanes.name.lower().removesuffix('_lanes')})" in PAGE


@pytest.mark.parametrize(
    "said",
    [
        f"`length` is {wire.SUM_BYTES} + the bytes of the lanes",
        f"1 to {wire.MAX_SUM_WORDS} words of {wire.SUM_WORD} bytes",
        f"floor((`slice_bytes` - {wire.SUM_BYTES}) / {wire.SUM_WORD})",
        f"of {wire.HEADER_BYTES} bytes",
        f"port {wire.UDP_PORT}",
        f"more than {wire.MAX_HOPS} records",
        f"1 to {wire.MAX_SLICES} ",
        f"| ranks | {wire.MAX_RANKS} |",
    ],
)
def test_sizes_on_the_page_are_right(said: str) -> None:
    assert said in re.sub(r"\s+", " ", PAGE)
