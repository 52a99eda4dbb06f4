# SPDX-License-Identifier: Apache-2.0
"""Agents that the tests of a file share, where none of them is harmed."""

from collections.abc import Iterator

import pytest

from tests.support.agents import Agent, agents, loopback, until


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Agent]]:
    with agents(tmp_path_factory.mktemp("agents"), loopback(4)) as running:
        yield running
        assert [agent.end() for agent in running] == [0] * 4


@pytest.fixture
def hosts(started: list[Agent]) -> Iterator[list[Agent]]:
    """Four agents, at the addresses of `loopback`; after the test no job is left at any of them."""
    yield started
    until(lambda: not any(agent.status()["jobs"] for agent in started))
