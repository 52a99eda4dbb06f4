# SPDX-License-Identifier: Apache-2.0
"""The simulator beside the emulation: the simulated half, and how they are compared. What both say of completion times
depends on the machine's load; the benchmark measures it."""

import json
from pathlib import Path

import pytest

from bench.sim.validation import CASES, Case, Result, Settings, main, simulate, table
from gradlane_sim.program import Program
from tests.sim.simulator import needs_simulator

SETTINGS = Settings(rate=100_000_000, buffer=64_000, size=512 << 10, count=3)
# 1,432 of 1,510 bytes of a full frame are gradients.
LEAST = SETTINGS.size * 8 / SETTINGS.rate * 1510 / 1432 * 1e3  # ms


@needs_simulator
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_simulated_link_is_full_and_never_more(case: Case) -> None:
    found = simulate(case, SETTINGS, Program())
    assert found.count == SETTINGS.count * case.workers
    # Up to 3 % less of each message is needed where that is tolerated.
    assert LEAST * (1 - case.push) <= found.mean <= found.p99 < 1.6 * LEAST


@needs_simulator
def test_the_simulated_half_needs_no_root(tmp_path: Path) -> None:
    options = ["--simulated", "--cases", "1", "--count", "2", "--bytes", "64KiB", "--out", str(tmp_path)]
    assert main(options) == 0
    document = json.loads((tmp_path / "validation.json").read_text())
    assert [(run["case"], run["where"], run["count"]) for run in document["runs"]] == [
        ("clean, 4 workers", "simulated", 8)
    ]


def test_ratios_are_of_the_simulated_to_the_emulated() -> None:
    results = [Result("clean", "simulated", 1, 110.0, 240.0), Result("clean", "emulated", 1, 100.0, 200.0)]
    assert table(results).rows == [["clean", "100.0", "110.0", "1.100", "200.0", "240.0", "1.200"]]
