# SPDX-License-Identifier: Apache-2.0
"""The training benchmark loses no figure: not to an arm that fails, nor to a kernel that can't run a further arm."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from bench.training import scenarios
from lab.model.errors import ArmError
from lab.model.results import ArmResult
from lab.model.scenarios import SCENARIOS, Scenario
from tests.support.figures import arm_result


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(scenarios, "ready_machine", lambda plans: contextlib.nullcontext())
    return scenarios


def test_an_arm_that_fails_costs_only_what_comes_after_it_in_its_scenario(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(scenario: Scenario, *_: object) -> Iterator[ArmResult]:
        yield arm_result("gradlane", scenario=scenario.name)
        if scenario.name == "clean":
            raise ArmError("worker 2 died with signal 9")
        yield arm_result("ddp-gloo", scenario=scenario.name, to_target=20.0)

    monkeypatch.setattr("lab.experiment.runner.run_scenario", run)
    assert bench.main(["--scenarios", "clean,gray", "--out", str(tmp_path)]) == 1
    document = json.loads((tmp_path / "training.json").read_text())
    assert [(run["scenario"], run["arm"]) for run in document["runs"]] == [
        ("clean", "gradlane"),
        ("gray", "gradlane"),
        ("gray", "ddp-gloo"),
    ]
    assert "error: clean: worker 2 died with signal 9" in capsys.readouterr().err


@pytest.mark.parametrize("able", [True, False])
def test_a_further_arm_runs_where_the_kernel_can(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], able: bool
) -> None:
    asked: list[tuple[str, ...]] = []

    def run(scenario: Scenario, *_: object) -> Iterator[ArmResult]:
        asked.append(scenario.arms)
        yield arm_result("gradlane-ps", scenario=scenario.name)

    monkeypatch.setattr("lab.experiment.runner.run_scenario", run)
    monkeypatch.setattr(bench, "minimum_timeout_is_settable", lambda: able)
    assert bench.main(["--scenarios", "incast", "--out", str(tmp_path)]) == 0
    arms = SCENARIOS["incast"].arms
    assert asked == [(*arms, "ps-tcp-tuned") if able else arms]
    assert ("arm ps-tcp-tuned is left out" in capsys.readouterr().err) is not able
