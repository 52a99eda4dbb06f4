# SPDX-License-Identifier: Apache-2.0
"""An agent's status has every job of the agent."""

from types import SimpleNamespace
from typing import Any

from gradlane.daemon.agent import Agent
from gradlane.daemon.config import AgentConfig


def test_jobs_of_one_name_are_told_apart_by_their_ids() -> None:
    agent = Agent(AgentConfig(()))
    jobs: dict[int, Any] = {
        number: SimpleNamespace(job=SimpleNamespace(name=name, id=number), status=lambda number=number: {"id": number})
        for number, name in ((1, "resnet"), (2, "resnet"), (3, "other"))
    }
    agent._jobs = jobs
    assert agent.status()["jobs"] == {"resnet (1)": {"id": 1}, "resnet (2)": {"id": 2}, "other": {"id": 3}}
