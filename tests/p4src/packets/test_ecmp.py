# SPDX-License-Identifier: Apache-2.0
"""ECMP groups: flows stay on one member and spread, slices are sprayed exactly evenly, dead members are skipped."""

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache

import pytest
from scapy.layers.inet import TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from tests.p4src.packet_bench import Bench, Reason
from tests.p4src.packet_targets import InProcess
from tests.support.entries import FAR_GROUP, fabric, job, next_hops, source
from tests.support.gradlane_packets import FAR, H1, H2, U5, U6, U7, U8, UPLINKS, gradient, ip, ip6


@cache
def flows(version: int, count: int) -> list[bytes]:
    """Frames of different flows between the same hosts. scapy takes long: made once for all targets."""
    random_ = random.Random(7)
    make = ip if version == 4 else ip6
    ports = [(random_.randrange(1024, 65536), random_.randrange(1024, 47000)) for _ in range(count)]
    return [
        bytes(make(H1, FAR) / (TCP if n % 2 else UDP)(sport=source, dport=destination))
        for n, (source, destination) in enumerate(ports)
    ]


def ports_of(bench: Bench, frames: list[bytes]) -> Counter[int]:
    return Counter(sent.port for sent in bench.process(H1, *frames))


@pytest.mark.parametrize("version", [4, 6])
def test_flows_spread_over_all_members_and_evenly(bench: Bench, version: int) -> None:
    bench.install(fabric())
    counts = ports_of(bench, flows(version, 400))
    assert set(counts) == {uplink.port for uplink in UPLINKS}
    # 100 expected; the standard deviation of a fair choice is 8.7.
    assert all(65 <= count <= 135 for count in counts.values()), counts


@pytest.mark.parametrize("version", [4, 6])
def test_all_packets_of_a_flow_take_one_way(bench: Bench, version: int) -> None:
    bench.install(fabric())
    make, key = (ip, "tos") if version == 4 else (ip6, "tc")
    for sport in range(40000, 40010):
        frames = [
            bytes(make(H1, FAR, **{key: n}) / TCP(sport=sport, dport=5001, seq=n) / Raw(bytes(n))) for n in range(20)
        ]
        assert len(ports_of(bench, frames)) == 1


def test_each_part_of_what_names_a_flow_counts(bench: Bench) -> None:
    addresses = [f"{prefix}{n}" for prefix in ("10.0.1.", "fd00:0:0:1::") for n in range(3, 35)]
    bench.install(fabric(), [source(H1.port, H1.mac, address) for address in addresses])
    varied = {
        "source port": [ip(H1, FAR) / UDP(sport=n, dport=9) for n in range(1000, 1032)],
        "destination port": [ip(H1, FAR) / TCP(sport=9, dport=n) for n in range(1000, 1032)],
        "source": [ip(H1, FAR, src=f"10.0.1.{n}") / UDP(dport=9) for n in range(3, 35)],
        "destination": [ip(H1, f"10.0.9.{n}") / UDP(dport=9) for n in range(3, 35)],
        "protocol": [ip(H1, FAR, proto=n) / Raw(bytes(8)) for n in range(100, 132)],
        "ipv6 source": [ip6(H1, FAR, src=f"fd00:0:0:1::{n}") / UDP(dport=9) for n in range(3, 35)],
        "ipv6 destination": [ip6(H1, f"fd00:0:0:9::{n}") / UDP(dport=9) for n in range(3, 35)],
        "ipv6 protocol": [ip6(H1, FAR, nh=n) / Raw(bytes(8)) for n in range(100, 132)],
        "flow label": [ip6(H1, FAR, fl=n) / UDP(dport=9) for n in range(32)],
    }
    for what, packets in varied.items():
        assert len(ports_of(bench, [bytes(packet) for packet in packets])) > 1, what


def test_fragments_of_a_flow_stay_together_although_only_the_first_has_ports(bench: Bench) -> None:
    bench.install(fabric())
    for number in range(8):
        first = bytes(ip(H1, FAR, flags="MF", id=number) / TCP(sport=4000 + number, dport=9) / Raw(bytes(12)))
        rest = [bytes(ip(H1, FAR, frag=4, id=number, proto=6) / Raw(bytes(range(n, n + 24)))) for n in range(8)]
        assert len(ports_of(bench, [first, *rest])) == 1


