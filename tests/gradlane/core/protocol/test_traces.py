# SPDX-License-Identifier: Apache-2.0
"""Traces: when they are sent, what becomes of their records, and that no datagram of the kind does anything else."""

import functools
import re

import numpy as np
import pytest
from gradlane._core import ffi, lib

from gradlane.wire import HOP_BYTES, HOP_FIELDS, MAX_HOPS, Header, Kind
from tests.gradlane.core.protocol.network import JOB, TOKEN, Cluster, Impairment, record
from tests.support.paths import P4_SOURCE

FIELDS = {"kind": Kind.TRACE, "job": JOB, "source": 1, "message": 0xFFFFFF01, "token": TOKEN}
RETURNED = 8


def test_p4_has_the_same_record() -> None:
    text = re.sub(r"//.*", "", (P4_SOURCE / "shared" / "headers.p4").read_text())
    body = re.search(r"header hop_h \{(.*?)\}", text, re.DOTALL)
    assert body
    assert tuple((name, int(bits)) for bits, name in re.findall(r"bit<(\d+)>\s+(\w+);", body[1])) == HOP_FIELDS
    assert f"HOP_BYTES = {HOP_BYTES};" in (P4_SOURCE / "shared" / "types.p4").read_text()


def train(cluster: Cluster, steps: int, elements: int = 640) -> None:
    for step in range(steps):
        for rank in range(cluster.workers):
            cluster.submit(rank, step, 0, np.ones(elements, np.float32))
        cluster.run(until=functools.partial(cluster.all_completed, step + 1))
    cluster.run()  # until what is on its way has arrived


def sent(cluster: Cluster, source: int) -> list[Header]:
    return [header for header, _ in cluster.tags if header.source == source]


