# SPDX-License-Identifier: Apache-2.0
"""Each promise in the table of guarantees has tests, and these exist; each promise of the README is in the table."""

import re

import pytest

from tests.support.paths import ROOT

TESTS = ROOT / "tests"
ROWS = re.search(r"^## Guarantees\n(.*?)^## ", (TESTS / "README.md").read_text(), re.MULTILINE | re.DOTALL)
assert ROWS is not None
TABLE = [line.split(" | ") for line in ROWS[1].splitlines() if line.startswith("| ") and "---" not in line][1:]


def missing(name: str) -> bool:
    """Whether there is no such test: FILE, or FILE::FUNCTION, below this folder."""
    file, _, function = name.partition("::")
    path = TESTS / file
    return not path.is_file() or (
        function != "" and not re.search(rf"^(async )?def {function}\(", path.read_text(), re.MULTILINE)
    )


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0].strip("| .")[:60])
def test_the_tests_of_a_promise_exist(row: list[str]) -> None:
    names = re.findall(r"`([^`]+)`", row[2])
    assert names
    assert [name for name in names if missing(name)] == []


def test_every_guarantee_of_the_readme_is_in_the_table() -> None:
    text = (ROOT / "README.md").read_text()
    numbers = re.findall(r"^(\d)\. ", text[text.index("## What it guarantees") :], re.MULTILINE)
    named = {number for row in TABLE for number in re.findall(r"(?<=guarantees\) )\d|(?<=README )\d", row[1])}
    assert set(numbers) == named


def test_a_test_that_is_gone_would_be_found() -> None:
    assert missing("docs/test_guarantees.py::test_that_is_not_there")
    assert missing("docs/test_nothing.py")
    assert not missing("docs/test_guarantees.py::test_a_test_that_is_gone_would_be_found")
