# SPDX-License-Identifier: Apache-2.0
"""DSCP for switches without P4 behind a port."""

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from tests.p4src.packet_bench import Bench
from tests.support.entries import congestion, fabric, job, multicast, multicast_mac, rewrite
from tests.support.gradlane_packets import FAR, H1, H2, H3, U5, gradient, ip, ip6, rebuilt, tags

AF = 0b110_011  # class 6, precedence 3


@pytest.mark.parametrize("version", [4, 6])
def test_the_tags_of_a_gradient_become_the_dscp_that_is_known_there_and_ecn_stays(bench: Bench, version: int) -> None:
    bench.install(fabric(), job(), congestion(), [rewrite(2, AF, 10), rewrite(2, 0b110_000, 18)])
    for header, dscp, ecn in (({"magnitude": 0}, 10, 0), ({"magnitude": 255}, 18, 2)):
        sent = bench.forward(H1, gradient(version=version, layer=1, budget=9, **header), H2)
        packet = sent.packet
        assert (packet[IP].tos if version == 4 else packet[IPv6].tc) == dscp << 2 | ecn
        assert rebuilt(sent.frame) == sent.frame, "the checksum must be right"
        assert sent.queue in (None, 6), "the class here is another matter"


def test_it_is_rewritten_at_the_port_and_from_the_dscp_that_is_named_and_nowhere_else(bench: Bench) -> None:
    bench.install(fabric(), job(), congestion(), [rewrite(2, AF, 10)])
    assert tags(bench.forward(H1, gradient(H1, H3, layer=1, budget=9), H3).frame) == (6, 3, 0)
    assert tags(bench.forward(H1, gradient(H1, H2, layer=50, budget=9), H2).frame) == (5, 3, 0)


@pytest.mark.parametrize("version", [4, 6])
def test_ordinary_traffic_is_rewritten_too(bench: Bench, version: int) -> None:
    bench.install(fabric(), [rewrite(2, 46, 8), rewrite(2, 0, 63)])
    make, name, layer = (ip, "tos", IP) if version == 4 else (ip6, "tc", IPv6)
    for before, after in ((46 << 2 | 1, 8 << 2 | 1), (2, 63 << 2 | 2), (45 << 2, 45 << 2)):
        frame = bytes(make(H1, H2, **{name: before}) / UDP(dport=9))
        assert bench.forward(H1, frame, H2).packet[layer].getfieldval(name) == after


def test_what_is_bridged_is_rewritten_and_what_is_no_ip_stays_as_it_is(bench: Bench) -> None:
    bench.install(fabric(), [rewrite(2, 0, 63)])
    packet = ip(H1, H2) / ICMP()
    packet.dst = H2.mac
    sent = bench.forward(H1, bytes(packet), H2)
    assert sent.packet[IP].tos == 63 << 2
    assert rebuilt(sent.frame) == sent.frame
    other = bytes(Ether(dst=H2.mac, src=H1.mac, type=0x88B5) / Raw(bytes(50)))
    assert bench.forward(H1, other, H2).frame == other


def test_each_copy_of_a_multicast_packet_is_rewritten_for_its_port(bench: Bench) -> None:
    bench.install(fabric(), multicast("239.1.0.1", 1, 2, 3), [rewrite(2, 46, 8)])
    packet = ip(FAR, "239.1.0.1", U5, tos=46 << 2) / UDP(dport=9)
    packet.dst = multicast_mac("239.1.0.1")
    found = {sent.port: sent.packet[IP].tos >> 2 for sent in bench.process(U5, bytes(packet))}
    assert found == {2: 8, 3: 46}


def test_what_the_controller_sends_is_not_rewritten(bench: Bench) -> None:
    bench.install(fabric(), [rewrite(2, 0, 63)])
    frame = bytes(ip(H1, H2) / ICMP())
    assert bench.target.packet_out(2, frame).frame == frame
