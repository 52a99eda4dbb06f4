# SPDX-License-Identifier: Apache-2.0
"""Owners know how late each worker came, in which steps."""

from collections.abc import Sequence

import numpy as np
import pytest
from gradlane._core import ffi, lib

from tests.gradlane.core.protocol.network import Cluster, Impairment, values_of
from tests.support.grids import rows_of

STEPS = int(lib.GL_LATE_STEPS)
MS = 1000
NETWORK = 2 * MS  # more than datagrams of a step take, with what queues before them


def late(cluster: Cluster, owner: int, rank: int) -> tuple[int, list[int]]:
    """The latest step that an owner knows, and how late a worker was in it and in those before."""
    found = ffi.new("gl_lateness *")
    assert lib.gl_engine_lateness(cluster.engines[owner], rank, found) == 0
    return found.step, list(found.late[0 : found.steps])


def later(cluster: Cluster, rank: int) -> tuple[int, dict[tuple[int, int], int]]:
    """Who sends to a rank of a ring, and how much later it came, by step and tensor."""
    found = ffi.new("gl_neighbour *")
    lib.gl_engine_neighbour(cluster.engines[rank], found)
    return found.rank, {(found.step[k], found.tensor[k]): found.later[k] for k in range(found.steps)}


def step(
    cluster: Cluster,
    number: int,
    delays: Sequence[int],
    tensor: int = 0,
    algorithm: int = lib.GL_DIRECT,
    straggler: int = 0,
) -> None:
    """An all-reduce that the workers submit so many us after its begin."""
    begin, done = cluster.now, len(cluster.completed(0))
    for rank in sorted(range(cluster.workers), key=delays.__getitem__):
        if cluster.now < begin + delays[rank]:
            with pytest.raises(TimeoutError):
                cluster.run(until=lambda: False, limit=begin + delays[rank] - cluster.now)
            cluster.now = begin + delays[rank]
        values = values_of(rank, number, tensor, 160)
        if algorithm == lib.GL_DIRECT:
            cluster.submit(rank, number, tensor, values)
            continue
        options = {"algorithm": algorithm, "reduction": lib.GL_SUM, "root": straggler}
        assert cluster.start(rank, number, tensor, lib.GL_ALL_REDUCE, values, values.copy(), 160, **options) == 0
    cluster.run(until=lambda: cluster.all_completed(done + 1))


@pytest.mark.parametrize("servers", [0, 2])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_every_owner_knows_who_was_late_and_by_how_much(servers: int, loss: float) -> None:
    cluster = Cluster(4, servers, impairment=Impairment(loss))
    slow = NETWORK if not loss else 100 * MS  # what was lost is repaired later
    delays = [[0, 0, 300 * MS, 0], [0, 500 * MS, 500 * MS, 0], [0, 0, 0, 0]]
    for number, of in enumerate(delays, 1):
        step(cluster, number, of)
    cluster.run()
    for owner in cluster.aggregators:
        for rank in range(4):
            latest, values = late(cluster, owner, rank)
            assert (latest, len(values)) == (3, 3)
            np.testing.assert_allclose(values[::-1], [of[rank] for of in delays], atol=slow)


def test_who_owns_nothing_knows_nothing_and_its_own_lateness_is_known_to_others() -> None:
    cluster = Cluster(3, weights=[1, 1, 0])
    step(cluster, 1, [0, 0, 200 * MS])
    assert late(cluster, 2, 2) == (0, [])
    for owner in (0, 1):
        assert late(cluster, owner, 2)[1] == pytest.approx([200 * MS], abs=NETWORK)
        assert late(cluster, owner, owner)[1] == pytest.approx([0], abs=NETWORK)


def test_an_owner_that_is_late_itself_knows_that() -> None:
    cluster = Cluster(3)
    step(cluster, 1, [0, 0, 200 * MS])
    assert late(cluster, 2, 2)[1] == pytest.approx([200 * MS], abs=NETWORK)


def test_of_several_tensors_of_a_step_the_latest_counts() -> None:
    cluster = Cluster(3)
    for tensor, delay in enumerate([50 * MS, 200 * MS, 100 * MS]):
        step(cluster, 1, [0, delay, 0], tensor)
    assert late(cluster, 0, 1)[1] == pytest.approx([200 * MS], abs=NETWORK)


