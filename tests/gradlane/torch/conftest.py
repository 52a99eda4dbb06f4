# SPDX-License-Identifier: Apache-2.0
"""The agents that the tests of this folder share."""

from collections.abc import Iterator

import pytest

from tests.support.agents import Agent, loopback
from tests.support.agents import agents as started


@pytest.fixture(scope="session")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Agent]]:
    """Four of them; other tests have the addresses before theirs."""
    with started(tmp_path_factory.mktemp("agents"), loopback(4, first=101)) as running:
        yield running
