# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a group tell each other over torch's store, which everyone can read."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from gradlane.job import Job
from gradlane.torch import rendezvous
from tests.gradlane.torch.ranks import template


class Store:
    """torch's, and all that was ever in it."""

    def __init__(self) -> None:
        self._store = dist.HashStore()
        self.written: list[bytes] = []

    def set(self, key: str, value: str) -> None:
        self.written += [key.encode(), value.encode()]
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        return self._store.get(key)


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
