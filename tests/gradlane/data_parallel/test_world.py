# SPDX-License-Identifier: Apache-2.0
"""A process' place in its job, by Horovod's names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradlane.data_parallel import world
from gradlane.errors import AgentError
from tests.support.agents import Agent
from tests.support.communicators import job_file
from tests.support.paths import ROOT

PROGRAM = """
import numpy as np
from gradlane.data_parallel import world
assert not world.is_initialized()
assert world.init() is world.init()
rank = world.rank()
assert (world.size(), world.local_size(), world.local_rank()) == (4, 2, rank % 2)
assert world.all_reduce(np.float64(rank), world.Max) == 3
world._BROADCAST_BYTES = 100
given = [np.full(3, rank, np.uint32), np.array(rank, np.int64), np.zeros((0, 2)), np.full((5, 50), rank, bool).T]
given += [np.full(2, rank + 1j), np.full(1, f"rank {rank}")]
for root in (0, 2):
    for mine, found in zip(given, world.broadcast(given, root), strict=True):
        expected = np.full(mine.shape, {"c": root + 1j, "U": f"rank {root}"}.get(mine.dtype.kind, root), mine.dtype)
        assert found.dtype == mine.dtype and found.shape == mine.shape and (found == expected).all(), found
assert world.broadcast([]) == []
world.shutdown()
world.shutdown()
assert not world.is_initialized()
"""


def test_four_processes_of_two_hosts(hosts: list[Agent], tmp_path: Path) -> None:
    file = job_file(tmp_path, 2, processes=2)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=ROOT,
            env=os.environ
            | {
                "RANK": str(rank),
                "LOCAL_WORLD_SIZE": "2",
                "GRADLANE_JOB": str(file),
                "GRADLANE_SOCKET": str(hosts[rank // 2].socket),
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    errors = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, errors


def test_without_a_job_everything_says_so() -> None:
    for function in (world.rank, world.size, world.local_rank, world.local_size, world.residuals, world.models):
        with pytest.raises(AgentError, match=r"in no job: call init\(\) first"):
            function()
