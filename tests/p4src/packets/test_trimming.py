# SPDX-License-Identifier: Apache-2.0
"""Trimming: where a slice would be dropped, its header goes on, in the top queue, and says what is gone."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from gradlane import wire
from gradlane.wire import Kind
from tests.p4src.packet_bench import Bench, Count, Reason
from tests.support.entries import GREEN, MASK, YELLOW, congestion, fabric, job
from tests.support.gradlane_packets import FAR, H1, H2, H4, U5, gradient, gradlane_of, rebuilt

LENGTH = {4: 14 + 20 + 44, 6: 14 + 40 + 44}


@pytest.fixture
def trimming(bench: Bench) -> Bench:
    """The port of h2 is red; job 1 trims, job 2 drops."""
    bench.install(fabric(), job(trim=True), job(2, (H1, H2, H4), base=MASK + 1), congestion())
    bench.congest(H1, gradient(kind=Kind.REPAIR, layer=1), GREEN + YELLOW)
    return bench


@pytest.mark.parametrize("frame_bytes", [98, 99, 600, 1510])
@pytest.mark.parametrize("version", [4, 6])
def test_a_slice_is_cut_behind_its_header_and_everything_else_says_so(
    trimming: Bench, version: int, frame_bytes: int
) -> None:
    frame = gradient(
        version=version, layer=2, magnitude=5, budget=9, slice=77, message=3, step=8, frame_bytes=frame_bytes
    )
    sent = trimming.forward(H1, frame, H2)
    assert len(sent.frame) == LENGTH[version]
    assert sent.queue in (None, 7)
    # Byte by byte: what the frame would have been, of another kind, without payload, in the top class, marked.
    want = Ether(frame)
    want.src, want.dst = H2.gateway, H2.mac
    if version == 4:
        want[IP].tos, want[IP].ttl, want[IP].len = 0b111_000_11, 63, 20 + 44
        del want[IP].chksum
    else:
        want[IPv6].tc, want[IPv6].hlim, want[IPv6].plen = 0b111_000_11, 63, 44
    # IPv6 has no datagrams without a checksum; scapy sums up what is left.
    want[UDP].len, want[UDP].chksum = 44, 0
    assert gradlane_of(frame).length == frame_bytes - LENGTH[version]
    header = bytes(want)[: LENGTH[version]]
    at = LENGTH[version] - wire.HEADER_BYTES
    header = header[:at] + bytes([wire.VERSION << 4 | Kind.TRIMMED]) + header[at + 1 :]
    if version == 6:
        summed = Ether(header)
        del summed[UDP].chksum
        header = bytes(summed)
    assert sent.frame == header
    assert gradlane_of(sent.frame).length == frame_bytes - LENGTH[version], "it still tells what the slice had"
    assert trimming.decisions(1)[Reason.TRIMMED_RED, 7, 0] == 1


def test_bytes_behind_the_packet_are_cut_off_too(trimming: Bench) -> None:
    frame = gradient(layer=1, magnitude=0, budget=9, frame_bytes=300) + bytes(20)
    assert len(trimming.forward(H1, frame, H2).frame) == 78


def test_it_is_trimmed_at_yellow_where_it_would_be_dropped_at_yellow(bench: Bench) -> None:
    bench.install(fabric(), job(trim=True), congestion())
    bench.congest(H1, gradient(kind=Kind.REPAIR, layer=1), GREEN)
    sent = bench.forward(H1, gradient(layer=1, magnitude=64, budget=9), H2)
    assert gradlane_of(sent.frame).kind == Kind.TRIMMED
    assert len(bench.forward(H1, gradient(layer=1, magnitude=128, budget=9), H2).frame) == 1000
    assert bench.decisions() == {
        (Reason.FORWARDED, 6, 0): GREEN,
        (Reason.TRIMMED_YELLOW, 7, 0): 1,
        (Reason.FORWARDED, 6, 1): 1,
    }


def test_no_more_of_a_message_is_trimmed_than_it_tolerates(trimming: Bench) -> None:
    frames = [gradient(layer=1, magnitude=0, budget=3, message=5, slice=n) for n in range(10)]
    sizes = [len(sent.frame) for sent in (trimming.forward(H1, frame, H2) for frame in frames)]
    assert sizes == [78] * 3 + [1000] * 7
    assert trimming.reasons() == {
        Reason.FORWARDED: GREEN + YELLOW,
        Reason.TRIMMED_RED: 3,
        Reason.BUDGET_SPENT: 7,
    }


def test_trimming_is_a_matter_of_each_job(trimming: Bench) -> None:
    assert trimming.drops(H1, gradient(job=2, layer=1, magnitude=0, budget=9))
    assert len(trimming.forward(H1, gradient(job=1, layer=1, magnitude=0, budget=9), H2).frame) == 78


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.DATA, Kind.TRIMMED)])
def test_nothing_but_data_is_trimmed(trimming: Bench, kind: Kind) -> None:
    frame = gradient(kind=kind, layer=1, magnitude=0, budget=9)
    sent = trimming.forward(H1, frame, H2).frame
    assert gradlane_of(sent).kind == kind
    assert sent[-(1000 - 78) :] == frame[78:]


def test_a_protected_slice_is_not_trimmed(trimming: Bench) -> None:
    assert len(trimming.forward(H1, gradient(layer=1, magnitude=255, budget=9), H2).frame) == 1000
    assert len(trimming.forward(H1, gradient(layer=1, magnitude=0), H2).frame) == 1000


@pytest.mark.parametrize("version", [4, 6])
def test_a_slice_from_the_fabric_is_trimmed_alike(trimming: Bench, version: int) -> None:
    ip_fields = {"tos" if version == 4 else "tc": 0b110_011_00}
    frame = gradient(FAR, H2, through=U5, version=version, layer=1, magnitude=0, budget=9, ip_fields=ip_fields)
    sent = trimming.forward(U5, frame, H2)
    assert len(sent.frame) == LENGTH[version]
    assert rebuilt(sent.frame) == sent.frame
    header = gradlane_of(sent.frame)
    assert (header.kind, header.length) == (Kind.TRIMMED, 1000 - LENGTH[version])


def test_the_header_of_a_trimmed_slice_passes_every_switch_behind(trimming: Bench) -> None:
    """What one switch has trimmed enters the next one from the fabric, and leaves it as it came."""
    once = trimming.forward(H1, gradient(layer=1, magnitude=0, budget=9), H2)
    again = Ether(once.frame)
    again.src, again.dst = U5.mac, U5.gateway
    sent = trimming.forward(U5, bytes(again), H2)
    assert sent.frame[34:] == once.frame[34:]
    assert sent.packet[IP].tos == once.packet[IP].tos
    assert trimming.decisions(1)[Reason.FORWARDED, 7, 0] == 1


def test_the_bytes_that_are_counted_are_those_that_came(trimming: Bench) -> None:
    trimming.forward(H1, gradient(layer=1, magnitude=0, budget=9, frame_bytes=700), H2)
    assert trimming.decision_cells(1)[1, Reason.TRIMMED_RED, 7, 0] == Count(1, 700)
