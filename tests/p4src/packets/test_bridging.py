# SPDX-License-Identifier: Apache-2.0
"""What is not addressed to the switch is bridged by its MAC address, as it is."""

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from gradlane.wire import Kind
from tests.p4src.packet_bench import Bench, Count, Reason
from tests.support.entries import GREEN, YELLOW, bridged, congestion, dscp_class, fabric, job
from tests.support.gradlane_packets import H1, H2, H3, Host, gradient, ip, ip6, tags


def across(packet: Ether, to: Host = H2) -> bytes:
    """The packet, addressed to another host's MAC address."""
    packet.dst = to.mac
    return bytes(packet)


FRAMES = {
    "ipv4": across(ip(H1, H2, ttl=1) / ICMP()),
    "ipv6": across(ip6(H1, H2, hlim=1) / ICMPv6EchoRequest()),
    "to an address of the switch": across(ip(H1, H2.gateway_address) / ICMP()),
    "no route": across(ip(H1, "192.0.2.1") / UDP(dport=9)),
    "experimental": bytes(Ether(src=H1.mac, dst=H2.mac, type=0x88B5) / Raw(bytes(46))),
    "length field": bytes(Ether(src=H1.mac, dst=H2.mac, type=100) / Raw(bytes(100))),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_frame_for_a_known_address_leaves_there_bit_by_bit_as_it_came(bench: Bench, frame: bytes) -> None:
    bench.install(fabric(), job(), congestion())
    assert bench.forward(H1, frame, H2).frame == frame, "neither TTL nor addresses change, and no route is needed"
    assert bench.decision_cells(0) == {(0, Reason.FORWARDED, 0, 0): Count(1, len(frame))}


@pytest.mark.parametrize("mac", ["02:00:00:00:77:02", "ff:ff:ff:ff:ff:ff", "01:00:5e:01:01:01", "33:33:00:00:00:01"])
def test_a_frame_for_an_unknown_address_is_dropped_and_counted(bench: Bench, mac: str) -> None:
    bench.install(fabric())
    packet = ip(H1, H2) / UDP(dport=9)
    packet.dst = mac
    assert bench.drops(H1, bytes(packet))
    assert bench.decisions() == {(Reason.DROPPED_NO_BRIDGE, 0, 0): 1}


def test_an_address_can_be_bridged_to_any_port(bench: Bench) -> None:
    bench.install(fabric(), [bridged("02:00:00:00:99:99", 7)])
    packet = ip(H1, H2) / UDP(dport=9)
    packet.dst = "02:00:00:00:99:99"
    assert bench.forward(H1, bytes(packet)).port == 7


def test_a_gradient_that_is_bridged_is_guarded_tagged_and_subject_to_congestion(bench: Bench) -> None:
    bench.install(fabric(), job(), congestion())

    def frame(**header: int) -> bytes:
        packet = Ether(gradient(H1, H2, layer=1, **header))
        packet.dst = H2.mac
        return bytes(packet)

    bench.congest(H1, frame(kind=Kind.REPAIR), GREEN + YELLOW)
    assert bench.drops(H1, frame(magnitude=0, budget=9))
    sent = bench.forward(H1, frame(magnitude=255), H2)
    assert tags(sent.frame) == (6, 0, 3)
    assert sent.packet[IP].ttl == 64
    assert bench.drops(H1, frame(job=9))
    assert bench.reasons() == {
        Reason.FORWARDED: GREEN + YELLOW + 1,
        Reason.DROPPED_RED: 1,
        Reason.DROPPED_GUARD: 1,
    }


def test_what_is_bridged_has_the_class_of_its_dscp(bench: Bench) -> None:
    bench.install(fabric(), [dscp_class(46, 5)])
    bench.forward(H1, across(ip(H1, H3, tos=46 << 2) / UDP(dport=9), H3), H3)
    assert bench.decisions() == {(Reason.FORWARDED, 5, 0): 1}
