# SPDX-License-Identifier: Apache-2.0
"""Owners of unequal shares: each has its own, who has none is sent nothing, and the result is the same."""

import itertools
from collections import Counter

import numpy as np
import pytest
from gradlane._core import ffi, lib
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.wire import MAX_SLICES, Flag, Header, Kind
from tests.gradlane.core.protocol.network import Cluster, mean_in_rank_order, values_of
from tests.gradlane.core.protocol.test_collectives import shares
from tests.support.effort import tries

MISMATCH = 3


def data_of(cluster: Cluster) -> list[tuple[int, int, Header]]:
    """Where DATA goes from now on: from whom, to whom."""
    seen: list[tuple[int, int, Header]] = []

    def note(source: int, to: int, header: Header) -> bool:
        if header.kind == Kind.DATA:
            seen.append((source, to, header))
        return True

    cluster.filter = note
    return seen


@settings(max_examples=tries(50, 500), deadline=None)
@given(
    topology=st.tuples(st.integers(2, 7), st.sampled_from([0, 0, 1, 3])),
    multicast=st.booleans(),
    slices=st.integers(1, 200),
    data=st.data(),
)
def test_every_owner_gets_and_sends_its_share_and_no_more(topology, multicast, slices, data) -> None:
    """By pair and direction, as docs/protocol.md has it; no message is empty."""
    workers, servers = topology
    weights = data.draw(shares(servers or workers))
    cluster = Cluster(workers, servers, multicast=multicast, weights=weights)
    seen = data_of(cluster)
    inputs = [values_of(rank, 0, 0, slices * 16) for rank in range(workers)]
    results = [cluster.submit(rank, 0, 0, values) for rank, values in enumerate(inputs)]
    cluster.run(until=lambda: cluster.all_completed(1))
    cluster.run()
    expected = Counter()
    for owner, weight in zip(cluster.aggregators, itertools.accumulate(weights), strict=True):
        below = weight - weights[owner - cluster.aggregators.start]
        share = slices * weight // sum(weights) - slices * below // sum(weights)
        for rank in range(workers):
            if share and rank != owner:
                expected[rank, owner, "push"] += share
                expected[owner, rank, "pull"] += share
    found = Counter((source, to, "pull" if h.flags & Flag.PULL else "push") for source, to, h in seen)
    assert found == expected
    for result in results:
        np.testing.assert_array_equal(result, mean_in_rank_order(inputs))


def test_a_late_worker_that_owns_nothing_has_only_its_own_contribution_left_to_send() -> None:
    """The others have sent each other theirs when it comes; an equal share would cost it as much again."""
    sent = {}
    for weights in ([1, 1, 1, 0], [1, 1, 1, 1]):
        cluster = Cluster(4, weights=weights)
        inputs = [values_of(rank, 0, 0, 120 * 16) for rank in range(4)]
        for rank in range(3):
            cluster.submit(rank, 0, 0, inputs[rank])
        with pytest.raises(TimeoutError):
            cluster.run(until=lambda: False, limit=500_000)
        seen = data_of(cluster)
        cluster.submit(3, 0, 0, inputs[3])
        cluster.run(until=lambda cluster=cluster: cluster.all_completed(1))
        sent[weights[3]] = Counter(source for source, _, _ in seen)
    assert sent[0] == {0: 120, 1: 120, 2: 120, 3: 120}
    assert sent[1] == {0: 90, 1: 90, 2: 90, 3: 180}


def test_a_share_that_is_too_long_for_a_message_makes_all_equal() -> None:
    slices = MAX_SLICES + 1
    sums = ffi.new("uint32_t[]", [0, 1, 1, 1])
    assert [lib.gl_shard_start(slices - 1, sums, k, 3) for k in range(4)] == [0, *[slices - 1] * 3]
    equal = [slices * k // 3 for k in range(4)]
    assert [lib.gl_shard_start(slices, sums, k, 3) for k in range(4)] == equal
    assert [lib.gl_shard_start(slices, ffi.NULL, k, 3) for k in range(4)] == equal
    longest = ffi.new("uint32_t[]", [0, 1, slices, slices])
    assert [lib.gl_shard_start(slices, longest, k, 3) for k in range(4)] == [0, 1, slices, slices]
    half = ffi.new("uint32_t[]", [0, 1, 2, 2])  # these fit
    assert [lib.gl_shard_start(slices, half, k, 3) for k in range(4)] == [0, slices // 2, slices, slices]


@pytest.mark.parametrize("sums", [[0, 0, 0], [1, 2, 3], [0, 2, 1]])
def test_shares_that_make_no_sense_are_refused(sums: list[int]) -> None:
    cluster = Cluster(2)
    values, kept = np.zeros(8, np.float32), ffi.new("uint32_t[]", sums)
    submission = {
        "collective": lib.GL_ALL_REDUCE, "algorithm": lib.GL_DIRECT, "element_type": 1, "reduction": lib.GL_SUM,
        "elements": 8, "in": ffi.from_buffer("uint8_t[]", values), "out": ffi.from_buffer("uint8_t[]", values),
        "shares": kept,
    }  # fmt: skip
    assert lib.gl_submit(cluster.engines[0], ffi.new("gl_submission *", submission), 0) == -1
    submission["shares"] = ffi.new("uint32_t[]", [0, 0, 1])
    assert lib.gl_submit(cluster.engines[0], ffi.new("gl_submission *", submission), 0) == 0


def test_ranks_that_have_other_shares_are_told_so_and_complete_nothing() -> None:
    cluster = Cluster(2)
    for rank, weights in enumerate(([1, 1], [1, 3])):
        values = values_of(rank, 0, 0, 640)
        cluster.start(
            rank, 0, 0, lib.GL_ALL_REDUCE, values, np.empty_like(values), 640, reduction=lib.GL_SUM, weights=weights
        )
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=500_000)
    for rank in range(2):
        assert [event.kind for event in cluster.events[rank]] == [MISMATCH]
