# SPDX-License-Identifier: Apache-2.0
"""Operations as submissions make them: what is refused, what comes too early, who disagrees, and what memory allows."""

import numpy as np
import pytest
from gradlane._core import ffi, lib

from gradlane.wire import ElementType, Kind
from tests.gradlane.core.protocol.network import Cluster, Impairment

MISMATCH = 3


def ones(size: int = 64) -> np.ndarray:
    return np.ones(size, dtype=np.float32)


def oldest(cluster: Cluster, rank: int) -> tuple[int, int, int, int] | None:
    """Age, step, tensor, and the ranks of which nothing has come, as bits."""
    waiting = ffi.new("gl_waiting *")
    if not lib.gl_oldest(cluster.engines[rank], cluster.now, waiting):
        return None
    return waiting.age, waiting.step, waiting.tensor, waiting.missing[0]


REFUSED = {
    "no elements": {"elements": 0},
    "an unknown collective": {"collective": 9},
    "an unknown algorithm": {"algorithm": 5},
    "an unknown type": {"element_type": 9},
    "a reduction that is none": {"reduction": 7},
    "no reduction": {"reduction": 0},
    "a mean of whole numbers": {"element_type": ElementType.INT32, "reduction": lib.GL_MEAN},
    "a group without this rank": {"group": [1, 2]},
    "a group that is not in order": {"group": [2, 0]},
    "a member twice": {"group": [0, 0]},
    "a member that is a server": {"group": [0, 3]},
    "a root outside of the group": {"collective": lib.GL_BROADCAST, "group": [0, 2], "root": 1},
    "itself as the other side": {"collective": lib.GL_SEND, "root": 0},
    "no result": {"result": None},
    "no contribution": {"source": None},
    "more loss than is tolerated": {"loss": (100_001, 0)},
    "more loss of results than is tolerated": {"loss": (0, 1)},
    "too many slices": {"elements": 16 * (3 * 8192) + 1, "group": [0, 1, 2]},
    "too many slices for a ring": {"elements": 16 * 3 * 8192, "group": [0, 1, 2], "algorithm": lib.GL_RING},
    "too many slices for StragglAR": {"elements": 16 * 2 * 8193, "group": [0, 1, 2], "algorithm": lib.GL_STRAGGLAR},
    "StragglAR for another collective": {"collective": lib.GL_REDUCE_SCATTER, "algorithm": lib.GL_STRAGGLAR},
    "a grid for another collective": {"collective": lib.GL_BROADCAST, "algorithm": lib.GL_GRID},
    "a straggler outside of the group": {"group": [0, 2], "root": 1, "algorithm": lib.GL_STRAGGLAR},
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_a_submission_that_makes_no_sense_is_refused_and_leaves_nothing_behind(change: dict[str, object]) -> None:
    cluster = Cluster(3, servers=1, push_loss=0.1)
    given = {
        "collective": lib.GL_ALL_REDUCE,
        "reduction": lib.GL_SUM,
        "source": ones(),
        "result": ones(),
        "elements": 64,
    }
    given |= change
    positional = [given.pop(name) for name in ("collective", "source", "result", "elements")]
    assert cluster.start(0, 1, 1, *positional, **given) == -1
    results = [cluster.submit(rank, 1, 1, ones()) for rank in range(3)]
    cluster.run(until=lambda: cluster.all_completed(1))
    for result in results:
        np.testing.assert_array_equal(result, ones())


def test_an_operation_that_is_under_way_is_not_begun_again() -> None:
    cluster = Cluster(2)
    cluster.submit(0, 1, 1, ones())
    assert cluster.start(0, 1, 1, lib.GL_ALL_REDUCE, ones(), ones(), 64, reduction=lib.GL_SUM) == -1


@pytest.mark.parametrize("algorithm", [lib.GL_DIRECT, lib.GL_RING])
def test_what_came_before_the_submission_is_kept_and_costs_no_repair(algorithm: int) -> None:
    cluster = Cluster(3)
    sent, results = np.arange(500, dtype=np.int32), [np.zeros(500, np.int32) for _ in range(3)]

    def start(rank: int) -> None:
        code = cluster.start(
            rank, 0, 0, lib.GL_BROADCAST, sent if rank == 0 else None, results[rank], 500, algorithm=algorithm,
            element_type=ElementType.INT32,
        )  # fmt: skip
        assert code == 0

    start(0)
    start(2)
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=50_000)
    before = cluster.now
    start(1)
    cluster.run(until=lambda: cluster.all_completed(1))
    for result in results:
        np.testing.assert_array_equal(result, sent)
    assert sum(cluster.statistics(rank).slices_repaired for rank in range(3)) == 0
    assert cluster.now - before < 5_000


