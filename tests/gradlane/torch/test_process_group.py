# SPDX-License-Identifier: Apache-2.0
"""The backend of torch.distributed, against Gloo."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gradlane.errors import AgentError
from gradlane.torch import rendezvous
from gradlane.torch.work import NO_TIMEOUT, Work
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


class _Over:
    """An operation that is over; `tell` calls who wants to know."""

    def __init__(self, error: Exception | None = None) -> None:
        self.tell: Callable[[Any], None] | None = None
        self._error = error

    def wait(self, timeout: float | None = None) -> None:
        if self._error is not None:
            raise self._error

    def done(self) -> bool:
        return True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.tell = callback


def test_a_wait_does_not_return_before_the_future_has_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchft chains what else is to be done to the future after the wait, and takes it for done then."""
    entered, go = threading.Event(), threading.Event()
    operation = _Over()
    work = Work([operation], lambda: None, [torch.ones(1)], NO_TIMEOUT)

    class Late(torch.futures.Future[Any]):
        def set_result(self, result: Any) -> None:
            entered.set()
            go.wait()
            super().set_result(result)

    monkeypatch.setattr(work, "_future", Late())
    assert operation.tell is not None
    client = threading.Thread(target=operation.tell, args=(None,))
    client.start()
    entered.wait()
    threading.Timer(0.2, go.set).start()
    work.wait()
    assert work.get_future().done()
    client.join()


def test_a_caller_that_waits_at_once_wakes_no_thread_of_the_client(agents: list[Agent], tmp_path: Path) -> None:
    """A wake-up costs as much as a small collective."""
    job = job_file(tmp_path / "job.toml", agents[:2])
    assert run(worker_collectives.threads_for_callbacks, agents[:2], job) == [(False, True, [4.0] * 3)] * 2


def test_what_is_waited_for_has_its_future_and_is_over() -> None:
    operation, brought = _Over(), list[int]()
    work = Work([operation], lambda: brought.append(1), [torch.ones(1)], NO_TIMEOUT, awaited=True)
    assert work.wait()
    assert operation.tell is None
    assert work.is_completed()
    assert work.is_success()
    assert torch.equal(work.get_future().wait()[0], torch.ones(1))
    assert brought == [1]


@pytest.mark.parametrize("ask", [Work.is_completed, Work.get_future])
def test_who_asks_before_he_waits_is_told(ask: Callable[[Work], Any]) -> None:
    operation, brought = _Over(), list[int]()
    work = Work([operation], lambda: brought.append(1), [torch.ones(1)], NO_TIMEOUT, awaited=True)
    assert ask(work) is not True
    assert operation.tell is not None
    operation.tell(None)
    assert work.is_completed()
    assert work.wait()
    assert brought == [1]


def test_what_fails_while_it_is_waited_for_says_why_later() -> None:
    operation = _Over(AgentError("rank 1 is gone"))
    work = Work([operation], lambda: None, [torch.ones(1)], NO_TIMEOUT, awaited=True)
    with pytest.raises(AgentError, match="rank 1 is gone"):
        work.wait()
    assert operation.tell is not None
    operation.tell(AgentError("rank 1 is gone"))
    assert work.is_completed()
    assert not work.is_success()
    assert "rank 1" in str(work.exception())
