# SPDX-License-Identifier: Apache-2.0
"""The benchmark of late workers where a switch sums: a short one for real."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.agent.late_sums import ARMS
from tests.support.needs import needs_root


@pytest.mark.alone
@needs_root
def test_others_take_their_steps_by_switch_and_by_hosts_while_one_is_late(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not request.config.getoption("--thorough"):
        pytest.skip("takes a minute; --thorough runs it")
    command = [sys.executable, "-m", "bench.agent.late_sums", "--hosts", "3", "--steps", "20", "--stall", "400"]
    command += ["--share", "0.25", "--size", "64KiB", "--repeats", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    runs = json.loads((tmp_path / "late_sums.json").read_text())["runs"]
    assert len(runs) == 2 * len(ARMS)
    for run in runs:
        assert (run["left_out"] > 0) == run["arm"].endswith("late")
        assert (run["summed"] > 0.8) == run["arm"].startswith("switch")
