# SPDX-License-Identifier: Apache-2.0
"""Ways: every slice says by which it goes, and those on which slices are marked or lost are left for others."""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np
import pytest

from gradlane.wire import HEADER_BYTES, PASSED_BITS, REPORT_BYTES, REPORT_FIELDS, WAYS, Flag, Header, Kind
from tests.gradlane.core.protocol.fabric_model import Model
from tests.gradlane.core.protocol.network import Cluster, Impairment
from tests.gradlane.core.protocol.queued_port import Port

ALL = range(1, WAYS + 1)
BUSY = frozenset(range(1, WAYS + 1, 2))
# At one a REPORT comes after every 8 slices, at the other after some hundreds, more of a way than its number can say.
RATES = (20_000_000, 3_000_000_000)
NEAR = Impairment(delay=10)


class Marking(Cluster):
    """A cluster whose network marks the slices of some ways."""

    busy: Callable[[int], bool]

    def receive(self, rank: int, datagram: bytes, congested: bool = False) -> None:
        super().receive(rank, datagram, self.busy(Header.unpack(datagram).way))


class Counting(Cluster):
    """A cluster whose network marks slices by chance, those of some ways more often. `arrived`: by receiver, the way
    of each slice, and whether it was marked; `reported`: by the receiver that tells, the payloads of its REPORTs."""

    def __init__(self, rate: int) -> None:
        super().__init__(2, rate=rate, impairment=NEAR)
        self.arrived: defaultdict[int, list[tuple[int, bool]]] = defaultdict(list)
        self.reported: defaultdict[int, list[bytes]] = defaultdict(list)

    def receive(self, rank: int, datagram: bytes, congested: bool = False) -> None:
        header = Header.unpack(datagram)
        marked = self.random.random() < (0.5 if header.way in BUSY else 0.05)
        if header.kind in (Kind.DATA, Kind.REPAIR):
            self.arrived[rank].append((header.way, marked))
        elif header.kind == Kind.REPORT:
            self.reported[header.source].append(datagram[HEADER_BYTES:])
        super().receive(rank, datagram, marked)


def fields_of(report: bytes) -> dict[str, int]:
    """A REPORT's payload, by name."""
    assert len(report) == REPORT_BYTES
    rest, found = int.from_bytes(report, "big"), {}
    for name, bits in reversed(REPORT_FIELDS):
        found[name], rest = rest & (1 << bits) - 1, rest >> bits
    return found


def train(cluster: Cluster, steps: int, first: int = 0, elements: int = 16_000) -> None:
    """2 workers: messages of 500 slices."""
    for step in range(first, first + steps):
        for rank in range(cluster.workers):
            cluster.submit(rank, step, 0, np.ones(elements, np.float32))
        cluster.run(until=functools.partial(cluster.all_completed, step + 1))


def slices(cluster: Cluster, since: int = 0) -> Counter[int]:
    """Of those sent from some datagram on, how many by each way."""
    sent = [header for header, _ in cluster.tags[since:] if header.kind in (Kind.DATA, Kind.REPAIR)]
    return Counter(header.way for header in sent)


def test_without_congestion_all_ways_have_about_as_much() -> None:
    cluster = Cluster(2)
    train(cluster, 4)
    for rank in range(2):
        ways = Counter(header.way for header, _ in cluster.tags if header.source == rank and header.kind == Kind.DATA)
        assert set(ways) == set(ALL)
        assert max(ways.values()) < 1.2 * min(ways.values()), ways


