# SPDX-License-Identifier: Apache-2.0
"""What the controller answers to ARP, ND, expired packets and echo requests, read and checked by scapy."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr,
    ICMPv6TimeExceeded,
    IPv6,
)
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw

from gradlane_controller.data_plane import Reason
from gradlane_controller.network import fabric_file
from gradlane_controller.network.answers import Answers
from tests.gradlane_controller.texts import leafspine_text

H1, H2, H3 = ("02:00:00:00:01:02", "02:00:00:00:02:02", "02:00:00:00:03:02")
GATEWAY1 = "02:00:00:00:01:01"


@pytest.fixture
def ask() -> Callable[..., Packet | None]:
    """Asks a switch; h2 is in the subnet of h1, both at leaf1."""
    text = leafspine_text().replace("10.0.2.0/24", "10.0.0.0/22").replace("10.0.1.0/24", "10.0.0.0/22")
    text = text.replace("10.0.3.", "10.1.3.").replace("fd00:2::/64", "fd00::/24").replace("fd00:1::/64", "fd00::/24")
    text = text.replace("fd00:3:", "fe00:3:").replace("fd00:4:", "fe00:4:").replace("fe00", "2001")
    where = fabric_file.parse(text, "f.toml")

    def send(reason: Reason, frame: Packet, port: int = 1, switch: str = "leaf1") -> Packet | None:
        answer = Answers(where, switch).answer(reason, port, bytes(frame))
        if answer is None:
            return None
        assert len(answer) >= 60
        it = Ether(answer)
        check_sums(it)
        return it

    return send


def check_sums(frame: Packet) -> None:
    """Every checksum is the one that scapy finds."""
    again = frame.copy()
    for layer in (IP, ICMP, ICMPv6ND_NA, ICMPv6EchoReply, ICMPv6TimeExceeded):
        if layer in again:
            del again[layer].fields["chksum" if layer in (IP, ICMP) else "cksum"]
            checked = Ether(bytes(again))
            name = "chksum" if layer in (IP, ICMP) else "cksum"
            assert getattr(frame[layer], name) == getattr(checked[layer], name)


def arp(target: str, asker: str = "10.0.1.2", mac: str = H1) -> Packet:
    return Ether(src=mac, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=mac, psrc=asker, pdst=target)


@pytest.mark.parametrize(
    ("target", "mac"),
    [
        ("10.0.1.1", GATEWAY1),
        ("10.0.2.2", H2),  # same switch and subnet: bridged
        ("10.1.3.2", GATEWAY1),  # another switch: routed
        ("10.0.4.2", GATEWAY1),
    ],
)
def test_arp_is_answered_for_the_gateway_and_for_every_host(ask: Callable[..., Packet], target: str, mac: str) -> None:
    answer = ask(Reason.PUNTED_ARP, arp(target))
    assert (answer[Ether].dst, answer[Ether].src) == (H1, mac)
    assert (answer[ARP].op, answer[ARP].hwsrc, answer[ARP].psrc) == (2, mac, target)
    assert (answer[ARP].hwdst, answer[ARP].pdst) == (H1, "10.0.1.2")


def test_a_probe_for_another_hosts_address_is_answered_and_one_for_the_own_is_not(ask: Callable[..., Packet]) -> None:
    assert ask(Reason.PUNTED_ARP, arp("10.0.1.2", asker="0.0.0.0")) is None
    assert ask(Reason.PUNTED_ARP, arp("10.0.1.2")) is None  # an announcement
    assert ask(Reason.PUNTED_ARP, arp("10.0.2.2", asker="0.0.0.0"))[ARP].pdst == "0.0.0.0"


def test_what_is_no_question_of_a_host_is_not_answered(ask: Callable[..., Packet | None]) -> None:
    assert ask(Reason.PUNTED_ARP, arp("10.0.9.9")) is None
    assert ask(Reason.PUNTED_ARP, arp("10.0.1.1"), port=5) is None  # a link
    reply = arp("10.0.1.1")
    reply[ARP].op = 2
    assert ask(Reason.PUNTED_ARP, reply) is None
    assert ask(Reason.PUNTED_ARP, Raw(bytes(arp("10.0.1.1"))[:41])) is None


def solicit(target: str, asker: str = "fd00:1::2") -> Packet:
    return (
        Ether(src=H1, dst="33:33:ff:00:00:01")
        / IPv6(src=asker, dst="ff02::1:ff00:1", hlim=255)
        / ICMPv6ND_NS(tgt=target)
        / ICMPv6NDOptSrcLLAddr(lladdr=H1)
    )


@pytest.mark.parametrize(
    ("target", "mac", "router"), [("fd00:1::1", GATEWAY1, 1), ("fd00:2::2", H2, 0), ("2001:3::2", GATEWAY1, 0)]
)
def test_neighbour_solicitations_are_answered_alike(
    ask: Callable[..., Packet], target: str, mac: str, router: int
) -> None:
    answer = ask(Reason.PUNTED_ND, solicit(target))
    assert (answer[Ether].dst, answer[Ether].src) == (H1, mac)
    assert (answer[IPv6].src, answer[IPv6].dst, answer[IPv6].hlim) == (target, "fd00:1::2", 255)
    said = answer[ICMPv6ND_NA]
    assert (said.tgt, said.R, said.S, said.O) == (target, router, 1, router)
    assert answer[ICMPv6NDOptDstLLAddr].lladdr == mac


def test_duplicate_address_detection(ask: Callable[..., Packet]) -> None:
    assert ask(Reason.PUNTED_ND, solicit("fd00:1::2", asker="::")) is None
    taken = ask(Reason.PUNTED_ND, solicit("fd00:2::2", asker="::"))
    assert (taken[Ether].dst, taken[IPv6].dst, taken[ICMPv6ND_NA].S) == ("33:33:00:00:00:01", "ff02::1", 0)


def test_bad_solicitations_are_not_answered(ask: Callable[..., Packet | None]) -> None:
    routed = solicit("fd00:1::1")
    routed[IPv6].hlim = 254
    assert ask(Reason.PUNTED_ND, routed) is None
    forged = solicit("fd00:1::1")
    forged[ICMPv6ND_NS].cksum = 1
    assert ask(Reason.PUNTED_ND, forged) is None
    assert ask(Reason.PUNTED_ND, solicit("fd00:9::9")) is None
    advertisement = Ether(src=H1) / IPv6(src="fd00:1::2", dst="ff02::1", hlim=255) / ICMPv6ND_NA(tgt="fd00:1::1")
    assert ask(Reason.PUNTED_ND, advertisement) is None


def test_echo_requests_to_the_gateway_are_answered_without_what_padded_the_frame(ask: Callable[..., Packet]) -> None:
    request = Ether(src=H1, dst=GATEWAY1) / IP(src="10.0.1.2", dst="10.0.1.1", ttl=7) / ICMP(id=5, seq=9) / b"hello"
    answer = ask(Reason.PUNTED_LOCAL, Raw(bytes(request).ljust(70, b"x")))
    assert (answer[Ether].dst, answer[Ether].src) == (H1, GATEWAY1)
    assert (answer[IP].src, answer[IP].dst, answer[IP].ttl) == ("10.0.1.1", "10.0.1.2", 64)
    assert (answer[ICMP].type, answer[ICMP].id, answer[ICMP].seq) == (0, 5, 9)
    assert bytes(answer[ICMP].payload)[:5] == b"hello"
    assert answer[IP].len == 20 + 8 + 5
    six = Ether(src=H1, dst=GATEWAY1) / IPv6(src="fd00:1::2", dst="fd00:1::1") / ICMPv6EchoRequest(id=3, data=b"hello")
    answer = ask(Reason.PUNTED_LOCAL, six)
    assert (answer[IPv6].src, answer[IPv6].dst) == ("fd00:1::1", "fd00:1::2")
    assert (answer[ICMPv6EchoReply].id, answer[ICMPv6EchoReply].data) == (3, b"hello")


def test_a_host_elsewhere_reaches_the_gateway_through_a_link(ask: Callable[..., Packet]) -> None:
    frame = Ether(src="02:01:00:03:00:01", dst="02:01:00:01:00:05") / IP(src="10.1.3.2", dst="10.0.1.1") / ICMP()
    answer = ask(Reason.PUNTED_LOCAL, frame, port=5)
    assert (answer[Ether].dst, answer[Ether].src) == ("02:01:00:03:00:01", "02:01:00:01:00:05")


def test_other_packets_to_the_switch_are_not_answered(ask: Callable[..., Packet | None]) -> None:
    ip = Ether(src=H1, dst=GATEWAY1) / IP(src="10.0.1.2", dst="10.0.1.1")
    for packet in (UDP(dport=9), TCP(dport=22), ICMP(type=0), ICMP(chksum=1)):
        assert ask(Reason.PUNTED_LOCAL, ip / packet) is None
    fragment = Ether(src=H1, dst=GATEWAY1) / IP(src="10.0.1.2", dst="10.0.1.1", flags="MF") / ICMP()
    assert ask(Reason.PUNTED_LOCAL, fragment) is None


@pytest.mark.parametrize(("payload", "quoted"), [(b"", 28), (b"x" * 1000, 548)])
def test_an_expired_packet_is_told_to_its_sender(ask: Callable[..., Packet], payload: bytes, quoted: int) -> None:
    packet = IP(src="10.0.1.2", dst="10.1.3.2", ttl=1) / UDP(sport=33000, dport=33434) / payload
    answer = ask(Reason.PUNTED_TTL, Ether(src=H1, dst=GATEWAY1) / packet)
    assert (answer[Ether].dst, answer[Ether].src) == (H1, GATEWAY1)
    assert (answer[IP].src, answer[IP].dst) == ("10.0.1.1", "10.0.1.2")
    assert (answer[ICMP].type, answer[ICMP].code) == (11, 0)
    assert answer[IP].len == 20 + 8 + quoted
    assert bytes(answer)[42 : 42 + quoted] == bytes(packet)[:quoted]


def test_an_expired_ipv6_packet_is_told_to_its_sender(ask: Callable[..., Packet]) -> None:
    packet = IPv6(src="fd00:1::2", dst="2001:3::2", hlim=1) / UDP(dport=33434) / (b"x" * 1400)
    answer = ask(Reason.PUNTED_TTL, Ether(src=H1, dst=GATEWAY1) / packet)
    assert (answer[IPv6].src, answer[IPv6].dst) == ("fd00:1::1", "fd00:1::2")
    assert answer[ICMPv6TimeExceeded].code == 0
    assert answer[IPv6].plen == 1240
    assert bytes(answer)[62:1294] == bytes(packet)[:1232]


def test_at_a_link_the_switch_speaks_as_one_of_its_gateways_if_it_has_any(ask: Callable[..., Packet | None]) -> None:
    packet = Ether(src=H3, dst="02:01:00:01:00:05") / IP(src="10.1.3.2", dst="10.0.1.2", ttl=1) / UDP()
    answer = ask(Reason.PUNTED_TTL, packet, port=5)
    assert answer is not None
    assert answer[IP].src == "10.0.1.1"
    assert ask(Reason.PUNTED_TTL, packet, port=1, switch="spine1") is None


@pytest.mark.parametrize(
    "packet",
    [
        IP(src="10.0.1.2", dst="239.1.0.1", ttl=1) / UDP(),
        IP(src="0.0.0.0", dst="10.1.3.2", ttl=1) / UDP(),
        IP(src="127.0.0.1", dst="10.1.3.2", ttl=1) / UDP(),
        IP(src="239.1.0.1", dst="10.1.3.2", ttl=1) / UDP(),
        IP(src="10.0.1.2", dst="10.1.3.2", ttl=1, frag=5) / b"xxxxxxxx",
        IP(src="10.0.1.2", dst="10.1.3.2", ttl=1) / ICMP(type=11),
        IP(src="10.0.1.2", dst="10.1.3.2", ttl=1, proto=1),
        IPv6(src="fd00:1::2", dst="2001:3::2", hlim=1) / ICMPv6TimeExceeded(),
        IPv6(src="fd00:1::2", dst="ff15::1", hlim=1) / UDP(),
        IPv6(src="::", dst="2001:3::2", hlim=1) / UDP(),
        IPv6(src="::1", dst="2001:3::2", hlim=1) / UDP(),
    ],
)
def test_no_message_about_what_must_not_cause_one(ask: Callable[..., Packet | None], packet: Packet) -> None:
    assert ask(Reason.PUNTED_TTL, Ether(src=H1, dst=GATEWAY1) / packet) is None


def test_a_multicast_frame_causes_no_message_either(ask: Callable[..., Packet | None]) -> None:
    frame = Ether(src=H1, dst="01:00:5e:01:00:01") / IP(src="10.0.1.2", dst="10.1.3.2", ttl=1) / UDP()
    assert ask(Reason.PUNTED_TTL, frame) is None


@given(data=st.data())
def test_whatever_arrives_is_survived(data: st.DataObject) -> None:
    text = '[[switch]]\nname = "s"\naddress = "a:1"\n[[port]]\nnumber = 1\nhost = "h"\nmac = "02:00:00:00:00:01"\n'
    text += 'host_mac = "02:00:00:00:00:02"\naddress = "10.0.0.2"\ngateway = "10.0.0.1"\naddress6 = "fd00::2"\n'
    text += 'gateway6 = "fd00::1"\nrate = "1gbit"\nbuffer = "64kB"\n'
    answers = Answers(fabric_file.parse(text, "f"), "s")
    good = data.draw(
        st.sampled_from(
            [
                bytes(arp("10.0.0.1")),
                bytes(solicit("fd00::1", "fd00::2")),
                bytes(Ether(src=H1, dst=GATEWAY1) / IP(src="10.0.0.2", dst="10.0.0.1", ttl=1) / ICMP() / b"hello"),
                bytes(Ether(src=H1, dst=GATEWAY1) / IPv6(src="fd00::2", dst="fd00::1", hlim=1) / ICMPv6EchoRequest()),
            ]
        )
    )
    frame = bytearray(good)
    for place in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=4)):
        frame[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(frame)))
    reason = data.draw(st.sampled_from([Reason.PUNTED_ARP, Reason.PUNTED_ND, Reason.PUNTED_TTL, Reason.PUNTED_LOCAL]))
    answer = answers.answer(reason, data.draw(st.sampled_from([1, 2])), bytes(frame[:cut]))
    assert answer is None or len(answer) >= 60
