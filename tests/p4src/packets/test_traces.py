# SPDX-License-Identifier: Apache-2.0
"""Traces: every switch on the way puts a record in front of the others; the receiver can send them back."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from gradlane.wire import HOP_BYTES, Flag, Kind
from tests.p4src.packet_bench import Bench, Reason
from tests.support.entries import (
    GREEN,
    YELLOW,
    congestion,
    edge,
    fabric,
    fabric_port,
    job,
    next_hops,
    route,
    sources,
    station,
)
from tests.support.gradlane_packets import (
    FAR,
    H1,
    H2,
    U5,
    U6,
    Hop,
    gradient,
    gradlane_of,
    rebuilt,
    tags,
)

BARE = {4: 78, 6: 98}


def hops(frame: bytes, version: int = 4) -> list[Hop]:
    """The records of a trace, newest first."""
    payload = frame[BARE[version] :]
    assert len(payload) % HOP_BYTES == 0
    return [Hop(payload[n : n + HOP_BYTES]) for n in range(0, len(payload), HOP_BYTES)]


@pytest.mark.parametrize("version", [4, 6])
def test_a_switch_writes_down_itself_both_ports_class_colour_and_queue(bench: Bench, version: int) -> None:
    bench.install(fabric(switch_id=0xABCD), job(), congestion())
    frame = gradient(H1, H2, version=version, kind=Kind.TRACE, layer=50, message=7, slice=3, frame_bytes=BARE[version])
    sent = bench.forward(H1, frame, H2)
    (hop,) = hops(sent.frame, version)
    assert (hop.switch_id, hop.ingress_port, hop.egress_port) == (0xABCD, 1, 2)
    assert (hop.queue_class, hop.color) == (5, 0)
    assert hop.depth_unit == 0, "v1model tells packets"
    assert hop.depth <= 64
    assert hop.wait % 1000 == 0, "v1model tells microseconds"
    assert hop.wait < 5_000_000_000


@pytest.mark.parametrize("version", [4, 6])
def test_every_length_grows_by_the_record_and_the_rest_stays_as_it_was(bench: Bench, version: int) -> None:
    bench.install(fabric(), job())
    frame = gradient(
        H1, H2, version=version, kind=Kind.TRACE, layer=50, message=7, slice=3, frame_bytes=BARE[version] + 48
    )
    sent = bench.forward(H1, frame, H2)
    assert len(sent.frame) == len(frame) + HOP_BYTES
    before, after = Ether(frame), sent.packet
    assert gradlane_of(sent.frame).length == gradlane_of(frame).length + HOP_BYTES
    assert after[UDP].len == before[UDP].len + HOP_BYTES
    assert after[UDP].chksum != 0, "it is continued"
    if version == 4:
        assert after[IP].len == before[IP].len + HOP_BYTES
    else:
        assert after[IPv6].plen == before[IPv6].plen + HOP_BYTES
    assert rebuilt(sent.frame) == sent.frame
    at = BARE[version]
    assert sent.frame[at + HOP_BYTES :] == frame[at:], "the records that it had"
    assert sent.frame[at - 36 : at - 10] == frame[at - 36 : at - 10], "the Gradlane header up to its length"
    assert sent.frame[at - 8 : at] == frame[at - 8 : at], "the token"


def test_a_record_tells_the_colour_and_the_class_that_the_packet_leaves_with(bench: Bench) -> None:
    bench.install(fabric(), job(), congestion())
    trace = gradient(kind=Kind.TRACE, layer=1, frame_bytes=78 + 48 * HOP_BYTES)
    for fill, color in ((0, 0), (GREEN, 1), (YELLOW, 2)):
        bench.congest(H1, gradient(layer=1), fill)
        hop = hops(bench.forward(H1, trace, H2).frame)[0]
        assert (hop.queue_class, hop.color) == (6, color)


def test_a_trace_that_is_returned_is_not_written_on(bench: Bench) -> None:
    bench.install(fabric(), job())
    frame = gradient(kind=Kind.TRACE, flags=Flag.RETURNED, frame_bytes=78 + 32)
    sent = bench.forward(H1, frame, H2)
    assert sent.frame[34:] == frame[34:]
    assert tags(sent.frame)[0] == 7


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.TRACE, Kind.TRIMMED)])
def test_only_traces_are_written_on(bench: Bench, kind: int) -> None:
    bench.install(fabric(), job())
    frame = gradient(kind=kind)
    assert bench.forward(H1, frame, H2).frame[34:] == frame[34:]


def test_what_is_no_gradient_is_not_written_on(bench: Bench) -> None:
    bench.install(fabric(), job())
    for fields in ({"slices": 0}, {"length": 1}):
        frame = gradient(kind=Kind.TRACE, **fields)
        assert bench.forward(H1, frame, H2).frame[34:] == frame[34:]
    assert bench.reasons() == {Reason.MALFORMED: 2}


def test_a_trace_is_guarded_and_never_dropped_by_policy(bench: Bench) -> None:
    bench.install(fabric(), job(), congestion())
    assert bench.drops(H1, gradient(kind=Kind.TRACE, job=9))
    bench.congest(H1, gradient(layer=1), GREEN + YELLOW)
    bench.forward(H1, gradient(kind=Kind.TRACE, layer=1, magnitude=0, budget=9), H2)


@pytest.mark.parametrize("version", [4, 6])
def test_over_several_switches_the_records_tell_the_way_newest_first(bench: Bench, version: int) -> None:
    """A leaf, a spine and a leaf in a row: what leaves one is what enters the next, with its MAC addresses."""
    prefix = "10.0.9.0/24" if version == 4 else "fd00:0:0:9::/64"
    frame = gradient(H1, FAR, version=version, kind=Kind.TRACE, layer=50, frame_bytes=BARE[version])
    # By switch: its number, where the packet comes in, and where it leaves.
    way = ((11, H1, U5), (12, U5, U6), (13, U6, H2))
    for number, (switch_id, entry, leaving) in enumerate(way):
        ports = [
            (edge if number == 0 else fabric_port)(entry.port, switch_id),
            station(entry.gateway),
            next_hops(1, leaving),
            route(prefix, group=1),
        ]
        bench.install(ports, sources(H1), job(), congestion())
        packet = Ether(frame)
        packet.dst = entry.gateway
        frame = bench.forward(entry.port, bytes(packet), leaving).frame
    found = [(hop.switch_id, hop.ingress_port, hop.egress_port, hop.queue_class) for hop in hops(frame, version)]
    assert found == [(13, 6, 2, 5), (12, 5, 6, 5), (11, 1, 5, 5)]
    assert rebuilt(frame) == frame
    assert gradlane_of(frame).length == 3 * HOP_BYTES
    assert tags(frame) == (5, 0, 2)


@pytest.mark.parametrize("version", [4, 6])
def test_a_trace_at_the_end_of_its_time_goes_to_the_controller_as_it_came(bench: Bench, version: int) -> None:
    bench.install(fabric(), job())
    life = {"ttl" if version == 4 else "hlim": 1}
    frame = gradient(H1, H2, version=version, kind=Kind.TRACE, frame_bytes=BARE[version], ip_fields=life)
    sent = bench.punt(H1, frame)
    assert (sent.reason, sent.frame) == (Reason.PUNTED_TTL, frame)
