# SPDX-License-Identifier: Apache-2.0
"""The examples run, and their losses fall."""

import re
from pathlib import Path

import pytest

from tests.gradlane.torch.ranks import job_file, run
from tests.gradlane.torch.worker_examples import run_example
from tests.support.agents import Agent
from tests.support.ports import free_ports


def losses(output: str) -> list[float]:
    return [float(number) for number in re.findall(r"loss (\S+)", output)]


@pytest.mark.parametrize("name", ["pytorch_ddp.py", "pytorch_overlap.py", "pytorch_fsdp.py"])
def test_an_example_learns(agents: list[Agent], tmp_path: Path, name: str) -> None:
    job = job_file(tmp_path / "job.toml", agents[:2], push="0.02")
    arguments = ["--steps", "51"]
    if "ddp" in name and "fsdp" not in name:
        arguments += ["--checkpoint", str(tmp_path / "checkpoint")]
    first, *others = losses(run(run_example, agents[:2], job, free_ports(1)[0], name, *arguments)[0])
    assert others[-1] < 0.9 * first
    if "--checkpoint" in arguments:
        arguments[1] = "101"
        assert losses(run(run_example, agents[:2], job, free_ports(1)[0], name, *arguments)[0])[-1] < 0.9 * first
