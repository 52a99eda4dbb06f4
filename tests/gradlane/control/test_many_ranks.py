# SPDX-License-Identifier: Apache-2.0
"""Hundreds of ranks: how much they say, and that all hear in time who is dead."""

import asyncio
import math
import random
from collections.abc import Callable, Iterator

import pytest

from gradlane.control.board import Board
from gradlane.control.signs import DEAD_SECONDS, HEARTBEAT_SECONDS
from tests.gradlane.control.simulated_ranks import World, simulated
from tests.support.effort import tries
from tests.support.virtual_time import run

MANY = tries(256, thoroughly=1024)
BITS = MANY.bit_length() - 1
FEWER = 256

Make = Callable[..., World]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    with simulated(monkeypatch) as made:
        yield made


def test_what_a_rank_says_grows_with_the_logarithm(make: Make) -> None:
    """In a join, and then with each heartbeat. Rank 0 says a few lines to each of the others in the join."""

    async def scene() -> None:
        world = make(MANY)
        await world.join()
        # One to each neighbour, and to the hub what was measured, and that this rank is ready.
        assert max(said.total() for said in world.sent[1:]) <= 2 * BITS + 2
        assert world.sent[0].total() <= 4 * MANY + 2 * BITS
        for said in world.sent:
            said.clear()
        await asyncio.sleep(4 * HEARTBEAT_SECONDS)
        assert max(said["beat"] for said in world.sent) <= (4 + 1) * 2 * BITS
        assert all(said.total() == said["beat"] >= 3 * BITS for said in world.sent)

    run(scene())


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_leaving_takes_two_lines_to_each_neighbour_and_no_time(make: Make, seconds: float) -> None:
    """All at once, and one after the other; then the hub says who has left with each heartbeat, in one line."""

    async def scene() -> None:
        world = make(FEWER)
        await world.join()
        for said in world.sent:
            said.clear()
        chance, begun = random.Random(1), world.now

        async def one(rank: int, after: float) -> None:
            await asyncio.sleep(after)
            await world.leave([rank])

        ranks = asyncio.gather(*(one(rank, chance.random() * seconds) for rank in range(1, FEWER)))
        await asyncio.gather(ranks, one(0, seconds))
        assert world.now - begun == pytest.approx(seconds)
        assert max(said["stage"] for said in world.sent[1:]) <= 2 * 2 * (FEWER.bit_length() - 1)
        assert all(said.total() == said["stage"] + said["beat"] for said in world.sent[1:])
        hub, beats = world.sent[0], seconds // HEARTBEAT_SECONDS + 1
        assert (hub["stage"], hub["reached"]) == (2 * (FEWER - 1), FEWER - 1)
        assert hub["left"] <= beats * (FEWER - 1)
        assert hub.keys() <= {"stage", "reached", "left", "beat"}
        assert not world.failed

    run(scene())


def test_all_hear_at_once_that_an_agent_has_died(make: Make) -> None:
    async def scene() -> None:
        world = make(MANY)
        await world.join()
        world.kill(200)
        await asyncio.sleep(0.1)
        assert {why for rank, (why, _) in world.failed.items() if rank != 200} == {
            "rank 200 is gone: its agent closed the connection"
        }
        assert len(world.failed) == MANY

    run(scene())


@pytest.mark.parametrize("victim", [0, 100])
def test_all_hear_in_time_who_is_silent(make: Make, victim: int) -> None:
    async def scene() -> None:
        world = make(200)
        await world.join()
        world.mute.add(victim)
        begun = world.now
        await asyncio.sleep(DEAD_SECONDS + 2 * HEARTBEAT_SECONDS)
        others = {rank: it for rank, it in world.failed.items() if rank != victim}
        assert len(others) == 199
        assert all(why.startswith(f"rank {victim}: no answer for 7.5 s") for why, _ in others.values())
        assert min(when for _, when in others.values()) - begun > DEAD_SECONDS - 2 * HEARTBEAT_SECONDS

    run(scene())


def test_who_is_heard_by_datagrams_alone_is_not_taken_for_dead(make: Make) -> None:
    async def scene() -> None:
        world = make(120)
        await world.join()
        victim = world.peers[100]
        victim.signs.silence = lambda _: 0.3
        for rank in victim.neighbours:
            world.peers[rank].signs.silence = lambda rank: 0.3 if rank == 100 else math.inf
        world.mute.add(100)  # no line gets through
        await asyncio.sleep(4 * DEAD_SECONDS)
        assert world.failed == {}

    run(scene())


