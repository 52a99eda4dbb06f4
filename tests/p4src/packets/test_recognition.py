# SPDX-License-Identifier: Apache-2.0
"""What a packet is: gradients, packets that only look like one, and headers that are cut off or wrong."""

from typing import Any

import pytest
from scapy.layers.inet import IP, TCP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from gradlane import wire
from gradlane.wire import Flag, Kind
from tests.p4src.packet_bench import Bench, Reason
from tests.support.entries import congestion, fabric, job
from tests.support.gradlane_packets import H1, H2, U5, Gradlane, gradient, ip, ip6, rebuilt

HEADER = bytes(Gradlane(job=9, layer=1, budget=1, slices=2))
PORT = wire.UDP_PORT


def to_port(layer: Any, **ip_fields: Any) -> bytes:
    return bytes(ip(H1, H2, tos=0x2A, **ip_fields) / layer)


def to_port6(layer: Any, **ip_fields: Any) -> bytes:
    return bytes(ip6(H1, H2, tc=0x2A, **ip_fields) / layer)


def datagram(data: bytes, **fields: int) -> Any:
    return UDP(**{"dport": PORT, **fields}) / Raw(data)


# Each names job 9, which nobody may send for: if one were taken for a gradient, the guard would drop it.
ORDINARY = {
    "another port": (Reason.FORWARDED, to_port(datagram(HEADER, dport=PORT + 1))),
    "the port as source": (Reason.FORWARDED, to_port(datagram(HEADER, sport=PORT, dport=999))),
    # Its bytes read as UDP would be a long datagram of version 1.
    "TCP": (Reason.FORWARDED, to_port(TCP(dport=PORT, seq=100 << 16, ack=wire.VERSION << 28) / Raw(HEADER))),
    "another version": (Reason.UNKNOWN_VERSION, to_port(datagram(b"\x20" + HEADER[1:]))),
    "version 0": (Reason.UNKNOWN_VERSION, to_port(datagram(b"\x00" + HEADER[1:]))),
    "a datagram shorter than the header": (Reason.MALFORMED, to_port(datagram(HEADER[:-1]))),
    "a UDP length below the headers'": (Reason.MALFORMED, to_port(datagram(HEADER + bytes(9), len=43))),
    "a datagram much shorter than the header": (Reason.MALFORMED, to_port(datagram(HEADER[:27]))),
    "an empty datagram": (Reason.MALFORMED, to_port(UDP(dport=PORT))),
    "IPv6, another port": (Reason.FORWARDED, to_port6(datagram(HEADER, dport=PORT + 1))),
    "IPv6, TCP": (Reason.FORWARDED, to_port6(TCP(dport=PORT, seq=100 << 16, ack=wire.VERSION << 28) / Raw(HEADER))),
    "IPv6, ICMP": (Reason.FORWARDED, to_port6(ICMPv6EchoRequest(data=HEADER))),
    "IPv6, no next header": (Reason.FORWARDED, to_port6(Raw(HEADER), nh=59)),
    "IPv6, another version": (Reason.UNKNOWN_VERSION, to_port6(datagram(b"\x20" + HEADER[1:]))),
    "IPv6, a datagram shorter than the header": (Reason.MALFORMED, to_port6(datagram(HEADER[:-1]))),
}


@pytest.mark.parametrize(("reason", "frame"), ORDINARY.values(), ids=ORDINARY)
def test_what_is_no_gradient_datagram_is_forwarded_as_ordinary_traffic_and_keeps_its_tags(
    bench: Bench, reason: Reason, frame: bytes
) -> None:
    bench.install(fabric(), job())
    sent = bench.forward(H1, frame, H2)
    before, after = Ether(frame), sent.packet
    if IPv6 in before:
        assert after[IPv6].tc == 0x2A
        assert sent.frame[54:] == frame[54:]
    else:
        assert after[IP].tos == 0x2A
        assert sent.frame[34:] == frame[34:]
    assert bench.decisions() == {(reason, 0, 0): 1}


