# SPDX-License-Identifier: Apache-2.0
"""Telemetry: each decision is counted once, by job, reason and tags; drops by what the host had stated."""

import pytest
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from gradlane.wire import Flag, Kind
from tests.p4src.packet_bench import Bench, Count, Reason
from tests.support.entries import (
    GREEN,
    YELLOW,
    aggregator,
    congestion,
    drop_precedence,
    fabric,
    job,
    multicast,
    multicast_mac,
    port_policy,
    queue_class,
    without,
)
from tests.support.gradlane_packets import H1, H2, H3, U5, gradient, ip, ip6


def test_a_decision_is_counted_at_job_reason_class_and_precedence_with_its_bytes(bench: Bench) -> None:
    bench.install(fabric(), job(index=11), congestion())
    bench.congest(H1, gradient(layer=4), GREEN)
    assert bench.drops(H1, gradient(layer=1, magnitude=0, budget=9, frame_bytes=600))
    found = bench.cells("decisions", range(32768))
    assert found == {
        0b1011_00000_101_000: Count(GREEN, 1000 * GREEN),
        0b1011_01100_110_011: Count(1, 600),
    }


def test_each_packet_of_a_mix_is_counted_exactly_once(bench: Bench) -> None:
    bench.install(fabric(), job(), congestion())
    frames = [
        gradient(layer=1),
        gradient(job=9),
        gradient(layer=1, magnitude=0, budget=3),
        bytes(ip(H1, H3) / UDP(dport=9)),
        bytes(ip6(H1, H3, hlim=0) / UDP(dport=9)),
        bytes(ip(H1, "192.0.2.1") / UDP(dport=9)),
        gradient(version=6, layer=1)[:70],
    ] * 4
    bench.process(H1, *frames)
    assert sum(bench.decisions().values()) == len(frames)
    assert sum(count.bytes for count in bench.decision_cells(0, 1).values()) == sum(map(len, frames))


def test_the_drop_map_tells_layer_and_magnitude_of_what_the_policy_took(bench: Bench) -> None:
    policy = [queue_class(1, (0, 65000), 6), drop_precedence(1, (0, 65535), (0, 255), 3)]
    bench.install(fabric(), without(job(), "queue_classes", "drop_precedences"), policy, congestion())
    bench.congest(H1, gradient(kind=Kind.REPAIR), GREEN + YELLOW)
    for layer, magnitude in ((0, 0), (5, 0x7F), (510, 15), (510, 16), (511, 255), (512, 255), (65000, 255)):
        assert bench.drops(H1, gradient(layer=layer, magnitude=magnitude, budget=100, frame_bytes=500))
    cells = {(0, 0): 1, (5, 7): 1, (510, 0): 1, (510, 1): 1, (511, 15): 3}
    assert bench.drop_map() == {cell: Count(count, 500 * count) for cell, count in cells.items()}


def test_the_drop_map_counts_yellow_and_red_drops_and_trims_alike(bench: Bench) -> None:
    bench.install(fabric(), job(), job(2, (H1, H2), base=4096, trim=True), congestion())
    for fill in (GREEN, YELLOW):
        bench.congest(H1, gradient(layer=4), fill)
        for number in (1, 2):
            bench.process(H1, gradient(job=number, layer=2, magnitude=33, budget=9))
    assert bench.drop_map() == {(2, 2): Count(4, 4000)}
    taken = {reason: count for reason, count in bench.reasons().items() if reason != Reason.FORWARDED}
    assert taken == {
        Reason.DROPPED_YELLOW: 1,
        Reason.TRIMMED_YELLOW: 1,
        Reason.DROPPED_RED: 1,
        Reason.TRIMMED_RED: 1,
    }


def test_the_drop_map_counts_nothing_else(bench: Bench) -> None:
    bench.install(fabric(), job(), congestion())
    for frame in (gradient(job=9), gradient(layer=1), gradient(H1, "192.0.2.1"), bytes(ip(H1, H2) / Raw(b"x"))):
        bench.process(H1, frame)
    bench.congest(H1, gradient(layer=1), GREEN + YELLOW)
    bench.forward(H1, gradient(layer=1, magnitude=0, budget=0), H2)
    bench.forward(U5, gradient(H1, H2, through=U5, kind=Kind.REPAIR, ip_fields={"tos": 0xDC}), H2)
    assert bench.drop_map() == {}


@pytest.fixture
def counting(bench: Bench) -> Bench:
    if bench.target.name.startswith("tna"):
        pytest.skip("the program for Tofino does not count what fills a port")
    return bench


def test_what_fills_the_virtual_queue_of_a_port_and_follows_no_tree_is_counted_there(counting: Bench) -> None:
    policies = [it for it in congestion() if it != port_policy(2)]
    counting.install(fabric(), job(), policies, [port_policy(2, metered=0)], multicast("239.1.0.1", 9, 2, 3))
    counting.add(aggregator(1, 9))
    ordinary = [bytes(ip(H1, to) / UDP(dport=9) / Raw(bytes(500 - 42))) for to in (H2, H3)]
    counting.process(H1, *ordinary * 3, gradient(layer=1, frame_bytes=600), gradient(H1, H3, layer=1, frame_bytes=700))
    # Best effort does not delay gradients where these are prioritised.
    counted = {2: Count(4, 2100), 3: Count(1, 700)}
    assert counting.cells("routed", range(512)) == counted
    result = Ether(gradient(H1, "239.1.0.1", layer=1, flags=Flag.PULL | Flag.MULTICAST))
    result.dst = multicast_mac("239.1.0.1")
    assert {copy.port for copy in counting.process(H1, bytes(result))} == {2, 3}
    assert counting.cells("routed", range(512)) == counted


def test_what_the_policy_drops_counts_as_it_would_have_filled_the_port(counting: Bench) -> None:
    counting.install(fabric(), job(), congestion())
    counting.congest(H1, gradient(layer=4), GREEN + YELLOW)
    assert counting.drops(H1, gradient(layer=1, magnitude=0, budget=9, frame_bytes=600))
    assert counting.cells("routed", range(512)) == {2: Count(GREEN + YELLOW + 1, 1000 * (GREEN + YELLOW) + 600)}


def test_what_goes_to_the_controller_or_nowhere_fills_no_port(counting: Bench) -> None:
    counting.install(fabric(), job(), congestion())
    counting.process(H1, gradient(job=9), bytes(ip(H1, "192.0.2.1") / UDP(dport=9)), bytes(ip(H1, H3, ttl=0) / UDP()))
    assert counting.cells("routed", range(512)) == {}
