# SPDX-License-Identifier: Apache-2.0
"""The benchmark of steps that go on without late workers: a short one for real, and its stalls."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.agent.late_steps import stalls
from tests.support.needs import needs_root


def test_who_stalls_is_drawn_once_for_all_arms() -> None:
    assert stalls("nobody", 3, 50, 0.3, 0.5, 1) == [[0.0] * 50] * 3
    one = stalls("one", 3, 50, 0.3, 0.5, 1)
    assert one[:2] == [[0.0] * 50] * 2
    assert set(one[2]) == {0.0, 0.3}
    assert all(set(its) == {0.0, 0.3} for its in stalls("each", 3, 50, 0.3, 0.5, 1))
    assert one == stalls("one", 3, 50, 0.3, 0.5, 1)


@pytest.mark.alone
@needs_root
def test_others_take_their_steps_while_one_stalls(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--thorough"):
        pytest.skip("takes a minute; --thorough runs it")
    command = [sys.executable, "-m", "bench.agent.late_steps", "--hosts", "3", "--steps", "20", "--stall", "400"]
    command += ["--share", "0.25", "--size", "64KiB", "--repeats", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    runs = {(run["who"], run["arm"]): run for run in json.loads((tmp_path / "late_steps.json").read_text())["runs"]}
    assert set(runs) == {(who, arm) for who in ("nobody", "one", "each") for arm in ("waits", "late")}
    assert all(runs[who, "waits"]["left_out"] == 0 for who in ("nobody", "one", "each"))
    assert runs["one", "late"]["left_out"] >= 1
    assert runs["each", "late"]["left_out"] >= 2
