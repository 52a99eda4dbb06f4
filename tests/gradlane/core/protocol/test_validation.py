# SPDX-License-Identifier: Apache-2.0
"""Datagrams that do not belong: none changes a tensor, each is counted."""

import numpy as np
import pytest
from gradlane._core import lib
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.wire import HEADER_BYTES, ElementType, Flag, Header, Kind
from tests.gradlane.core.protocol.network import JOB, MEAN_FLOAT32, TOKEN, Cluster, mean_in_rank_order, values_of
from tests.support.effort import tries

# A push of rank 1 to rank 0, whose shard has 10 slices.
FIELDS = {
    "kind": Kind.DATA, "job": JOB, "source": 1, "message": (0xFFFFFF00 + 1) & 0xFFFFFFFF, "token": TOKEN,
    "slices": 10, "slice": 4, "length": 64, "element_type": MEAN_FLOAT32,
}  # fmt: skip
# What counts it, and how it differs; "payload": the bytes that it has.
FOREIGN = [
    ("bad_token", {"token": TOKEN ^ 1}),
    ("bad_token", {"token": TOKEN ^ 1 << 63}),
    ("bad_job", {"job": JOB + 1}),
    ("bad_header", {"version": 2}),
    ("bad_header", {"kind": 9}),
    ("bad_header", {"element_type": 9}),
    ("bad_header", {"element_type": ElementType.FLOAT32 | 7 << 4}),
    ("bad_header", {"kind": Kind.REPORT}),
    ("bad_source", {"source": 7}),
    ("bad_source", {"source": 0}),
    ("bad_range", {"slice": 20, "slices": 20}),
    ("bad_range", {"slices": 0, "slice": 0}),
    ("bad_range", {"slice": 10}),
    ("bad_range", {"slices": 9000}),
    ("bad_range", {"slices": 11}),
    ("bad_length", {"length": 60}),
    ("bad_length", {"length": 0, "payload": 0}),
    ("bad_length", {"length": 60, "payload": 60}),
    ("bad_length", {"length": 62, "payload": 62}),
    ("bad_length", {"length": 68, "payload": 68}),
    ("bad_length", {"payload": 68}),
    ("bad_budget", {"budget": 5}),
    ("bad_message", {"message": 0xFFFFFF00}),
    ("bad_length", {"kind": Kind.TRIMMED}),
    ("bad_header", {"flags": 8}),
    ("bad_header", {"flags": 32}),
]
# What shows only when the operation is there.
LATER = [{"slices": 11}, {"length": 60, "payload": 60}]
FOREIGN_TRIMMED = [
    *[row for row in FOREIGN if row[0] not in ("bad_length", "bad_header")],
    ("bad_length", {"length": 68}),
    ("bad_length", {"length": 63}),
    ("bad_length", {"length": 60}),
    ("bad_length", {"length": 0}),
    ("bad_header", {"flags": 8}),
]


def forged(change: dict[str, int]) -> bytes:
    fields = FIELDS | change
    payload = b"\x7f" * fields.pop("payload", 64)
    return Header(**fields).pack() + payload


@pytest.mark.parametrize(
    ("counter", "change", "early"),
    [(*row, early) for row in FOREIGN for early in (False, True) if not (early and row[1] in LATER)],
)
def test_a_datagram_that_does_not_belong_changes_nothing_and_is_counted(counter, change, early):
    """Whether it comes before its operation is submitted or afterwards."""
    cluster = Cluster(2)
    inputs = [values_of(r, 0, 0, 320) for r in range(2)]
    results = [] if early else [cluster.submit(0, 0, 0, inputs[0])]
    before = getattr(cluster.statistics(0), counter)
    cluster.receive(0, forged(change))
    assert getattr(cluster.statistics(0), counter) == before + 1
    assert cluster.statistics(0).memory_used == 0
    results += [cluster.submit(rank, 0, 0, inputs[rank]) for rank in range(len(results), 2)]
    cluster.run(until=lambda: cluster.all_completed(1))
    for result in results:
        np.testing.assert_array_equal(result, mean_in_rank_order(inputs))


def test_a_datagram_that_is_cut_off_anywhere_is_counted_and_not_read_beyond_its_end():
    cluster = Cluster(2)
    cluster.submit(0, 0, 0, values_of(0, 0, 0, 320))
    whole = Header(**FIELDS).pack() + b"\x7f" * 64
    for length in range(len(whole)):  # what is behind it in memory would make it whole
        lib.gl_receive(cluster.engines[0], whole, length, False, cluster.now)
    assert cluster.statistics(0).bad_header == HEADER_BYTES
    assert cluster.statistics(0).bad_length == len(whole) - HEADER_BYTES


@pytest.mark.parametrize(
    "change", [{"slices": 20, "slice": 15}, {"slices": 9}, {"step": 1}, {"tensor": 1}, {"element_type": 1 | 2 << 4}]
)
@pytest.mark.parametrize("kind", [Kind.DATA, Kind.TRIMMED, Kind.PROBE])
def test_a_message_does_not_change_once_it_has_begun(change, kind):
    cluster = Cluster(2)
    cluster.submit(0, 0, 0, values_of(0, 0, 0, 320))
    cluster.receive(0, forged({}))
    assert cluster.statistics(0).bad_message == 0
    length = 64 if kind != Kind.PROBE else 0
    changed = forged({"kind": kind, "slice": 5, "length": length, "payload": length, **change})
    cluster.receive(0, changed[:HEADER_BYTES] if kind == Kind.TRIMMED else changed)
    assert cluster.statistics(0).bad_message == 1


@pytest.mark.parametrize("kind", [Kind.BITMAP, Kind.STOP])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_an_answer_of_another_length_than_its_message_is_counted(kind, length):
    cluster = Cluster(2)
    cluster.filter = lambda source, to, header: False
    cluster.submit(0, 0, 0, values_of(0, 0, 0, 320))
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=1000)
    cluster.receive(0, forged({"kind": kind, "message": 0xFFFFFF00, "slice": 0, "length": length, "payload": length}))
    assert cluster.statistics(0).bad_length == 1


@pytest.mark.parametrize(("to", "source", "flags"), [(2, 0, Flag.PULL), (2, 3, 0), (0, 2, 0)])
def test_servers_push_nothing_and_workers_send_servers_no_results(to, source, flags):
    cluster = Cluster(2, servers=2)
    cluster.submit(0, 0, 0, values_of(0, 0, 0, 320))
    cluster.receive(to, forged({"source": source, "message": (0xFFFFFF00 + source) & 0xFFFFFFFF, "flags": flags}))
    assert cluster.statistics(to).bad_source == 1
    assert not cluster.events[to]


@pytest.mark.parametrize(("counter", "change"), FOREIGN_TRIMMED)
def test_a_trimmed_header_that_does_not_belong_is_counted_as_no_loss(counter, change):
    cluster = Cluster(2, push_loss=0.1)
    cluster.submit(0, 0, 0, values_of(0, 0, 0, 320))
    cluster.receive(0, Header(**{**FIELDS, "kind": Kind.TRIMMED, **change}).pack())
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
