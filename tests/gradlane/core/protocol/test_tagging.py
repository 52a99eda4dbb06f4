# SPDX-License-Identifier: Apache-2.0
"""Where hosts write the tags: DSCP and ECN of every datagram, as p4src/shared/tagging.p4 and marking.p4 rule."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.wire import Header, Kind
from tests.gradlane.core.protocol.network import Cluster, Impairment
from tests.support.effort import tries

Row = tuple[int, int, int, int, int]


def expected_tos(header: Header, classes: list[Row], precedences: list[Row]) -> int:
    """Queue class (3 bits), drop precedence (3 bits), ECN: capable if protected."""

    def find(rows: list[Row]) -> int:
        values = [v for a, b, m, n, v in rows if a <= header.layer <= b and m <= header.magnitude <= n]
        return values[0] if values else 0

    own = header.kind in (Kind.DATA, Kind.REPAIR) or (header.kind == Kind.TRACE and not header.flags & 8)
    queue_class = find(classes) if own else 7
    precedence = find(precedences) if header.kind == Kind.DATA and header.budget else 0
    return queue_class << 5 | precedence << 2 | (0 if precedence else 2)


@st.composite
def disjoint(draw: st.DrawFn, highest: int, values: st.SearchStrategy[int]) -> list[Row]:
    cuts = sorted(draw(st.sets(st.integers(0, 12), max_size=4)))
    rows = []
    for first, end in itertools.pairwise(cuts):
        least = draw(st.integers(0, highest))
        rows.append((first, end - 1, least, draw(st.integers(least, highest)), draw(values)))
    return rows


@settings(max_examples=tries(60), deadline=None)
@given(
    classes=disjoint(0, st.integers(0, 6)),
    precedences=disjoint(255, st.integers(1, 7)),
    push_loss=st.sampled_from([0.0, 0.2]),
    pull_loss=st.sampled_from([0.0, 0.2]),
    servers=st.integers(0, 1),
    seed=st.integers(0, 2**32),
)
def test_every_datagram_has_the_tags_that_a_switch_would_give_it(
    classes, precedences, push_loss, pull_loss, servers, seed
):
    rows = [(a, b, 0, 255, v) for a, b, _, _, v in classes]
    cluster = Cluster(
        2, servers, push_loss, pull_loss, impairment=Impairment(loss=0.1), seed=seed, trace_every=2, classes=rows,
        precedences=precedences,
    )  # fmt: skip
    for rank in range(2):
        cluster.submit(rank, 0, 0, np.ones(400, np.float32))
    cluster.run(until=lambda: cluster.all_completed(1))
    assert {header.kind for header, _ in cluster.tags} >= {Kind.DATA, Kind.STOP, Kind.REPORT, Kind.TRACE}
    for header, tos in cluster.tags:
        assert tos == expected_tos(header, rows, precedences), header
    assert all(tos for _, tos in cluster.tags), "0 would leave the tags to the socket"


def test_where_switches_tag_the_sockets_own_value_stays():
    cluster = Cluster(2)
    for rank in range(2):
        cluster.submit(rank, 0, 0, np.ones(400, np.float32))
    cluster.run(until=lambda: cluster.all_completed(1))
    assert {tos for _, tos in cluster.tags} == {0}
