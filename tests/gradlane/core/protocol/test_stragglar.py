# SPDX-License-Identifier: Apache-2.0
"""All-reduces by StragglAR: exact sums whoever is late, what goes before it comes, and who sends to whom when."""

from collections import Counter

import numpy as np
import pytest
from gradlane._core import lib
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.job import costs
from gradlane.wire import ElementType, Flag, Header, Kind
from tests.gradlane.core import schedules
from tests.gradlane.core.protocol.fabric_model import Model
from tests.gradlane.core.protocol.network import Cluster, Impairment
from tests.support.effort import tries


def submit(cluster: Cluster, rank: int, straggler: int, values: np.ndarray, group: list[int] | None = None) -> None:
    """Starts a sum of int32 in place."""
    code = cluster.start(
        rank, 0, 3, lib.GL_ALL_REDUCE, values, values, values.size, algorithm=lib.GL_STRAGGLAR, reduction=lib.GL_SUM,
        element_type=ElementType.INT32, group=group, root=straggler,
    )  # fmt: skip
    assert code == 0


def wait(cluster: Cluster, duration: int) -> None:
    """Lets so many us pass."""
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=duration)


@settings(max_examples=tries(60), deadline=None)
@given(
    data=st.data(),
    ranks=st.integers(2, 17),
    elements=st.integers(1, 2000),
    loss=st.sampled_from([0.0, 0.0, 0.02, 0.3]),
    jitter=st.integers(0, 3000),
    memory=st.sampled_from([0, 1 << 26]),
    seed=st.integers(0, 2**32),
)
def test_sums_are_exact_in_place_whoever_is_late(
    data: st.DataObject, ranks: int, elements: int, loss: float, jitter: int, memory: int, seed: int
) -> None:
    group = sorted(data.draw(st.sets(st.integers(0, ranks - 1), min_size=1)))
    straggler, others_late = data.draw(st.sampled_from(group)), data.draw(st.sets(st.sampled_from(group), max_size=2))
    cluster = Cluster(ranks, impairment=Impairment(loss=loss, jitter=jitter), seed=seed, memory=memory)
    values = {rank: np.random.default_rng([seed, rank]).integers(-(2**31), 2**31, elements) for rank in group}
    expected = np.add.reduce(list(values.values())).astype(np.int32)
    values = {rank: contribution.astype(np.int32) for rank, contribution in values.items()}
    late = others_late | {straggler}
    for rank in [rank for rank in group if rank not in late] + sorted(late - {straggler}) + [straggler]:
        if rank in late:
            wait(cluster, 20_000)
        submit(cluster, rank, straggler, values[rank], None if len(group) == ranks else group)
    cluster.run(until=lambda: all(cluster.completed(rank) for rank in group))
    for result in values.values():
        np.testing.assert_array_equal(result, expected)
    cluster.run()
    assert all(lib.gl_engine_idle(engine) for engine in cluster.engines)
    assert all(cluster.statistics(rank).memory_used == 0 for rank in range(ranks))


@pytest.mark.parametrize("element_type", [ElementType.FLOAT16, ElementType.FLOAT32])
def test_all_have_the_same_bits(element_type: ElementType) -> None:
    dtype = np.float16 if element_type == ElementType.FLOAT16 else np.float32
    cluster = Cluster(6)
    inputs = [np.random.default_rng(rank).standard_normal(3000).astype(dtype) for rank in range(6)]
    results = [np.zeros_like(values) for values in inputs]
    for rank in range(6):
        code = cluster.start(
            rank, 0, 3, lib.GL_ALL_REDUCE, inputs[rank], results[rank], 3000, algorithm=lib.GL_STRAGGLAR,
            reduction=lib.GL_MEAN, element_type=element_type, root=2,
        )  # fmt: skip
        assert code == 0
    cluster.run(until=lambda: all(cluster.completed(rank) for rank in range(6)))
    assert len({result.tobytes() for result in results}) == 1
    mean = np.mean([values.astype(np.float64) for values in inputs], axis=0)
    np.testing.assert_allclose(results[0], mean, atol=4 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize(("ranks", "straggler"), [(4, 3), (6, 0), (8, 5)])
def test_the_others_have_reduced_before_the_straggler_comes_and_its_port_carries_no_more_than_it_must(
    ranks: int, straggler: int
) -> None:
    slices = 12 * (ranks - 1)
    cluster = Cluster(ranks, slice_bytes=64)
    sent: list[tuple[int, int, Header]] = []

    def note(source: int, to: int, header: Header) -> bool:
        sent.append((source, to, header))
        return True

    cluster.filter = note
    values = [np.full(slices * 16, rank, np.int32) for rank in range(ranks)]
    for rank in range(ranks):
        if rank != straggler:
            submit(cluster, rank, straggler, values[rank])
    wait(cluster, 100_000)
    early = [(source, to) for source, to, header in sent if header.kind == Kind.DATA]
    assert all(to != straggler for _, to in early)
    assert all(early.count(pair) == 12 for pair in set(early))
    assert len(set(early)) == (ranks - 1) * (ranks - 2)
    sent.clear()
    submit(cluster, straggler, straggler, values[straggler])
    cluster.run(until=lambda: all(cluster.completed(rank) for rank in range(ranks)))
    data = [(source, to, header) for source, to, header in sent if header.kind == Kind.DATA]
    by_source, by_receiver = Counter(source for source, _, _ in data), Counter(to for _, to, _ in data)
    # Its contribution, and a chunk in some of the rounds after the last swap; what it is swapped for.
    assert slices <= by_source[straggler] <= slices + 12 * 3
    assert by_receiver[straggler] == slices
    assert all(header.budget == 0 for _, _, header in data)


@pytest.mark.parametrize("ranks", [4, 7, 8])
def test_a_rank_sends_one_chunk_after_the_other_in_the_order_of_the_schedule(ranks: int) -> None:
    chunk = 40
    cluster = Cluster(ranks, slice_bytes=64)
    sent: dict[int, list[tuple[int, bool]]] = {rank: [] for rank in range(ranks)}

    def note(source: int, to: int, header: Header) -> bool:
        if header.kind == Kind.DATA:
            sent[source].append((to, bool(header.flags & Flag.PULL)))
        return True

    cluster.filter = note
    for rank in range(ranks):
        submit(cluster, rank, ranks - 1, np.full(chunk * (ranks - 1) * 16, rank, np.int32))
    cluster.run(until=lambda: all(cluster.completed(rank) for rank in range(ranks)))
    transfers = schedules.stragglar(ranks)[1]
    for rank in range(ranks):
        transfers_of = [(to, number != part) for number, source, to, part in transfers if source == rank]
        merge = sent[rank][chunk * (ranks - 2) if rank != ranks - 1 else 0 :]
        assert merge == [transfer for transfer in transfers_of for _ in range(chunk)]


@pytest.mark.parametrize("ranks", [4, 8])
def test_from_the_stragglers_arrival_on_it_takes_little_more_than_the_ports_need(ranks: int) -> None:
    model, elements = Model(ranks, buffer=256_000), 1_000_000
    on_the_wire = elements * 4 * (1432 + 36 + 42) // 1432
    times = costs.stragglar(on_the_wire, ranks, costs.Conditions(rate=1e9, latency=20e-6))
    job = model.job(list(range(ranks)), elements, algorithm=lib.GL_STRAGGLAR, straggler=1)
    assert model.late(job, int(1.5e6 * times.reduce)) < 1.06e6 * times.merge
    assert not any(port.dropped for port in model.downlinks)
