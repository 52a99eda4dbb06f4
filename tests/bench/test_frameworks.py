# SPDX-License-Identifier: Apache-2.0
"""The benchmark of frameworks, with those that are there."""

import json
from pathlib import Path

import pytest

from bench.agent import frameworks
from tests.support.needs import needs_root

SMALL = ["--width", "64", "--steps", "3", "--repeats", "1", "--json"]


@needs_root
@pytest.mark.parametrize("name", ["torch", "tensorflow", "jax"])
def test_both_ways_are_measured_in_turn(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip(name)
    methods = [f"{name}-own", f"{name}-gradlane"]
    assert frameworks.main([*SMALL, "--layers", "2", "--methods", ",".join(methods), "--out", str(tmp_path)]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["method"], run["gradient_bytes"]) for run in runs] == [(it, 2 * 4 * 64 * 64) for it in methods]
    assert all(0 < run["step"] < 60 and 0 < run["cpu"] < 60 for run in runs)


def test_what_is_not_known_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert frameworks.main(["--methods", "caffe-own"]) != 0
    assert "there is no method 'caffe-own'" in capsys.readouterr().err
