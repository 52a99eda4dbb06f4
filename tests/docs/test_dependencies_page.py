# SPDX-License-Identifier: Apache-2.0
"""The page on dependencies names every library that a distribution or a tool of the repository asks for."""

import re
from collections.abc import Iterator
from importlib.metadata import requires

import pytest

from tests.support.paths import DOCS, ROOT

DISTRIBUTIONS = ("gradlane", "gradlane-switch", "gradlane-controller", "gradlane-lab")
TOOLS = ("tests/requirements.txt", "deploy/release/requirements.txt", "docs/site/requirements.txt")


def named(lines: list[str]) -> Iterator[str]:
    """The names in requirements, as PyPI writes them, without this project's own."""
    for line in lines:
        found = re.match(r"[A-Za-z0-9][\w.-]*", line)
        if found and not found[0].startswith("gradlane"):
            yield re.sub(r"[-_.]+", "-", found[0]).lower()


@pytest.mark.parametrize("place", [*DISTRIBUTIONS, *TOOLS])
def test_every_library_is_named(place: str) -> None:
    lines = (ROOT / place).read_text().splitlines() if place in TOOLS else requires(place)
    wanted = set(named(lines or []))
    assert wanted
    page = set(re.findall(r"`([^`]+)`", (DOCS / "dependencies.md").read_text()))
    assert wanted - page == set()


def test_what_is_said_to_be_written_by_hand_is_there() -> None:
    page = (DOCS / "dependencies.md").read_text().partition("## Written by hand")[2]
    roots = ("agent/src/gradlane", "switch/src/gradlane_switch", "controller/src/gradlane_controller", "mininet", "")
    places = [
        name
        for row in re.findall(r"^\| [^|]+\| ([^|]+)\|", page, re.MULTILINE)
        for name in re.findall("`([^`]+)`", row)
    ]
    assert len(places) > 20
    for name in places:
        bare = name.removeprefix("gradlane/").removeprefix("gradlane_switch/")
        assert any((ROOT / root / bare).exists() for root in roots), name
