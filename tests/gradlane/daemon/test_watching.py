# SPDX-License-Identifier: Apache-2.0
"""What an agent looks at every second in a job that runs, at given times and without a network."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gradlane._core import lib

from gradlane import job
from gradlane.control.peers import Peers
from gradlane.control.security import Credentials
from gradlane.daemon import liveness
from gradlane.daemon.arbiter import Arbiter
from gradlane.daemon.local_job import LocalJob
from gradlane.daemon.meetings import REPORT_SECONDS, Meetings
from gradlane.daemon.shared import Services
from gradlane.datapath.exchange import Exchange, Waiting
from tests.gradlane.control.test_peers import Writer
from tests.support.agents import loopback
from tests.support.members import job_file

Message = dict[str, Any]
WORKERS, PATIENCE = 4, 10
SURVIVES = '[sync]\nscheme = "ripples"\n'


class Rank:
    """One of four; the others have joined."""

    def __init__(self, folder: Path, rank: int = 0) -> None:
        file = job_file(folder, loopback(WORKERS), lines=SURVIVES, deaths="survive", patience=PATIENCE)
        nothing = SimpleNamespace(add=lambda *_: None, remove=lambda *_: None, credentials=Credentials(None))
        stands_in: Any = nothing
        self.local = LocalJob(
            job.load(file), rank, Services(stands_in, stands_in, stands_in, 0, 0, False), lambda _: None
        )
        self.peers = self.local.peers
        self.arbiter = Arbiter(self.local.job)
        self.meetings = Meetings(self.local.job, rank, self.peers, self.arbiter)
        joined = {other: self._join(self.peers, other) for other in range(WORKERS) if other != rank}
        self.readers = {other: reader for other, (reader, _) in joined.items()}
        self.said = {other: said for other, (_, said) in joined.items()}
        self.peers.outlive(lambda _, __: None)

    @staticmethod
    def _join(peers: Peers, rank: int) -> tuple[asyncio.StreamReader, list[Any]]:
        reader, writer = asyncio.StreamReader(), Writer()
        call: Any = SimpleNamespace(
            problem=lambda *_: "", accept=lambda *_: None, rank=rank, reader=reader, writer=writer
        )
        assert not peers.accept(call)
        return reader, writer.said

    def meet(self, name: str, *ranks: int) -> None:
        for rank in ranks:
            question = {"kind": "meet", "name": name, "number": 1, "agreed": True}
            self.arbiter.answer(rank, question, lambda _: None)

    def look_at_meetings(self, seconds: int) -> None:
        """Once a second."""
        for now in range(100, 100 + seconds):
            if not self.local.over.is_set():
                self.meetings.look(now)

    async def tells(self, rank: int, message: Any) -> None:
        self.readers[rank].feed_data(json.dumps(message).encode() + b"\n")
        for _ in range(3):
            await asyncio.sleep(0)

    def check_progress(self, now: float, oldest: Waiting | None) -> None:
        """While that is the oldest operation, and no datagram comes."""
        held: Any = SimpleNamespace(oldest=lambda: oldest, held=False, drop=lambda _: {})
        silent: Any = SimpleNamespace(statistics=lambda: {"datagrams_received": 1})
        self.local._exchange, self.local._engine = held, silent  # pyright: ignore[reportPrivateUsage]
        self.local._check_progress(now)  # pyright: ignore[reportPrivateUsage]
        self.local._exchange = self.local._engine = None  # pyright: ignore[reportPrivateUsage]

    async def watch(self) -> None:
        """As soon as it has joined, and until it ends."""
        self.local._spawn(self.local._watch())  # pyright: ignore[reportPrivateUsage]
        await asyncio.wait_for(self.local.over.wait(), 10)


def play(folder: Path, scene: Callable[[Rank], Coroutine[Any, Any, None]], rank: int = 0) -> Rank:
    async def all_of_it() -> Rank:
        it = Rank(folder, rank)
        await scene(it)
        it.local.fail("it is over")
        return it

    return asyncio.run(all_of_it())


def test_a_bug_in_what_watches_ends_the_job_with_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr(liveness, "WATCH_SECONDS", 0.01)
    monkeypatch.setattr(liveness.Stopped, "look", breaks)
    rank = play(tmp_path, Rank.watch)
    assert rank.local.failure.startswith("rank 0 (h0")
    assert "TypeError('a bug')" in rank.local.failure
    assert any("a bug" in message.get("failed", "") for message in rank.said[1])


def test_who_waits_in_another_group_has_that_time_beside_the_patience_however_late_it_is_heard(tmp_path: Path) -> None:
    """Rank 1 has waited for 4.5 s when that is heard, and does so for another second."""

    async def scene(it: Rank) -> None:
        ended = None
        for second in range(30):
            if second == 9:
                await it.tells(1, {"waiting": "another", "seconds": 4.5})
            if second == 11:
                await it.tells(1, {"waiting": None, "seconds": 0})
            it.check_progress(second, Waiting(second, "the all-reduce", [1], True, [], [0, 1]))
            if it.peers.dead and ended is None:
                ended = second
        assert ended == PATIENCE + 6
        assert "the job waits 10 s for late workers (job.patience), and 6 s for which they wait" in it.peers.dead[1]

    play(tmp_path, scene)


def test_with_what_a_rank_waits_for_it_says_for_how_long(tmp_path: Path) -> None:
    """From the second look on: what is over by then is told to nobody."""

    async def scene(it: Rank) -> None:
        for second, what in enumerate(("a", "b", "b", "b")):
            it.check_progress(second, Waiting(2.5 + second, what, [1], True, [], [1, 2]))
        it.check_progress(4, None)

    told = [message for message in play(tmp_path, scene, rank=2).said[0] if "waiting" in message]
    assert told == [{"waiting": "b", "seconds": pytest.approx(4.5, abs=0.5)}, {"waiting": None, "seconds": 0.0}]


def test_who_keeps_others_waiting_in_two_models_is_expelled_once(tmp_path: Path) -> None:
    async def scene(it: Rank) -> None:
        it.meet("a", 0, 2, 3)
        it.meet("b", 0, 2, 3)
        it.look_at_meetings(PATIENCE + 1)
        assert it.peers.dead.keys() == {1}
        assert not it.local.failure

    rank = play(tmp_path, scene)
    [told] = [message["dead"] for message in rank.said[1] if "dead" in message]
    assert "all have averaged 'a' for 10 s but rank 1 (h1" in told["1"]


def test_a_leader_whose_own_process_is_late_ends_and_says_so(tmp_path: Path) -> None:
    async def scene(it: Rank) -> None:
        it.meet("a", 1, 3)
        it.look_at_meetings(PATIENCE + 1)
        assert it.local.failure.startswith("all have averaged 'a' for 10 s but rank 0 (h0")
        assert it.peers.dead.keys() == {2}

    rank = play(tmp_path, scene)
    [told] = [message["failed"] for message in rank.said[1] if "failed" in message]
    assert told == rank.local.failure
    assert not any("lost" in message for message in rank.said[1]), "nobody says that it has lost itself"


@pytest.mark.parametrize("dies", [False, True])
def test_who_closes_a_group_of_the_living_is_expelled(tmp_path: Path, dies: bool) -> None:
    """Others may know first that a rank of it has died, but not for long."""
    wire = int(lib.GL_FIRST_GROUP) + 3
    site: Any = SimpleNamespace(hosts={}, numbers={wire: "a collective of group [0, 1]"})
    exchange = Exchange.__new__(Exchange)
    exchange.drop = lambda rank: {}
    exchange._site, exchange._closed = site, {wire: 2}  # pyright: ignore[reportPrivateUsage]

    async def scene(it: Rank) -> None:
        it.local._exchange = exchange  # pyright: ignore[reportPrivateUsage]
        for now in range(30):
            if now == 15:
                site.hosts[wire] = [0, 1]  # it is registered
            if now == 20 and dies:
                it.peers.expel([1], "it is gone")
            it.local._look(now)  # pyright: ignore[reportPrivateUsage]
            assert now >= 15 + liveness.LATE_SECONDS or 2 not in it.peers.dead
        it.local._exchange = None  # pyright: ignore[reportPrivateUsage]
        assert it.peers.dead.keys() == ({1} if dies else {2})

    play(tmp_path, scene)


def report(name: str, number: int, *group: int, whole: bool = True) -> Message:
    """Of a rank that has asked for its next group."""
    question = {"kind": "next", "name": name, "members": 2, "slack": 1, "step": 3, "pause": False}
    return {"report": [[question, {"number": number, "group": list(group)}]], "whole": whole}


def test_who_does_not_report_to_a_new_leader_is_named_and_expelled(tmp_path: Path) -> None:
    """However much it says, or little."""

    async def scene(it: Rank) -> None:
        it.peers.expel([0], "it is gone")
        await it.tells(3, {"report": [], "whole": True})
        for now in range(int(REPORT_SECONDS) + 2):
            assert it.peers.dead.keys() == {0} or now > REPORT_SECONDS
            it.meetings.look(now)
            await it.tells(2, report("m", now, 1, 2, whole=False))
        assert "rank 2 (h2" in it.peers.dead[2]
        assert "did not report to the new leader" in it.peers.dead[2]
        assert not it.local.failure

    play(tmp_path, scene, rank=1)


@pytest.mark.parametrize(
    "lie",
    [
        report("m", 7, 1),
        report("m", 7, 2, 1),
        report("m", 7, 1, 2, 9),
        report("m", -1, 1, 2),
        report("m", 1 << 70, 1, 2),
        {"report": [[{"kind": "group", "name": "g"}, {"id": 3}]], "whole": True},
        {"report": [[{"kind": "group", "name": "g", "shape": 2}, {"id": 1 << 40}]], "whole": True},
        {"report": [[{"kind": "meet", "name": "m", "number": 3, "agreed": True}, {}]], "whole": True},
        {"report": [[{"kind": "x", "name": "m"}, {}]], "whole": True},
        {"report": [[{"kind": "group", "name": "g", "shape": 2}, {"id": 3}]] * (1 << 7), "whole": False},
    ],
)
def test_who_reports_what_makes_no_sense_is_dropped_and_nobody_else(tmp_path: Path, lie: Message) -> None:
    async def scene(it: Rank) -> None:
        answers: list[Any] = []
        it.peers.expel([0], "it is gone")
        await it.tells(3, {"ask": 1, "question": {"kind": "next", "name": 3}})  # it waits, and makes no sense
        it.peers.leading.question({"kind": "group", "name": "own", "shape": 2}, answers.append)
        for _ in range(200):
            await it.tells(2, lie)
        assert it.peers.dead.keys() == {0, 2}
        assert "sent what makes no sense" in it.peers.dead[2]
        await it.tells(3, {"report": [], "whole": True})
        assert it.peers.dead.keys() == {0, 2}
        assert answers == [{"id": 0}]
        assert "makes no sense" in it.said[3][-1]["content"]["error"]
        assert not it.local.failure

    play(tmp_path, scene, rank=1)