TIERS = (0, 2, 4)  # the bits by which the switches before each have chosen among four


def at_each_tier(bench: Bench, frames: list[bytes], bits: Sequence[int] = TIERS) -> list[Counter[int]]:
    """By which members frames leave the first switch; those by the first member the second; and of these the third."""
    found: list[Counter[int]] = []
    for number, chosen in enumerate(bits, 1):
        bench.install(fabric(switch_id=number, chosen_bits=chosen), job())
        sent = bench.process(H1 if number == 1 else U8, *frames)
        found.append(Counter(it.port for it in sent))
        frames = []
        for it in sent:
            if it.port == U5.port:
                packet = Ether(it.frame)
                packet.src, packet.dst = U8.mac, U8.gateway
                frames.append(bytes(packet))
    return found


def unevenness(counts: Counter[int], members: int = 4) -> float:
    """Chi-square of an even choice among the members; above 16.3 by chance once in a thousand (three degrees)."""
    expected = counts.total() / members
    return sum((counts[uplink.port] - expected) ** 2 / expected for uplink in UPLINKS[:members])


@pytest.mark.parametrize("version", [4, 6])
def test_flows_that_one_switch_has_sent_the_same_way_are_spread_evenly_by_the_next(bench: Bench, version: int) -> None:
    """Over three tiers. With any number in common, a seed for each switch or none, all of them leave by one port."""
    counts = at_each_tier(bench, flows(version, 1600))
    assert [unevenness(count) < 16.3 for count in counts] == [True] * 3, counts
    assert len(at_each_tier(bench, flows(version, 400), (0, 0))[1]) == 1, "the same bits again"


