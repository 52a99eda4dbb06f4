# SPDX-License-Identifier: Apache-2.0
"""The loads of the benchmark of answers are what they are called: else it measures nothing."""

import json
from pathlib import Path

import pytest

from bench.switch import responsiveness
from tests.support.needs import needs_root


@needs_root
@pytest.mark.alone
def test_what_floods_the_switch_reaches_the_controller(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--seconds", "1", "--entries", "100", "--json", "--out", str(tmp_path)]
    assert responsiveness.main(arguments) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    told = {(run["load"], run["request"]): (run["told"], run["values"]) for run in runs}
    assert told["idle", "read"] == (0, 0)
    assert told["punts", "read"][0] > 0
    assert told["refused, one job", "read"][1] > 0
    assert told["refused, many jobs", "read"][1] > 0
    assert min(told["all of these", "read"]) > 0
    assert all(run["answers"] > 0 for run in runs)
