# SPDX-License-Identifier: Apache-2.0
"""What is addressed to the switch is routed: IPv4 and IPv6 by longest prefix, TTL and hop limit, checksum."""

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from tests.p4src.packet_bench import Bench, Count, Reason
from tests.support.entries import congestion, fabric, job, route
from tests.support.gradlane_packets import FAR, H1, H2, H4, U5, UPLINKS, gradient, ip, ip6, rebuilt


@pytest.mark.parametrize(
    "layer",
    [
        TCP(sport=40000, dport=5001) / Raw(b"data" * 50),
        UDP(sport=53, dport=40000) / Raw(b"odd"),
        ICMP() / Raw(b"ping"),
        Raw(b"protocol 253"),
    ],
    ids=["tcp", "udp", "icmp", "other"],
)
def test_an_ipv4_packet_gets_new_macs_a_lower_ttl_and_a_right_checksum_and_nothing_else(bench: Bench, layer) -> None:
    bench.install(fabric(), job(), congestion())
    proto = {} if not isinstance(layer, Raw) else {"proto": 253}
    frame = bytes(ip(H1, H2, ttl=17, tos=0x2A, id=777, flags="DF", **proto) / layer)
    out = bench.forward(H1, frame, H2).frame
    want = Ether(frame)
    want.src, want.dst = H2.gateway, H2.mac
    want[IP].ttl = 16
    del want[IP].chksum
    assert out == bytes(want)
    assert bench.decisions() == {(Reason.FORWARDED, 0, 0): 1}


@pytest.mark.parametrize(
    "layer",
    [
        TCP(sport=40000, dport=5001) / Raw(b"data" * 50),
        UDP(sport=53, dport=40000) / Raw(b"odd"),
        ICMPv6EchoRequest(data=b"ping"),
        Raw(b"protocol 253"),
    ],
    ids=["tcp", "udp", "icmp", "other"],
)
def test_an_ipv6_packet_gets_new_macs_a_lower_hop_limit_and_nothing_else(bench: Bench, layer) -> None:
    bench.install(fabric(), job(), congestion())
    header = {} if not isinstance(layer, Raw) else {"nh": 253}
    frame = bytes(ip6(H1, H2, hlim=17, tc=0x2A, fl=0xABCDE, **header) / layer)
    out = bench.forward(H1, frame, H2).frame
    want = Ether(frame)
    want.src, want.dst = H2.gateway, H2.mac
    want[IPv6].hlim = 16
    assert out == bytes(want)
    assert bench.decisions() == {(Reason.FORWARDED, 0, 0): 1}


def test_the_longest_ipv4_prefix_decides(bench: Bench) -> None:
    bench.install(fabric(), [route("10.0.2.128/25", group=4), route("10.0.0.0/8", group=3)])
    for address, port in (("10.0.2.127", 2), ("10.0.2.128", 4), ("10.0.2.255", 4), ("10.0.2.0", 2), ("10.9.9.9", 3)):
        assert bench.forward(H1, bytes(ip(H1, address) / ICMP())).port == port, address


def test_the_longest_ipv6_prefix_decides(bench: Bench) -> None:
    bench.install(fabric(), [route("fd00:0:0:2:8000::/65", group=4), route("fd00::/16", group=3)])
    for address, port in (
        ("fd00:0:0:2:7fff::1", 2),
        ("fd00:0:0:2:8000::", 4),
        ("fd00:0:0:2::", 2),
        ("fd00:9::1", 3),
    ):
        assert bench.forward(H1, bytes(ip6(H1, address) / UDP(dport=9))).port == port, address


def test_a_packet_from_the_fabric_is_routed_to_a_host_and_one_of_a_host_into_the_fabric(bench: Bench) -> None:
    bench.install(fabric(), job())
    inwards = bench.forward(U5, bytes(ip(FAR, H2, U5) / UDP(dport=9)), H2)
    assert (inwards.packet.src, inwards.packet.dst) == (H2.gateway, H2.mac)
    outwards = bench.forward(H1, bytes(ip6(H1, FAR) / UDP(dport=9)))
    (uplink,) = (each for each in UPLINKS if each.port == outwards.port)
    assert (outwards.packet.src, outwards.packet.dst) == (uplink.gateway, uplink.mac)


@pytest.mark.parametrize(
    ("frame", "queue_class"),
    [
        (bytes(ip(H1, "192.0.2.1") / ICMP()), 0),
        (bytes(ip6(H1, "2001:db8::1") / UDP(dport=9)), 0),
        (bytes(ip(H1, "192.0.2.1", ttl=1) / ICMP()), 0),
        (bytes(ip6(H1, "2001:db8::1", hlim=0) / UDP(dport=9)), 0),
        (gradient(H1, "10.0.77.2", layer=1), 6),
        (gradient(H1, "fd00:0:0:77::2", version=6, layer=1), 6),
    ],
    ids=["ipv4", "ipv6", "ipv4, and no TTL", "ipv6, and no hop limit", "gradient", "ipv6 gradient"],
)
def test_a_destination_without_a_route_is_dropped_and_counted(bench: Bench, frame: bytes, queue_class: int) -> None:
    bench.install(fabric(), job())
    assert bench.drops(H1, frame)
    assert bench.decisions() == {(Reason.DROPPED_NO_ROUTE, queue_class, 0): 1}


def test_a_route_to_a_group_that_does_not_exist_drops_and_is_counted(bench: Bench) -> None:
    bench.install(fabric(), [route("192.0.2.0/24", group=77)])
    assert bench.drops(H1, bytes(ip(H1, "192.0.2.1") / ICMP()))
    assert bench.decisions() == {(Reason.DROPPED_NO_ROUTE, 0, 0): 1}


def test_the_last_hop_that_a_ttl_allows_is_made(bench: Bench) -> None:
    bench.install(fabric())
    sent = bench.forward(H1, bytes(ip(H1, H2, ttl=2) / ICMP()), H2)
    assert sent.packet[IP].ttl == 1
    assert rebuilt(sent.frame) == sent.frame
    assert bench.forward(H1, bytes(ip6(H1, H2, hlim=2) / UDP(dport=9)), H2).packet[IPv6].hlim == 1


def test_a_packet_may_leave_where_it_came_from(bench: Bench) -> None:
    bench.install(fabric())
    bench.forward(H4, bytes(ip(H4, H4) / UDP(dport=9)), H4)


@pytest.mark.parametrize(
    "frame",
    [
        bytes(Ether(src=H1.mac, dst=H1.gateway, type=0x88B5) / Raw(bytes(46))),
        bytes(Ether(src=H1.mac, dst=H1.gateway, type=0x88B5)),
    ],
    ids=["experimental", "nothing behind Ethernet"],
)
def test_a_frame_for_the_switch_that_is_no_ip_is_dropped_and_counted(bench: Bench, frame: bytes) -> None:
    bench.install(fabric())
    assert bench.drops(H1, frame)
    assert bench.decision_cells(0) == {(0, Reason.DROPPED_NOT_IP, 0, 0): Count(1, len(frame))}
