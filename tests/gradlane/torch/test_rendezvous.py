# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a group tell each other over torch's store, which everyone can read."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from gradlane import AgentError
from gradlane.job import Job
from gradlane.torch import rendezvous
from tests.gradlane.torch.ranks import template


class Store:
    """torch's, and all that was ever in it."""

    def __init__(self) -> None:
        self._store = dist.HashStore()
        self.written: list[bytes] = []
        self.timeout = timedelta(seconds=30)

    def set(self, key: str, value: str) -> None:
        self.written += [key.encode(), value.encode()]
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        return self._store.get(key)

    def check(self, keys: list[str]) -> bool:
        return self._store.check(keys)


def test_the_key_is_not_in_the_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "template.toml"
    file.write_text(template())
    monkeypatch.setenv("GRADLANE_JOB", str(file))
    monkeypatch.setattr(rendezvous.agent_socket, "status", lambda _: {"addresses": ["10.0.1.2"]})
    monkeypatch.setattr(rendezvous, "Connection", lambda job, rank, process: (job, rank, process))
    store = Store()
    with ThreadPoolExecutor(2) as pool:
        joined: list[Any] = list(pool.map(lambda rank: rendezvous.join(store, rank, 2), range(2)))
    assert [(rank, process) for _, rank, process in joined] == [(0, 0), (0, 1)]
    jobs: list[Job] = [job for job, _, _ in joined]
    assert jobs[0] == jobs[1]
    assert jobs[0].key
    assert store.written
    for text in store.written:
        assert jobs[0].key.hex().encode() not in text.lower()
        assert jobs[0].key not in text


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Store, list[str], int], list[list[str]]]:
    """A life of ranks that have these addresses, of which one comes later: whom each takes for ranks."""
    file = tmp_path / "template.toml"
    file.write_text(template())
    own = threading.local()
    monkeypatch.setenv("GRADLANE_JOB", str(file))
    monkeypatch.setattr(rendezvous, "_address", lambda _: own.address)
    monkeypatch.setattr(rendezvous, "Connection", lambda job, *_: [str(it.address) for it in job.workers])

    def run(store: Store, addresses: list[str], late: int) -> list[list[str]]:
        def join(rank: int) -> Any:
            time.sleep(0.3 if rank == late else 0)
            own.address = addresses[rank]
            return rendezvous.join(store, rank, len(addresses))

        with ThreadPoolExecutor(len(addresses)) as pool:
            return list(pool.map(join, range(len(addresses))))

    return run


@pytest.mark.parametrize("late", [0, 1, 2])
def test_what_was_said_in_an_earlier_life_counts_for_nothing(
    live: Callable[[Store, list[str], int], list[list[str]]], late: int
) -> None:
    store = Store()
    for life in range(1, 4):
        addresses = [f"10.0.{life}.{rank}" for rank in range(1, 4)]
        assert live(store, addresses, late) == [addresses] * 3


@pytest.mark.parametrize("late", [0, 1])
def test_nor_does_an_earlier_life_that_came_to_nothing(
    live: Callable[[Store, list[str], int], list[list[str]]], late: int
) -> None:
    store = Store()
    store.set("life", "it died before it answered")
    assert live(store, ["10.0.1.1", "10.0.1.2"], late) == [["10.0.1.1", "10.0.1.2"]] * 2


def test_without_rank_0_the_others_end(live: Callable[[Store, list[str], int], list[list[str]]]) -> None:
    store = Store()
    assert live(store, ["10.0.1.1", "10.0.1.2"], 0)
    store.timeout = timedelta(seconds=0.2)
    with pytest.raises(AgentError, match="rank 0 has not said"):
        rendezvous._ask(store, ("h", "10.0.2.2"), 1)  # pyright: ignore[reportPrivateUsage]
