# SPDX-License-Identifier: Apache-2.0
"""The error-feedback state in checkpoints."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.needs import needs_root
from tests.support.paths import ROOT


@needs_root
def test_a_restored_run_equals_an_uninterrupted_one_that_had_losses(tmp_path: Path) -> None:
    run = subprocess.run(
        ["unshare", "--net", sys.executable, "-m", "tests.gradlane.torch.lossy", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["lost"] > 0
    assert max(found["owed"]) > 0
    assert found["lost afterwards"] == [0, 0]
    assert found["equal"]
    assert not found["equal without what was owed"]  # so the state does matter


@pytest.mark.parametrize(
    ("name", "said"),
    [("0.0", "parameter 0.0 of this state has 5 elements, 6 in the watched models"), ("0.7", "no such parameter")],
)
def test_a_state_of_another_model_is_refused_by_the_parameter(name: str, said: str) -> None:
    import torch

    from gradlane.torch.session import Session

    connection: Any = SimpleNamespace(world_rank=0, world_size=2, process=0)
    session = Session(connection)
    session.watch(torch.nn.Linear(2, 3))
    with pytest.raises(ValueError, match=said):
        session.load_state_dict({"rank": 0, "ranks": 2, "residuals": {name: torch.zeros(5)}})
