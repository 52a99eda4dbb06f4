# SPDX-License-Identifier: Apache-2.0
"""A training process whose package is of another version than its agent's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import gradlane
from gradlane.client import agent_socket
from gradlane.ipc import messages
from tests.support.agents import Agent, agents, loopback
from tests.support.members import job_file

ALONE = loopback(1, first=21)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with agents(tmp_path, ALONE) as (one,):
        yield one


def test_it_is_told_both_versions_and_the_agent_goes_on(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = job_file(tmp_path, ALONE)
    with monkeypatch.context() as patch:
        patch.setattr(messages, "VERSION", messages.VERSION + 1)
        with pytest.raises(gradlane.AgentError) as caught:
            gradlane.Communicator(file, 0, socket=agent.socket)
    assert f"speaks version {messages.VERSION + 1} of the agent's socket, this agent version" in str(caught.value)
    assert "install the same gradlane for both" in str(caught.value)
    with gradlane.Communicator(file, 0, socket=agent.socket) as comm:
        assert comm.size == 1


@pytest.mark.parametrize("join", [{}, {"version": "1"}, {"version": 1.5}, {"version": "x" * 1000}])
def test_one_that_says_no_version_or_nonsense_is_refused_for_that(agent: Agent, join: dict[str, object]) -> None:
    with agent_socket.connect(agent.socket, 30) as sock:
        messages.send(sock, {"op": "join", **join})
        said = messages.receive(sock)[0]
    assert said["op"] == "error"
    assert f"speaks version {str(join.get('version'))[:20]} of the agent's socket" in str(said)
