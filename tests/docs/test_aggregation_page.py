# SPDX-License-Identifier: Apache-2.0
"""The page about sums in a switch has the numbers of the sources."""

import re

import pytest

from gradlane import wire
from gradlane.job import transport
from tests.support.fixed_point import FIRST_EXPONENT, ZERO_STEP, FixedPoint
from tests.support.paths import DOCS, ROOT

PAGE = re.sub(r"\s+", " ", (DOCS / "aggregation.md").read_text())
SOURCES = ROOT / "agent" / "src" / "gradlane"


def number(file: str, name: str) -> float:
    """What a source gives to a name."""
    found = re.search(rf"\b{name} = (-?[\d.]+)", (SOURCES / file).read_text())
    assert found, f"{file} has no {name}"
    return float(found[1])


@pytest.mark.parametrize(
    "said",
    [
        f"A switch has {transport.SUM_SLOTS}, a job `sum_slots`",
        f"# sum_window = {transport.DEFAULT_SUM_WINDOW} ",
        f"# sum_slots = {transport.DEFAULT_SUM_SLOTS} ",
        f"2 to {wire.MAX_RANKS:,} workers",
        f"[More than {transport.SUM_MEMBERS}]",
        f"at most {wire.MAX_SUM_WORDS * wire.SUM_WORD} bytes of integers",
        f"falls by {ZERO_STEP} (not below {FIRST_EXPONENT})",
    ],
)
def test_sizes_are_right(said: str) -> None:
    assert said in PAGE


@pytest.mark.parametrize(
    ("said", "file", "name", "unit"),
    [
        ("while max({:.0f}, W / 8)", "core/sums/lost.c", "LATER_LEAST", 1),
        ("at least {:.0f} ms", "core/sums/lost.c", "WAIT_LEAST", 1e-3),
        ("up to {:.0f} ms", "core/sums/lost.c", "WAIT_MOST", 1e-3),
        ("a loss budget {:.1f} ms once a sum of the step is there", "core/sums/lost.c", "BEGUN_LEAST", 1e-3),
        ("(not below {:.0f})", "core/arithmetic/fixed_point.h", "GL_FIRST_EXPONENT", 1),
        ("falls by {:.0f} ", "core/arithmetic/fixed_point.c", "ZERO_STEP", 1),
        ("of which none has come for {} s", "daemon/sums.py", "OVERDUE_SECONDS", 1),
        ("then every {:.0f} s", "daemon/sums.py", "MOST_OVERDUE_SECONDS", 1),
        ("After {:.0f} s the switch is tried again", "daemon/sums.py", "SWITCH_REST_SECONDS", 1),
        ("up to {:.0f} min", "daemon/sums.py", "MOST_SWITCH_REST_SECONDS", 1 / 60),
    ],
)
def test_times_and_thresholds_are_right(said: str, file: str, name: str, unit: float) -> None:
    assert said.format(number(file, name) * unit) in PAGE


@pytest.mark.parametrize("workers", [2, 8, 32, 144, 1024])
def test_the_table_of_resolutions_is_right(workers: int) -> None:
    numbers = [FixedPoint(lanes, workers) for lanes in wire.Lanes]
    assert "| workers | L / {} with int16 | L / {} with int32 |".format(*(it.headroom for it in numbers)) in PAGE
    units = [it.limit // it.headroom for it in numbers]
    narrow = "not possible" if workers > transport.SUM_MEMBERS else units[0]
    assert f"| {workers} | {narrow} | {units[1]} |" in PAGE
