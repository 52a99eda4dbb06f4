# SPDX-License-Identifier: Apache-2.0
"""Ordinary forwarding: routes, TTL, checksum, and what can't be forwarded."""

import pytest
from finsy import Action, Match, P4TableEntry
from finsy.proto import p4r
from gradlane_packets import H1, H2, H4, gradient, ip
from packet_bench import Bench, Count, job_file
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

from gradlane_controller.counters import Reason


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
    bench.install(job_file())
    proto = {} if not isinstance(layer, Raw) else {"proto": 253}
    frame = bytes(ip(H1, H2, ttl=17, tos=0x2A, id=777, flags="DF", **proto) / layer)
    out = bench.forward(H1, frame, H2).frame
    want = Ether(frame)
    want.src, want.dst = H2.gateway, H2.mac
    want[IP].ttl = 16
    del want[IP].chksum
    assert out == bytes(want)
    assert bench.decisions() == {(Reason.FORWARDED, 0, 0): 1}


def test_a_gradient_packet_keeps_its_udp_header_checksum_and_payload(bench: Bench) -> None:
    bench.install(job_file())
    for size in (78, 79, 80, 600, 1510):
        frame = gradient(frame_bytes=size, layer=7, magnitude=10, budget=3, slice=99, message=5)
        out = bench.forward(H1, frame, H2).frame
        assert out[34:] == frame[34:], "from the UDP header on, no bit may change"
        assert out[26:34] == frame[26:34]
        rebuilt = Ether(out)
        del rebuilt[IP].chksum
        assert bytes(rebuilt) == out, "the IPv4 checksum must be right"
        assert (rebuilt.src, rebuilt.dst, rebuilt[IP].ttl) == (H2.gateway, H2.mac, 63)


def test_the_longest_prefix_decides(bench: Bench) -> None:
    bench.install()
    more_specific = P4TableEntry(
        "routes",
        match=Match(destination="10.0.2.128/25"),
        action=Action("forward", port=4, next_hop=H4.mac, own=H4.gateway),
    )
    bench.write(p4r.Update.INSERT, more_specific)
    for address, port in (("10.0.2.127", 2), ("10.0.2.128", 4), ("10.0.2.255", 4), ("10.0.2.0", 2)):
        (sent,) = bench.process(H1, bytes(ip(H1, address) / ICMP()))
        assert sent.port == port, address


def test_a_destination_without_a_route_is_dropped_and_counted(bench: Bench) -> None:
    bench.install(job_file())
    assert bench.process(H1, bytes(ip(H1, "192.0.2.1") / ICMP())) == []
    assert bench.process(H1, gradient(H1, "10.0.9.2", layer=1)) == []
    assert bench.decisions() == {(Reason.DROPPED_NO_ROUTE, 0, 0): 1, (Reason.DROPPED_NO_ROUTE, 6, 0): 1}


@pytest.mark.parametrize("ttl", [0, 1])
def test_a_packet_at_the_end_of_its_ttl_is_dropped_and_counted(bench: Bench, ttl: int) -> None:
    bench.install(job_file())
    assert bench.process(H1, bytes(ip(H1, H2, ttl=ttl) / ICMP())) == []
    assert bench.process(H1, bytes(ip(H1, "192.0.2.1", ttl=ttl) / ICMP())) == [], "the TTL is looked at first"
    assert bench.decisions() == {(Reason.DROPPED_TTL, 0, 0): 2}


def test_the_last_hop_that_a_ttl_allows_is_made(bench: Bench) -> None:
    bench.install(job_file())
    assert bench.forward(H1, bytes(ip(H1, H2, ttl=2) / ICMP()), H2).packet[IP].ttl == 1


@pytest.mark.parametrize(
    "frame",
    [
        bytes(Ether(src=H1.mac) / ARP(psrc=H1.address, pdst=H1.address)),
        bytes(Ether(src=H1.mac, dst=H1.gateway) / IPv6() / UDP()),
        bytes(Ether(src=H1.mac, dst=H1.gateway) / Dot1Q(vlan=5) / IP(dst=H2.address)),
        bytes(Ether(src=H1.mac, dst=H1.gateway, type=0x88B5) / Raw(bytes(46))),
    ],
    ids=["arp", "ipv6", "vlan", "experimental"],
)
def test_a_frame_that_is_not_ipv4_is_dropped_and_counted(bench: Bench, frame: bytes) -> None:
    bench.install(job_file())
    assert bench.process(H1, frame) == []
    assert bench.cells("decisions") == {Reason.DROPPED_NOT_IPV4 << 6: Count(1, len(frame))}


@pytest.mark.parametrize("length", [0, 5, 13, 14, 33])
def test_a_frame_too_short_for_its_headers_is_dropped_as_not_ipv4(bench: Bench, length: int) -> None:
    bench.install(job_file())
    if length == 0:
        length = 1  # no target takes an empty frame
    assert bench.process(H1, bytes(ip(H1, H2) / UDP())[:length]) == []
    assert bench.decisions() == {(Reason.DROPPED_NOT_IPV4, 0, 0): 1}


def test_a_packet_with_ipv4_options_is_dropped_and_counted(bench: Bench) -> None:
    bench.install(job_file())
    assert bench.process(H1, bytes(ip(H1, H2, options=[IPOption_Router_Alert()]) / ICMP())) == []
    hidden = gradient(ip_fields={"options": [IPOption_Router_Alert()]}, layer=1)
    assert bench.process(H1, hidden) == [], "options must not carry a gradient packet past the guard"
    assert bench.decisions() == {(Reason.DROPPED_OPTIONS, 0, 0): 2}
