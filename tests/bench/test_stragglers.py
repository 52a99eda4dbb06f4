# SPDX-License-Identifier: Apache-2.0
"""The benchmark of late workers: a short one for real, and what it compares with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.agent import stragglers
from tests.support.needs import needs_root


@needs_root
def test_who_owns_nothing_when_it_comes_late_is_done_sooner(tmp_path: Path) -> None:
    """Among four: after its arrival one contribution crosses the ports instead of one and a half."""
    command = [sys.executable, "-m", "bench.agent.stragglers", "--hosts", "4", "--repeats", "3", "--rate", "50mbit"]
    command += ["--size", "1MiB", "--late", "250", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    runs = {(run["arm"], run["late"]): run for run in json.loads((tmp_path / "stragglers.json").read_text())["runs"]}
    assert set(runs) == {(arm, late) for arm in stragglers.ARMS for late in (0.0, 0.25)}
    for run in runs.values():
        assert run["fastest"] >= 0.9 * run["least"]  # a port sends some at once
    assert runs["adaptive", 0.25]["seconds"] < 0.85 * runs["even", 0.25]["seconds"]


def test_what_crosses_the_busiest_port() -> None:
    assert stragglers.crossing("even", 4, True) == stragglers.crossing("ring", 4, False) == pytest.approx(1.5)
    assert stragglers.crossing("adaptive", 8, True) == 1
    assert stragglers.crossing("adaptive", 8, False) == pytest.approx(1.75)
    assert stragglers.stragglar(4) == pytest.approx(4 / 3)
    assert stragglers.stragglar(8) == pytest.approx(9 / 7)
