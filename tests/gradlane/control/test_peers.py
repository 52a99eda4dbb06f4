# SPDX-License-Identifier: Apache-2.0
"""What a rank makes of what another one says while the job runs, without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gradlane import job
from gradlane.control.handshake import MAX_LINE
from gradlane.control.peer import Stage
from gradlane.control.peers import Peers
from gradlane.control.security import Credentials
from tests.support.agents import loopback
from tests.support.members import job_file

HOSTS = loopback(3)


class Writer:
    """Takes what is sent to a rank."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.transport = self

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def write(self, line: bytes) -> None:
        self.said.append(json.loads(line))

    def close(self) -> None: ...

    def abort(self) -> None: ...


class Rank:
    """Rank 0 of three, all of which have joined. Where it `survives` deaths, the others go on."""

    def __init__(self, folder: Path, survives: bool = True) -> None:
        self.failures: list[str] = []
        self.dropped: list[int] = []
        self.closed: list[int] = []
        self.over = False
        service: Any = SimpleNamespace(drop=lambda _: None)
        parsed = job.load(job_file(folder, HOSTS))
        credentials = Credentials(None)
        self.peers = Peers(parsed, 0, credentials, self._failed, service, lambda _: None, self._dropped)
        self.readers: dict[int, asyncio.StreamReader] = {}
        self.writers: dict[int, Writer] = {}
        for rank in (1, 2):
            self._adopt(rank)
        if survives:
            self.peers.outlive(self._close_group)

    def _adopt(self, rank: int) -> None:
        reader, writer = asyncio.StreamReader(MAX_LINE), Writer()
        self.readers[rank], self.writers[rank] = reader, writer
        call: Any = SimpleNamespace(
            problem=lambda *_: "", accept=lambda *_: None, rank=rank, reader=reader, writer=writer
        )
        assert not self.peers.accept(call)

    def _failed(self, reason: str) -> None:
        """As a LocalJob does: nothing of the job is there afterwards."""
        self.failures.append(reason)
        self.over = True
        self.peers.close()

    def _dropped(self, rank: int, _: str) -> None:
        self.dropped.append(rank)

    def _close_group(self, number: int) -> None:
        assert not self.over, "the data path is gone"
        self.closed.append(number)

    async def hears(self, rank: int, *messages: Any) -> None:
        """All lines come at once."""
        self.readers[rank].feed_data(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        for _ in range(3):
            await asyncio.sleep(0)


def run(folder: Path, scene: Callable[[Rank], Any], survives: bool = True) -> Rank:
    async def play() -> Rank:
        rank = Rank(folder, survives)
        await asyncio.sleep(0)  # it listens
        await scene(rank)
        rank.peers.close()
        return rank

    return asyncio.run(play())


def closed(numbers: Sequence[int]) -> list[Any]:
    return [{"topic": "closed", "content": number} for number in numbers]


def test_who_is_told_that_it_is_dead_takes_in_nothing_more(tmp_path: Path) -> None:
    """The data path is given back at once, and further lines are here already."""
    rank = run(tmp_path, lambda it: it.hears(1, *closed([1]), {"dead": {"0": "silent"}}, *closed([2])))
    assert rank.closed == [1]
    assert rank.failures == ["the others have gone on without this rank: silent"]


def test_a_caller_with_another_job_file_keeps_nobody_from_leaving(tmp_path: Path) -> None:
    """An agent that was restarted, say; all have joined."""

    async def scene(it: Rank) -> None:
        call: Any = SimpleNamespace(problem=lambda *_: "has another job file", knows=lambda *_: True, rank=2)
        leaving = asyncio.ensure_future(it.peers.reach(Stage.LEFT, None))
        await asyncio.sleep(0)
        assert it.peers.accept(call)
        for other in (1, 2):
            await it.hears(other, {"stage": Stage.LEFT})
        await asyncio.wait_for(leaving, 5)

    assert not run(tmp_path, scene).failures
