# SPDX-License-Identifier: Apache-2.0
"""From what the host states (layer, magnitude, kind, budget) to queue class and drop precedence, in DSCP and ECN; and
the tags of other switches, which hold.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from gradlane.wire import CONTROL_DSCP, Flag, Kind
from tests.p4src.packet_bench import Bench, Reason
from tests.support.entries import MASK, drop_precedence, dscp_class, fabric, job, queue_class, sources, without
from tests.support.gradlane_packets import FAR, H1, H2, H4, U5, U6, Host, gradient, ip, ip6, tags

NOT_CAPABLE, CAPABLE = 0, 2


class Tags:
    """Sends gradients that must be forwarded and reads their tags from DSCP, ECN and queue."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.seen: Counter[tuple[Reason, int, int]] = Counter()

    def __call__(self, source: Host = H1, destination: Host = H2, **header: Any) -> tuple[int, int]:
        """Queue class and drop precedence, the same for IPv4 and IPv6."""
        found = {self._one(source, destination, version, **header) for version in (4, 6)}
        assert len(found) == 1
        return found.pop()

    def _one(self, source: Host, destination: Host, version: int, **header: Any) -> tuple[int, int]:
        if version == 6 and "ip_fields" in header:
            header["ip_fields"] = {"tc": header["ip_fields"]["tos"]}
        frame = gradient(source, destination, version=version, frame_bytes=130, **header)
        sent = self.bench.forward(source, frame, destination)
        queue_class, precedence, ecn = tags(sent.frame)
        assert ecn == (NOT_CAPABLE if precedence else CAPABLE), "protected packets are marked, others dropped"
        assert sent.queue in (None, queue_class), "the queue must be the class"
        self.seen[Reason.FORWARDED, queue_class, precedence] += 1
        return queue_class, precedence


@pytest.fixture
def told(bench: Bench) -> Iterator[Tags]:
    it = Tags(bench)
    yield it
    assert bench.decisions(1, 2) == it.seen, "the counter must tell the same tags as the DSCP"


def test_the_layer_decides_the_queue_class(bench: Bench, told: Tags) -> None:
    bench.install(fabric(), job())
    classes = {layer: told(layer=layer)[0] for layer in (0, 1, 3, 4, 100, 101, 65535)}
    assert classes == {0: 6, 1: 6, 3: 6, 4: 5, 100: 5, 101: 0, 65535: 0}


def test_magnitude_and_layer_decide_the_drop_precedence(bench: Bench, told: Tags) -> None:
    bench.install(fabric(), job())
    for layer, expected in (
        (0, {0: 3, 63: 3, 64: 2, 127: 2, 128: 1, 159: 1, 160: 0, 255: 0}),
        (10, {63: 3, 64: 2, 128: 1, 160: 0}),
        (11, {63: 3, 64: 0, 128: 0, 255: 0}),
    ):
        found = {m: told(layer=layer, magnitude=m, budget=1)[1] for m in expected}
        assert found == expected, f"layer {layer}"


def test_a_repair_is_protected_and_keeps_the_class_of_its_layer(bench: Bench, told: Tags) -> None:
    bench.install(fabric(), job())
    assert told(kind=Kind.REPAIR, layer=2, magnitude=0, budget=9) == (6, 0)
    assert told(kind=Kind.REPAIR, layer=50, magnitude=0, budget=9) == (5, 0)


def test_a_trace_travels_in_the_class_of_its_layer_and_comes_back_in_the_top_one(bench: Bench, told: Tags) -> None:
    bench.install(fabric(), job())
    assert told(kind=Kind.TRACE, layer=50, budget=9) == (5, 0)
    assert told(kind=Kind.TRACE, layer=50, budget=9, flags=Flag.RETURNED) == (7, 0)


def test_a_slice_of_a_message_without_budget_is_protected(bench: Bench, told: Tags) -> None:
    bench.install(fabric(), job())
    assert told(layer=2, magnitude=0, budget=0) == (6, 0)
    assert told(layer=2, magnitude=0, budget=1) == (6, 3)


