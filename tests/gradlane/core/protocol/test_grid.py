# SPDX-License-Identifier: Apache-2.0
"""All-reduces in two levels: exact sums for any number of ranks, in one order at all of them, and few messages."""

import math
from collections import defaultdict

import numpy as np
import pytest
from gradlane._core import lib
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.job import costs
from gradlane.wire import ElementType, Flag, Header, Kind
from tests.gradlane.core.protocol.fabric_model import Model
from tests.gradlane.core.protocol.network import Cluster, Impairment, mean_in_rank_order, values_of
from tests.support.effort import only_thorough, tries
from tests.support.grids import rows_of

SIZES = [*range(1, 41), 64, 100, 256, 1024]


def submit(cluster: Cluster, rank: int, values: np.ndarray, result: np.ndarray, group: list[int] | None = None) -> None:
    """Starts a sum of int32, or a mean of float32."""
    whole = values.dtype == np.int32
    code = cluster.start(
        rank, 0, 3, lib.GL_ALL_REDUCE, values, result, values.size, algorithm=lib.GL_GRID,
        loss=cluster.loss, reduction=lib.GL_SUM if whole else lib.GL_MEAN, group=group,
        element_type=ElementType.INT32 if whole else ElementType.FLOAT32,
    )  # fmt: skip
    assert code == 0


