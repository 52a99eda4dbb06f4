# SPDX-License-Identifier: Apache-2.0
"""The benchmark of training without a barrier: a short one for real, and what it says of the network."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.agent import overlap
from tests.support.effort import only_thorough
from tests.support.needs import needs_root


@pytest.mark.alone
@only_thorough("trains by six methods")
@needs_root
def test_every_method_trains_and_ddp_does_not_wait_in_its_forward_pass(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.agent.overlap", "--layers", "3", "--width", "128", "--computation", "60"]
    command += ["--rate", "20mbit", "--steps", "4", "--repeats", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    runs = {run["method"]: run for run in json.loads((tmp_path / "overlap.json").read_text())["runs"]}
    assert set(runs) == set(overlap.METHODS)
    for run in runs.values():
        assert run["step"] >= 0.06
        assert len(run["waits"]) == 3
    assert runs["dear"]["waits"][0] > 0, "it is updated in the forward pass"
    for method in ("gloo", "hook"):
        assert sum(runs[method]["waits"]) < sum(runs["reversed"]["waits"]) / 2


def test_the_least_communication_is_what_each_port_must_carry() -> None:
    of_two = argparse.Namespace(layers=2, width=100, hosts=2, rate=1_000_000)
    assert overlap.communication(of_two) == pytest.approx(8 * 2 * 100 * 100 * 4 / 1e6)
    of_four = argparse.Namespace(layers=2, width=100, hosts=4, rate=1_000_000)
    assert overlap.communication(of_four) == pytest.approx(1.5 * overlap.communication(of_two))
