# SPDX-License-Identifier: Apache-2.0
"""Which packets count as gradients, which senders may send them, and what becomes of the rest."""

from typing import Any

import pytest
from finsy import Match, P4TableEntry
from gradlane_packets import H1, H2, H3, H4, Gradlane, gradient, ip
from packet_bench import Bench, Count, job_file
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from gradlane import wire
from gradlane_controller.counters import Reason

HEADER = bytes(Gradlane(job=9, layer=1, budget=5))


def sender(port: int, source: str, job: int) -> P4TableEntry:
    return P4TableEntry("senders", match=Match(ingress_port=port, source=source, job=job))


def to_port(layer: Any, **ip_fields: Any) -> bytes:
    return bytes(ip(H1, H2, tos=0x2A, **ip_fields) / layer)


# Each names job 9, which nobody may send for: if one were taken for a gradient, the guard would drop it.
ORDINARY = {
    "another version": to_port(UDP(dport=wire.UDP_PORT) / Raw(b"\x20" + HEADER[1:])),
    "version 0": to_port(UDP(dport=wire.UDP_PORT) / Raw(b"\x00" + HEADER[1:])),
    "a datagram shorter than the header": to_port(UDP(dport=wire.UDP_PORT) / Raw(HEADER[:-1])),
    "a UDP length below the headers'": to_port(UDP(dport=wire.UDP_PORT, len=43) / Raw(HEADER + bytes(9))),
    "an empty datagram": to_port(UDP(dport=wire.UDP_PORT)),
    "another port": to_port(UDP(dport=wire.UDP_PORT + 1) / Raw(HEADER)),
    "the port as source": to_port(UDP(sport=wire.UDP_PORT, dport=999) / Raw(HEADER)),
    # Its bytes read as UDP would be a long datagram of version 1.
    "TCP": to_port(TCP(dport=wire.UDP_PORT, seq=100 << 16, ack=wire.VERSION << 28) / Raw(HEADER)),
    "a first fragment": to_port(UDP(dport=wire.UDP_PORT) / Raw(HEADER), flags="MF"),
    "a later fragment": to_port(UDP(dport=wire.UDP_PORT) / Raw(HEADER), frag=100),
    "a last fragment with an offset above 4095": to_port(UDP(dport=wire.UDP_PORT) / Raw(HEADER), frag=4096),
}


@pytest.mark.parametrize("frame", ORDINARY.values(), ids=ORDINARY)
def test_what_is_no_gradient_datagram_is_forwarded_as_ordinary_traffic(bench: Bench, frame: bytes) -> None:
    bench.install(job_file())
    sent = bench.forward(H1, frame, H2)
    assert sent.frame[15] == 0x2A, "ordinary traffic keeps its DSCP and ECN"
    assert sent.frame[34:] == frame[34:]
    assert bench.decisions() == {(Reason.FORWARDED, 0, 0): 1}


def test_a_datagram_cut_off_inside_its_header_is_no_gradient(bench: Bench) -> None:
    bench.install(job_file())
    whole = to_port(UDP(dport=wire.UDP_PORT) / Raw(HEADER))
    bench.forward(H1, whole[: 42 + 20], H2)
    assert bench.decisions() == {(Reason.FORWARDED, 0, 0): 1}


def test_a_header_without_payload_is_a_gradient_datagram(bench: Bench) -> None:
    bench.install(job_file())
    assert bench.process(H1, to_port(UDP(dport=wire.UDP_PORT) / Raw(HEADER))) == []
    assert bench.decisions() == {(Reason.DROPPED_GUARD, 0, 0): 1}


def test_the_dont_fragment_flag_does_not_hide_a_gradient(bench: Bench) -> None:
    bench.install(job_file())
    assert bench.process(H1, to_port(UDP(dport=wire.UDP_PORT) / Raw(HEADER), flags="DF")) == []
    assert bench.decisions() == {(Reason.DROPPED_GUARD, 0, 0): 1}


@pytest.mark.parametrize(
    ("port", "frame"),
    [
        (H2.port, gradient(H1, H3)),
        (17, gradient(H1, H2)),
        (H1.port, gradient(H2, H3)),
        (H1.port, gradient(H1, H2, job=2)),
        (H1.port, gradient(H1, H2, job=0)),
        (H4.port, gradient(H4, H1)),
        (H1.port, gradient(H1, H2, job=9, kind=wire.Kind.STOP)),
    ],
    ids=["another rank's port", "no port of the fabric", "another rank's source", "another job", "no job",
         "a host without a rank", "a control message"],
)  # fmt: skip
def test_a_gradient_packet_that_nobody_permitted_is_dropped_and_counted(bench: Bench, port: int, frame: bytes) -> None:
    bench.install(job_file())
    assert bench.process(port, frame) == []
    assert bench.cells("decisions") == {Reason.DROPPED_GUARD << 6: Count(1, len(frame))}


def test_every_member_may_send_and_the_guard_counts_each_apart(bench: Bench) -> None:
    bench.install(job_file(), job_file(2, (H1, H4), base=4096))
    frames = [(H1, gradient(H1, H2)), (H1, gradient(H1, H2)), (H2, gradient(H2, H3, frame_bytes=300))]
    frames += [(H1, gradient(H1, H4, job=2)), (H4, gradient(H4, H1, job=2, kind=wire.Kind.PROBE))]
    for host, frame in frames:
        assert len(bench.process(host, frame)) == 1
    assert bench.process(H3, gradient(H3, H1, job=2)) == []
    assert bench.sender(sender(1, H1.address, 1)) == Count(2, 2000)
    assert bench.sender(sender(2, H2.address, 1)) == Count(1, 300)
    assert bench.sender(sender(3, H3.address, 1)) == Count(0, 0)
    assert bench.sender(sender(1, H1.address, 2)) == Count(1, 1000)
    assert bench.sender(sender(4, H4.address, 2)) == Count(1, 1000)


def test_the_guard_looks_at_no_ordinary_traffic(bench: Bench) -> None:
    bench.install(job_file())
    spoofed = bytes(Ether(dst=H1.gateway) / IP(src="192.0.2.7", dst=H2.address) / UDP(dport=9))
    bench.forward(H4, spoofed, H2)
