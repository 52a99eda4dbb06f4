# SPDX-License-Identifier: Apache-2.0
"""The transport's guarantees, on a simulated network that does its worst."""

import numpy as np
import pytest
from gradlane._core import ffi, lib
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.wire import ElementType, Flag, Header, Kind
from tests.gradlane.core.protocol.network import (
    JOB,
    MEAN_FLOAT32,
    TOKEN,
    Cluster,
    Impairment,
    mean_in_rank_order,
    values_of,
)
from tests.support.effort import tries


def path_rate(cluster, rank, to):
    rate, srtt = ffi.new("uint64_t *"), ffi.new("uint32_t *")
    lib.gl_flow_state(cluster.engines[rank], to, rate, srtt)
    return rate[0]


topologies = st.tuples(st.integers(1, 5), st.integers(0, 3), st.booleans())
impairments = st.builds(
    Impairment,
    loss=st.floats(0, 0.6),
    duplicate=st.floats(0, 0.3),
    corrupt=st.floats(0, 0.1),
    delay=st.integers(1, 3000),
    jitter=st.integers(0, 3000),
    trim=st.sampled_from([0.0, 0.3, 1.0]),
    overtrim=st.sampled_from([0.0, 0.0, 0.2]),
)


@settings(max_examples=tries(60, 750), deadline=None)
@given(
    topology=topologies,
    impairment=impairments,
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=4),
    half=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_without_tolerance_the_result_is_the_exact_mean_in_rank_order(topology, impairment, sizes, half, seed):
    workers, servers, multicast = topology
    element_type = ElementType.FLOAT16 if half else ElementType.FLOAT32
    cluster = Cluster(
        workers, servers, multicast=multicast, impairment=impairment, seed=seed, element_type=element_type
    )
    for step in range(2):
        inputs = {
            t: [values_of(r, step, t, size, cluster.dtype) for r in range(workers)] for t, size in enumerate(sizes)
        }
        results = {(r, t): cluster.submit(r, step, t, inputs[t][r]) for r in range(workers) for t in inputs}
        done = len(sizes) * (step + 1)
        cluster.run(until=lambda done=done: cluster.all_completed(done))
        for (_, t), result in results.items():
            np.testing.assert_array_equal(result, mean_in_rank_order(inputs[t]))
    assert all(cluster.statistics(r).budget_violations == 0 for r in range(cluster.ranks))
    assert all(cluster.statistics(r).slices_lost == 0 for r in range(cluster.ranks))


