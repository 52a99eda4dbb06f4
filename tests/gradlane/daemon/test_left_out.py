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


def test_who_is_left_out_is_named_when_that_begins_and_when_its_budget_is_used_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parsed = job.load(job_file(tmp_path, loopback(2), lines="[loss.late]\nafter = 0.1\nsteps = 3\nwindow = 8"))
    counts = (0, 0)
    engine: Any = SimpleNamespace(left_out=lambda rank: counts if rank == 1 else (0, 0))
    exchange: Any = SimpleNamespace(statistics=lambda: {"late_no_memory": 0})
    left_out = LeftOut(parsed, 0, engine, exchange, 1000)
    assert left_out.status() == []
    told: list[tuple[int, int]] = []
    for counts in [(0, 0), (1, 1), (1, 1), (2, 2), (3, 3), (3, 3), (3, 1), (3, 0), (4, 1), (7, 3), (7, 0), (10, 3)]:
        caplog.clear()
        left_out.look()
        (found,) = left_out.status() or [{"steps": 0, "recent": 0}]
        assert (found["steps"], found["recent"]) == counts
        if not caplog.records:
            continue
        told.append(counts)
        [record] = caplog.records
        text = f"was late, and has been left out: of {counts[1]} of the last 8 steps, {counts[0]} in all"
        assert f"{parsed.name_of(1)} {text}" in record.getMessage()
        assert record.getMessage().endswith(": as many as it may be, so the others wait for it") == (counts[1] == 3)
    assert told == [(1, 1), (3, 3), (4, 1), (7, 3), (10, 3)]
