# SPDX-License-Identifier: Apache-2.0
"""Every frame that leaves is counted once where it does, by port, way and queue class, with the bytes it has then.

What is right is counted here, of the frames that have left. Random ones: model/test_policy_model.py; sums: sums.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace

import pytest
from finsy import P4MeterConfig
from finsy.proto import p4r
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from gradlane.wire import Flag, Kind
from gradlane_controller.session.port_counts import read_port_counts
from tests.p4src.packet_bench import Bench, Count, Way
from tests.p4src.packet_targets import CPU_PORT, InProcess, Sent
from tests.support.entries import (
    GREEN,
    MASK,
    YELLOW,
    aggregator,
    congestion,
    dscp_class,
    fabric,
    job,
    job_share,
    multicast,
    multicast_mac,
)
from tests.support.gradlane_packets import FAR, H1, H2, H3, H4, U5, gradient, ip, ip6, tags

PATH, TREE, TRIMMED_IPV4, TRIMMED_IPV6 = Way
DSCP = {10: 1, 20: 2, 26: 3, 34: 4, 46: 6}  # of ordinary traffic, which is not marked with its class


@pytest.fixture
def counting(bench: Bench) -> Bench:
    if bench.target.name.startswith("tna"):
        pytest.skip("the program for Tofino does not count what leaves")
    return bench


def of(sent: Iterable[Sent], way: Way, queue_class: int | None = None) -> dict[tuple[int, Way, int], Count]:
    """What frames count as that have left so, in this class; None: in that of their DSCP."""
    packets, octets = Counter[tuple[int, Way, int]](), Counter[tuple[int, Way, int]]()
    for it in sent:
        assert it.port != CPU_PORT
        place = it.port, way, tags(it.frame)[0] if queue_class is None else queue_class
        packets[place] += 1
        octets[place] += len(it.frame)
    return {place: Count(packets[place], octets[place]) for place in packets}


def test_every_class_is_counted_at_the_port_that_it_leaves_by(counting: Bench) -> None:
    counting.install(fabric(), job(), [dscp_class(dscp, number) for dscp, number in DSCP.items()])
    expected: dict[tuple[int, Way, int], Count] = {}
    for number, (dscp, queue_class) in enumerate({0: 0, **DSCP}.items()):
        for times, (source, to) in enumerate(((H1, H2), (H4, H3), (H2, H1)), 1):
            frame = bytes(ip(source, to, tos=dscp << 2) / UDP(dport=9) / Raw(bytes(100 + 10 * number)))
            sent = counting.process(source, *[frame] * times)
            assert [it.port for it in sent] == [to.port] * times
            expected |= of(sent, PATH, queue_class)
    gradients = [gradient(H1, H2, layer=layer, message=layer, frame_bytes=600) for layer in (1, 50, 200)]
    gradients += [gradient(H1, H2, layer=1, kind=Kind.STOP, frame_bytes=100), gradient(H1, H2, version=6, layer=1)]
    for place, count in of(counting.process(H1, *gradients), PATH).items():
        before = expected.get(place, Count(0, 0))
        expected[place] = Count(before.packets + count.packets, before.bytes + count.bytes)
    assert {(port, number) for port, _, number in expected} >= {(2, number) for number in range(8)}
    assert counting.departures() == expected


def test_a_multicast_counts_at_every_port_that_a_copy_leaves_by_as_what_follows_a_tree(counting: Bench) -> None:
    counting.install(fabric(), job(), congestion(), multicast("239.1.0.1", 9, 1, 2, 3, 5), [aggregator(1, 9)])
    result = Ether(gradient(H1, "239.1.0.1", layer=1, flags=Flag.PULL | Flag.MULTICAST, frame_bytes=700))
    result.dst = multicast_mac("239.1.0.1")
    sent = counting.process(H1, *[bytes(result)] * 3)
    assert Counter(it.port for it in sent) == {2: 3, 3: 3, 5: 3}, "not at its own"
    # What is no gradient follows the tree, too.
    other = ip(FAR, "239.1.0.1", U5) / UDP(dport=9) / Raw(bytes(58))
    other.dst = multicast_mac("239.1.0.1")
    copies = counting.process(U5, bytes(other))
    assert Counter(it.port for it in copies) == {1: 1, 2: 1, 3: 1}
    assert counting.departures() == of(sent, TREE) | of(copies, TREE, 0)


@pytest.mark.parametrize("fill", [GREEN, GREEN + YELLOW])
@pytest.mark.parametrize("version", [4, 6])
def test_a_trimmed_slice_counts_with_what_is_left_of_it_in_the_top_class(
    counting: Bench, version: int, fill: int
) -> None:
    counting.install(fabric(), job(), job(2, (H1, H2), base=MASK + 1, trim=True), congestion())
    filling = counting.process(H1, *[gradient(layer=1, kind=Kind.REPAIR)] * fill)
    slices = [
        gradient(job=2, version=version, layer=2, magnitude=0, budget=9, message=n, frame_bytes=800) for n in range(4)
    ]
    sent = counting.process(H1, *slices)
    assert [len(it.frame) for it in sent] == [78 if version == 4 else 98] * 4
    way = TRIMMED_IPV4 if version == 4 else TRIMMED_IPV6
    assert counting.departures() == of(filling, PATH) | of(sent, way, 7)


def test_what_is_sent_beyond_a_share_counts_in_the_class_that_it_leaves_in(counting: Bench) -> None:
    share = job_share(1, 2, P4MeterConfig(cir=0, cburst=2000, pir=0, pburst=2000))
    counting.install(fabric(), job(), congestion(), [share])
    sent = counting.process(H1, *[gradient(layer=1, kind=Kind.REPAIR)] * (GREEN + YELLOW + 3))
    expected = of(sent, PATH)
    assert len(expected) == 2, "within and beyond"
    assert counting.departures() == expected


def test_what_is_dropped_or_goes_to_the_controller_leaves_by_no_port(counting: Bench) -> None:
    counting.install(fabric(), job(), congestion())
    filling = counting.process(H1, *[gradient(layer=1, kind=Kind.REPAIR)] * (GREEN + YELLOW))
    for frame in (
        gradient(layer=1, magnitude=0, budget=9),
        gradient(job=9),
        bytes(ip(H1, "192.0.2.1") / UDP(dport=9)),
        bytes(ip6(H1, H3, hlim=0) / UDP(dport=9)),
    ):
        assert [it for it in counting.process(H1, frame) if it.port != CPU_PORT] == []
    assert counting.departures() == of(filling, PATH)


def test_what_the_controller_sends_counts_in_the_top_class(counting: Bench) -> None:
    counting.install(fabric())
    sent = [counting.target.packet_out(port, bytes(60 + port)) for port in (2, 2, 5)]
    header = 2  # bytes that came with it
    found = counting.departures()
    assert {place: count.packets for place, count in found.items()} == {(2, PATH, 7): 2, (5, PATH, 7): 1}
    assert sum(count.bytes for count in found.values()) == sum(len(it.frame) + header for it in sent)


def test_what_a_full_queue_drops_does_not_count(in_process: InProcess, schema) -> None:
    bench = Bench(in_process, schema)
    bench.install(fabric(), job())
    frames = [gradient(layer=1, message=n) for n in range(30)] + [gradient(H1, H3, layer=50, message=n) for n in (1, 2)]
    result = in_process.switch.replay([(0, 1, frame) for frame in frames], {1: "", 2: "rate=8mbit,buffer=8kB", 3: ""})
    left = [Sent(port, None, frame) for _, port, frame in result.sent]
    assert 3 <= sum(it.port == 2 for it in left) < 20, "the buffer must be too small"
    assert bench.departures() == of(left, PATH)


def test_the_controller_reads_of_each_port_and_class_what_has_left(counting: Bench) -> None:
    """With what is left of trimmed slices, and what follows trees apart."""
    trimming = job(2, (H1, H2), base=MASK + 1, trim=True)
    counting.install(fabric(), job(), trimming, congestion(), multicast("239.1.0.1", 9, 2, 3, 5), [aggregator(1, 9)])
    result = Ether(gradient(H1, "239.1.0.1", layer=1, flags=Flag.PULL | Flag.MULTICAST, frame_bytes=700))
    result.dst = multicast_mac("239.1.0.1")
    copies = counting.process(H1, *[bytes(result)] * 2)
    frames = [gradient(layer=1, kind=Kind.REPAIR)] * (GREEN + YELLOW) + [gradient(H1, H3, layer=50, frame_bytes=300)]
    for version in (4, 6):
        frames += [gradient(job=2, version=version, layer=2, magnitude=0, budget=9, message=n) for n in range(3)]
    frames.append(gradient(layer=1, kind=Kind.STOP, frame_bytes=100))
    others = counting.process(H1, *frames)
    assert Counter(len(it.frame) for it in others)[98] == 3, "trimmed"

    class Client:
        """Of a session with the switch."""

        async def request_iter(self, request: p4r.ReadRequest) -> AsyncIterator[p4r.ReadResponse]:
            assert len(request.entities) < 200, "no more than is needed"
            yield p4r.ReadResponse(entities=counting.target.read(*request.entities))

    switch = SimpleNamespace(p4info=counting.schema, device_id=1, _p4client=Client())
    counts = asyncio.run(read_port_counts(switch, [5], [2, 3, 5]))  # pyright: ignore[reportArgumentType]
    own = counting.target.own_bytes  # a multicast of best effort
    left = {port: [*[0] * 8, own, *[0] * 7] for port in (2, 3, 5)}
    for sent, first in ((others, 0), (copies, 8)):
        for it in sent:
            left[it.port][first + tags(it.frame)[0]] += len(it.frame)
    assert counts.sent == left
    assert counts.routed == {5: 0}


def test_no_other_cell_counts(in_process: InProcess, schema) -> None:
    bench = Bench(in_process, schema)
    bench.install(fabric(), job())
    bench.process(H1, *[gradient(layer=1)] * 7)
    bench.process(H1, bytes(ip(H1, H3) / UDP(dport=9)))
    cells = bench.cells("sent", range(1 << 14))
    assert {index: count.packets for index, count in cells.items()} == {2 << 5 | 6: 7, 3 << 5: 1}
