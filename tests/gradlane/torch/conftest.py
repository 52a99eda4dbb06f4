# SPDX-License-Identifier: Apache-2.0
"""The agents that the tests of this folder share, and workers of a job."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gradlane.torch.ranks import job_file
from tests.gradlane.torch.schemes.synchronised_workers import Workers, connect
from tests.support.agents import Agent, loopback
from tests.support.agents import agents as started


@pytest.fixture(scope="session")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Agent]]:
    """Four of them; other tests have the addresses before theirs."""
    with started(tmp_path_factory.mktemp("agents"), loopback(4, first=101)) as running:
        yield running


@pytest.fixture
def pair(agents: list[Agent], tmp_path: Path) -> Iterator[Workers]:
    """It must be fit to leave the job at the end of a test."""
    workers = connect(agents[:2], job_file(tmp_path / "job.toml", agents[:2]))
    yield workers
    workers.all(lambda rank: workers.sessions[rank].close())
