# SPDX-License-Identifier: Apache-2.0
"""The backend of torch.distributed, against Gloo."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gradlane.errors import AgentError
from gradlane.torch import rendezvous
from tests.gradlane.torch import worker_collectives, worker_training
from tests.gradlane.torch.ranks import job_file, run
from tests.support.agents import Agent, Within, loopback


@pytest.mark.parametrize("size", [2, 4])
def test_every_collective_gives_what_gloo_gives(agents: list[Agent], tmp_path: Path, size: int) -> None:
    run(worker_collectives.all_of_them, agents[:size], job_file(tmp_path / "job.toml", agents[:size]))


@pytest.mark.parametrize("work", [worker_collectives.all_of_them, worker_training.both_backends])
def test_it_does_the_same_without_daemons(tmp_path: Path, work: Callable[..., None]) -> None:
    places = [Within(address) for address in loopback(3, first=121)]
    run(work, places, job_file(tmp_path / "job.toml", places))


@pytest.mark.parametrize("size", [2, 4])
def test_ddp_and_fsdp_train_as_on_gloo(agents: list[Agent], tmp_path: Path, size: int) -> None:
    run(worker_training.both_backends, agents[:size], job_file(tmp_path / "job.toml", agents[:size]))


def test_two_processes_on_each_host_train_as_on_gloo(agents: list[Agent], tmp_path: Path) -> None:
    job = job_file(tmp_path / "job.toml", agents[:2], processes=2)
    run(worker_training.both_backends, agents[:2], job, processes=2)


@pytest.mark.parametrize("way", ["backend", "hook"])
def test_a_worker_that_dies_is_named_to_the_others(agents: list[Agent], tmp_path: Path, way: str) -> None:
    told, nothing = run(worker_training.one_dies, agents[:2], job_file(tmp_path / "job.toml", agents[:2]), way)
    assert nothing is None
    assert "AgentError" in told
    assert "rank 1 (h1, " in told
    assert "training process" in told


def test_hosts_are_found_from_the_ranks_addresses() -> None:
    one, two = ("a", "10.0.0.1"), ("a", "10.0.0.2")
    assert rendezvous.workers([one, one, two, two]) == [
        ("a-0", "10.0.0.1", 2),
        ("a-1", "10.0.0.2", 2),
    ]
    with pytest.raises(AgentError, match=r"2 on a \(10.0.0.1\), 1 on a \(10.0.0.2\)"):
        rendezvous.workers([one, one, two])
    with pytest.raises(AgentError, match=r"rank 2 is on a .* must follow each other"):
        rendezvous.workers([one, two, one, two])