# One step beyond what each field may say, and just within it.
CONTRADICTIONS = {
    "no slices": {"slices": 0},
    "more slices than a message may have": {"slices": 8193},
    "the largest number of slices": {"slices": 65535},
    "a slice behind the last one": {"slices": 10, "slice": 10},
    "a slice far behind": {"slices": 10, "slice": 8191},
    "a slice beyond any message": {"slices": 8192, "slice": 8192},
    "the largest slice": {"slices": 8192, "slice": 65535},
    "a budget above the slices": {"slices": 10, "budget": 11},
    "a budget beyond any message": {"slices": 8192, "budget": 16384},
    "the largest budget": {"slices": 8192, "budget": 65535},
    "a length below the payload's": {"length": 0},
    "a length above the payload's": {"length": 1000 - 78 + 1},
    "a kind that is not assigned": {"kind": 8},
    "the largest kind": {"kind": 15},
}
SOUND = {
    "one slice": {"slices": 1},
    "as many slices as a message may have": {"slices": 8192, "slice": 8191},
    "the last slice": {"slices": 10, "slice": 9},
    "all slices may be lost": {"slices": 10, "budget": 10},
    "no payload": {"frame_bytes": 78},
}


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("header", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_header_that_contradicts_itself_makes_its_packet_ordinary_traffic(
    bench: Bench, header: dict[str, int], version: int
) -> None:
    bench.install(fabric(), job())
    frame = gradient(version=version, job=9, layer=1, **header)
    assert bench.forward(H1, frame, H2).frame[54:] == frame[54:]
    assert bench.decisions() == {(Reason.MALFORMED, 0, 0): 1}


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("header", SOUND.values(), ids=SOUND)
def test_a_header_at_the_limits_is_that_of_a_gradient(bench: Bench, header: dict[str, int], version: int) -> None:
    bench.install(fabric(), job())
    if version == 6 and "frame_bytes" in header:
        header = {"frame_bytes": 98}
    assert bench.drops(H1, gradient(version=version, job=9, **header))
    assert bench.decisions() == {(Reason.DROPPED_GUARD, 0, 0): 1}


def test_a_trimmed_slice_is_one_only_if_a_switch_of_the_fabric_sends_it(bench: Bench) -> None:
    bench.install(fabric(), job())
    trimmed = {"kind": Kind.TRIMMED, "frame_bytes": 78, "length": 922, "ip_fields": {"tos": 0b111_000_10}}
    bench.forward(U5, gradient(H1, H2, through=U5, **trimmed), H2)
    assert bench.decisions(1) == {(Reason.FORWARDED, 7, 0): 1}
    with_payload = gradient(H1, H2, through=U5, **{**trimmed, "frame_bytes": 79})
    bench.forward(U5, with_payload, H2)
    assert bench.decisions(0) == {(Reason.MALFORMED, 0, 0): 1}


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind != Kind.TRIMMED])
def test_every_kind_of_datagram_that_agents_send_is_a_gradient(bench: Bench, kind: int) -> None:
    bench.install(fabric(), job())
    bench.forward(H1, gradient(kind=kind), H2)
    bench.forward(H1, gradient(kind=kind, flags=Flag.RETURNED), H2)
    assert bench.decisions(0) == {}


def test_the_dont_fragment_flag_does_not_hide_a_gradient(bench: Bench) -> None:
    bench.install(fabric(), job())
    assert bench.drops(H1, to_port(datagram(HEADER), flags="DF"))
    assert bench.reasons() == {Reason.DROPPED_GUARD: 1}


IPV4, IPV6 = gradient(), gradient(version=6)
NEIGHBOUR = to_port6(Raw(b""), nh=58)
# Where each header begins and where the packet is whole.
CUTS = {
    "within Ethernet": IPV4[:13],
    "no IPv4 header": IPV4[:14],
    "within IPv4": IPV4[:33],
    "no UDP header": IPV4[:34],
    "within UDP": IPV4[:41],
    "no Gradlane header": IPV4[:42],
    "within Gradlane": IPV4[:77],
    "within TCP ports": to_port(TCP())[:37],
    "no IPv6 header": IPV6[:14],
    "within IPv6": IPV6[:53],
    "IPv6, within UDP": IPV6[:61],
    "IPv6, within Gradlane": IPV6[:97],
    "no ICMPv6 type": NEIGHBOUR,
}


@pytest.mark.parametrize("frame", CUTS.values(), ids=CUTS)
def test_a_frame_too_short_for_its_headers_is_dropped_and_counted(bench: Bench, frame: bytes) -> None:
    bench.install(fabric(), job())
    assert bench.drops(H1, frame)
    assert bench.decisions() == {(Reason.DROPPED_TRUNCATED, 0, 0): 1}


def test_a_packet_of_another_ip_version_than_its_ethertype_says_is_dropped(bench: Bench) -> None:
    bench.install(fabric(), job())
    ipv6_inside = bytes(Ether(dst=H1.gateway, type=0x0800) / Raw(IPV6[14:]))
    ipv4_inside = bytes(Ether(dst=H1.gateway, type=0x86DD) / Raw(IPV4[14:]))
    for frame in (ipv6_inside, ipv4_inside):
        assert bench.drops(H1, frame)
    assert bench.decisions() == {(Reason.DROPPED_BAD_IP, 0, 0): 2}


def test_a_packet_with_ipv4_options_is_dropped_so_that_they_hide_no_gradient(bench: Bench) -> None:
    bench.install(fabric(), job())
    assert bench.drops(H1, gradient(ip_fields={"options": bytes(IPOption_Router_Alert())}))
    too_short = bytearray(IPV4)
    too_short[14] = 0x44
    assert bench.drops(H1, bytes(too_short))
    assert bench.decisions() == {(Reason.DROPPED_BAD_IP, 0, 0): 2}


@pytest.mark.parametrize(
    "frame",
    [gradient(), to_port(UDP(dport=9)), to_port(datagram(b"\x20" + HEADER[1:])), to_port(datagram(HEADER[:-1]))],
    ids=["gradient", "ordinary", "unknown version", "malformed"],
)
def test_a_packet_with_a_wrong_ipv4_checksum_is_dropped_whatever_it_carries(bench: Bench, frame: bytes) -> None:
    bench.install(fabric(), job())
    wrong = bytearray(frame)
    wrong[25] ^= 1
    assert bench.drops(H1, bytes(wrong))
    assert bench.decisions() == {(Reason.DROPPED_CHECKSUM, 0, 0): 1}


@pytest.mark.parametrize("size", [98, 99, 100, 600, 1510])
@pytest.mark.parametrize("version", [4, 6])
def test_a_gradient_packet_keeps_its_udp_header_checksum_and_payload(bench: Bench, version: int, size: int) -> None:
    bench.install(fabric(), job(), congestion())
    frame = gradient(version=version, frame_bytes=size, layer=7, magnitude=10, budget=3, slice=99, message=5)
    out = bench.forward(H1, frame, H2).frame
    transport = 34 if version == 4 else 54
    assert out[transport:] == frame[transport:], "from the UDP header on, no bit may change"
    assert rebuilt(out) == out, "every checksum must be right"