@pytest.mark.parametrize("n", SIZES)
def test_rows_are_about_as_long_as_there_are_of_them_and_differ_by_one_at_most(n: int) -> None:
    rows = rows_of(n)
    assert [place for row in rows for place in row] == list(range(n))
    lengths = {len(row) for row in rows}
    assert max(lengths) - min(lengths) <= 1
    root = math.isqrt(n)
    assert root / 2 <= len(rows) <= root
    assert len(rows) > 1 or n < 4
    assert len(lengths) == 1 or not any(n % rows == 0 for rows in range(max(2, (root + 1) // 2), root + 1))


def exact(ranks: int, group: list[int], elements: int, impairment: Impairment, seed: int, memory: int) -> None:
    """Sums in place, of whole numbers that wrap."""
    cluster = Cluster(ranks, impairment=impairment, seed=seed, memory=memory)
    random = np.random.default_rng(seed)
    values = {rank: random.integers(-(2**31), 2**31, elements).astype(np.int32) for rank in group}
    expected = np.add.reduce(list(values.values()), dtype=np.int32)
    for rank in group:
        submit(cluster, rank, values[rank], values[rank], None if len(group) == ranks else group)
    cluster.run(until=lambda: all(cluster.completed(rank) for rank in group))
    for result in values.values():
        np.testing.assert_array_equal(result, expected)
    cluster.run()
    assert all(lib.gl_engine_idle(engine) for engine in cluster.engines)
    assert all(cluster.statistics(rank).memory_used == 0 for rank in range(ranks))
    assert all(cluster.statistics(rank).slices_lost == 0 for rank in range(ranks))


@settings(max_examples=tries(20, 200), deadline=None)
@given(
    data=st.data(),
    ranks=st.integers(4, 40),
    elements=st.integers(1, 3000),
    loss=st.sampled_from([0.0, 0.02, 0.3]),
    duplicate=st.sampled_from([0.0, 0.2]),
    jitter=st.integers(0, 3000),
    memory=st.sampled_from([0, 1 << 26]),
    seed=st.integers(0, 2**32),
)
def test_sums_are_exact_in_place_for_any_number_of_ranks(
    data: st.DataObject,
    ranks: int,
    elements: int,
    loss: float,
    duplicate: float,
    jitter: int,
    memory: int,
    seed: int,
) -> None:
    group = list(range(ranks))
    if data.draw(st.booleans()):
        group = sorted(data.draw(st.sets(st.integers(0, ranks - 1), min_size=1)))
    exact(ranks, group, elements, Impairment(loss, duplicate, jitter=jitter), seed, memory)


@pytest.mark.parametrize(
    ("ranks", "elements"),
    [
        pytest.param(64, 3000, marks=only_thorough("fewer ranks than in another case")),
        (100, 1700),
        (256, 500),
    ],
)
def test_sums_are_exact_among_many(ranks: int, elements: int) -> None:
    exact(ranks, list(range(ranks)), elements, Impairment(0.02, 0.02, jitter=1000), ranks, 1 << 26)


def in_order(contributions: list[np.ndarray], owner: int) -> np.ndarray:
    """The documented sum of what one member owns: in rank order, another row's as one."""
    terms: list[np.ndarray] = []
    for row in rows_of(len(contributions)):
        of = [contributions[place] for place in row]
        terms += of if owner in row else [np.add.reduce(of)]
    total = terms[0].copy()
    for term in terms[1:]:
        total += term
    return total / np.float32(len(contributions))


@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize("ranks", [4, 7, 9, 11, 16, 18])
def test_means_are_added_in_the_documented_order(ranks: int, loss: float) -> None:
    """With slices of 64 bytes, and as many parts as ranks."""
    slices = 3 * ranks + 1
    cluster = Cluster(ranks, impairment=Impairment(loss, jitter=2000), seed=ranks)
    inputs = [values_of(rank, 0, 3, 16 * slices - 5) for rank in range(ranks)]
    results = [np.zeros_like(values) for values in inputs]
    for rank in range(ranks):
        submit(cluster, rank, inputs[rank], results[rank])
    cluster.run(until=lambda: all(cluster.completed(rank) for rank in range(ranks)))
    expected = np.empty_like(inputs[0])
    for owner in range(ranks):
        part = slice(16 * (slices * owner // ranks), 16 * (slices * (owner + 1) // ranks))
        expected[part] = in_order([values[part] for values in inputs], owner)
    assert not np.array_equal(expected, mean_in_rank_order(inputs)), "the order would not show"
    for result in results:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("ranks", [4, 5, 8, 9, 13, 16, 26])
def test_a_rank_exchanges_messages_with_its_row_and_about_one_rank_of_each_other_row(ranks: int) -> None:
    """And as many bytes as directly, within what rows of unequal length take; nothing of it may be lost."""
    cluster, slices = Cluster(ranks, push_loss=0.1), 3 * ranks
    sent: defaultdict[tuple[int, int, bool], int] = defaultdict(int)

    def note(source: int, to: int, header: Header) -> bool:
        if header.kind == Kind.DATA:
            assert header.budget == 0
            sent[source, to, bool(header.flags & Flag.PULL)] += 1
        return True

    cluster.filter = note
    values = [np.full(slices * 16, rank, np.int32) for rank in range(ranks)]
    for rank in range(ranks):
        submit(cluster, rank, values[rank], values[rank])
    cluster.run(until=lambda: all(cluster.completed(rank) for rank in range(ranks)))
    rows = rows_of(ranks)
    even, direct = len({len(row) for row in rows}) == 1, slices * (ranks - 1) // ranks
    for row in rows:
        for rank in row:
            for pull in (False, True):
                to = {other for source, other, pulled in sent if (source, pulled) == (rank, pull)}
                assert set(row) - {rank} <= to
                others = [sum(other in to for other in there) for there in rows if there is not row]
                assert all(count == 1 for count in others) if even else sum(others) <= len(rows) + 1
                volume = sum(count for (source, _, pulled), count in sent.items() if (source, pulled) == (rank, pull))
                assert volume == direct if even else abs(volume - direct) <= 0.25 * direct
    # Both ways the same ranks, so a pair's pushes and pulls are one stream.
    pushes, pulls = ({pair[:2] for pair in sent if pair[2] == pull} for pull in (False, True))
    assert pulls == {(to, source) for source, to in pushes}


def test_a_lost_member_of_a_row_is_waited_for_and_no_wrong_sum_appears() -> None:
    cluster = Cluster(9)
    values = [np.full(900, rank, np.int32) for rank in range(9)]
    for rank in range(8):
        submit(cluster, rank, values[rank], values[rank])
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=500_000)
    assert not any(cluster.completed(rank) for rank in range(9))
    submit(cluster, 8, values[8], values[8])
    cluster.run(until=lambda: all(cluster.completed(rank) for rank in range(9)))
    for result in values:
        np.testing.assert_array_equal(result, np.full(900, 36, np.int32))


def test_it_takes_little_more_than_the_ports_need_and_nothing_is_dropped() -> None:
    model, elements = Model(9, buffer=256_000), 500_000
    on_the_wire = elements * 4 * (1432 + 36 + 42) // 1432
    expected = costs.seconds("grid", on_the_wire, 9, costs.Conditions(rate=1e9, latency=20e-6))
    job = model.job(list(range(9)), elements, algorithm=lib.GL_GRID)
    assert model.once(job) < 1.07e6 * expected
    assert not any(port.dropped for port in model.downlinks)
