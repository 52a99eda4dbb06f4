# SPDX-License-Identifier: Apache-2.0
"""What a host may send at all: from its own addresses, and nothing in which a gradient could pass the guard."""

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6ND_NS,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Packet, Raw

from gradlane.wire import UDP_PORT, Kind
from tests.p4src.packet_bench import Bench, Reason
from tests.support.entries import fabric, job, source, without
from tests.support.gradlane_packets import FAR, H1, H2, H4, U5, gradient, ip, ip6

DATAGRAM = UDP(dport=UDP_PORT) / Raw(bytes(60))


def l2(packet: Packet, mac: str = H2.mac) -> bytes:
    """The packet, bridged."""
    packet.dst = mac
    return bytes(packet)


def inside(header: Packet) -> bytes:
    return bytes(ip6(H1, H2) / header)


FOREIGN = {
    "another host's address": bytes(ip(H1, H2, H4) / UDP(dport=9)),
    "an address that is nobody's": bytes(ip(H4, H2, src="192.0.2.7") / TCP(dport=9)),
    "no address": bytes(ip(H4, H2, src="0.0.0.0") / UDP(dport=9)),
    "the gateway's address": bytes(ip(H4, H2, src=H4.gateway_address) / ICMP()),
    "a later fragment": bytes(ip(H4, H2, src=H1.address, frag=9) / Raw(bytes(40))),
    "another host's IPv6 address": bytes(ip6(H1, H2, H4) / UDP(dport=9)),
    "an IPv6 address on the link": bytes(ip6(H4, H2, src="fe80::1") / UDP(dport=9)),
    "no IPv6 address": bytes(ip6(H4, H2, src="2001:db8::1") / UDP(dport=9)),
    "another host's MAC address": bytes(Ether(src=H1.mac, dst=H4.gateway) / ip(H4, H2).payload / UDP(dport=9)),
    "another host's MAC address, not IP": bytes(Ether(src=H1.mac, dst=H2.mac, type=0x88B5) / Raw(bytes(46))),
    "another host's MAC address, ARP": bytes(Ether(src=H1.mac, dst=H4.gateway) / ARP(psrc=H4.address)),
    "another host's MAC address, neighbour discovery": bytes(
        Ether(src=H1.mac, dst=H4.gateway) / ip6(H4, "ff02::1").payload / ICMPv6ND_NS()
    ),
    "a bridged one": l2(ip(H1, H2, H4) / UDP(dport=9)),
    "for an address of the switch": bytes(ip(H1, H4.gateway_address, H4) / ICMP()),
    "at the end of its time": bytes(ip(H1, H2, H4, ttl=1) / ICMP()),
    "an echo that another switch would send back": bytes(
        ip(H4, FAR.gateway_address, src=FAR.gateway_address) / ICMP()
    ),
}  # fmt: skip


@pytest.mark.parametrize("frame", FOREIGN.values(), ids=FOREIGN)
def test_what_is_not_from_an_address_of_its_port_is_dropped_and_counted(bench: Bench, frame: bytes) -> None:
    bench.install(fabric(), job())
    assert bench.drops(H4, frame)
    assert bench.decisions() == {(Reason.DROPPED_SOURCE, 0, 0): 1}


@pytest.mark.parametrize("version", [4, 6])
def test_a_member_sends_its_gradients_from_its_own_mac_address_alone(bench: Bench, version: int) -> None:
    bench.install(fabric(), job())
    frame = Ether(gradient(H1, H2, version=version, layer=1))
    bench.forward(H1, bytes(frame), H2)
    frame.src = H4.mac
    assert bench.drops(H1, bytes(frame))
    assert bench.reasons() == {Reason.FORWARDED: 1, Reason.DROPPED_SOURCE: 1}
    assert bench.decisions(0) == {(Reason.DROPPED_SOURCE, 0, 0): 1}, "of no job"


def test_a_port_may_have_several_addresses_each_with_its_mac_address(bench: Bench) -> None:
    other = "02:00:00:00:04:77"
    bench.install(fabric(), [source(4, H4.mac, "10.0.4.3"), source(4, other, "fd00:0:0:4::3")])
    bench.forward(H4, bytes(ip(H4, H2, src="10.0.4.3") / UDP(dport=9)), H2)
    packet = ip6(H4, H2, src="fd00:0:0:4::3") / UDP(dport=9)
    assert bench.drops(H4, bytes(packet))
    packet.src = other
    bench.forward(H4, bytes(packet), H2)
    packet[IPv6].src = H4.address6
    assert bench.drops(H4, bytes(packet))


def test_a_port_at_which_nothing_was_placed_sends_nothing(bench: Bench) -> None:
    bench.install(without(fabric(), "sources"), job())
    for frame in (bytes(ip(H1, H2) / UDP(dport=9)), gradient(), bytes(Ether(src=H1.mac, dst=H2.mac) / ARP())):
        assert bench.drops(H1, frame)
        assert bench.drops(17, frame)
    assert bench.reasons() == {Reason.DROPPED_SOURCE: 4 + 1, Reason.DROPPED_GUARD: 1}