def test_the_latest_steps_are_remembered_and_groups_have_steps_of_their_own() -> None:
    cluster = Cluster(2)
    for number in range(1, STEPS + 4):
        step(cluster, number, [0, 10 * number * MS])
    step(cluster, 1, [0, 0])  # a tensor that is new
    step(cluster, 1000, [0, 0], tensor=lib.GL_FIRST_GROUP)
    latest, values = late(cluster, 0, 1)
    assert latest == STEPS + 3
    np.testing.assert_allclose(values, [10 * (latest - k) * MS for k in range(STEPS)], atol=NETWORK)


def test_there_is_none_of_servers() -> None:
    cluster = Cluster(2, 1)
    assert lib.gl_engine_lateness(cluster.engines[0], 2, ffi.new("gl_lateness *")) == -1


def test_a_step_does_not_inherit_from_the_one_whose_place_it_takes() -> None:
    cluster = Cluster(2)
    step(cluster, 1, [0, 200 * MS])
    step(cluster, 1 + STEPS, [0, 0])
    assert late(cluster, 0, 1) == (1 + STEPS, [pytest.approx(0, abs=NETWORK)])


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_in_a_ring_each_knows_how_much_later_than_itself_its_neighbour_came(loss: float) -> None:
    cluster = Cluster(4, impairment=Impairment(loss))
    slow = NETWORK if not loss else 100 * MS
    delays = [[0, 0, 300 * MS, 0], [0, 500 * MS, 500 * MS, 0], [0, 0, 0, 0]]
    for number, of in enumerate(delays, 1):
        step(cluster, number, of, algorithm=lib.GL_RING)
    cluster.run()
    for rank in range(4):
        up = (rank + 1) % 4
        neighbour, known = later(cluster, rank)
        assert neighbour == up
        assert set(known) == {(1, 0), (2, 0), (3, 0)}
        for number, of in enumerate(delays, 1):
            assert known[number, 0] == pytest.approx(of[up] - of[rank], abs=slow)
        assert late(cluster, rank, 2) == (0, []), "one neighbour tells of no other"


def test_of_several_tensors_of_a_ring_all_ranks_look_at_the_same() -> None:
    cluster = Cluster(3)
    for tensor, delay in ((2, 50 * MS), (5, 200 * MS), (3, 100 * MS)):
        step(cluster, 1, [0, delay, 0], tensor, algorithm=lib.GL_RING)
    assert [list(later(cluster, rank)[1]) for rank in range(3)] == [[(1, 5)]] * 3
    assert later(cluster, 0)[1][1, 5] == pytest.approx(200 * MS, abs=NETWORK)
    assert later(cluster, 1)[1][1, 5] == pytest.approx(-200 * MS, abs=NETWORK)


@pytest.mark.parametrize("ranks", [3, 4, 7])
@pytest.mark.parametrize("slow", [0, 1, -1])
def test_by_stragglar_one_rank_knows_them_all_and_is_not_misled_by_the_rounds(ranks: int, slow: int) -> None:
    """The owner of the chunk that is swapped first: what the others get from the straggler waits for that."""
    cluster, straggler = Cluster(ranks), 1
    delays = [0] * ranks
    delays[slow] = 300 * MS
    step(cluster, 1, delays, algorithm=lib.GL_STRAGGLAR, straggler=straggler)
    step(cluster, 2, [0] * ranks, algorithm=lib.GL_STRAGGLAR, straggler=straggler)
    cluster.run()
    knowing = [rank for rank in range(ranks) if late(cluster, rank, 0)[0]]
    assert knowing == [0]
    for rank in range(ranks):
        of = late(cluster, 0, rank)[1]
        assert of == [pytest.approx(0, abs=NETWORK), pytest.approx(delays[rank], abs=NETWORK)]


@pytest.mark.parametrize("ranks", [4, 7, 9])
@pytest.mark.parametrize("slow", [0, 1, -1])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_in_a_grid_each_knows_its_row(ranks: int, slow: int, loss: float) -> None:
    """Also what one learns of a row from those of a direct all-reduce is kept, and of other rows nothing is made up."""
    cluster = Cluster(ranks, impairment=Impairment(loss), seed=7)
    within = NETWORK if not loss else 100 * MS
    delays = [0] * ranks
    delays[slow] = 300 * MS
    for number in (1, 2):
        step(cluster, number, delays if number == 1 else [0] * ranks, algorithm=lib.GL_GRID)
    step(cluster, 3, [0] * ranks)
    cluster.run()
    rows = rows_of(ranks)
    for row in rows:
        for rank in row:
            assert later(cluster, rank) == (0, {}), "there is no ring"
            for other in range(ranks):
                latest, values = late(cluster, rank, other)
                assert latest == 3
                expected = [0, 0, delays[other]] if other in row else [0]
                np.testing.assert_allclose(values, expected, atol=within)
