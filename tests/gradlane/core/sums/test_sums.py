# SPDX-License-Identifier: Apache-2.0
"""What workers get of a switch that sums is what integers and fractions say, whatever the network does."""

import numpy as np
import pytest
from gradlane._core import ffi, lib
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.wire import ElementType, Header, Kind, Lanes
from tests.gradlane.core.protocol.network import Impairment
from tests.gradlane.core.sums.summing import GENERATION, Oracle, Summed, Tensor

ROUGH = Impairment(loss=0.1, duplicate=0.1, delay=100, jitter=400)


def gradients(workers: int, step: int, tensor: Tensor, scale: float = 1.0) -> list[np.ndarray]:
    dtype = np.float32 if tensor.type == ElementType.FLOAT32 else np.float16
    return [
        (np.random.default_rng([rank, step, tensor.number]).standard_normal(tensor.elements) * scale).astype(dtype)
        for rank in range(workers)
    ]


def train(cluster: Summed, tensors: list[Tensor], steps: int) -> None:
    """All workers go through the steps at once, and what they have after each is compared bit by bit."""
    oracles = [Oracle(cluster, tensor) for tensor in tensors]
    for tensor in tensors:
        assert cluster.open(tensor) == [0] * cluster.workers
    for step in range(1, steps + 1):
        contributions = [gradients(cluster.workers, step, tensor) for tensor in tensors]
        for rank in range(cluster.workers):
            for tensor, values in zip(tensors, contributions, strict=True):
                cluster.contribute(rank, step, tensor, values[rank])
        cluster.run(lambda step=step: all(cluster.complete(step, tensor) for tensor in tensors))
        for tensor, oracle, values in zip(tensors, oracles, contributions, strict=True):
            expected = oracle.by_hosts(values) if step == 1 else oracle.by_switch(values)
            starts = np.cumsum([0, *tensor.parts])
            for rank in range(cluster.workers):
                np.testing.assert_array_equal(cluster.results[rank, step, tensor.number], expected)
                for k in range(len(tensor.parts)):
                    owed = cluster.owed(rank, tensor, k)
                    np.testing.assert_array_equal(owed, oracle.owed[rank][starts[k] : starts[k + 1]])


@pytest.mark.parametrize("lanes", Lanes)
@pytest.mark.parametrize("type", [ElementType.FLOAT32, ElementType.FLOAT16])
@pytest.mark.parametrize("mean", [True, False])
def test_results_and_what_is_owed_are_those_of_the_integers(lanes: Lanes, type: ElementType, mean: bool) -> None:
    cluster = Summed(3, lanes=lanes)
    train(cluster, [Tensor(0, [300, 1, 129], mean, type)], 4)
    assert all(cluster.statistics(rank).sums_received > 0 for rank in range(3))
    assert all(cluster.statistics(rank).sums_repaired == 0 for rank in range(3))


@settings(max_examples=15)
@given(
    st.integers(2, 5),
    st.lists(st.lists(st.integers(1, 700), min_size=1, max_size=3), min_size=1, max_size=3),
    st.sampled_from([4, 8]),
    st.integers(0, 2**32),
)
def test_loss_duplicates_and_reordering_change_nothing(
    workers: int, tensors: list[list[int]], window: int, seed: int
) -> None:
    cluster = Summed(workers, window=window, impairment=ROUGH, seed=seed)
    train(cluster, [Tensor(number, parts) for number, parts in enumerate(tensors)], 3)


def waits(cluster: Summed, rank: int) -> dict[tuple[int, int], int]:
    """By step and wire tensor, us."""
    found = ffi.new("gl_sum_waits *")
    lib.gl_engine_sum_waits(cluster.engines[rank], found)
    return {(found.step[k], found.tensor[k]): found.waited[k] for k in range(found.steps)}


