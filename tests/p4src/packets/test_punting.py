# SPDX-License-Identifier: Apache-2.0
"""What goes to the controller, how often, and what the controller sends itself."""

import pytest
from scapy.layers.inet import ICMP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6ND_Redirect,
    ICMPv6ND_RS,
    ICMPv6PacketTooBig,
)
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from tests.p4src.packet_bench import Bench, Reason
from tests.support.entries import congestion, fabric, fabric_port, job, multicast, multicast_mac, punt_rate, route
from tests.support.gradlane_packets import FAR, H1, H2, H3, HOSTS, U5, UPLINKS, gradient, ip, ip6

ARP_REQUEST = bytes(Ether(src=H1.mac, dst="ff:ff:ff:ff:ff:ff") / ARP(psrc=H1.address, pdst=H1.gateway_address))


@pytest.mark.parametrize(
    "frame",
    [
        ARP_REQUEST,
        bytes(Ether(src=H1.mac, dst=H2.mac) / ARP(op=2)),
        bytes(Ether(src=H1.mac, dst=H1.gateway, type=0x0806)),
    ],
    ids=["request", "reply to another host", "without content"],
)
def test_arp_goes_to_the_controller_whoever_it_is_for(bench: Bench, frame: bytes) -> None:
    bench.install(fabric())
    assert bench.punt(H1, frame).reason == Reason.PUNTED_ARP
    assert bench.decisions() == {(Reason.PUNTED_ARP, 0, 0): 1}


LLDP = bytes(Ether(src=U5.mac, dst="01:80:c2:00:00:0e", type=0x88CC) / Raw(b"\0\0"))


def test_lldp_goes_to_the_controller_so_that_it_learns_which_links_work(bench: Bench) -> None:
    bench.install(fabric())
    assert bench.punt(U5, LLDP).reason == Reason.PUNTED_LLDP
    assert bench.decisions() == {(Reason.PUNTED_LLDP, 0, 0): 1}
    assert bench.target.packet_out(5, LLDP).frame == LLDP, "and so it asks"


def test_lldp_of_a_host_is_dropped(bench: Bench) -> None:
    bench.install(fabric())
    for mac in ("01:80:c2:00:00:0e", H1.gateway, H2.mac):
        assert bench.drops(H1, bytes(Ether(src=H1.mac, dst=mac, type=0x88CC) / Raw(b"\0\0")))
    assert bench.decisions() == {(Reason.DROPPED_LLDP, 0, 0): 3}


PROBES = [route("240.0.0.0/16", "probe")]
PROBE = bytes(ip(FAR, "240.0.0.1", U5, src="240.0.0.1") / ICMP())


def test_what_is_for_the_address_of_probes_goes_to_the_controller_if_a_switch_sends_it(bench: Bench) -> None:
    bench.install(fabric(), PROBES)
    assert bench.punt(U5, PROBE).reason == Reason.PUNTED_PROBE
    for port in (H1, U5):
        expired = bytes(ip(H1, "240.0.0.1", port, ttl=0) / ICMP())
        assert [it.reason for it in bench.process(port, expired)] == ([] if port is H1 else [Reason.PUNTED_PROBE])
    assert bench.reasons() == {Reason.PUNTED_PROBE: 2, Reason.DROPPED_NO_ROUTE: 1}


@pytest.mark.parametrize(
    "message",
    [ICMPv6ND_RS(), ICMPv6ND_RA(), ICMPv6ND_NS(tgt=H1.gateway_address6), ICMPv6ND_NA(), ICMPv6ND_Redirect()],
    ids=["router solicitation", "router advertisement", "solicitation", "advertisement", "redirect"],
)
def test_neighbour_discovery_goes_to_the_controller_whoever_it_is_for(bench: Bench, message) -> None:
    bench.install(fabric())
    packet = ip6(H1, "ff02::1:ff00:1", hlim=255) / message
    for mac in (H1.gateway, H2.mac, "33:33:ff:00:00:01"):
        packet.dst = mac
        assert bench.punt(H1, bytes(packet)).reason == Reason.PUNTED_ND
    assert bench.decisions() == {(Reason.PUNTED_ND, 0, 0): 3}


@pytest.mark.parametrize(
    "message", [ICMPv6EchoRequest(), ICMPv6PacketTooBig(), Raw(b"\x8f\0\0\0"), Raw(b"\x84\0\0\0"), Raw(b"\x8a\0\0\0")],
    ids=["echo", "too big", "type 143", "type 132", "type 138"],
)  # fmt: skip
def test_other_icmpv6_messages_are_forwarded(bench: Bench, message) -> None:
    bench.install(fabric())
    bench.forward(H1, bytes(ip6(H1, H2, nh=58) / message), H2)


@pytest.mark.parametrize(
    "frame",
    [
        bytes(ip(H1, H2, ttl=1) / ICMP()),
        bytes(ip(H1, H2, ttl=0) / UDP(dport=9)),
        bytes(ip6(H1, H2, hlim=1) / UDP(dport=9)),
        bytes(ip6(H1, H2, hlim=0) / UDP(dport=9)),
        bytes(ip(H1, FAR, ttl=1) / UDP(dport=9)),
    ],
    ids=["TTL 1", "TTL 0", "hop limit 1", "hop limit 0", "to an ECMP group"],
)
def test_a_packet_at_the_end_of_its_time_goes_to_the_controller_as_it_came(bench: Bench, frame: bytes) -> None:
    bench.install(fabric(), congestion())
    assert bench.punt(H1, frame).reason == Reason.PUNTED_TTL
    assert bench.decisions() == {(Reason.PUNTED_TTL, 0, 0): 1}


