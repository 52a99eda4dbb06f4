# SPDX-License-Identifier: Apache-2.0
"""Grids and rings among racks: exact wherever workers are, alike at all of them, and little leaves a rack."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from gradlane._core import lib
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.job.racks import Racks, rows
from gradlane.wire import ElementType, Header, Kind
from tests.gradlane.core.protocol.network import Cluster, Impairment, values_of
from tests.support.effort import tries
from tests.support.grids import rows_of

ALGORITHMS = {"grid": int(lib.GL_GRID), "ring": int(lib.GL_RING)}


def reduce(
    cluster: Cluster, algorithm: str, inputs: Sequence[np.ndarray], ranks: Sequence[int], reduction: int
) -> list[np.ndarray]:
    """The results, by place in the group."""
    group = None if len(ranks) == cluster.workers else list(ranks)
    whole = inputs[0].dtype == np.int32
    results = [np.zeros_like(values) for values in inputs]
    for place, rank in enumerate(ranks):
        code = cluster.start(
            rank, 0, 3, lib.GL_ALL_REDUCE, inputs[place], results[place], inputs[place].size,
            algorithm=ALGORITHMS[algorithm], loss=cluster.loss, reduction=reduction, group=group,
            element_type=ElementType.INT32 if whole else ElementType.FLOAT32,
        )  # fmt: skip
        assert code == 0
    cluster.run(until=lambda: all(cluster.completed(rank) for rank in ranks))
    return results


def in_places(ranks: Sequence[int], racks: Sequence[int]) -> list[int]:
    """By rack, in each by rank."""
    return sorted(ranks, key=lambda rank: (racks[rank], rank))


@settings(max_examples=tries(20, 200), deadline=None)
@given(
    data=st.data(),
    racks=st.lists(st.integers(0, 5) | st.just(65535), min_size=1, max_size=24),
    elements=st.integers(1, 1500),
    loss=st.sampled_from([0.0, 0.1]),
    algorithm=st.sampled_from(sorted(ALGORITHMS)),
    seed=st.integers(0, 2**32),
)
def test_sums_are_exact_wherever_workers_are(
    data: st.DataObject, racks: list[int], elements: int, loss: float, algorithm: str, seed: int
) -> None:
    """In groups, too, and in racks of one and of unequal numbers."""
    ranks = range(len(racks))
    group = sorted(data.draw(st.sets(st.sampled_from(ranks), min_size=1))) if data.draw(st.booleans()) else list(ranks)
    cluster = Cluster(len(racks), impairment=Impairment(loss, jitter=2000), seed=seed, racks=racks)
    random = np.random.default_rng(seed)
    inputs = [random.integers(-(2**31), 2**31, elements).astype(np.int32) for _ in group]
    for result in reduce(cluster, algorithm, inputs, group, int(lib.GL_SUM)):
        np.testing.assert_array_equal(result, np.add.reduce(inputs, dtype=np.int32))
    cluster.run()
    assert all(lib.gl_engine_idle(engine) for engine in cluster.engines)


def test_racks_of_one_and_none_at_all_are_rows_by_rank() -> None:
    for members in (1, 5, 16, 40):
        assert rows_of(members) == rows_of(members, [7] * members)
        assert rows_of(members, range(members)) == [range(k, k + 1) for k in range(members)]


@settings(max_examples=tries(200, 2000), deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_a_row_is_of_one_rack_and_long_enough(sizes: list[int]) -> None:
    racks = [rack for rack, size in enumerate(sizes) for _ in range(size)]
    found = rows_of(len(racks), racks)
    assert [place for row in found for place in row] == list(range(len(racks)))
    assert [len(row) for row in found] == rows(len(racks), Racks(tuple(racks)))
    for row in found:
        assert len({racks[place] for place in row}) == 1
        whole = len(row) == sizes[racks[row[0]]]
        assert whole or len(row) ** 2 >= len(racks) - 2 * len(row)


def sum_in_order(algorithm: str, contributions: dict[int, np.ndarray], racks: Sequence[int], owner: int) -> np.ndarray:
    """The documented one, of what the member at that place owns."""
    places = in_places(list(contributions), racks)
    if algorithm == "ring":
        terms = [contributions[rank] for rank in (places[owner + 1 :] + places[: owner + 1])[::-1]]
        # It goes down the ring, to the owner: its own comes last.
        terms = terms[1:] + terms[:1]
    else:
        at: dict[int, np.ndarray] = {}
        for row in rows_of(len(places), [racks[rank] for rank in places]):
            of = sorted(places[place] for place in row)
            if owner in row:
                at |= {rank: contributions[rank] for rank in of}
                continue
            delegate = places[row.start + (owner - row.stop) % len(places) % len(row)]
            total = contributions[of[0]].copy()
            for rank in of[1:]:
                total += contributions[rank]
            at[delegate] = total
        terms = [at[rank] for rank in sorted(at)]
    total = terms[0].copy()
    for term in terms[1:]:
        total += term
    return total / np.float32(len(contributions))


@pytest.mark.parametrize("racks", [[1, 0, 1, 0, 2, 1, 0], [0, 1, 2, 3] * 3, [5, 5, 2, 2, 2, 2, 2, 2, 9]])
@pytest.mark.parametrize("algorithm", ["grid", "ring"])
def test_means_are_added_in_the_documented_order(algorithm: str, racks: list[int]) -> None:
    ranks = len(racks)
    slices = 3 * ranks + 1
    cluster = Cluster(ranks, impairment=Impairment(0.05, jitter=2000), seed=ranks, racks=racks)
    inputs = [values_of(rank, 0, 3, 16 * slices - 5) for rank in range(ranks)]
    expected = np.empty_like(inputs[0])
    for owner in range(ranks):
        part = slice(16 * (slices * owner // ranks), 16 * (slices * (owner + 1) // ranks))
        expected[part] = sum_in_order(algorithm, {k: values[part] for k, values in enumerate(inputs)}, racks, owner)
    for result in reduce(cluster, algorithm, inputs, range(ranks), int(lib.GL_MEAN)):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("algorithm", ["grid", "ring"])
@pytest.mark.parametrize(
    "racks", [[0] * 4 + [1] * 4, [0, 1] * 6, [0, 1, 2, 3] * 4, [0] * 16 + [1] * 16], ids=["4", "6", "4x4", "16"]
)
def test_what_leaves_a_rack_is_what_its_rows_have_added_up(algorithm: str, racks: list[int]) -> None:
    """As many slices as the cost model counts with; directly there are as many as members times that."""
    ranks, count = len(racks), len(set(racks))
    slices = 2 * ranks
    cluster = Cluster(ranks, racks=racks)
    left: Counter[int] = Counter()
    ways: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)

    def note(source: int, to: int, header: Header) -> bool:
        if header.kind == Kind.DATA and racks[source] != racks[to]:
            left[racks[source]] += 1
            ways[racks[source]].add((source, to))
        return True

    cluster.filter = note
    inputs = [np.full(slices * 16, rank, np.int32) for rank in range(ranks)]
    reduce(cluster, algorithm, inputs, range(ranks), int(lib.GL_SUM))
    length = {"grid": ranks // len(rows_of(ranks, sorted(racks))), "ring": 1}[algorithm]
    if algorithm == "ring":
        assert all(len(pairs) == 1 for pairs in ways.values())
        expected = 2 * slices * (ranks - 1) / ranks
    else:
        expected = 2 * slices * (1 - 1 / count) * (ranks // count) / length
    assert set(left) == set(racks)
    assert all(sent == pytest.approx(expected, abs=1) for sent in left.values())


@pytest.mark.parametrize("collective", ["reduce-scatter", "all-gather", "broadcast", "reduce"])
def test_blocks_of_a_ring_are_by_rank_wherever_the_ring_goes(collective: str) -> None:
    racks = [2, 0, 2, 1, 0, 1, 2]
    ranks, elements, root = len(racks), 70, 3
    cluster = Cluster(ranks, impairment=Impairment(0.05), seed=5, racks=racks)
    inputs = [np.arange(ranks * elements, dtype=np.int32) * (rank + 1) for rank in range(ranks)]
    total = np.add.reduce(inputs, dtype=np.int32)
    blocks = np.split(total, ranks)
    if collective == "reduce-scatter":
        code, outs, expected, given_ = lib.GL_REDUCE_SCATTER, [elements] * ranks, blocks, inputs
    elif collective == "all-gather":
        given_ = [values[:elements] for values in inputs]
        code, outs, expected = lib.GL_ALL_GATHER, [ranks * elements] * ranks, [np.concatenate(given_)] * ranks
    elif collective == "broadcast":
        code, outs, expected, given_ = lib.GL_BROADCAST, [inputs[0].size] * ranks, [inputs[root]] * ranks, inputs
    else:
        code, outs, given_ = lib.GL_REDUCE, [total.size] * ranks, inputs
        expected = [total if rank == root else np.zeros_like(total) for rank in range(ranks)]
    reduces = collective.startswith("reduce")
    # Each block has a layer of its own, and nobody sends on the block that it ends with.
    layers = np.repeat(np.arange(ranks, dtype=np.uint16), -(-4 * elements // cluster.slice_bytes))

    def note(source: int, _to: int, header: Header) -> bool:
        assert collective != "reduce-scatter" or header.kind != Kind.DATA or header.layer != source
        return True

    cluster.filter = note
    results = [np.zeros(size, np.int32) for size in outs]
    for rank in range(ranks):
        size = elements if collective in ("reduce-scatter", "all-gather") else inputs[rank].size
        assert not cluster.start(
            rank, 0, 3, int(code), np.ascontiguousarray(given_[rank]), results[rank], size,
            algorithm=int(lib.GL_RING), reduction=int(lib.GL_SUM) if reduces else 0, root=root,
            element_type=ElementType.INT32, layers=layers if collective == "reduce-scatter" else None,
        )  # fmt: skip
    cluster.run(until=lambda: all(cluster.completed(rank) for rank in range(ranks)))
    for rank in range(ranks):
        np.testing.assert_array_equal(results[rank], expected[rank], str(rank))
