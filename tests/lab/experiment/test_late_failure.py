# SPDX-License-Identifier: Apache-2.0
"""A switch that is to fail in the middle of a training fails there, or the run says that it could not."""

from types import SimpleNamespace
from typing import Any

import pytest

from lab.experiment.arm_run import ArmRun
from lab.model.errors import LabError
from lab.model.scenarios import Failure


class File:
    """A worker's records."""

    def __init__(self, *records: dict[str, Any]) -> None:
        self.records = records

    def last(self, event: str) -> dict[str, Any] | None:
        return next((it for it in reversed(self.records) if it["event"] == event), None)

    def read_new(self) -> list[dict[str, Any]]:
        return []


class Failing(ArmRun):
    """A run of ten steps whose workers have all ended, and whose spine is to fail after four of them."""

    def __init__(self, *records: dict[str, Any]) -> None:
        self.killed: list[str] = []
        parts = {
            "_scenario": SimpleNamespace(failure=Failure("spine1", 0.4)),
            "_network": SimpleNamespace(fail_switch=self.killed.append),
            "_config": SimpleNamespace(steps=10),
            "_supervisor": SimpleNamespace(dead=lambda may_end: [], children=[]),
            "_files": [File(*records)],
            "_failed": None,
            "_temporary": [],
        }
        vars(self).update(parts)


def step(number: int) -> dict[str, Any]:
    return {"event": "step", "step": number}


def test_it_fails_when_its_share_of_the_steps_is_done() -> None:
    for steps, killed in ((3, []), (4, ["spine1"]), (9, ["spine1"])):
        run = Failing(*map(step, range(steps)))
        run._fail_switch()
        assert run.killed == killed


def test_after_the_last_step_it_does_not_fail_any_more_and_that_is_an_error() -> None:
    run = Failing(*map(step, range(10)), {"event": "final"})
    run._fail_switch()
    assert run.killed == []
    with pytest.raises(LabError, match=r"over before spine1 could be made to fail: .* more steps than 10"):
        run._watch([], lambda _: None, None)  # pyright: ignore[reportArgumentType]