def test_a_gradient_at_the_end_of_its_time_goes_there_too_and_keeps_what_its_host_wrote(bench: Bench) -> None:
    bench.install(fabric(), job())
    assert bench.punt(H1, gradient(layer=1, ip_fields={"ttl": 1, "tos": 3})).reason == Reason.PUNTED_TTL
    assert bench.drops(H1, gradient(job=9, ip_fields={"ttl": 1})), "but not past the guard"
    assert bench.reasons() == {Reason.PUNTED_TTL: 1, Reason.DROPPED_GUARD: 1}


@pytest.mark.parametrize(
    "address", ["239.1.0.1", "ff0e::1"]
)  # fmt: skip
def test_a_multicast_packet_at_the_end_of_its_time_goes_to_the_controller_alone(bench: Bench, address: str) -> None:
    bench.install(fabric(), multicast(address, 1, 1, 2, 3))
    packet = ip6(H1, address, hlim=1) if ":" in address else ip(H1, address, ttl=1)
    packet.dst = multicast_mac(address)
    assert bench.punt(H1, bytes(packet / UDP(dport=9))).reason == Reason.PUNTED_TTL


@pytest.mark.parametrize("ttl", [0, 1, 64])
def test_what_is_for_the_switch_itself_goes_to_the_controller_whatever_its_ttl(bench: Bench, ttl: int) -> None:
    bench.install(fabric())
    frames = [bytes(ip(H1, host.gateway_address, ttl=ttl) / ICMP()) for host in (H1, H2)]
    frames += [bytes(ip6(H1, host.gateway_address6, hlim=ttl) / ICMPv6EchoRequest()) for host in (H1, H2)]
    for frame in frames:
        assert bench.punt(H1, frame).reason == Reason.PUNTED_LOCAL
    assert bench.decisions() == {(Reason.PUNTED_LOCAL, 0, 0): 4}


def test_the_controller_learns_the_port_of_a_punted_packet(bench: Bench) -> None:
    bench.install(fabric(), [fabric_port(17), fabric_port(510)])
    for port in (1, 5, 17, 510):
        assert bench.punt(port, ARP_REQUEST).ingress_port == port


RATES = {
    Reason.PUNTED_ARP: (H1, ARP_REQUEST),
    Reason.PUNTED_ND: (H1, bytes(ip6(H1, "ff02::1") / ICMPv6ND_NS())),
    Reason.PUNTED_TTL: (H1, bytes(ip(H1, H2, ttl=1) / ICMP())),
    Reason.PUNTED_LLDP: (U5, LLDP),
    Reason.PUNTED_LOCAL: (H1, bytes(ip(H1, H1.gateway_address) / ICMP())),
    Reason.PUNTED_PROBE: (U5, PROBE),
}


@pytest.mark.parametrize("reason", RATES, ids=lambda reason: reason.name)
def test_each_reason_has_a_rate_of_its_own_above_which_packets_are_dropped_and_counted(
    bench: Bench, reason: Reason
) -> None:
    source, frame = RATES[reason]
    bench.install(fabric(), PROBES, [punt_rate(source.port, reason, 3)])
    sent = bench.process(source, *[frame] * 10)
    assert [(each.reason, each.frame) for each in sent] == [(reason, frame)] * 3
    assert bench.reasons() == {reason: 3, Reason.DROPPED_PUNT_RATE: 7}
    for other, (port, another) in RATES.items():
        if other != reason:
            assert bench.punt(port, another).reason == other


@pytest.mark.parametrize("reason", RATES, ids=lambda reason: reason.name)
def test_what_one_port_sends_takes_nothing_from_another(bench: Bench, reason: Reason) -> None:
    flood, frame = RATES[reason]
    bench.install(fabric(), PROBES, [punt_rate(port, reason, 2) for port in range(1, 9)])
    assert len(bench.process(flood, *[frame] * 10)) == 2
    for other in UPLINKS:
        if other is not flood:
            assert len(bench.process(other, *[frame] * 3)) == 2


def test_a_reason_without_a_rate_lets_everything_through(bench: Bench) -> None:
    bench.install(fabric())
    assert len(bench.process(H1, *[ARP_REQUEST] * 300)) == 300


def test_a_rate_is_in_packets_whatever_their_size(bench: Bench) -> None:
    bench.install(fabric(), [punt_rate(1, Reason.PUNTED_LOCAL, 2)])
    large = bytes(ip(H1, H1.gateway_address) / ICMP() / Raw(bytes(1400)))
    assert len(bench.process(H1, large, large, large)) == 2


@pytest.mark.parametrize("port", [*(host.port for host in HOSTS), U5.port])
def test_what_the_controller_sends_leaves_at_the_port_that_it_names_as_it_is(bench: Bench, port: int) -> None:
    bench.install(fabric(), congestion())
    for frame in (ARP_REQUEST, gradient(job=9), bytes(ip(H1, H3, ttl=0) / ICMP()), b"anything"):
        sent = bench.target.packet_out(port, frame)
        assert (sent.port, sent.frame) == (port, frame)
    assert bench.decisions() == {(Reason.FORWARDED, 7, 0): 4}, "in the top class, and through no table"


def test_a_route_to_a_local_address_is_for_exactly_that_one(bench: Bench) -> None:
    bench.install(fabric(), [route("10.0.2.77/32", "local")])
    assert bench.punt(H1, bytes(ip(H1, "10.0.2.77") / ICMP())).reason == Reason.PUNTED_LOCAL
    bench.forward(H1, bytes(ip(H1, "10.0.2.78") / ICMP()), H2)