def test_ranks_that_disagree_are_told_who() -> None:
    submissions = {
        "shape": {"elements": 640},
        "type": {"element_type": ElementType.INT32},
        "reduction": {"reduction": lib.GL_MAX},
        "algorithm": {"algorithm": lib.GL_RING, "elements": 4096},
        "collective": {"collective": lib.GL_ALL_GATHER},
    }
    for name, change in submissions.items():
        for early in (False, True):
            cluster = Cluster(3)
            for rank in (1, 0) if early else (0, 1):
                given = {"collective": lib.GL_ALL_REDUCE, "reduction": lib.GL_SUM, "elements": 64}
                given |= change if rank == 1 else {}
                collective, elements = given.pop("collective"), given.pop("elements")
                assert cluster.start(rank, 0, 0, collective, ones(20000), ones(20000), elements, **given) == 0
                with pytest.raises(TimeoutError):
                    cluster.run(until=lambda: False, limit=20_000)
            events = [event for event in cluster.events[0] if event.kind == MISMATCH]
            assert [event.source for event in events] == [1], f"{name}, early: {early}"  # however much it sends


def test_the_oldest_operation_names_who_is_awaited() -> None:
    cluster = Cluster(3)
    assert oldest(cluster, 0) is None
    cluster.submit(0, 5, 2, ones())
    began = cluster.now
    cluster.submit(1, 5, 2, ones())
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=10_000)
    cluster.submit(0, 6, 2, ones())
    found = oldest(cluster, 0)
    assert found is not None
    assert found[1:] == (5, 2, 0b110) or found[1:] == (5, 2, 0b100)
    assert found[0] == cluster.now - began
    cluster.submit(2, 5, 2, ones())
    cluster.run(until=lambda: len(cluster.completed(0)) == 1)
    found = oldest(cluster, 0)
    assert found is not None
    assert found[1] == 6


def test_memory_is_bounded_while_a_worker_is_slow_and_nothing_is_asked_for_in_vain() -> None:
    memory = 200_000
    cluster = Cluster(4, servers=1, memory=memory, slice_bytes=1024, window=512)
    guaranteed = 3 * 16 * 1024  # of each operation, from three workers
    inputs = [np.full(25_600, 1.0 + rank, np.float32) for rank in range(4)]
    results = [cluster.submit(rank, 0, tensor, inputs[rank]) for tensor in range(8) for rank in range(3)]
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=2_000_000)
    server = cluster.statistics(4)
    assert 8 * guaranteed // 2 < server.memory_used <= memory + 8 * guaranteed
    repaired = sum(cluster.statistics(rank).slices_repaired for rank in range(4))
    assert server.no_memory > 0
    assert repaired < 200, "what there is no room for is not asked for"
    results += [cluster.submit(3, 0, tensor, inputs[3]) for tensor in range(8)]
    before = cluster.now
    cluster.run(until=lambda: cluster.all_completed(8))
    assert cluster.now - before < 2_000_000
    for result in results:
        np.testing.assert_array_equal(result, np.full(25_600, 2.5, np.float32))
    cluster.run()
    assert cluster.statistics(4).memory_used == 0


def test_without_any_memory_the_oldest_operation_still_ends() -> None:
    cluster = Cluster(4, memory=0, slice_bytes=256, impairment=Impairment(loss=0.2), seed=3)
    results = []
    for tensor in range(3):
        for rank in (2, 0, 3, 1):
            results.append(cluster.submit(rank, 0, tensor, np.full(20_000, float(rank), np.float32)))
            with pytest.raises(TimeoutError):
                cluster.run(until=lambda: False, limit=5_000)
    cluster.run(until=lambda: cluster.all_completed(3))
    for result in results:
        np.testing.assert_array_equal(result, np.full(20_000, 1.5, np.float32))


