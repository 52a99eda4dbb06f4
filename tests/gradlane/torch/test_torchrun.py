# SPDX-License-Identifier: Apache-2.0
"""torchrun with a job file that has no members, and a worker that dies."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gradlane.torch.ranks import template
from tests.support.agents import Agent
from tests.support.effort import only_thorough


@pytest.mark.parametrize(
    "daemons", [pytest.param(True, marks=only_thorough("less is gone with a worker than with an agent in it")), False]
)
def test_a_group_that_torchrun_restarts_joins_again(agents: list[Agent], tmp_path: Path, daemons: bool) -> None:
    sockets = [str(agent.socket) for agent in agents[:2]] if daemons else ["process"] * 2
    job = tmp_path / "template.toml"
    job.write_text(template())
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    command += [str(Path(__file__).parent / "elastic.py"), str(tmp_path), *sockets]
    environment = {"GRADLANE_JOB": str(job), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=400, check=False
    )
    assert run.returncode == 0, run.stderr
    assert {path.name for path in tmp_path.glob("*.*.*")} == {"0.0.error", "1.0.done", "1.1.done"}
    error = (tmp_path / "0.0.error").read_text()
    address = re.escape(agents[1].address) if daemons else r"127\.\d+\.\d+\.\d+"
    why = "training process" if daemons else "is gone: its agent closed the connection"
    assert re.search(rf"rank 1 \({socket.gethostname()}-1, {address}\).*{why}", error)
    assert (tmp_path / "1.0.done").read_text() == (tmp_path / "1.1.done").read_text()