def test_each_knows_how_long_it_has_waited_for_the_last_one() -> None:
    """Of the tensor with the highest number, whoever is late; of the latest steps."""
    cluster = Summed(3)
    tensors = [Tensor(0, [300]), Tensor(2, [300, 200])]
    for tensor in tensors:
        assert cluster.open(tensor) == [0, 0, 0]
    delays = [0, 20_000, 50_000]
    for step in range(1, 36):
        for k in range(3):
            cluster.run_for(delays[k] - delays[max(k - 1, 0)])
            for tensor in tensors:
                rank, layer = (k + step) % 3, step % 2 * (2 - tensor.number)  # either may be the first
                cluster.contribute(rank, step, tensor, gradients(3, step, tensor)[rank], layer=layer)
        cluster.run(lambda step=step: all(cluster.complete(step, tensor) for tensor in tensors))
    train(cluster, [Tensor(3, [300])], 3)  # one that is far behind
    known = [waits(cluster, rank) for rank in range(3)]
    for step in range(35 - lib.GL_LATE_STEPS + 1, 36):
        for k in range(3):
            waited = known[(k + step) % 3][step, 2 * 16 + 1]
            assert delays[2] - delays[k] <= waited <= delays[2] - delays[k] + 1000
    assert [len(it) for it in known] == [lib.GL_LATE_STEPS] * 3


def since(cluster: Summed, rank: int) -> int:
    """When the step of the first tensor was submitted that waits for others; 0: it does not."""
    states = ffi.new("gl_sum_state[64]")
    assert lib.gl_engine_sums_state(cluster.engines[rank], states, 64)
    return states[0].since


def test_a_step_waits_for_others_from_its_first_part_to_its_first_sum() -> None:
    cluster = Summed(2)
    tensor = Tensor(0, [300, 200])
    assert cluster.open(tensor) == [0, 0]
    values = gradients(2, 1, tensor)
    cluster.contribute(0, 1, tensor, values[0])
    cluster.run_for(1000)
    assert not since(cluster, 0)  # no switch sums it
    cluster.contribute(1, 1, tensor, values[1])
    cluster.run(lambda: cluster.complete(1, tensor))
    values = gradients(2, 2, tensor)
    cluster.lost_results = {(0, 5 + 2), (0, 5 + 4)}  # the last ones of both parts
    begun = cluster.now
    for part in range(2):
        cluster.contribute(0, 2, tensor, values[0], parts=[part])
        cluster.run_for(20_000)
        assert since(cluster, 0) == begun
    cluster.contribute(1, 2, tensor, values[1])
    cluster.run_for(20_000)
    assert not since(cluster, 0)
    cluster.lost_results.clear()
    cluster.run(lambda: cluster.complete(2, tensor))
    assert 20_000 <= waits(cluster, 0)[2, 1] < 25_000
    values = gradients(2, 3, tensor)
    cluster.contribute(0, 3, tensor, values[0])
    cluster.now += 2**32  # more than an hour
    cluster.contribute(1, 3, tensor, values[1])
    cluster.run(lambda: cluster.complete(3, tensor))
    assert waits(cluster, 0)[3, 1] == 2**32 - 1


def test_numbers_wrap() -> None:
    slices = 40
    cluster = Summed(2)
    tensor = Tensor(0, [slices * cluster.per_slice])
    assert cluster.open(tensor) == [0, 0]
    step = 2**32 // slices - 1  # a step before the numbers wrap
    for k in range(step, step + 5):
        # The first one by hosts, as nothing is known of it.
        for rank in range(2):
            cluster.contribute(rank, k, tensor, gradients(2, k, tensor)[rank])
        cluster.run(lambda k=k: cluster.complete(k, tensor))
        np.testing.assert_array_equal(cluster.results[0, k, 0], cluster.results[1, k, 0])
    numbers = [header.message for _, header, _ in cluster.sent]
    assert max(numbers) > 2**32 - 100
    assert min(numbers) < 100


