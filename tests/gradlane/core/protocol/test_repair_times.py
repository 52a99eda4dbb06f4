# SPDX-License-Identifier: Apache-2.0
"""What is lost on a fast path is repaired within a few of its round trips; what is only late is not sent again."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from gradlane._core import ffi, lib

from gradlane.wire import Flag, Header, Kind
from tests.gradlane.core.protocol.network import Cluster, Impairment, mean_in_rank_order, values_of

DELAY = 20  # us of the path, each way
ROUND_TRIP = 2 * DELAY
SLICES, SLICE = 64, 1024  # of a message, and bytes
RATE, BUFFER = 10_000_000_000, 200_000
QUEUE = BUFFER // 2 * 8_000_000 // RATE  # us that rate control lets slices queue


def fast(impairment: Impairment, seed: int = 0) -> Cluster:
    """Two ranks with links of 10 Gbit/s."""
    return Cluster(2, rate=RATE, buffer=BUFFER, slice_bytes=SLICE, impairment=impairment, seed=seed)


def reduce_on(cluster: Cluster, steps: int = 1, first: int = 1) -> int:
    """us of steps, whose results are exact."""
    began = cluster.now
    for step in range(first, first + steps):
        values = [values_of(rank, step, 1, 2 * SLICES * SLICE // 4) for rank in range(2)]
        results = [cluster.submit(rank, step, 1, values[rank]) for rank in range(2)]
        cluster.run(until=lambda step=step: cluster.all_completed(step))
        for result in results:
            np.testing.assert_array_equal(result, mean_in_rank_order(values))
    return cluster.now - began


def waited(number: int, times: int) -> int:
    """us from when a slice of the first message of rank 0 is first sent until it comes, if it is lost so many times."""
    cluster = fast(Impairment(delay=DELAY))
    sent: list[int] = []

    def lose(source: int, to: int, header: Header) -> bool:
        if source or header.kind not in (Kind.DATA, Kind.REPAIR) or header.slice != number or header.flags & 1:
            return True
        sent.append(cluster.now)
        return len(sent) > times

    cluster.filter = lose
    reduce_on(cluster)
    assert len(sent) == times + 1
    return sent[-1] - sent[0]


@pytest.mark.parametrize(
    ("number", "times", "round_trips"),
    [(SLICES // 2, 1, 6), (SLICES // 2, 2, 10), (SLICES - 1, 1, 6), (SLICES - 1, 2, 10)],
)
def test_a_slice_is_repaired_within_a_few_round_trips_in_the_first_step(
    number: int, times: int, round_trips: int
) -> None:
    """One in the middle is missed as later ones come, and the last one when it is asked for."""
    assert waited(number, times) < round_trips * ROUND_TRIP


@pytest.mark.parametrize(("loss", "most"), [(0.1, 25), (0.3, 80)])
def test_steps_over_a_path_that_loses_by_chance_take_some_round_trips(loss: float, most: int) -> None:
    """Whatever the datagrams are."""
    times = [reduce_on(fast(Impairment(loss=loss, delay=DELAY), seed)) for seed in range(8)]
    assert sum(times) / len(times) < most * ROUND_TRIP


@pytest.mark.parametrize("jitter", [0, 50, 200])
def test_what_comes_late_is_not_repaired(jitter: int) -> None:
    """Paths of which one is up to ten times as long as another."""
    sent = repaired = late = 0
    for seed in range(4):
        cluster = fast(Impairment(delay=DELAY, jitter=jitter), seed)
        reduce_on(cluster, 5)
        for rank in range(2):
            counts = cluster.statistics(rank)
            sent, repaired = sent + counts.slices_sent, repaired + counts.slices_repaired
            late += counts.slices_duplicate + counts.slices_late
    assert repaired * 200 < sent
    assert late * 1000 < sent


def srtt_of(cluster: Cluster, rank: int, to: int) -> int:
    """us."""
    rate, srtt = ffi.new("uint64_t *"), ffi.new("uint32_t *")
    lib.gl_flow_state(cluster.engines[rank], to, rate, srtt)
    return srtt[0]


@pytest.mark.parametrize("lost", [1, 4, 12, 16])
@pytest.mark.parametrize("known", [True, False])
def test_what_is_lost_again_and_again_is_asked_for_as_soon_each_time(lost: int, known: bool) -> None:
    """STOPs: of a step on a path that is known, or of the first one, on a path that is known once others have told."""
    cluster = fast(Impairment(delay=DELAY))
    if known:
        reduce_on(cluster, 5)
    watched, asked, stops = 6 if known else 1, list[int](), 0

    def lose(source: int, to: int, header: Header) -> bool:
        nonlocal stops
        if header.step != watched or header.flags & Flag.PULL:
            return True
        if source == 0 and header.kind == Kind.PROBE:
            asked.append(cluster.now)
        if source == 1 and header.kind == Kind.STOP:
            stops += 1
            return stops > lost
        return source == 0 or header.kind != Kind.REPORT

    cluster.filter = lose
    for step in range(watched, watched + 5):
        slices = 2 if step == watched else 2 * SLICES
        for rank in range(2):
            cluster.submit(rank, step, 1, values_of(rank, step, 1, slices * SLICE // 4))
    cluster.run(until=lambda: cluster.all_completed(watched + 4))
    assert len(asked) == lost
    patience = 2 * srtt_of(cluster, 0, 1) + QUEUE // 2
    assert all(b - a <= 1.25 * patience for a, b in itertools.pairwise(asked))


def test_a_dead_path_is_asked_more_and_more_seldom() -> None:
    cluster = fast(Impairment(delay=DELAY))
    reduce_on(cluster)
    asked: list[int] = []

    def lose(source: int, to: int, header: Header) -> bool:
        if source == 0 and header.kind == Kind.PROBE:
            asked.append(cluster.now)
        return False

    cluster.filter = lose
    for rank in range(2):
        cluster.submit(rank, 2, 1, values_of(rank, 2, 1, 2 * SLICES * SLICE // 4))
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: cluster.all_completed(2), limit=2_000_000)
    assert len(asked) < 100
    assert asked[-1] - asked[-2] > 50_000


def repaired_after(delays: Sequence[int], number: int, times: int) -> tuple[int, int]:
    """us until that slice of a step has come, if it is lost so many times, after steps on a path of these delays; and
    us that a PROBE waits then."""
    cluster = fast(Impairment(delay=DELAY))
    for step, delay in enumerate(delays, 1):
        cluster.impairment = Impairment(delay=delay)
        reduce_on(cluster, 1, step)
    cluster.impairment = Impairment(delay=DELAY)
    sent: list[int] = []

    def lose(source: int, to: int, header: Header) -> bool:
        if source or header.kind not in (Kind.DATA, Kind.REPAIR) or header.slice != number or header.flags & Flag.PULL:
            return True
        sent.append(cluster.now)
        return len(sent) > times

    cluster.filter = lose
    patience = 2 * srtt_of(cluster, 0, 1) + QUEUE // 2
    reduce_on(cluster, 1, len(delays) + 1)
    assert len(sent) == times + 1
    return sent[-1] - sent[0], patience


@pytest.mark.parametrize("times", [1, 5])
def test_a_probe_tells_what_is_lost_though_delays_have_varied_by_more_than_it_waits(times: int) -> None:
    passed, patience = repaired_after([DELAY] * 20 + [DELAY + 120], SLICES - 1, times)
    assert passed <= times * (patience + 2 * ROUND_TRIP)


def test_an_answer_that_comes_too_early_does_not_put_off_the_probe() -> None:
    passed, patience = repaired_after([5 * DELAY] * 20, SLICES // 2, 1)
    assert passed <= patience + 2 * ROUND_TRIP