DEATHS = {"the hub": [0], "two hubs": [0, 1], "one after the other": [5, 6, 7, 8], "a fifth": range(0, 100, 5)}


@pytest.mark.parametrize("how", ["killed", "silent"])
@pytest.mark.parametrize("who", DEATHS)
def test_those_who_live_go_on_and_leave_together(make: Make, who: str, how: str) -> None:
    async def scene() -> None:
        world, dead = make(100, survives=True), set(DEATHS[who])
        living = [rank for rank in range(100) if rank not in dead]
        await world.join()
        for rank in dead:
            if how == "killed":
                world.kill(rank)
            else:
                world.mute.add(rank)
        begun = world.now
        # Who had no connection to the next hub knows of its death by its silence.
        at_once = how == "killed" and not dead >= {0, 1}
        await asyncio.sleep(0.5 if at_once else DEAD_SECONDS + 2 * HEARTBEAT_SECONDS)
        for rank in living:
            assert rank not in world.failed
            links = world.peers[rank]._links
            assert links.neighbours <= links.peers.keys()
            assert world.dropped[rank].keys() == dead
            assert world.peers[rank].leading.leader == living[0]
        assert all(world.why[rank].startswith(f"rank {rank}") for rank in dead)
        number = 3
        for rank in living[5:7]:
            world.peers[rank].close_group(number, range(40, 60))
        answers = await asyncio.gather(*(world.peers[rank].leading.ask(
            {"kind": "group", "name": "it", "shape": 2}) for rank in living))  # fmt: skip
        assert len({str(answer) for answer in answers}) == 1
        for rank in living:
            told = [(by, number) for by in living[5:7]]
            told = told if rank == living[0] else told[:1] if rank in range(40, 60) else []
            assert world.closed[rank] == told
        assert world.now - begun < 10
        await asyncio.wait_for(world.leave(living), 5)

    run(scene())


def test_what_all_wait_for_and_who_has_left_is_known_to_all(make: Make) -> None:
    async def scene() -> None:
        world = make(40)
        await world.join()
        begun = world.now
        for rank, peers in enumerate(world.peers):
            peers.waits(f"it {rank % 3}", rank)
        leaving = [asyncio.ensure_future(world.leave([rank])) for rank in (0, 17)]
        await asyncio.sleep(2 * HEARTBEAT_SECONDS)
        for peers in world.peers:
            assert peers.board.waiting == {rank: f"it {rank % 3}" for rank in range(40)}
            waited = [peers.board.waited(rank) - (world.now - begun) for rank in range(40)]
            assert waited == pytest.approx(range(40), abs=0.01)
            assert {0, 17} >= peers.board.left >= {17}
        world.peers[17].waits(None)
        await asyncio.sleep(2 * HEARTBEAT_SECONDS)
        assert all(17 not in peers.board.waiting for peers in world.peers)
        assert not any(it.done() for it in leaving)
        await asyncio.gather(world.leave([rank for rank in range(40) if rank not in (0, 17)]), *leaving)
        assert not world.failed

    run(scene())


def test_a_new_hub_tells_what_the_old_one_may_not_have_told_all() -> None:
    now = 10.0
    board = Board(40, lambda: now)
    board.take({"left": [3, 5]})
    board.take({"waits": "it", "ranks": [7, 9], "seconds": [2.5, 30]})
    list(board.news())
    board.again()
    now = 11.0
    assert list(board.news()) == [{"left": [3, 5]}, {"waits": "it", "ranks": [7, 9], "seconds": [3.5, 31.0]}]
    assert list(board.news()) == []


def test_who_speaks_as_the_hub_is_named(make: Make) -> None:
    async def scene() -> None:
        world = make(40)
        await world.join()
        world.peers[20]._links.send(24, {"reached": 3}, hold=False)
        await asyncio.sleep(0.1)
        assert {why for why, _ in world.failed.values()} == {
            "rank 20 sent what makes no sense: ValueError(\"it says what rank 0 has to say: {'reached': 3}\")"
        }

    run(scene())


def test_who_does_not_join_is_known_to_all_that_have(make: Make) -> None:
    async def scene() -> None:
        world = make(40)
        world.mute.add(21)
        for rank, peers in enumerate(world.peers):
            if rank != 21:
                peers.start()
        await asyncio.sleep(5)
        assert all(peers.absent.names() == ["rank 21"] for rank, peers in enumerate(world.peers) if rank != 21)

    run(scene())
