# SPDX-License-Identifier: Apache-2.0
"""Slices of which a switch left the header: their loss is known at once."""

import functools

import numpy as np
import pytest

from gradlane.wire import Flag, Header, Kind
from tests.gradlane.core.protocol.network import JOB, MEAN_FLOAT32, TOKEN, Cluster, Impairment, values_of


def test_what_is_trimmed_within_the_budget_ends_its_message_at_once():
    """Every slice is seen, so nobody waits for stragglers, sends a PROBE or repairs; none of it counts as arrived."""
    waited = {}
    for trim in (0.0, 1.0):
        cluster = Cluster(1, servers=1, push_loss=0.25, impairment=Impairment(trim=trim))
        times = {}

        def watch(source, to, header, trim=trim, cluster=cluster, times=times):
            if not header.flags & Flag.PULL:
                times[header.kind, bool(header.flags & Flag.END)] = cluster.now
            return trim or header.kind != Kind.DATA or header.flags & Flag.PULL or header.slice >= 8

        cluster.filter = watch
        values = values_of(0, 0, 0, 32 * 16)
        result = cluster.submit(0, 0, 0, values)
        cluster.run(until=functools.partial(cluster.all_completed, 1))
        counts = cluster.statistics(1)
        assert (counts.trimmed, counts.slices_lost) == (8 if trim else 0, 8)
        assert cluster.statistics(0).slices_repaired == 0
        assert {kind for kind, _ in times} & {Kind.PROBE, Kind.BITMAP} == set()
        assert (result[: 8 * 16] == 0).all()
        np.testing.assert_array_equal(result[8 * 16 :], values[8 * 16 :])
        waited[trim] = times[Kind.STOP, False] - times[Kind.DATA, True]
    assert waited == {0.0: 100 + 500, 1.0: 100}  # the way, and half of INITIAL_RTT for stragglers


def test_a_message_that_was_trimmed_beyond_its_budget_is_repaired_before_any_probe():
    cluster = Cluster(2, push_loss=0.1, impairment=Impairment(overtrim=0.3), seed=5)
    inputs = [values_of(r, 0, 0, 64 * 16) for r in range(2)]
    [cluster.submit(r, 0, 0, inputs[r]) for r in range(2)]
    began = cluster.now
    cluster.run(until=lambda: cluster.all_completed(1))
    counts = [cluster.statistics(r) for r in range(2)]
    for count in counts:
        assert count.trimmed > 3
        assert count.probes_sent == 0
        assert count.slices_repaired > 0
        assert count.budget_violations == 0
    assert cluster.now - began < 10_000


def test_a_trimmed_header_says_nothing_of_the_slices_that_it_overtook():
    cluster = Cluster(1, servers=1, push_loss=0.2, slice_bytes=64)
    fields = {"job": JOB, "source": 0, "message": 0xFFFFFF00, "token": TOKEN, "slices": 10, "budget": 2, "length": 64,
              "element_type": MEAN_FLOAT32}  # fmt: skip
    for number, last in ((8, 0), (9, Flag.END)):
        cluster.receive(1, Header(kind=Kind.TRIMMED, slice=number, flags=last, **fields).pack())
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=50_000)
    assert cluster.statistics(1).bitmaps_sent == 0
    for number in range(7):
        cluster.receive(1, Header(kind=Kind.DATA, slice=number, **fields).pack() + bytes(64))
    assert cluster.statistics(1).stops_sent == 0
    cluster.receive(1, Header(kind=Kind.DATA, slice=7, **fields).pack() + bytes(64))
    assert cluster.statistics(1).stops_sent == 1
    assert cluster.statistics(1).slices_delivered == 8


def test_a_slice_that_comes_although_its_header_came_trimmed_counts_as_arrived():
    cluster = Cluster(1, servers=1, push_loss=0.2)
    fields = {"job": JOB, "source": 0, "message": 0xFFFFFF00, "token": TOKEN, "slices": 10, "budget": 2, "length": 64,
              "element_type": MEAN_FLOAT32}  # fmt: skip
    for number in (9, 9, 3):
        cluster.receive(1, Header(kind=Kind.TRIMMED, slice=number, **fields).pack())
    cluster.receive(1, Header(kind=Kind.REPAIR, slice=9, **fields).pack() + bytes(64))
    cluster.receive(1, Header(kind=Kind.TRIMMED, slice=9, **fields).pack())
    counts = cluster.statistics(1)
    assert (counts.trimmed, counts.slices_duplicate, counts.stops_sent) == (2, 2, 0)
    for number in (0, 1, 2, 4, 5, 6, 7, 8):
        cluster.receive(1, Header(kind=Kind.DATA, slice=number, **fields).pack() + bytes(64))
    assert (counts.stops_sent, counts.slices_delivered, counts.slices_lost) == (1, 9, 1)
