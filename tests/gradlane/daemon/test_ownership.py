# SPDX-License-Identifier: Apache-2.0
"""Who owns how much of a tensor, as the job file says, from agent to agent."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gradlane.client.connection import Connection
from tests.gradlane.daemon.test_agents import all_reduce, close, job_file, join, tensors
from tests.support.agents import PATIENCE, Agent

ELEMENTS = 300_000


def test_shares_of_the_job_file_divide_the_work_and_change_no_result(hosts: list[Agent], tmp_path: Path) -> None:
    """By bytes, to about a hundredth: rank 1 sends its own contribution and nothing else."""
    connections = join([job_file(tmp_path, 3, transport="ownership = [1, 0, 2]")] * 3, hosts)
    shared = tensors(connections, ELEMENTS)
    for step in range(2):
        total = np.zeros(ELEMENTS, np.float32)
        for rank, contribution in enumerate(t.contribution for t in shared):
            contribution[:] = np.random.default_rng([rank, step]).standard_normal(ELEMENTS)
            total += contribution
        all_reduce(shared)
        for result in (t.result for t in shared):
            np.testing.assert_array_equal(result, total / np.float32(3))
    counts = close(connections)
    whole = counts[1]["slices_sent"]
    sent = [c["slices_sent"] / whole for c in counts]
    np.testing.assert_allclose(sent, [2 / 3 + 2 / 3, 1, 1 / 3 + 4 / 3], rtol=0.01)


class Workers:
    """Three workers that all-reduce a tensor step by step; the result must be exact in each."""

    def __init__(self, connections: list[Connection]) -> None:
        self.shared = tensors(connections, ELEMENTS)
        self.steps = 0

    def step(self, late: float = 0.0) -> None:
        """Worker 2 comes that many seconds after the others."""
        self.steps += 1
        total = np.zeros(ELEMENTS, np.float32)
        for rank, contribution in enumerate(t.contribution for t in self.shared):
            contribution[:] = (self.steps + rank) % 7
            total += contribution
        handles = [tensor.submit() for tensor in self.shared[:2]]
        time.sleep(late)
        for handle in [*handles, self.shared[2].submit()]:
            handle.wait(PATIENCE)
        for result in (t.result for t in self.shared):
            np.testing.assert_array_equal(result, total / np.float32(3))

    def until(self, condition: Callable[[], bool], late: float = 0.0) -> None:
        """Goes on until something is so."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end
            for _ in range(5):
                self.step(late)


def shares(hosts: list[Agent]) -> list[list[float]]:
    """As each agent has them."""
    return [agent.status()["jobs"]["trial"]["ownership"]["shares"] for agent in hosts[:3]]


def test_a_straggler_is_named_loses_its_share_and_gets_it_back(hosts: list[Agent], tmp_path: Path) -> None:
    """Every result is exact, and all agents say the same, with the evidence."""
    connections = join([job_file(tmp_path, 3, transport='ownership = "adaptive"')] * 3, hosts)
    workers = Workers(connections)
    workers.step()
    workers.until(lambda: shares(hosts) == [[0.5, 0.5, 0]] * 3, late=0.1)
    jobs = [agent.status()["jobs"]["trial"] for agent in hosts[:3]]
    for job in jobs:
        (straggler,) = [it for it in job["stragglers"] if it["straggler"]]
        assert straggler["rank"] == 2
        assert straggler["name"] == f"rank 2 (h2, {hosts[2].address})"
        assert 0.1 <= straggler["median"] < 0.5
        assert straggler["late_steps"] >= straggler["steps"] / 2
        assert "once the last has come, the all-reduce is expected to be 1.3" in job["ownership"]["reason"]
    assert len({job["ownership"]["first"] for job in jobs}) == 1
    for job in jobs:
        assert job["ownership"]["algorithm"] == "direct"
    for agent in hosts[:3]:
        assert f"rank 2 (h2, {hosts[2].address}) is a straggler: late by 1" in agent.wait_for("is a straggler")
        agent.wait_for("the shares are 50%, 50%, 0%")
    workers.until(lambda: shares(hosts) == [[1 / 3] * 3] * 3)
    assert not any(it["straggler"] for agent in hosts[:3] for it in agent.status()["jobs"]["trial"]["stragglers"])
    counts = close(connections)
    assert all(c["slices_lost"] == 0 for c in counts)


def test_where_ownership_is_even_a_straggler_is_only_named(hosts: list[Agent], tmp_path: Path) -> None:
    connections = join([job_file(tmp_path, 3, transport='collective = "direct"')] * 3, hosts)
    workers = Workers(connections)
    begun = time.monotonic()
    workers.until(lambda: any(it["straggler"] for it in hosts[1].status()["jobs"]["trial"]["stragglers"]), late=0.1)
    workers.until(lambda: time.monotonic() > begun + 5, late=0.1)
    assert shares(hosts) == [[1 / 3] * 3] * 3
    close(connections)
