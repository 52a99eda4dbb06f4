# SPDX-License-Identifier: Apache-2.0
"""The pages of the protocol tell the constants and counts that the sources have."""

import re
from fractions import Fraction

import pytest

from tests.support.paths import DOCS, ROOT

SOURCES = ROOT / "agent" / "src" / "gradlane"
PAGE = (DOCS / "protocol.md").read_text()
ROWS = re.findall(r"^\| ([A-Z_]+) \| ([\d./]+) \| [^|]*\| (\S+) \|$", PAGE, re.MULTILINE)


def value_in(source: str, name: str) -> Fraction:
    found = re.search(rf"\b{name} = (\d[\d.]*)(?: (/|<<) (\d[\d.]*))?", source)
    assert found, f"no number is given to {name}"
    first, operator, second = Fraction(found[1]), found[2], found[3]
    if operator == "/":
        return first / Fraction(second)
    return first * 2 ** int(second) if operator == "<<" else first


@pytest.mark.parametrize(("name", "value", "file"), ROWS, ids=[row[0] for row in ROWS])
def test_a_constant_has_the_value_on_the_page(name: str, value: str, file: str) -> None:
    assert value_in((SOURCES / file).read_text(), name) == Fraction(value), f"docs/protocol.md is behind {file}"


def test_every_constant_that_the_pages_name_has_a_value() -> None:
    text = PAGE[: PAGE.index("## Constants")]
    text += "".join((DOCS / name).read_text() for name in ("rate-control.md", "control-connections.md"))
    named = set(re.findall(r"\b[A-Z]+_[A-Z_]+\b", text))
    assert named <= {name for name, _, _ in ROWS}


def test_every_count_is_explained() -> None:
    header = (SOURCES / "core" / "job" / "statistics.h").read_text()
    body = re.search(r"typedef struct \{([^}]*)\} gl_statistics;", header)
    assert body
    text = re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL)
    counts = set(re.findall(r"\b(\w+)(?=[,;])", text))
    explained = set(re.findall(r"`(\w+)`", PAGE[PAGE.index("## What is counted") :]))
    assert len(counts) > 20
    assert counts <= explained
