# SPDX-License-Identifier: Apache-2.0
"""The loads of the benchmark of answers are what they are called: else it measures nothing."""

import json
from collections import Counter
from pathlib import Path

import pytest

from bench.switch import responsiveness
from tests.support.needs import needs_root


@needs_root
@pytest.mark.alone
def test_what_floods_the_switch_reaches_the_controller(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--seconds", "0.5", "--entries", "100", "--json", "--out", str(tmp_path)]
    assert responsiveness.main(arguments) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    packets, values = Counter[str](), Counter[str]()
    for run in runs:
        packets[run["load"]] += run["told"]
        values[run["load"]] += run["values"]
    assert packets["idle"] == values["idle"] == 0
    assert min(packets["punts"], packets["all of these"]) > 0
    assert min(values["refused, one job"], values["refused, many jobs"], values["all of these"]) > 0
    assert all(run["answers"] > 0 for run in runs)
