# SPDX-License-Identifier: Apache-2.0
"""Datagrams that do not belong: none changes a tensor, each is counted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.wire import Header, Kind
from tests.gradlane.core.protocol.network import JOB, MEAN_FLOAT32, TOKEN, Cluster, mean_in_rank_order, values_of
from tests.support.effort import tries

FOREIGN = [
    ("bad_token", {"token": TOKEN ^ 1}),
    ("bad_job", {"job": JOB + 1}),
    ("bad_header", {"version": 2}),
    ("bad_header", {"kind": 9}),
    ("bad_header", {"element_type": 9}),
    ("bad_source", {"source": 7}),
    ("bad_source", {"source": 0}),
    ("bad_range", {"slice": 20, "slices": 20}),
    ("bad_range", {"slices": 0, "slice": 0}),
    ("bad_range", {"slices": 9000}),
    ("bad_range", {"slices": 11}),
    ("bad_length", {"length": 60}),
    ("bad_budget", {"budget": 5}),
    ("bad_message", {"message": 0xFFFFFF00}),
    ("bad_length", {"kind": Kind.TRIMMED}),
    ("bad_header", {"flags": 8}),
]
FOREIGN_TRIMMED = [
    *[row for row in FOREIGN if row[0] not in ("bad_length", "bad_header")],
    ("bad_length", {"length": 68}),
    ("bad_length", {"length": 63}),
    ("bad_length", {"length": 60}),
    ("bad_length", {"length": 0}),
    ("bad_header", {"flags": 8}),
]


@pytest.mark.parametrize(("counter", "change"), FOREIGN)
def test_a_datagram_that_does_not_belong_changes_nothing_and_is_counted(counter, change):
    cluster = Cluster(2)
    inputs = [values_of(r, 0, 0, 320) for r in range(2)]
    results = [cluster.submit(0, 0, 0, inputs[0])]
    # A push of rank 1 to rank 0: the shard of rank 0 has 10 slices.
    fields = {
        "kind": Kind.DATA, "job": JOB, "source": 1, "message": (0xFFFFFF00 + 1) & 0xFFFFFFFF, "token": TOKEN,
        "slices": 10, "slice": 4, "length": 64, "element_type": MEAN_FLOAT32,
    }  # fmt: skip
    forged = Header(**{**fields, **change}).pack() + b"\x7f" * 64
    before = {name: getattr(cluster.statistics(0), name) for name, _ in FOREIGN}
    cluster.receive(0, forged)
    assert getattr(cluster.statistics(0), counter) == before[counter] + 1
    results.append(cluster.submit(1, 0, 0, inputs[1]))
    cluster.run(until=lambda: cluster.all_completed(1))
    for result in results:
        np.testing.assert_array_equal(result, mean_in_rank_order(inputs))


@pytest.mark.parametrize(("counter", "change"), FOREIGN_TRIMMED)
def test_a_trimmed_header_that_does_not_belong_is_counted_as_no_loss(counter, change):
    cluster = Cluster(2, push_loss=0.1)
    fields = {
        "kind": Kind.TRIMMED, "job": JOB, "source": 1, "message": (0xFFFFFF00 + 1) & 0xFFFFFFFF, "token": TOKEN,
        "slices": 10, "slice": 4, "length": 64, "element_type": MEAN_FLOAT32,
    }  # fmt: skip
    cluster.submit(0, 0, 0, values_of(0, 0, 0, 320))
    cluster.receive(0, Header(**{**fields, **change}).pack())
    assert getattr(cluster.statistics(0), counter) == 1
    assert cluster.statistics(0).trimmed == 0


@settings(max_examples=tries(300), deadline=None)
@given(data=st.binary(max_size=200), header=st.booleans(), kind=st.integers(0, 15), flags=st.integers(0, 255))
def test_garbage_never_harms(data, header, kind, flags):
    cluster = Cluster(2, multicast=True)
    inputs = [values_of(r, 0, 0, 320) for r in range(2)]
    results = [cluster.submit(0, 0, 0, inputs[0])]
    if header:
        # Whoever knows the token too can still only answer messages that there are not.
        token = TOKEN if kind in (Kind.BITMAP, Kind.STOP, Kind.REPORT) else TOKEN ^ 1
        data = (
            Header(
                kind=kind, job=JOB, source=1, message=0x7777, token=token, flags=flags, slices=10, length=len(data)
            ).pack()
            + data
        )
    cluster.receive(0, data)
    results.append(cluster.submit(1, 0, 0, inputs[1]))
    cluster.run(until=lambda: cluster.all_completed(1))
    for result in results:
        np.testing.assert_array_equal(result, mean_in_rank_order(inputs))