def test_a_job_that_is_over_takes_nothing_in() -> None:
    cluster = Cluster(2)
    result, _ = [cluster.submit(rank, 0, 0, ones()) for rank in range(2)]
    lib.gl_engine_leave(cluster.engines[0])
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: cluster.all_completed(1), limit=100_000)
    assert cluster.statistics(0).datagrams_received == 0
    assert np.isnan(result).all()


@pytest.mark.parametrize("algorithm", [lib.GL_DIRECT, lib.GL_RING])
def test_the_result_may_take_the_place_of_the_contribution(algorithm: int) -> None:
    cluster = Cluster(3, impairment=Impairment(loss=0.3, jitter=500), seed=1)
    values = [np.arange(3000, dtype=np.float32) + rank for rank in range(3)]
    for rank in range(3):
        code = cluster.start(
            rank, 0, 0, lib.GL_ALL_REDUCE, values[rank], values[rank], 3000, algorithm=algorithm, reduction=lib.GL_SUM
        )
        assert code == 0
    cluster.run(until=lambda: cluster.all_completed(1))
    for result in values:
        np.testing.assert_array_equal(result, 3 * np.arange(3000, dtype=np.float32) + 3)


def test_blocks_may_lie_apart() -> None:
    """A part of a large reduce-scatter: its blocks are not next to each other."""
    cluster = Cluster(3)
    whole = [np.arange(3 * 100, dtype=np.int32) * (rank + 1) for rank in range(3)]
    results = [np.zeros(40, np.int32) for _ in range(3)]
    for rank in range(3):
        code = cluster.start(
            rank, 0, 0, lib.GL_REDUCE_SCATTER, whole[rank], results[rank], 40, reduction=lib.GL_SUM, stride=400,
            element_type=ElementType.INT32,
        )  # fmt: skip
        assert code == 0
    cluster.run(until=lambda: cluster.all_completed(1))
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(result, 6 * np.arange(rank * 100, rank * 100 + 40))


def test_a_pair_exchanges_while_the_others_do_something_else() -> None:
    cluster = Cluster(4, impairment=Impairment(loss=0.2), seed=9)
    sent, received = np.arange(1000, dtype=np.float64), np.zeros(1000, np.float64)
    kind = {"element_type": ElementType.FLOAT64}
    assert cluster.start(1, 0, 3, lib.GL_RECEIVE, None, received, 1000, root=2, **kind) == 0
    assert cluster.start(2, 0, 3, lib.GL_SEND, sent, None, 1000, root=1, **kind) == 0
    results = [cluster.submit(rank, 0, 1, ones(300)) for rank in range(4)]
    cluster.run(until=lambda: cluster.all_completed(1) and all(len(cluster.completed(rank)) == 2 for rank in (1, 2)))
    np.testing.assert_array_equal(received, sent)
    np.testing.assert_array_equal(results[0], ones(300))


def test_steps_and_message_numbers_wrap() -> None:
    """Five ranks: 2^32 is no multiple of their number, so numbers are told apart by a power of two."""
    cluster = Cluster(5, base=0xFFFFFFFF - 300, window=4, push_loss=0.2, slice_bytes=64)
    for index in range(40):
        step = (0xFFFFFFF0 + index) & 0xFFFFFFFF
        results = [cluster.submit(rank, step, 0, ones(400)) for rank in range(5)]
        cluster.run(until=lambda index=index: cluster.all_completed(index + 1))
        np.testing.assert_array_equal(results[0], ones(400))
    counts = [cluster.statistics(rank) for rank in range(5)]
    assert sum(c.bad_message + c.slices_late for c in counts) == 0
    numbers = {header.message: header.source for header, _ in cluster.tags if header.kind == Kind.DATA}
    assert len({(number - 0xFFFFFFFF + 300) % 8 for number in numbers}) == 5
    assert min(numbers) < 1000 < 0xFFFFFF00 < max(numbers)


def test_stragglar_takes_a_word_of_members() -> None:
    most = lib.GL_STRAGGLAR_MOST
    assert [
        Cluster(ranks).start(
            0, 1, 1, lib.GL_ALL_REDUCE, ones(), ones(), 64, algorithm=lib.GL_STRAGGLAR, reduction=lib.GL_SUM
        )
        for ranks in (most, most + 1)
    ] == [0, -1]
