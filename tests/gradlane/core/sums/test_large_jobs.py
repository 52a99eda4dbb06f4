# SPDX-License-Identifier: Apache-2.0
"""Engines of more workers than a sum's members have bits: a sum is of all, and says nothing else."""

from dataclasses import replace

import pytest
from gradlane._core import ffi, lib
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.wire import HEADER_BYTES, SUM_BYTES, Flag, Header, Kind, Lanes
from tests.gradlane.core.protocol.network import Impairment
from tests.gradlane.core.sums.summing import GENERATION, SMOOTH, Tensor
from tests.gradlane.core.sums.test_fall_back import Training
from tests.gradlane.core.sums.test_storms import Storm, storms, weather
from tests.gradlane.core.sums.test_sums import ROUGH, train
from tests.gradlane.core.sums.test_trees import Treed
from tests.support.effort import tries
from tests.support.sum_switch import EVERYBODY, SumHeader

SHAPES = ["leaf-spine", "three tiers"]


def large(shape: str, workers: int = 40, impairment: Impairment = SMOOTH, seed: int = 0, window: int = 4) -> Treed:
    slots, lanes = 16 * window, Lanes.INT32_LANES
    return Treed(
        shape, workers, window=window, slots=slots, lanes=lanes, slice_bytes=144, impairment=impairment, seed=seed
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mean", [True, False])
def test_sums_of_forty_are_those_of_the_integers(shape: str, mean: bool) -> None:
    cluster = large(shape)
    train(cluster, [Tensor(0, [70, 1], mean)], 3)
    counts = [cluster.statistics(rank) for rank in range(40)]
    assert {count.sums_received for count in counts} == {2 * (3 + 1)}
    assert {count.sums_repaired + count.sums_refused + count.sums_duplicate for count in counts} == {0}
    assert {(summed.members, summed.epoch) for _, _, summed in cluster.sent} == {(0, 0)}


@settings(max_examples=tries(3), deadline=None)
@given(st.sampled_from(SHAPES), st.integers(33, 44), st.integers(0, 2**32))
def test_loss_duplicates_and_reordering_change_nothing(shape: str, workers: int, seed: int) -> None:
    train(large(shape, workers, ROUGH, seed), [Tensor(0, [200]), Tensor(1, [30, 40])], 3)


@settings(max_examples=tries(3), deadline=None)
@given(st.sampled_from(SHAPES), st.sampled_from([Impairment(), ROUGH]), storms, st.integers(0, 2**32))
def test_all_steps_end_alike_and_nothing_is_lost_when_switches_fail(
    shape: str, network: Impairment, happenings: list[Storm], seed: int
) -> None:
    weather(large(shape, 36, network, seed), [[70], [33]], happenings, steps=6)


def test_hosts_do_a_step_again_that_no_switch_completes() -> None:
    cluster = large("leaf-spine")
    training = Training(cluster, [Tensor(0, [70])], 4)
    cluster.lost_results = {(rank, number) for rank in range(30, 40) for number in range(3, 6)}  # of step 2
    assert not cluster.run_for(300_000, training.go_on)
    cluster.broken = True
    training.give_up(GENERATION + 1)
    cluster.run(training.go_on)
    training.check_sums()
    assert sum(cluster.statistics(rank).sum_reruns for rank in range(40)) == 10


def test_a_reminder_is_one_of_every_bit() -> None:
    cluster = large("three tiers")
    training = Training(cluster, [Tensor(0, [70])], 4)
    cluster.lost_results = {(rank, number) for rank in range(1, 40) for number in range(6, 9)}  # of step 3
    assert not cluster.run_for(300_000, training.go_on)
    cluster.lost_results.clear()
    for at in cluster.fabric.switches:
        cluster.fabric.restart(at)
    since = len(cluster.sent)
    assert training.give_up(GENERATION, by_switch=True) == [(0, 3)]
    assert cluster.run_for(400_000, training.go_on)
    training.check_sums()
    assert sum(cluster.statistics(rank).sum_reruns for rank in range(40)) == 0
    repairs = [it for it in cluster.sent[since:] if it[1].kind == Kind.REPAIR and it[1].step == 3]
    said = [(rank, summed.members) for rank, _, summed in repairs]
    assert {members for rank, members in said if rank == 0} == {EVERYBODY}
    assert {members for rank, members in said if rank} == {0}


@pytest.mark.parametrize("members", [0, 1, EVERYBODY >> 1, EVERYBODY & ~1])
def test_a_sum_that_lacks_a_bit_is_refused(members: int) -> None:
    cluster = large("leaf-spine")
    training, forged = Training(cluster, [Tensor(0, [70])], 2), 0
    receive = cluster.receive

    def forging(rank: int, datagram: bytes, congested: bool = False) -> None:
        nonlocal forged
        if rank == 35 and Header.unpack(datagram).flags & Flag.SUM:
            head, summed = datagram[:HEADER_BYTES], SumHeader.unpack(datagram[HEADER_BYTES:])
            its = head + replace(summed, members=members).pack() + datagram[HEADER_BYTES + SUM_BYTES :]
            lib.gl_receive(cluster.engines[rank], its, len(its), False, cluster.now)
            forged += 1
        receive(rank, datagram, congested)

    cluster.receive = forging
    cluster.run(training.go_on)
    training.check_sums()
    assert cluster.statistics(35).sums_refused == forged == 3


@pytest.mark.parametrize(
    ("workers", "lanes", "push", "sound"),
    [
        (32, Lanes.INT16_LANES, 30_000, True),
        (33, Lanes.INT32_LANES, 0, True),
        (1024, Lanes.INT32_LANES, 0, True),
        (33, Lanes.INT16_LANES, 0, False),
        (33, Lanes.INT32_LANES, 1, False),
    ],
)
def test_with_more_workers_than_bits_sums_are_exact_and_wide(
    workers: int, lanes: Lanes, push: int, sound: bool
) -> None:
    losses = ffi.new("gl_loss[]", [(0, 9, 0, 0), (10, 65535, push, 0)])
    config = ffi.new(
        "gl_config *",
        {
            "job": 1, "workers": workers, "slice_bytes": 1432, "window": 64, "rate": 10**9, "buffer": 64_000,
            "memory": 1 << 20, "loss_count": 2, "losses": losses, "sums": (lanes, 128, 4, 1),
        },
    )  # fmt: skip
    engine = lib.gl_engine_new(config)
    assert (engine != ffi.NULL) == sound
    if sound:
        lib.gl_engine_free(engine)