def test_gradients_that_grow_and_shrink_are_followed_and_nothing_is_lost() -> None:
    """The sum of all results and of what is owed is that of all contributions, exactly as floats can tell."""
    cluster = Summed(3)
    tensor = Tensor(0, [200], mean=False)
    scales = [1.0, 1.0, 1000.0, 1.0, 1e-6, 0.0, 0.0, 1.0, *[0.0] * 12]
    assert cluster.open(tensor) == [0] * 3
    total = np.zeros(200, np.float64)
    for step, scale in enumerate(scales, 1):
        for rank, values in enumerate(gradients(3, step, tensor, scale)):
            total += values
            cluster.contribute(rank, step, tensor, values)
        cluster.run(lambda step=step: cluster.complete(step, tensor))
        total -= cluster.results[0, step, 0]
    owed = sum(cluster.owed(rank, tensor, 0).astype(np.float64) for rank in range(3))
    np.testing.assert_allclose(total, owed, atol=1e-3)
    assert np.abs(owed).max() < 0.01
    assert cluster.statistics(0).sums_clipped > 0


def test_infinity_is_as_much_as_leaves_the_exponent_and_what_is_no_number_is_nothing() -> None:
    cluster = Summed(2)
    tensor = Tensor(0, [8], mean=False)
    cluster.open(tensor)
    for step in (1, 2):
        for rank in range(2):
            values = np.ones(8, np.float32)
            if step == 2 and rank == 0:
                values[:3] = [np.inf, -np.inf, np.nan]
            cluster.contribute(rank, step, tensor, values)
        cluster.run(lambda step=step: cluster.complete(step, tensor))
    result, infinite = cluster.results[1, 2, 0], cluster.numbers.limit // cluster.numbers.headroom
    e = cluster.numbers.exponent_of([1.0])
    assert result[0] == (infinite + round(2**-e)) * 2.0**e
    assert result[1] == (-infinite + round(2**-e)) * 2.0**e
    assert list(result[2:]) == [1.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    assert not cluster.owed(0, tensor, 0)[:3].any()


def test_a_tensor_without_slots_or_with_too_long_slices_has_no_stream() -> None:
    cluster = Summed(2, window=4, slots=16)
    assert cluster.open(Tensor(1, [10])) == [0, 0]
    assert cluster.open(Tensor(2, [10])) == [-1, -1]
    assert Summed(2, slice_bytes=136).open(Tensor(0, [10])) == [-1, -1]
    assert Summed(2, slice_bytes=144).open(Tensor(0, [10])) == [0, 0]
    assert cluster.open(Tensor(0, [cluster.per_slice * 65536])) == [-1, -1]


def test_without_a_generation_everything_goes_by_hosts() -> None:
    cluster = Summed(2)
    tensor = Tensor(0, [500])
    cluster.open(tensor)
    for step in (1, 2, 3):
        for rank in range(2):
            cluster.contribute(rank, step, tensor, gradients(2, step, tensor)[rank], generation=0)
        cluster.run(lambda step=step: cluster.complete(step, tensor))
    assert not cluster.sent
    # The exponents were learnt all the same: the next one may go by the switch.
    for rank in range(2):
        cluster.contribute(rank, 4, tensor, gradients(2, 4, tensor)[rank], generation=GENERATION + 1)
    cluster.run(lambda: cluster.complete(4, tensor))
    assert {summed.generation for _, _, summed in cluster.sent} == {GENERATION + 1}


def test_front_layers_go_first() -> None:
    cluster = Summed(2, window=64, slots=256, rate=50_000_000)
    back, front = Tensor(0, [3000]), Tensor(1, [3000])
    for tensor in (back, front):
        cluster.open(tensor)
    for step in (1, 2):
        for tensor, layer in ((back, 5), (front, 0)):
            for rank in range(2):
                cluster.contribute(rank, step, tensor, gradients(2, step, tensor)[rank], layer=layer)
        cluster.run(lambda step=step: cluster.complete(step, back) and cluster.complete(step, front))
    order = [header.tensor // 16 for source, header, _ in cluster.sent if source == 0]
    assert order == sorted(order, reverse=True)
    assert {header.layer for _, header, _ in cluster.sent} == {0, 5}


def test_who_waits_for_a_sum_names_nobody() -> None:
    cluster = Summed(3)
    tensor = Tensor(0, [500])
    cluster.open(tensor)
    for step, ranks in ((1, range(3)), (2, range(2))):
        for rank in ranks:
            cluster.contribute(rank, step, tensor, gradients(3, step, tensor)[rank])
        cluster.run(lambda step=step: step == 2 or cluster.complete(step, tensor))
    began = cluster.now
    with pytest.raises(TimeoutError):
        cluster.run(lambda: cluster.complete(2, tensor), limit=3_000_000)
    waiting = ffi.new("gl_waiting *")
    assert lib.gl_oldest(cluster.engines[0], cluster.now, waiting) == 1
    assert (waiting.step, waiting.tensor, waiting.direct) == (2, 0, 0)
    assert waiting.age >= cluster.now - began
    assert not any(waiting.missing)
    assert 2_700_000 < cluster.overdue(0) <= waiting.age
    assert not lib.gl_engine_idle(cluster.engines[0])
    # It asks again and again, ever more seldom: at most its window, five times a second.
    assert cluster.statistics(0).sums_repaired < 3 * 5 * 4 * 2
    assert cluster.statistics(0).sums_received == 0
    cluster.contribute(2, 2, tensor, gradients(3, 2, tensor)[2])
    cluster.run(lambda: cluster.complete(2, tensor))
    assert cluster.overdue(0) == 0
    assert lib.gl_engine_idle(cluster.engines[0])


def test_a_slow_switch_is_not_taken_for_a_dead_one() -> None:
    """A worker's slices get there one every 50 ms, so the last of a window much later than it was sent."""
    cluster = Summed(2, window=16, slots=32)
    tensor = Tensor(0, [24 * cluster.per_slice])
    cluster.open(tensor)
    for rank in range(2):
        cluster.contribute(rank, 1, tensor, gradients(2, 1, tensor)[rank])
    cluster.run(lambda: cluster.complete(1, tensor))
    began, waits, longest = cluster.now, [0], 0
    busy = [cluster.now] * 2
    sent: dict[tuple[int, int], int] = {}  # when it was sent first, by rank and number
    push = cluster.push

    def first(source: int, header: Header) -> bool:
        return sent.setdefault((source, header.message), cluster.now) == cluster.now

    def slowly(at: int, to: int, datagram: bytes) -> None:
        nonlocal longest
        if to > cluster.ranks:
            source = to - cluster.ranks - 1
            at = busy[source] = max(at, busy[source] + 50_000)
            longest = max(longest, at - cluster.now)
        push(at, to, datagram)

    cluster.passes, cluster.push = first, slowly
    for rank in range(2):
        cluster.contribute(rank, 2, tensor, gradients(2, 2, tensor)[rank])
    while not cluster.run_for(10_000, lambda: cluster.complete(2, tensor)):
        waits.append(max(map(cluster.overdue, range(2))))
    assert cluster.now - began > 23 * 50_000
    assert longest > 400_000
    assert 40_000 < max(waits) < 100_000


def test_who_gets_nothing_while_others_get_sums_has_longer() -> None:
    """As behind more urgent slices at a slow port; but it is found, too."""
    cluster = Summed(2)
    waiting, urgent = Tensor(0, [500]), Tensor(1, [500])
    for tensor in (waiting, urgent):
        cluster.open(tensor)
        step_by_hosts(cluster, tensor)
    cluster.contribute(0, 2, waiting, gradients(2, 2, waiting)[0])
    began = cluster.now
    for step in range(2, 42):
        for rank in range(2):
            cluster.contribute(rank, step, urgent, gradients(2, step, urgent)[rank])
        cluster.run(lambda step=step: cluster.complete(step, urgent))
        cluster.run_for(50_000)
    assert (cluster.now - began) / 20 < cluster.overdue(0) < (cluster.now - began) / 12
    cluster.run_for(1_000_000)
    assert cluster.overdue(0) > 1_000_000


def test_a_lost_slice_is_sent_again_when_later_ones_have_come() -> None:
    cluster = Summed(2, window=64, slots=128)
    tensor = Tensor(0, [256 * cluster.per_slice])
    cluster.open(tensor)
    step_by_hosts(cluster, tensor)
    lost: list[int] = []

    def passes(source: int, header: Header) -> bool:
        if lost or (source, header.slice) != (0, 100):
            return True
        lost.append(cluster.now)
        return False

    cluster.passes = passes
    for rank in range(2):
        cluster.contribute(rank, 2, tensor, gradients(2, 2, tensor)[rank])
    cluster.run(lambda: cluster.complete(2, tensor))
    repairs = [header.slice for source, header, _ in cluster.sent if header.kind == Kind.REPAIR and source == 0]
    assert repairs == [100]
    assert cluster.statistics(0).sums_repaired == 1
    assert cluster.now - lost[0] < 5000  # no timer


def step_by_hosts(cluster: Summed, tensor: Tensor) -> None:
    for rank in range(cluster.workers):
        cluster.contribute(rank, 1, tensor, gradients(cluster.workers, 1, tensor)[rank])
    cluster.run(lambda: cluster.complete(1, tensor))


def test_marks_of_congestion_halve_what_is_in_flight() -> None:
    gaps: list[int] = []
    for marked in (False, True):
        cluster = Summed(2, window=64, slots=128, rate=10_000_000_000)
        tensor = Tensor(0, [2048 * cluster.per_slice])
        cluster.open(tensor)
        step_by_hosts(cluster, tensor)
        cluster.marked, began = marked, cluster.now
        for rank in range(2):
            cluster.contribute(rank, 2, tensor, gradients(2, 2, tensor)[rank])
        cluster.run(lambda cluster=cluster, tensor=tensor: cluster.complete(2, tensor))
        gaps.append(cluster.now - began)
    # With a mark on everything one slice is in flight in the end, where 64 were.
    assert gaps[1] > 10 * gaps[0]


def test_waiting_for_a_late_worker_is_no_congestion() -> None:
    took: list[int] = []
    for late in (0, 1_000_000):
        cluster = Summed(2, window=64, slots=128, rate=10_000_000_000)
        tensor = Tensor(0, [256 * cluster.per_slice])
        cluster.open(tensor)
        step_by_hosts(cluster, tensor)
        cluster.contribute(0, 2, tensor, gradients(2, 2, tensor)[0])
        cluster.run_for(late)
        cluster.contribute(1, 2, tensor, gradients(2, 2, tensor)[1])
        came = cluster.now
        cluster.run(lambda cluster=cluster, tensor=tensor: cluster.complete(2, tensor))
        took.append(cluster.now - came)
    assert took[1] < 2 * took[0]


def test_when_the_late_worker_comes_nothing_is_sent_again() -> None:
    """What was repeated while it was waited for has its sum first, which tells nothing of what was sent before that."""
    cluster = Summed(2, window=64, slots=128, rate=50_000_000)
    tensor = Tensor(0, [128 * cluster.per_slice])
    cluster.open(tensor)
    step_by_hosts(cluster, tensor)
    cluster.contribute(0, 2, tensor, gradients(2, 2, tensor)[0])
    cluster.run_for(500_000)
    waiting = cluster.statistics(0).sums_repaired
    assert 3 < waiting < 12
    cluster.contribute(1, 2, tensor, gradients(2, 2, tensor)[1])
    cluster.run(lambda: cluster.complete(2, tensor))
    assert cluster.statistics(0).sums_repaired == waiting
