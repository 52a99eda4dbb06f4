# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the cost model: a small one, and what it makes of its figures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.agent import costs
from bench.agent.costs import Fit, Result
from gradlane.job.costs import work


def results(of: Fit, seconds: float = 0.01) -> list[Result]:
    """As if hosts took what that says."""
    return [
        Result(hosts, size, algorithm, seconds, of.cpu(hosts, size, algorithm), 1e-5, algorithm == "ring")
        for hosts in (4, 9, 16)
        for size in (1 << 16, 1 << 20, 1 << 24)
        for algorithm in ("direct", "ring", "grid")
    ]


def test_the_model_is_fitted_to_what_was_measured() -> None:
    truth = Fit(start=50e-6, message=7e-6, processed=4e9)
    fit = costs.fitted(results(truth))
    assert (fit.start, fit.message, fit.processed) == pytest.approx((50e-6, 7e-6, 4e9))
    messages, share = work("grid", 9)
    assert truth.cpu(9, 1000, "grid") == pytest.approx(50e-6 + messages * 7e-6 + share * 8000 / 4e9)


def test_a_row_says_what_was_chosen_and_how_near_the_best_that_is() -> None:
    of = results(costs.MODEL)[:3]
    fastest = [Result(it.hosts, it.size, it.algorithm, 0.008, it.cpu, it.latency, it.chosen) for it in of[2:]]
    (row,) = costs.table([*of[:2], *fastest]).rows
    assert row[:3] == ["4", "0.0625", "10, 10, 8"]
    assert row[3] == row[4], "it was made by the model"
    assert row[5:] == ["ring", "1.25"]


@pytest.mark.skipif(os.geteuid() != 0, reason="builds a network namespace")
def test_it_measures_each_algorithm(tmp_path: Path) -> None:
    options = ["--hosts", "4", "--sizes", "64KiB", "--repeats", "1", "--out", str(tmp_path), "--json"]
    done = subprocess.run([sys.executable, "-m", "bench.agent.costs", *options], capture_output=True, check=True)
    document = json.loads(done.stdout)
    assert document == json.loads((tmp_path / "costs.json").read_text())
    assert [run["algorithm"] for run in document["runs"]] == ["direct", "ring", "grid"]
    assert sum(run["chosen"] for run in document["runs"]) == 1
    for run in document["runs"]:
        assert 0 < run["seconds"] < 1
        assert 0 < run["cpu"] < 1
        assert 0 < run["latency"] < 0.1


@pytest.mark.parametrize("options", [["--hosts", "3"], ["--hosts", "65"], ["--sizes", "4095B"], ["--repeats", "0"]])
def test_what_can_not_be_measured_is_said(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert costs.main(options) == 2
    assert options[0] in capsys.readouterr().err