@pytest.mark.parametrize("kind", [Kind.PROBE, Kind.BITMAP, Kind.STOP, Kind.REPORT])
def test_a_control_message_is_protected_and_has_the_top_class_whatever_its_layer(
    bench: Bench, told: Tags, kind: int
) -> None:
    bench.install(fabric(), job())
    assert told(kind=kind, layer=101, magnitude=0, budget=9) == (7, 0)


def test_what_the_host_wrote_into_dscp_and_ecn_of_a_gradient_is_overwritten(bench: Bench, told: Tags) -> None:
    bench.install(fabric(), job())
    for tos in (0x00, 0xE3, 0xFF):
        assert told(ip_fields={"tos": tos}, layer=4, magnitude=0, budget=1) == (5, 3)
        assert told(ip_fields={"tos": tos}, layer=101) == (0, 0)


def test_each_job_has_a_policy_of_its_own(bench: Bench, told: Tags) -> None:
    other = without(job(2, (H1, H4), base=MASK + 1), "queue_classes", "drop_precedences")
    other += [queue_class(2, (1, 1), 2), drop_precedence(2, (1, 1), (255, 255), 7)]
    bench.install(fabric(), job(), other)
    header = {"layer": 1, "magnitude": 255, "budget": 1}
    assert told(H1, H2, job=1, **header) == (6, 0)
    assert told(H1, H4, job=2, **header) == (2, 7)


def test_a_gradient_from_the_fabric_keeps_the_tags_that_its_first_switch_gave_it(bench: Bench) -> None:
    bench.install(fabric(), job())
    for queue_class_, precedence, ecn in ((5, 3, 0), (1, 7, 0), (6, 0, 2), (6, 0, 3), (0, 0, 2), (7, 0, 1)):
        tos = queue_class_ << 5 | precedence << 2 | ecn
        for version, name in ((4, "tos"), (6, "tc")):
            frame = gradient(
                FAR, H2, through=U5, version=version, layer=1, magnitude=0, budget=9, ip_fields={name: tos}
            )
            sent = bench.forward(U5, frame, H2)
            assert tags(sent.frame) == (queue_class_, precedence, ecn)
            assert sent.queue in (None, queue_class_)
        assert bench.decisions(1)[Reason.FORWARDED, queue_class_, precedence] == (
            4 if (queue_class_, precedence) == (6, 0) and ecn == 3 else 2
        )


def test_a_port_that_is_not_listed_is_one_of_hosts(bench: Bench) -> None:
    bench.install(without(fabric(), "ports"), job())
    assert tags(bench.forward(H1, gradient(layer=1, ip_fields={"tos": 0xFF}), H2).frame) == (6, 0, CAPABLE)
    assert bench.drops(U6, gradient(FAR, H2, through=U6))


@pytest.mark.parametrize(
    ("dscp", "queue_class"), [(0, 0), (46, 5), (8, 1), (CONTROL_DSCP, 7), (45, 0), (63, 0), (0b110_011, 0)]
)
def test_ordinary_traffic_has_the_class_that_its_dscp_was_given_and_keeps_it(
    bench: Bench, dscp: int, queue_class: int
) -> None:
    bench.install(without(fabric(), "sources"), sources(H1, member=1))
    bench.add(dscp_class(46, 5), dscp_class(8, 1), dscp_class(CONTROL_DSCP, 7))
    for ecn in range(4):
        tos = dscp << 2 | ecn
        for port, frame in (
            (H1, bytes(ip(H1, H2, tos=tos) / UDP(dport=9))),
            (H1, bytes(ip6(H1, H2, tc=tos) / TCP(dport=9))),
            (U5, bytes(ip(FAR, H2, U5, tos=tos) / UDP(dport=9))),
        ):
            sent = bench.forward(port, frame, H2)
            packet = sent.packet
            assert (packet[IPv6].tc if IPv6 in packet else packet[IP].tos) == tos
            assert sent.queue in (None, queue_class)
    assert bench.decisions() == {(Reason.FORWARDED, queue_class, 0): 12}


def test_what_is_no_ip_has_the_class_of_dscp_0(bench: Bench) -> None:
    bench.install(fabric(), [dscp_class(46, 5)])
    bench.forward(H1, bytes(Ether(dst=H2.mac, src=H1.mac, type=0x88B5) / Raw(bytes(46))), H2)
    assert bench.decisions() == {(Reason.FORWARDED, 0, 0): 1}