@pytest.mark.parametrize("version", [4, 6])
def test_slices_are_spread_exactly_evenly_by_each_tier(bench: Bench, version: int) -> None:
    frames = [gradient(H1, FAR, version=version, message=9, slice=n, slices=256) for n in range(256)]
    for number, counts in enumerate(at_each_tier(bench, frames), 1):
        assert set(counts.values()) == {256 // 4**number}, number


def test_what_hosts_send_in_step_does_not_meet(bench: Bench) -> None:
    """Slices of the same number of messages of the same number, from many hosts or to many."""
    bench.install(fabric(), job())
    frames = [gradient(H1, f"10.0.9.{n}", message=8, slice=3) for n in range(2, 202)]
    counts = ports_of(bench, frames)
    assert unevenness(counts) < 16.3, counts


@pytest.mark.parametrize("version", [4, 6])
def test_the_slices_of_a_message_are_sprayed_in_turn_so_that_no_member_has_more_than_one_more(
    bench: Bench, version: int
) -> None:
    bench.install(fabric(), job())
    for message in (0, 1, 2, 70_000, 2**32 - 1):
        frames = [gradient(H1, FAR, version=version, message=message, slice=n, slices=101) for n in range(101)]
        one_by_one = [bench.forward(H1, frame).port for frame in frames[:12]]
        assert len(set(one_by_one[:4])) == 4, "each member once"
        assert all(one_by_one[n] == one_by_one[n + 4] for n in range(8)), "in turn"
        counts = ports_of(bench, frames)
        assert sorted(counts.values()) == [25, 25, 25, 26]


def test_the_senders_way_counts_instead_of_the_turn(bench: Bench) -> None:
    """Whatever slice it is."""
    bench.install(fabric(), job())
    frames = [gradient(H1, FAR, message=m, slice=n, way=way) for way in range(1, 17) for m, n in ((7, 0), (8, 3))]
    ports = [bench.forward(H1, frame).port for frame in frames]
    by_way = [set(ports[n : n + 2]) for n in range(0, 32, 2)]
    assert all(len(found) == 1 for found in by_way)
    assert all(len(set.union(*by_way[n : n + 4])) == 4 for n in range(13)), "four ways in a row are four members"
    assert by_way[:12] == by_way[4:], "the same again"
    other = [bench.forward(H1, gradient(H1, FAR, message=7, slice=0, kind=kind, way=2)).port for kind in (0, 1, 5)]
    assert set(other) == by_way[1], "of whatever kind"


def test_a_way_is_nothing_to_a_job_that_is_not_sprayed(bench: Bench) -> None:
    bench.install(fabric(), job(spray=False))
    assert len(ports_of(bench, [gradient(H1, FAR, way=way) for way in range(17)])) == 1


def test_the_senders_ways_are_spread_by_each_tier(bench: Bench) -> None:
    """Of 16 ways each of four members has four, at the second tier those of one member go by all four."""
    first, second, _ = at_each_tier(bench, [gradient(H1, FAR, way=way) for way in range(1, 17)])
    assert set(first.values()) == {4}
    assert set(second.values()) <= {1, 2}
    assert second.total() == 4


def test_messages_begin_at_members_in_turn_so_that_short_ones_are_even_too(bench: Bench) -> None:
    bench.install(fabric(), job())
    first = ports_of(bench, [gradient(H1, FAR, message=message) for message in range(20)])
    assert set(first.values()) == {5}


def test_a_job_that_is_not_sprayed_keeps_to_one_way_like_any_flow(bench: Bench) -> None:
    bench.install(fabric(), job(spray=False))
    frames = [gradient(H1, FAR, message=message, slice=n) for message in (1, 2) for n in range(20)]
    assert len(ports_of(bench, frames)) == 1


def test_members_get_slices_in_proportion_to_their_weights(bench: Bench) -> None:
    bench.install(fabric(), job())
    bench.change(next_hops(FAR_GROUP, U5, U6, U7, weights=(1, 2, 1)))
    counts = ports_of(bench, [gradient(H1, FAR, message=4, slice=n) for n in range(80)])
    assert counts == {5: 20, 6: 40, 7: 20}


@pytest.mark.parametrize("sprayed", [True, False], ids=["slices", "flows"])
def test_a_dead_member_is_skipped_and_the_others_share_evenly_until_it_is_back(bench: Bench, sprayed: bool) -> None:
    bench.install(fabric(), job())
    frames = [gradient(H1, FAR, slice=n, slices=120) for n in range(120)] if sprayed else flows(4, 300)
    bench.set_port(6, False, frames)
    counts = ports_of(bench, frames)
    assert set(counts) == {5, 7, 8}
    if sprayed:
        assert set(counts.values()) == {40}
    else:
        # 100 expected; the standard deviation of a fair choice is 8.2.
        assert all(67 <= count <= 133 for count in counts.values()), counts
    bench.set_port(5, False, frames)
    counts = ports_of(bench, frames)
    assert set(counts) == {7, 8}
    if sprayed:
        assert set(counts.values()) == {60}
    bench.set_port(5, True, frames)
    bench.set_port(6, True, frames)
    counts = ports_of(bench, frames)
    assert set(counts) == {5, 6, 7, 8}
    if sprayed:
        assert set(counts.values()) == {30}


def test_a_flow_stays_where_it_is_when_nothing_fails(bench: Bench) -> None:
    bench.install(fabric())
    frames = flows(4, 30)
    before = [bench.forward(H1, frame).port for frame in frames]
    bench.process(H1, *flows(6, 30))
    assert [bench.forward(H1, frame).port for frame in frames] == before


def test_a_group_of_no_living_member_drops_and_is_counted(in_process: InProcess, schema) -> None:
    """On gradlane-switch alone: BMv2 1.15.5 ends (a division by the number of living members)."""
    bench = Bench(in_process, schema)
    bench.install(fabric(), job())
    for uplink in UPLINKS:
        in_process.set_port(uplink.port, False)
    assert bench.drops(H1, gradient(H1, FAR))
    assert bench.drops(H1, flows(4, 1)[0])
    assert bench.reasons() == {Reason.DROPPED_NO_ROUTE: 2}
    in_process.set_port(8, True)
    assert [bench.forward(H1, gradient(H1, FAR, slice=n)).port for n in range(4)] == [U8.port] * 4


def test_a_group_of_one_is_a_host(bench: Bench) -> None:
    bench.install(fabric(), job())
    counts = ports_of(bench, [gradient(H1, H2, slice=n) for n in range(10)])
    assert counts == {2: 10}