@pytest.mark.parametrize("rate", RATES)
def test_a_report_says_how_many_slices_came_unmarked_by_each_way(rate: int) -> None:
    cluster = Counting(rate)
    train(cluster, 2)
    most: list[int] = []
    for rank in range(2):
        before = 0
        for report in map(fields_of, cluster.reported[rank]):
            received, arrived = report["received"], cluster.arrived[rank]
            assert report["marked"] == sum(marked for _, marked in arrived[:received])
            passed = Counter(way for way, marked in arrived[before:received] if not marked)
            most.append(max(passed.values(), default=0))
            largest = max(most[-1], 7)
            numbers = [report["passed"] >> (way - 1) * PASSED_BITS & 7 for way in ALL]
            assert numbers == [-(-passed[way] * 7 // largest) for way in ALL]
            before = received
        assert before > 900
    assert max(most) <= 7 if rate == RATES[0] else max(most) > 14, "of a way, in a REPORT"


def test_what_is_marked_moves_to_other_ways_and_back_when_these_are_marked() -> None:
    cluster = Marking(2)
    cluster.busy = lambda way: way in BUSY
    train(cluster, 2)
    since = len(cluster.tags)
    train(cluster, 2, first=2)
    ways = slices(cluster, since)
    assert sum(ways[way] for way in BUSY) < 0.1 * ways.total(), ways
    cluster.busy = lambda way: bool(way) and way not in BUSY
    train(cluster, 2, first=4)
    since = len(cluster.tags)
    train(cluster, 2, first=6)
    ways = slices(cluster, since)
    assert sum(ways[way] for way in BUSY) > 0.9 * ways.total(), ways


def test_where_many_slices_pass_between_reports_what_is_marked_moves_as_well() -> None:
    cluster = Marking(2, rate=RATES[1], impairment=NEAR)
    cluster.busy = lambda way: way in BUSY
    train(cluster, 1, elements=64_000)
    since = len(cluster.tags)
    train(cluster, 2, first=1, elements=64_000)
    ways = slices(cluster, since)
    assert sum(ways[way] for way in BUSY) < 0.1 * ways.total(), ways


def test_ways_that_lose_everything_are_left_at_once() -> None:
    cluster = Cluster(2)
    train(cluster, 2)
    cluster.filter = lambda source, to, header: header.way not in BUSY
    since = len(cluster.tags)
    train(cluster, 2, first=2)
    ways = slices(cluster, since)
    assert 0 < sum(ways[way] for way in BUSY) < 0.15 * ways.total(), ways


def test_where_all_are_marked_all_are_used() -> None:
    cluster = Marking(2)
    cluster.busy = lambda way: way > 0
    train(cluster, 2, elements=4000)
    ways = slices(cluster)
    assert max(ways.values()) - min(ways.values()) <= 8, ways


def test_only_slices_and_their_traces_have_a_way() -> None:
    cluster = Cluster(2, trace_every=1)
    train(cluster, 2)
    headers = [header for header, _ in cluster.tags if header.source == 0]
    traces = [k for k, it in enumerate(headers) if it.kind == Kind.TRACE and not it.flags & Flag.RETURNED]
    assert traces
    assert all(headers[k].way == headers[k - 1].way for k in traces), "where the slice before goes"
    controls = {Kind.PROBE, Kind.BITMAP, Kind.STOP, Kind.REPORT}
    assert {header.way for header in headers if header.kind in controls} == {0}


def test_multicast_has_no_way() -> None:
    cluster = Cluster(3, multicast=True)
    train(cluster, 1, elements=1000)
    data = [header for header, _ in cluster.tags if header.kind == Kind.DATA]
    assert {header.way for header in data if header.flags & Flag.MULTICAST} == {0}
    assert {header.way for header in data if not header.flags & Flag.MULTICAST} <= set(ALL)


@pytest.mark.parametrize("passed", [bytes(6), b"\xff" * 6, bytes(range(6)), b"\x7f" + b"\xff" * 7])
def test_a_receiver_that_lies_about_ways_costs_nothing_but_evenness(passed: bytes) -> None:
    cluster = Cluster(2)
    honest = cluster.receive

    def lie(rank: int, datagram: bytes, congested: bool = False) -> None:
        is_report = Header.unpack(datagram).kind == Kind.REPORT
        honest(rank, datagram[: -len(passed)] + passed if is_report else datagram, congested)

    cluster.receive = lie
    train(cluster, 2, elements=4000)
    assert set(slices(cluster)) <= set(ALL)
    assert cluster.statistics(0).bad_length == 0


def by_way(way: int, count: int) -> int:
    return way


def in_turn(way: int, count: int) -> int:
    return count


def test_steps_over_two_paths_of_which_one_is_busy() -> None:
    """Two hosts on each side; the links between carry 1 and 0.4 of a host's rate. Evenly, it would be the slower one
    that decides: 2 x 0.4."""
    times: list[int] = []
    for choose in (by_way, in_turn):
        model = Model(4, mark=16_000)
        rate = model.rate / 8e6
        for left, right in (([0, 1], [2, 3]), ([2, 3], [0, 1])):
            model.split([[Port(rate, 64_000, 16_000)], [Port(0.4 * rate, 25_600, 6_400)]], left, right, choose)
        job = model.job([0, 1, 2, 3], elements=262_144)
        times.append(sum(model.once(job) for _ in range(4)))
    assert times[0] < 0.75 * times[1], times
