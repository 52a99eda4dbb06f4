# SPDX-License-Identifier: Apache-2.0
"""The benchmark of joins: a small one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.agent import join


@pytest.mark.skipif(os.geteuid() != 0, reason="builds a network namespace")
def test_it_measures_a_join(tmp_path: Path) -> None:
    options = ["--ranks", "2,7", "--idle", "1", "--out", str(tmp_path), "--json"]
    done = subprocess.run([sys.executable, "-m", "bench.agent.join", *options], capture_output=True, check=True)
    document = json.loads(done.stdout)
    assert document == json.loads((tmp_path / "join.json").read_text())
    assert [run["ranks"] for run in document["runs"]] == [2, 7]
    for run in document["runs"]:
        assert 0 < run["seconds"] < 30
        assert 0 < run["processor"] < 30
        assert 0 < run["before"] < run["rank_0"] < 64 << 20
        assert run["before"] < run["others"] < 64 << 20
        assert 0 <= run["idle"] < 1
        assert 0 < run["leave"] < 10
        assert 0 <= run["leave_processor"] < 10


@pytest.mark.parametrize("options", [["--ranks", "1"], ["--ranks", "1025"], ["--idle", "0"]])
def test_what_can_not_be_measured_is_said(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert join.main(options) == 2
    assert options[0] in capsys.readouterr().err
