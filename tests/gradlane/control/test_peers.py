# SPDX-License-Identifier: Apache-2.0
"""What a rank makes of what another one says while the job runs, without a network."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gradlane._core import ffi
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradlane import job
from gradlane.control.handshake import MAX_LINE
from gradlane.control.peer import Stage
from gradlane.control.peers import Peers
from gradlane.control.security import Credentials
from gradlane.daemon.arbiter import Arbiter
from tests.gradlane.daemon.test_malformed_messages import FROM_MEMBERS, changed
from tests.support.agents import loopback
from tests.support.effort import tries
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

    def get_extra_info(self, _: str) -> None: ...

    def write(self, line: bytes) -> None:
        self.said.append(json.loads(line))

    def close(self) -> None: ...

    def abort(self) -> None: ...


class Rank:
    """One of three, all of which have joined. Where it `survives` deaths, the others go on."""

    def __init__(self, folder: Path, survives: bool = True, number: int = 0) -> None:
        self.failures: list[str] = []
        self.dropped: dict[int, str] = {}
        self.closed: list[int] = []
        self.over = False
        parsed = job.load(job_file(folder, HOSTS))
        credentials = Credentials(None)
        self.peers = Peers(parsed, number, credentials, self._failed, Arbiter(parsed), lambda _: None, self._dropped)
        self.readers: dict[int, asyncio.StreamReader] = {}
        self.writers: dict[int, Writer] = {}
        for rank in {0, 1, 2} - {number}:
            self._adopt(rank)
        if survives:
            self.peers.outlive(self._close_group)
            self.peers.listeners["ownership"] = self._hear_of_ownership

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

    def _dropped(self, rank: int, why: str) -> None:
        self.dropped[rank] = why

    def _close_group(self, _: int, number: int) -> None:
        assert not self.over, "the data path is gone"
        if not 0 <= number < 4096:
            raise ValueError(f"there is no group {number}")
        self.closed.append(number)

    def _hear_of_ownership(self, _: int, content: Any) -> None:
        ffi.new("uint32_t *", int(content["ahead"]))

    async def hears(self, rank: int, *messages: Any) -> None:
        """All come at once. Bytes are a line as it is."""
        lines = [it if isinstance(it, bytes) else json.dumps(it).encode() for it in messages]
        self.readers[rank].feed_data(b"".join(line + b"\n" for line in lines))
        for _ in range(3):
            await asyncio.sleep(0)


def run(folder: Path, scene: Callable[[Rank], Any], survives: bool = True, number: int = 0) -> Rank:
    async def play() -> Rank:
        rank = Rank(folder, survives, number)
        await asyncio.sleep(0)  # it listens
        await scene(rank)
        rank.peers.close()
        return rank

    return asyncio.run(play())


def closed(numbers: Sequence[float]) -> list[Any]:
    return [{"closed": number, "hosts": [0, 1]} for number in numbers]


def test_who_is_told_that_it_is_dead_takes_in_nothing_more(tmp_path: Path) -> None:
    """The data path is given back at once, and further lines are here already."""
    rank = run(tmp_path, lambda it: it.hears(1, *closed([1]), {"dead": {"0": "silent"}}, *closed([2])))
    assert rank.closed == [1]
    assert rank.failures == ["the others have gone on without this rank: silent"]


@pytest.mark.parametrize(
    ("stage", "lost", "then", "failures"),
    [
        (Stage.LEFT, 2, {"reached": Stage.LEFT}, []),
        (Stage.LEFT, 2, {"failed": "rank 2 is dead"}, ["rank 2 is dead"]),
        (Stage.LEFT, 0, None, [f"rank 0 (h0, {HOSTS[0]}) is gone: its agent closed the connection"]),
        (Stage.READY, 2, None, [f"rank 2 (h2, {HOSTS[2]}) is gone: its agent closed the connection"]),
    ],
)
def test_who_has_left_hears_from_the_hub_whether_a_rank_that_is_gone_had_left(
    tmp_path: Path, stage: Stage, lost: int, then: Any, failures: list[str]
) -> None:
    """What that one said itself was lost when its connection was reset."""

    async def scene(it: Rank) -> None:
        reaching = asyncio.ensure_future(it.peers.rendezvous.reach(stage, None))
        await asyncio.sleep(0)
        it.readers[lost].set_exception(ConnectionResetError())
        await it.hears(1 - it.peers.rank, *([then] if then else []))
        assert reaching.done() == (then is not None and not failures)
        reaching.cancel()
        await asyncio.gather(reaching, return_exceptions=True)

    assert run(tmp_path, scene, survives=False, number=1).failures == failures


def test_a_caller_with_another_job_file_keeps_nobody_from_leaving_and_may_call_again(tmp_path: Path) -> None:
    """It is of the next job of that name: other ranks have heard earlier that all have left."""

    async def scene(it: Rank) -> None:
        call: Any = SimpleNamespace(problem=lambda *_: "has another job file", knows=lambda *_: True, rank=2)
        leaving = asyncio.ensure_future(it.peers.rendezvous.reach(Stage.LEFT, None))
        await asyncio.sleep(0)
        with pytest.raises(ConnectionError, match="the job 'trial' before it is not over yet"):
            it.peers.accept(call)
        for other in (1, 2):
            await it.hears(other, {"stage": Stage.LEFT})
        await asyncio.wait_for(leaving, 5)

    assert not run(tmp_path, scene).failures


PATHS = {"packet": 1500, "rank": 0, "latency": 0.0, "rate": None, "runners": 1}
WRONG_PATHS: list[dict[str, Any]] = [
    {"latency": math.nan},
    {"rate": 0},
    {"packet": 0},
    {"runners": 0},
    {"runners": 9},
    {"runners": 1.5},
    {"runners": None},
    {"more": 1},
]
AGREED = {"slice_bytes": 1400, "rate": 1e9, "latency": 0.0, "shards": 1, "steered": 0}


@pytest.mark.parametrize(
    "message",
    [
        *closed([math.inf, -1, 10**400]),
        {"topic": "ownership", "content": {"propose": 1, "ahead": 1 << 40}},
        {"ask": math.inf, "question": {"kind": "group", "name": "g", "shape": 2}},
        {"answer": math.inf, "content": {}},
        {"dead": {"2": "x", "7": "x"}},
        {"stage": math.inf},
        {"beat": "AAAA"[:3]},
        {"beat": "AAAAAAAA"},
        {"beat": 3},
        {"reached": 2},
        {"left": [2]},
        {"waits": "it", "ranks": [2]},
        {"missing": [2]},
        {"closed": 4096, "hosts": [0]},
        {"closed": 3, "hosts": [3]},
        {"closed": 3, "by": 2},
        {"waiting": {}},
        {"waiting": 3},
        {"topic": "session", "content": {"token": -1, "message_base": 0, "generation": 1}},
        {"topic": "session", "content": {"token": 1, "message_base": 0, "generation": 0}},
        {"topic": "session", "content": {"token": 1}},
        *({"topic": "paths", "content": PATHS | wrong} for wrong in WRONG_PATHS),
        {"topic": "paths", "content": {name: value for name, value in PATHS.items() if name != "runners"}},
        {"topic": "agreement", "content": [1400, 1e9, 0.0]},
        {"topic": "agreement", "content": AGREED | {"slice_bytes": "1400"}},
        {"topic": "agreement", "content": AGREED | {"shards": 0}},
        {"topic": "agreement", "content": AGREED | {"shards": 9}},
        {"topic": "agreement", "content": AGREED | {"steered": 2}},
    ],
)
def test_who_says_what_makes_no_sense_is_dropped_and_nobody_else(tmp_path: Path, message: Any) -> None:
    rank = run(tmp_path, lambda it: it.hears(1, message))
    assert not rank.failures
    assert rank.dropped.keys() == {1}
    assert "rank 1 (h1" in rank.dropped[1]
    assert "sent what makes no sense" in rank.dropped[1]


@settings(max_examples=tries(100, 1000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.sampled_from(FROM_MEMBERS).flatmap(changed), min_size=1, max_size=6))
def test_whatever_a_member_says_this_rank_does_not_blame_itself(tmp_path: Path, lines: list[bytes]) -> None:
    rank = run(tmp_path, lambda it: it.hears(1, *lines))
    assert all(reason.startswith("the others have gone on without this rank") for reason in rank.failures)
    assert rank.dropped.keys() <= {1, 2}
