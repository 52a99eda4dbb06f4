# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the engine alone: what it measures is what an all-reduce is made of."""

import json
from pathlib import Path

import pytest

from bench.agent import core
from lab.model.errors import ExperimentError
from tests.support.effort import only_thorough


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core is compiled without optimisation, in a small part of the time, and reduces little: how fast it is does
    not matter here."""
    monkeypatch.setattr(core, "_FLAGS", (*core._FLAGS, "-O0"))
    monkeypatch.setattr(core, "_VOLUME", 1 << 20)


@pytest.mark.usefixtures("at_once")
def test_it_measures_every_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept_to: list[set[int]] = []
    monkeypatch.setattr(core.os, "sched_setaffinity", lambda _, cores: kept_to.append(cores))  # others run here, too
    options = ["--ranks", "2,5", "--slices", "64", "--rounds", "1", "--out", str(tmp_path), "--json"]
    assert core.main(options) == 0
    assert kept_to == [{0}]
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((tmp_path / "core.json").read_text())
    assert [(run["ranks"], run["slices"]) for run in document["runs"]] == [(2, 64), (5, 64)]
    for run in document["runs"]:
        # To read 1,432 bytes twice and to write them once takes longer than that, on any machine of today.
        assert all(5 < run[part] < 1e6 for part in ("received", "taken")), run
        assert all(0 < run[part] < 1e6 for part in ("sent", "control")), run


@pytest.mark.usefixtures("at_once")
def test_an_engine_alone_has_hundreds_of_ranks(tmp_path: Path) -> None:
    load = core.Load(tmp_path, alone=True)
    for ranks, slices in ((2, 64), (300, 3)):
        found = load.measure(ranks, slices, slice_bytes=64, rounds=1)
        assert found.taken is None
        assert all(0 < value < 1e6 for value in (found.received, found.sent, found.control)), found


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("alone", [pytest.param(False, marks=only_thorough("checks results as the other does")), True])
def test_a_wrong_result_is_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    folder = tmp_path / "bench"
    folder.mkdir()
    for path in Path(core.__file__).parent.glob("core_*"):
        text = path.read_text()
        (folder / path.name).write_text(text.replace("(float)c->ranks", "(float)(c->ranks + 1)"))
    assert "(float)(c->ranks + 1)" in (folder / "core_common.h").read_text()
    monkeypatch.setattr(core, "__file__", str(folder / "core.py"))
    with pytest.raises(ExperimentError, match="elements are wrong"):
        core.Load(tmp_path, alone).measure(ranks=2, slices=2, slice_bytes=64, rounds=1)


@pytest.mark.parametrize("options", [["--ranks", "1"], ["--ranks", "1025"], ["--slices", "0"], ["--slice-bytes", "12"]])
def test_what_can_not_be_measured_is_said(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert core.main(options) == 2
    assert options[0] in capsys.readouterr().err
