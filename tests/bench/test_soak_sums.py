# SPDX-License-Identifier: Apache-2.0
"""What a soak of summed jobs says, and a short one."""

import json
from pathlib import Path

import pytest

from bench.fabric import soak_sums, soak_worker
from bench.fabric.soak_sums import Report, Window
from tests.support.needs import needs_root


def test_a_failure_has_the_row_of_its_worst_window_and_all_that_broke() -> None:
    windows = [
        Window("a flap", 10.0, {"across": 50, "local": 90}, {"across": 0.5, "local": 1.0}),
        Window("a flap", 10.0, {"across": 20, "local": 90}, {"across": 0.25, "local": 1.0}, broke=["late"]),
    ]
    shown = soak_sums.table(Report(20.0, windows, failures=["late"]))
    assert shown.title.startswith("FAILED")
    assert shown.rows == [("a flap", "2.0 (25%)", "9.0 (100%)", "late")]


def test_a_sum_of_another_step_is_found() -> None:
    result = soak_worker.np.full(512, 3 * 4, soak_worker.np.float32)  # of 4 ranks in a third step
    assert not soak_worker.missing(result, 4, 3).any()
    assert soak_worker.missing(result, 4, 2).all()


@pytest.mark.alone
@needs_root
def test_for_a_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_sums, "_WINDOW_SECONDS", 1.0)
    assert soak_sums.main(["--seconds", "1", "--json", "--out", str(tmp_path)]) == 0
    [report] = json.loads(capsys.readouterr().out)["runs"]
    [window] = report["windows"]
    assert window["failure"] == "nothing"
    assert min(window["steps"].values()) > 0
    assert min(window["summed"].values()) > 0.5
