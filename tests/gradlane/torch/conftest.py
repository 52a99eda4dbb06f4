# SPDX-License-Identifier: Apache-2.0
"""The agents that the tests of this folder share."""

from collections.abc import Iterator

import pytest

from tests.gradlane.torch.ranks import Agent


@pytest.fixture(scope="session")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Agent]]:
    """Four of them."""
    folder = tmp_path_factory.mktemp("agents")
    started: list[Agent] = []
    try:
        for number in range(4):
            started.append(Agent(number, folder))
        yield started
    finally:
        for agent in started:
            agent.end()