def test_what_comes_from_the_fabric_was_checked_where_it_came_in(bench: Bench) -> None:
    bench.install(without(fabric(), "sources"))
    bench.forward(U5, bytes(ip(FAR, H2, U5) / UDP(dport=9)), H2)
    bench.forward(U5, bytes(ip6(FAR, H2, U5) / TCP(dport=9)), H2)


@pytest.mark.parametrize("asker", [H4.address6, "fe80::4", "::"])
def test_a_host_asks_for_neighbours_from_any_address(bench: Bench, asker: str) -> None:
    bench.install(fabric())
    question = ip6(H4, "ff02::1:ff00:1", src=asker, hlim=255) / ICMPv6ND_NS(tgt=H4.gateway_address6)
    assert bench.punt(H4, bytes(question)).reason == Reason.PUNTED_ND


HIDDEN = {
    "a first fragment of UDP": bytes(ip(H1, H2, flags="MF") / DATAGRAM),
    "a later fragment of UDP": bytes(ip(H1, H2, frag=100, proto=17) / Raw(bytes(60))),
    "a last fragment far behind": bytes(ip(H1, H2, frag=8191, proto=17) / Raw(bytes(8))),
    "a bridged fragment": l2(ip(H1, H2, flags="MF") / DATAGRAM),
    "a priority tag": l2(Ether(src=H1.mac) / Dot1Q(prio=7, vlan=0) / IP(src=H1.address, dst=H2.address) / DATAGRAM),
    "a VLAN": l2(Ether(src=H1.mac) / Dot1Q(vlan=5) / IP(src=H1.address, dst=H2.address) / DATAGRAM),
    "a service tag": l2(Ether(src=H1.mac) / Dot1AD(vlan=0) / IP(src=H1.address, dst=H2.address) / DATAGRAM),
    "an old service tag": l2(Ether(src=H1.mac, type=0x9100) / Raw(bytes(60))),
    "a tag for the switch": l2(Ether(src=H1.mac) / Dot1Q(prio=7, vlan=0) / IP() / DATAGRAM, H1.gateway),
    "a tagged question": l2(Ether(src=H1.mac) / Dot1Q(prio=7, vlan=0) / ARP(), "ff:ff:ff:ff:ff:ff"),
    "options for every hop": inside(IPv6ExtHdrHopByHop() / DATAGRAM),
    "options for the destination": inside(IPv6ExtHdrDestOpt() / DATAGRAM),
    "a routing header": inside(IPv6ExtHdrRouting() / DATAGRAM),
    "an IPv6 fragment": inside(IPv6ExtHdrFragment(m=1) / DATAGRAM),
    "an IPv6 fragment that is whole": inside(IPv6ExtHdrFragment() / DATAGRAM),
    "neighbour discovery behind options": inside(IPv6ExtHdrHopByHop() / ICMPv6ND_NS()),
}  # fmt: skip


@pytest.mark.parametrize("frame", HIDDEN.values(), ids=HIDDEN)
def test_what_could_hide_a_gradient_is_dropped_and_counted_at_every_port(bench: Bench, frame: bytes) -> None:
    bench.install(fabric(), job())
    assert bench.drops(H1, frame)
    assert bench.drops(U5, frame)
    assert bench.decisions() == {(Reason.DROPPED_HIDDEN, 0, 0): 2}


@pytest.mark.parametrize(
    "frame",
    [
        bytes(ip(H1, H2, flags="MF") / ICMP() / Raw(bytes(40))),
        bytes(ip(H1, H2, frag=100, proto=6) / Raw(bytes(40))),
        bytes(ip6(H1, H2, nh=59) / Raw(bytes(40))),
        bytes(ip6(H1, H2, nh=50) / Raw(bytes(40))),
        bytes(ip6(H1, H2) / ICMPv6EchoRequest()),
    ],
    ids=["fragment of ICMP", "fragment of TCP", "no next header", "ESP", "ICMPv6"],
)
def test_what_can_hide_none_is_forwarded(bench: Bench, frame: bytes) -> None:
    bench.install(fabric())
    bench.forward(H1, frame, H2)


@pytest.mark.parametrize("member", [H1, H4])
def test_a_host_sends_no_trimmed_slices_that_the_next_switch_would_believe(bench: Bench, member) -> None:
    bench.install(fabric(), job())
    forged = {"kind": Kind.TRIMMED, "frame_bytes": 78, "length": 500, "ip_fields": {"tos": 0xE4}}
    assert bench.drops(member, gradient(member, FAR, through=member, **forged))
    assert bench.decisions() == {(Reason.DROPPED_GUARD, 0, 0): 1}
