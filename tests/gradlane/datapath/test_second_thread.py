# SPDX-License-Identifier: Apache-2.0
"""A second thread that reads the sockets while much comes: results are the same, and it rests while little does."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support import members
from tests.support.agents import Agent, agents, loopback, until
from tests.support.communicators import Ranks, each, joined

HOSTS = 4
MANY = 4 << 20  # elements


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def started(tmp_path: Path, threads: int) -> Iterator[list[Agent]]:
    config = tmp_path / "agent.toml"
    config.write_text(f'address = "127.0.0.1"\n[scheduling]\nthreads = {threads}\n')
    with agents(tmp_path, loopback(HOSTS, 41), "--config", config) as running:
        yield running


@pytest.fixture
def ranks(tmp_path: Path, started: list[Agent]) -> Iterator[Ranks]:
    file = members.job_file(tmp_path, loopback(HOSTS, 41), lines='buffer = "16MB"')
    file.write_text(file.read_text().replace("1gbit", "100gbit"))
    with joined(started, file, HOSTS) as running:
        yield running


def aside(started: list[Agent]) -> list[int]:
    return [agent.status()["transport"]["received_aside"] for agent in started]


def test_it_reads_while_much_comes(started: list[Agent], ranks: Ranks, threads: int) -> None:
    random = np.random.default_rng(1)
    for step in range(20):
        arrays = [random.integers(-9999, 9999, MANY).astype(np.float32) for _ in ranks]
        pending = [c.all_reduce(a, "gradient", "sum", asynchronous=True) for c, a in zip(ranks, arrays, strict=True)]
        for it in pending:
            np.testing.assert_array_equal(it.wait(60), sum(arrays))
        if step > 2 and threads == 2 and sum(aside(started)):
            break
    assert (sum(aside(started)) > 0) == (threads == 2)
    received = [agent.status()["transport"]["received"] for agent in started]
    assert all(part <= whole for part, whole in zip(aside(started), received, strict=True))

    def rests() -> bool:
        """While little comes: a moment after much has, the thread gives the sockets back."""
        before = aside(started)
        for _ in range(20):
            for total in each(ranks, lambda c: c.all_reduce(np.full(1000, c.rank + 1.0), op="sum")):
                assert (total == 10).all()
        return aside(started) == before

    until(rests)
