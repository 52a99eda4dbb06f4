# SPDX-License-Identifier: Apache-2.0
"""What the log says of workers that are late, without agents."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gradlane import job
from gradlane.daemon.left_out import LeftOut
from tests.support.agents import loopback
from tests.support.members import job_file


def test_who_is_waited_for_as_memory_is_out_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parsed = job.load(job_file(tmp_path, loopback(2), lines="[loss.late]\nafter = 0.1\nsteps = 2\nwindow = 8"))
    counts = {"late_no_memory": 0}
    engine: Any = SimpleNamespace(statistics=lambda: {"memory_used": 900}, left_out=lambda rank: (0, 0))
    exchange: Any = SimpleNamespace(statistics=lambda: counts)
    left_out = LeftOut(parsed, 1, engine, exchange, 1000)
    left_out.look()
    assert not caplog.records
    for steps in (1, 1, 2):
        counts["late_no_memory"] = steps
        left_out.look()
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    text = record.getMessage()
    assert f"{parsed.name_of(1)} was late" in text
    assert "of the job's 1000 bytes 900 are in use (limits.memory of the agent's file)" in text
