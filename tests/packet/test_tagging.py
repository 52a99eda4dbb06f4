# SPDX-License-Identifier: Apache-2.0
"""From what the host states (layer, magnitude, kind, budget) to queue class and drop precedence, in DSCP and ECN."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from gradlane_packets import H1, H2, H4, Host, gradient, ip
from packet_bench import POLICY, Bench, job_file
from scapy.layers.inet import IP, TCP, UDP

from gradlane.wire import CONTROL_DSCP, Kind
from gradlane_controller.counters import Reason

NOT_CAPABLE, CAPABLE = 0, 2


class Tags:
    """Sends gradients that must be forwarded and reads their tags from DSCP, ECN and queue."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.seen: Counter[tuple[Reason, int, int]] = Counter()

    def __call__(self, source: Host = H1, destination: Host = H2, **header: Any) -> tuple[int, int]:
        """Queue class and drop precedence."""
        sent = self.bench.forward(source, gradient(source, destination, frame_bytes=100, **header), destination)
        tos = sent.packet[IP].tos
        queue_class, drop_precedence = tos >> 5, tos >> 2 & 7
        assert tos & 3 == (NOT_CAPABLE if drop_precedence else CAPABLE), "protected packets are marked, others dropped"
        assert sent.queue in (None, queue_class), "the queue must be the class"
        self.seen[Reason.FORWARDED, queue_class, drop_precedence] += 1
        return queue_class, drop_precedence


@pytest.fixture
def tags(bench: Bench) -> Iterator[Tags]:
    it = Tags(bench)
    yield it
    assert bench.decisions() == it.seen, "the counter must tell the same tags as the DSCP"


def test_the_layer_decides_the_queue_class(bench: Bench, tags: Tags) -> None:
    bench.install(job_file())
    classes = {layer: tags(layer=layer)[0] for layer in (0, 1, 3, 4, 100, 101, 65535)}
    assert classes == {0: 6, 1: 6, 3: 6, 4: 5, 100: 5, 101: 0, 65535: 0}


def test_magnitude_and_layer_decide_the_drop_precedence(bench: Bench, tags: Tags) -> None:
    bench.install(job_file())
    for layer, expected in (
        (0, {0: 3, 63: 3, 64: 2, 127: 2, 128: 1, 159: 1, 160: 0, 255: 0}),
        (10, {63: 3, 64: 2, 128: 1, 160: 0}),
        (11, {63: 3, 64: 0, 128: 0, 255: 0}),
    ):
        found = {m: tags(layer=layer, magnitude=m, budget=1)[1] for m in expected}
        assert found == expected, f"layer {layer}"


def test_a_repair_is_protected_and_keeps_the_class_of_its_layer(bench: Bench, tags: Tags) -> None:
    bench.install(job_file())
    assert tags(kind=Kind.REPAIR, layer=2, magnitude=0, budget=9) == (6, 0)
    assert tags(kind=Kind.REPAIR, layer=50, magnitude=0, budget=9) == (5, 0)


def test_a_slice_of_a_message_without_budget_is_protected(bench: Bench, tags: Tags) -> None:
    bench.install(job_file())
    assert tags(layer=2, magnitude=0, budget=0) == (6, 0)
    assert tags(layer=2, magnitude=0, budget=1) == (6, 3)


@pytest.mark.parametrize("kind", [Kind.PROBE, Kind.BITMAP, Kind.STOP, Kind.REPORT])
def test_a_control_message_is_protected_and_has_the_top_class_whatever_its_layer(
    bench: Bench, tags: Tags, kind: Kind
) -> None:
    bench.install(job_file())
    assert tags(kind=kind, layer=101, magnitude=0, budget=9) == (7, 0)


def test_what_the_host_wrote_into_dscp_and_ecn_of_a_gradient_is_overwritten(bench: Bench, tags: Tags) -> None:
    bench.install(job_file())
    for tos in (0x00, 0xE3, 0xFF):
        assert tags(ip_fields={"tos": tos}, layer=4, magnitude=0, budget=1) == (5, 3)
        assert tags(ip_fields={"tos": tos}, layer=101) == (0, 0)


def test_each_job_has_a_policy_of_its_own(bench: Bench, tags: Tags) -> None:
    other = """
queue_classes = [ { layers = [0, 65535], class = 2 } ]
drop_precedences = [ { magnitudes = [0, 255], drop_precedence = 7 } ]
yellow = 2
red = 1
"""
    bench.install(job_file(), job_file(2, (H1, H4), base=4096, policy=other))
    header = {"layer": 1, "magnitude": 255, "budget": 1}
    assert tags(H1, H2, job=1, **header) == (6, 0)
    assert tags(H1, H4, job=2, **header) == (2, 7)


def test_without_priority_every_slice_is_best_effort_but_control_is_not(bench: Bench, tags: Tags) -> None:
    bench.install(job_file(policy=POLICY + "priority = false"))
    assert tags(layer=0, magnitude=0, budget=1) == (0, 3)
    assert tags(layer=0, kind=Kind.REPAIR, budget=1) == (0, 0)
    assert tags(layer=0, kind=Kind.STOP) == (7, 0)


@pytest.mark.parametrize(
    ("dscp", "queue_class"), [(0, 0), (46, 5), (8, 1), (CONTROL_DSCP, 7), (45, 0), (63, 0), (0b110_011, 0)]
)
def test_ordinary_traffic_has_the_class_that_its_dscp_was_given_and_keeps_it(
    bench: Bench, dscp: int, queue_class: int
) -> None:
    bench.install(job_file())
    for ecn in range(4):
        sent = bench.forward(H1, bytes(ip(H1, H2, tos=dscp << 2 | ecn) / UDP(dport=9)), H2)
        assert sent.packet[IP].tos == dscp << 2 | ecn
        assert sent.queue in (None, queue_class)
    assert bench.decisions() == {(Reason.FORWARDED, queue_class, 0): 4}


def test_the_agents_control_connections_have_the_top_class(bench: Bench) -> None:
    bench.install(job_file())
    bench.forward(H1, bytes(ip(H1, H2, tos=CONTROL_DSCP << 2) / TCP(dport=47401)), H2)
    assert bench.decisions() == {(Reason.FORWARDED, 7, 0): 1}
