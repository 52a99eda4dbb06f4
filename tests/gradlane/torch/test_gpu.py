# SPDX-License-Identifier: Apache-2.0
"""Training on a GPU, which all ranks share."""

from pathlib import Path

import pytest
import torch

from tests.gradlane.torch import worker_gpu
from tests.gradlane.torch.ranks import job_file, run
from tests.support.agents import Agent, Within, loopback

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("place", ["daemon", "process"])
def test_models_on_a_gpu_end_as_those_on_the_cpu_over_gloo(agents: list[Agent], tmp_path: Path, place: str) -> None:
    hosts = agents[:2] if place == "daemon" else [Within(address) for address in loopback(2, first=131)]
    run(worker_gpu.every_way, hosts, job_file(tmp_path / "job.toml", hosts))


def test_collectives_keep_the_order_of_the_callers_stream(agents: list[Agent], tmp_path: Path) -> None:
    run(worker_gpu.on_a_stream, agents[:2], job_file(tmp_path / "job.toml", agents[:2]))


def test_gradients_in_bfloat16(agents: list[Agent], tmp_path: Path) -> None:
    run(worker_gpu.in_bfloat16, agents[:2], job_file(tmp_path / "job.toml", agents[:2]))


def test_sessions_follow_each_other(agents: list[Agent], tmp_path: Path) -> None:
    run(worker_gpu.again, agents[:2], job_file(tmp_path / "job.toml", agents[:2]))