@settings(max_examples=tries(150), deadline=None)
@given(
    topology=topologies,
    impairment=impairments,
    push_loss=st.floats(0, 0.4),
    pull_loss=st.sampled_from([0.0, 0.0, 0.2]),
    size=st.integers(1, 3000),
    mean=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_no_message_completes_with_more_than_its_budget_missing(
    topology, impairment, push_loss, pull_loss, size, mean, seed
):
    workers, servers, multicast = topology
    cluster = Cluster(
        workers, servers, push_loss, pull_loss, multicast, impairment=impairment, seed=seed, mean_of_arrived=mean
    )
    inputs = [values_of(r, 0, 0, size) for r in range(workers)]
    results = [cluster.submit(r, 0, 0, inputs[r]) for r in range(workers)]
    cluster.run(until=lambda: cluster.all_completed(1))

    # What each worker was told of its losses, against what the results hold.
    per_slice = cluster.slice_bytes // 4
    slices = -(-size // per_slice)
    counted = np.ones((workers, slices), dtype=bool)
    for rank in range(workers):
        for event in cluster.events[rank]:
            if event.kind == 2:
                assert len(event.lost) <= int(round(push_loss * 1e6) * event.slices // 1_000_000)
                counted[rank, [event.first_slice + i for i in event.lost]] = False
    if pull_loss == 0:
        elements = np.repeat(counted, per_slice, axis=1)[:, :size]
        total = np.zeros(size, dtype=np.float32)
        for rank in range(workers):
            total = np.where(elements[rank], total + inputs[rank], total)
        divisor = elements.sum(axis=0) if mean else np.full(size, workers)
        expected = total / np.maximum(divisor, 1).astype(np.float32)
        for result in results:
            np.testing.assert_array_equal(result, expected)
    assert all(cluster.statistics(r).budget_violations == 0 for r in range(cluster.ranks))


def test_a_tail_lost_altogether_is_probed_for_and_repaired():
    cluster = Cluster(2)
    dropped = []

    def lose_first_pass(source, to, header):
        if header.kind == Kind.DATA and header.slice > 3:
            dropped.append(header.slice)
            return False
        return True

    cluster.filter = lose_first_pass
    inputs = [values_of(r, 0, 0, 640) for r in range(2)]
    results = [cluster.submit(r, 0, 0, inputs[r]) for r in range(2)]
    cluster.run(until=lambda: cluster.all_completed(1))
    assert dropped
    assert cluster.statistics(0).probes_sent > 0
    assert cluster.statistics(0).slices_repaired > 0
    for result in results:
        np.testing.assert_array_equal(result, mean_in_rank_order(inputs))


def test_losses_within_the_budget_are_not_repaired():
    cluster = Cluster(2, push_loss=0.1)
    cluster.filter = lambda source, to, header: (
        not (header.kind == Kind.DATA and not header.flags & Flag.PULL and header.slice == 1)
    )
    inputs = [values_of(r, 0, 0, 64 * 16) for r in range(2)]
    [cluster.submit(r, 0, 0, inputs[r]) for r in range(2)]
    cluster.run(until=lambda: cluster.all_completed(1))
    assert sum(cluster.statistics(r).slices_lost for r in range(2)) == 2
    assert sum(cluster.statistics(r).slices_repaired for r in range(2)) == 0
    released = [e for r in range(2) for e in cluster.events[r] if e.kind == 2]
    assert [e.lost for e in released] == [[1], [1]]


def test_what_is_still_to_come_is_not_given_up_for_lost():
    """Slices that came out of order looked like more loss than is tolerated; the last ones are on their way."""
    cluster = Cluster(1, servers=1, push_loss=0.5)
    fields = {"job": JOB, "source": 0, "message": 0xFFFFFF00, "token": TOKEN, "slices": 12, "budget": 6}

    def come(*slices):
        for number in slices:
            end = Flag.END if number == 11 else 0
            header = Header(Kind.DATA, slice=number, flags=end, length=64, element_type=MEAN_FLOAT32, **fields)
            cluster.receive(1, header.pack() + bytes(64))

    come(7, *range(7), 8, 9)
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: cluster.statistics(1).messages_received, limit=50_000)
    come(10, 11)
    assert cluster.statistics(1).slices_delivered == 12


def test_results_that_come_in_another_order_are_not_asked_for_again_and_again():
    """Slices that waited for a push to end are pulled last: until then they look like holes to every worker."""
    cluster = Cluster(4, servers=1, push_loss=0.1, slice_bytes=1432, impairment=Impairment(trim=0.3))
    inputs = [values_of(r, 0, 0, 65536) for r in range(4)]
    [cluster.submit(r, 0, 0, inputs[r]) for r in range(4)]
    cluster.run(until=lambda: cluster.all_completed(1))
    assert cluster.now - 1_000_000 > 60_000, "long enough for some 50 round trips"
    assert all(cluster.statistics(r).bitmaps_sent < 25 for r in range(4))
    assert cluster.statistics(4).slices_repaired == 0


def test_what_goes_by_multicast_is_counted_for_each_that_receives_it():
    cluster = Cluster(4, servers=2, multicast=True)
    for rank in range(4):
        cluster.submit(rank, 1, 0, np.ones(16 * 200, np.float32))
    cluster.run()
    delivered, held = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    for rank, to, expected in ((4, 6, 400), (4, 0, 0), (0, 4, 100), (0, 6, 0), (4, 7, 0)):
        lib.gl_flow_held(cluster.engines[rank], to, delivered, held)
        assert delivered[0] == pytest.approx(expected, rel=0.1), "of the last ones nobody reports"


def test_a_worker_that_comes_late_is_waited_for():
    cluster = Cluster(3, multicast=True)
    inputs = [values_of(r, 0, 0, 500) for r in range(3)]
    results = [cluster.submit(r, 0, 0, inputs[r]) for r in range(2)]
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: cluster.all_completed(1), limit=500_000)
    results.append(cluster.submit(2, 0, 0, inputs[2]))
    cluster.run(until=lambda: cluster.all_completed(1))
    for result in results:
        np.testing.assert_array_equal(result, mean_in_rank_order(inputs))


def test_a_worker_with_another_shape_is_named():
    cluster = Cluster(2)
    cluster.submit(0, 0, 0, values_of(0, 0, 0, 640))
    cluster.submit(1, 0, 0, values_of(1, 0, 0, 960))
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: cluster.all_completed(1), limit=200_000)
    mismatches = [(r, e.source) for r in range(2) for e in cluster.events[r] if e.kind == 3]
    assert (0, 1) in mismatches or (1, 0) in mismatches


def test_many_messages_wait_for_the_window():
    cluster = Cluster(3, window=4, impairment=Impairment(loss=0.05))
    results = {}
    inputs = {(r, t): values_of(r, 0, t, 200) for r in range(3) for t in range(40)}
    for (r, t), values in inputs.items():
        results[r, t] = cluster.submit(r, 0, t, values)
    cluster.run(until=lambda: cluster.all_completed(40))
    for (_, t), result in results.items():
        np.testing.assert_array_equal(result, mean_in_rank_order([inputs[r, t] for r in range(3)]))


def test_a_stream_that_rests_leaves_its_part_to_the_others():
    cluster = Cluster(2, servers=1, slice_bytes=1432)
    for rank in range(2):
        cluster.submit(rank, 0, 0, values_of(rank, 0, 0, 100_000))
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=8_000)
    link = 100_000_000
    together = [path_rate(cluster, rank, to=2) for rank in range(2)]
    assert all(0.3 * link < rate < 0.65 * link for rate in together)
    cluster.filter = lambda source, to, header: source != 1
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=10_000)
    assert path_rate(cluster, 0, to=2) > 0.8 * link


def test_what_was_told_before_a_pause_does_not_count_after_it():
    cluster = Cluster(2, servers=1, slice_bytes=1432)
    alone = cluster.submit(0, 0, 0, values_of(0, 0, 0, 50_000))
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=10_000)
    link = 100_000_000
    assert path_rate(cluster, 0, to=2) > 0.8 * link
    cluster.submit(1, 0, 0, values_of(1, 0, 0, 50_000))
    cluster.run(until=lambda: cluster.all_completed(1))
    assert np.isfinite(alone).all()
    cluster.now += 20_000
    for rank in range(2):
        cluster.submit(rank, 1, 0, values_of(rank, 1, 0, 50_000))
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=200)
    assert all(path_rate(cluster, rank, to=2) <= 0.65 * link for rank in range(2))