def test_every_nth_message_of_a_path_is_traced_right_after_its_middle_slice() -> None:
    cluster = Cluster(1, servers=1, trace_every=3)
    train(cluster, steps=7)
    headers = sent(cluster, 0)
    traces = [k for k, header in enumerate(headers) if header.kind == Kind.TRACE and not header.flags & RETURNED]
    messages = list(dict.fromkeys(header.message for header in headers if header.kind == Kind.DATA))
    assert [headers[k].message for k in traces] == [messages[0], messages[3], messages[6]]
    for k in traces:
        before, trace = headers[k - 1], headers[k]
        assert (before.kind, before.message, before.slice) == (Kind.DATA, trace.message, trace.slices // 2)
        assert trace.slice == before.slice
        assert (trace.layer, trace.step, trace.length) == (before.layer, before.step, 0)
    assert cluster.statistics(0).traces_sent == cluster.statistics(0).traces_returned == 3


@pytest.mark.parametrize("elements", [1, 16, 17, 33])
def test_small_messages_are_traced_too(elements: int) -> None:
    cluster = Cluster(2, trace_every=1)
    train(cluster, steps=3, elements=elements)
    counts = [cluster.statistics(rank) for rank in range(2)]
    assert [c.traces_sent for c in counts] == [c.messages_sent for c in counts]


def test_none_is_sent_if_the_job_says_so() -> None:
    cluster = Cluster(2, trace_every=0)
    train(cluster, steps=3)
    assert not [header for header, _ in cluster.tags if header.kind == Kind.TRACE]


def test_the_sender_knows_the_ways_that_its_traces_took_and_what_the_latest_met() -> None:
    cluster = Cluster(2, trace_every=1, multicast=True)
    ways = iter([[1, 2], [1, 3], [1, 2], [1, 2]])
    met = []

    def way(source: int, to: int) -> list[dict[str, int]]:
        if source:
            return []
        switches = next(ways)
        depth = len(met) + 7
        met.append(depth)
        return [
            {"switch_id": s, "ingress_port": s + 1, "egress_port": 300 + s, "queue_class": 5, "color": 2}
            | {"depth": depth, "depth_unit": 80, "wait": 1000 * s}
            for s in switches
        ]

    cluster.way = way
    train(cluster, steps=2)  # a push and a pull each
    assert cluster.paths(0, 1) == [(3, [1, 2]), (1, [1, 3])]
    assert cluster.paths(1, 0) == [(4, [])]
    assert cluster.paths(0, 0) == cluster.paths(0, 99) == []
    found = ffi.new("gl_path[]", lib.GL_PATHS)
    lib.gl_paths(cluster.engines[0], 1, found)
    first, second = found[0].hop[0], found[0].hop[1]
    assert (first.switch_id, first.ingress_port, first.egress_port, first.wait) == (1, 2, 301, 1000)
    assert (second.switch_id, second.queue_class, second.color, second.wait) == (2, 5, 2, 2000)
    assert (second.depth, second.depth_unit) == (10, 80)


def test_the_paths_seen_longest_ago_are_forgotten() -> None:
    cluster = Cluster(1, servers=1, trace_every=1)
    numbers = iter([1, 2, 3, 4, 5, 6, 7, 8, 1, 9, 10, 1])
    cluster.way = lambda source, to: [{"switch_id": 0 if source else next(numbers)}]
    train(cluster, steps=12)
    assert cluster.paths(0, 1) == [(3, [1]), (1, [10]), (1, [9]), (1, [8]), (1, [7]), (1, [6]), (1, [5]), (1, [4])]


def test_a_lost_trace_harms_nothing() -> None:
    cluster = Cluster(3, trace_every=1, impairment=Impairment(loss=0.3, kinds=frozenset([Kind.TRACE])), seed=3)
    train(cluster, steps=10)
    counts = [cluster.statistics(rank) for rank in range(3)]
    assert 0 < sum(c.traces_returned for c in counts) < sum(c.traces_sent for c in counts)


@pytest.mark.parametrize("flags", [0, RETURNED])
@pytest.mark.parametrize(
    "records",
    [
        bytes(HOP_BYTES - 1),
        bytes(HOP_BYTES + 4),
        bytes(HOP_BYTES * (MAX_HOPS + 1)),
        record(switch_id=1, queue_class=8),
        record(switch_id=1) + record(switch_id=2, color=4),
    ],
)
def test_records_that_no_switch_writes_are_counted_and_go_nowhere(flags: int, records: bytes) -> None:
    cluster = Cluster(2)
    cluster.receive(0, Header(**FIELDS, flags=flags, length=len(records)).pack() + records)
    cluster.run()
    assert cluster.statistics(0).bad_trace == 1
    assert cluster.statistics(0).datagrams_sent == cluster.statistics(0).traces_returned == 0
    assert cluster.paths(0, 1) == []


def test_as_many_records_as_are_allowed_come_back_as_they_came() -> None:
    cluster = Cluster(2)
    records = b"".join(record(switch_id=s, queue_class=7, color=3, depth=2**32 - 1) for s in range(MAX_HOPS))
    back: list[Header] = []
    cluster.filter = lambda source, to, header: back.append(header) is None
    cluster.receive(0, Header(**FIELDS, length=len(records)).pack() + records)
    cluster.run()
    assert [(h.kind, h.source, h.flags, h.length) for h in back] == [(Kind.TRACE, 0, RETURNED, len(records))]
    assert cluster.paths(1, 0) == [(1, list(reversed(range(MAX_HOPS))))]


@pytest.mark.parametrize(
    ("counter", "change"),
    [
        ("bad_token", {"token": TOKEN ^ 1}),
        ("bad_job", {"job": JOB + 1}),
        ("bad_header", {"version": 2}),
        ("bad_header", {"flags": 32}),
        ("bad_source", {"source": 2}),
        ("bad_range", {"slice": 1}),
        ("bad_length", {"length": 0}),
        ("bad_budget", {"slices": 10, "budget": 1}),
    ],
)
@pytest.mark.parametrize("flags", [0, RETURNED])
def test_a_trace_that_does_not_belong_is_counted_and_not_answered(counter: str, change: dict, flags: int) -> None:
    cluster = Cluster(2)
    fields = {**FIELDS, "flags": flags, "length": HOP_BYTES, **change}
    cluster.receive(0, Header(**fields).pack() + record(switch_id=1))
    assert getattr(cluster.statistics(0), counter) == 1
    cluster.run()
    assert cluster.statistics(0).datagrams_sent == 0
    assert cluster.paths(0, 1) == []
