# SPDX-License-Identifier: Apache-2.0
"""The virtual queue of each port: what fills it, what turns yellow and red, what is dropped and what is marked."""

import pytest
from finsy import P4MeterConfig
from scapy.layers.inet import UDP
from scapy.packet import Raw

from gradlane.wire import Kind
from tests.p4src.packet_bench import Bench, Reason
from tests.p4src.packet_targets import InProcess
from tests.support.entries import (
    GREEN,
    YELLOW,
    Entity,
    congestion,
    drop_precedence,
    dscp_class,
    fabric,
    job,
    port_policy,
    virtual_queue,
)
from tests.support.gradlane_packets import FAR, H1, H2, H3, H4, U5, Host, Uplink, gradient, ip, ip6, tags

NOT_CAPABLE, ECT_1, ECT_0, CONGESTED = 0, 1, 2, 3
PROTECTED = {"layer": 1, "magnitude": 255, "budget": 100}
MAGNITUDE = {1: 128, 2: 64, 3: 0}
CLASSES = [dscp_class(46, 5), dscp_class(8, 1)]


def ordinary(source: Host = H1, destination: Host = H2, tos: int = 0, version: int = 4) -> bytes:
    if version == 6:
        return bytes(ip6(source, destination, tc=tos) / UDP(dport=9) / Raw(bytes(1000 - 62)))
    return bytes(ip(source, destination, tos=tos) / UDP(dport=9) / Raw(bytes(1000 - 42)))


def droppable(precedence: int, **header: int) -> bytes:
    return gradient(**({"layer": 1, "magnitude": MAGNITUDE[precedence], "budget": 100} | header))


def ecn(bench: Bench, frame: bytes, source: Host | Uplink = H1, destination: Host = H2) -> int:
    return tags(bench.forward(source, frame, destination).frame)[2]


@pytest.fixture
def ready(bench: Bench) -> Bench:
    bench.install(fabric(), job(), congestion(), CLASSES)
    return bench


@pytest.mark.parametrize("version", [4, 6])
def test_a_burst_is_green_up_to_the_first_threshold_yellow_up_to_the_second_and_then_red(
    ready: Bench, version: int
) -> None:
    marks = [ecn(ready, gradient(version=version, **PROTECTED)) for _ in range(GREEN + YELLOW + 5)]
    assert marks == [ECT_0] * GREEN + [CONGESTED] * (YELLOW + 5)
    assert ready.drops(H1, droppable(1)), "it must be red now: precedence 1 goes at red alone"


def test_the_bytes_of_the_whole_frame_fill_the_queue(ready: Bench) -> None:
    marks = [ecn(ready, gradient(frame_bytes=550, **PROTECTED)) for _ in range(11)]
    assert marks == [ECT_0] * 10 + [CONGESTED], "5500 bytes are ten frames of 550 bytes"


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("precedence", [1, 2, 3])
@pytest.mark.parametrize("fill", [GREEN, GREEN + YELLOW], ids=["yellow", "red"])
def test_slices_are_dropped_from_the_threshold_on_that_the_policy_names(
    ready: Bench, precedence: int, fill: int, version: int
) -> None:
    ready.congest(H1, gradient(version=version, **PROTECTED), fill)
    gone = ready.drops(H1, droppable(precedence, version=version))
    assert gone == (fill > GREEN or precedence >= 2), "the policy of the port: yellow 2, red 1"
    reason = Reason.FORWARDED if not gone else Reason.DROPPED_RED if fill > GREEN else Reason.DROPPED_YELLOW
    assert ready.decisions()[reason, 6, precedence] == 1


def test_other_thresholds_drop_from_other_precedences_on(bench: Bench) -> None:
    policies = [it for it in congestion() if it != port_policy(2)]
    bench.install(fabric(), job(), policies, [port_policy(2, yellow=3, red=2)])
    bench.congest(H1, gradient(**PROTECTED), GREEN)
    assert bench.drops(H1, droppable(3))
    bench.forward(H1, droppable(2))
    bench.congest(H1, gradient(**PROTECTED), YELLOW - 1)
    assert bench.drops(H1, droppable(3))
    assert bench.drops(H1, droppable(2))
    bench.forward(H1, droppable(1))


def test_below_the_first_threshold_nothing_is_dropped(ready: Bench) -> None:
    for _ in range(GREEN):
        assert ecn(ready, droppable(3)) == NOT_CAPABLE
    assert ready.drops(H1, droppable(3))


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.DATA, Kind.TRIMMED)])
@pytest.mark.parametrize("from_fabric", [False, True])
def test_a_packet_of_another_kind_than_data_is_never_dropped_by_policy_even_at_red(
    ready: Bench, kind: int, from_fabric: bool
) -> None:
    """Whatever tags the fabric has given it."""
    ready.congest(H1, gradient(**PROTECTED), GREEN + YELLOW)
    frame = gradient(kind=kind, layer=1, magnitude=0, budget=100)
    if from_fabric:
        frame = gradient(FAR, through=U5, kind=kind, layer=1, magnitude=0, budget=100, ip_fields={"tos": 0b110_111_00})
    assert len(ready.process(U5 if from_fabric else H1, *[frame] * 20)) == 20
    assert set(ready.reasons()) == {Reason.FORWARDED}


@pytest.mark.parametrize(
    "frame",
    [gradient(**PROTECTED), gradient(layer=1, magnitude=0, budget=0), gradient(version=6, **PROTECTED)],
    ids=["large magnitude", "no budget", "ipv6"],
)
def test_a_protected_slice_is_marked_and_never_dropped_by_policy_even_at_red(ready: Bench, frame: bytes) -> None:
    ready.congest(H1, gradient(**PROTECTED), GREEN + YELLOW)
    for _ in range(20):
        assert ecn(ready, frame) == CONGESTED
    assert set(ready.reasons()) == {Reason.FORWARDED}


def test_a_trimmed_slice_is_not_dropped_further_on(ready: Bench) -> None:
    ready.congest(H1, gradient(**PROTECTED), GREEN + YELLOW)
    fields = {"kind": Kind.TRIMMED, "frame_bytes": 78, "length": 900, "budget": 9, "ip_fields": {"tos": 0b111_101_00}}
    ready.forward(U5, gradient(FAR, through=U5, **fields), H2)


def test_a_dropped_slice_does_not_fill_the_queue_beyond_red(ready: Bench) -> None:
    ready.congest(H1, gradient(**PROTECTED), GREEN + YELLOW)
    assert ready.process(H1, *[droppable(3)] * 30) == []
    assert ready.decisions()[Reason.DROPPED_RED, 6, 3] == 30


@pytest.mark.parametrize("version", [4, 6])
def test_ordinary_traffic_is_marked_where_it_is_ecn_capable_and_never_dropped(ready: Bench, version: int) -> None:
    dscp_46 = 46 << 2  # class 5
    ready.congest(H1, gradient(**PROTECTED), GREEN)
    for capable in (ECT_0, ECT_1, CONGESTED):
        assert ecn(ready, ordinary(tos=dscp_46 | capable, version=version)) == CONGESTED
    for _ in range(YELLOW + 5):
        assert ecn(ready, ordinary(tos=dscp_46, version=version)) == NOT_CAPABLE


def test_traffic_below_the_metered_classes_neither_fills_the_queue_nor_is_marked(ready: Bench) -> None:
    for _ in range(20):
        assert ecn(ready, ordinary(tos=ECT_0)) == ECT_0
    assert ecn(ready, gradient(**PROTECTED)) == ECT_0, "best effort must not have filled the queue"
    ready.congest(H1, gradient(**PROTECTED), GREEN + YELLOW)
    assert ecn(ready, ordinary(tos=ECT_0)) == ECT_0
    ready.forward(H1, gradient(layer=200, magnitude=0, budget=100), H2), "a layer in no class is not metered"


def test_the_lowest_metered_class_itself_fills_the_queue(ready: Bench) -> None:
    for _ in range(GREEN):
        assert ecn(ready, ordinary(tos=8 << 2 | ECT_0)) == ECT_0  # DSCP 8 has class 1
    assert ecn(ready, gradient(**PROTECTED)) == CONGESTED


def test_where_best_effort_is_metered_it_fills_the_queue_like_the_rest(bench: Bench) -> None:
    policies = [it for it in congestion() if it != port_policy(2)]
    bench.install(fabric(), job(), policies, [port_policy(2, metered=0)])
    for _ in range(GREEN):
        assert ecn(bench, ordinary(tos=ECT_0)) == ECT_0
    assert ecn(bench, ordinary(tos=ECT_0)) == CONGESTED
    assert bench.drops(H1, droppable(3))


def test_each_port_has_a_virtual_queue_of_its_own(ready: Bench) -> None:
    ready.congest(H1, gradient(H1, H2, **PROTECTED), GREEN + YELLOW)
    assert ecn(ready, gradient(H1, H3, **PROTECTED), H1, H3) == ECT_0
    assert ecn(ready, gradient(H3, H2, **PROTECTED), H3, H2) == CONGESTED
    assert ecn(ready, gradient(FAR, H2, through=U5, ip_fields={"tos": 0b110_000_10}), U5, H2) == CONGESTED


def test_a_port_without_a_policy_meters_every_class_and_drops_at_red_and_7_at_yellow(bench: Bench) -> None:
    """The default of port_policies."""
    entries: list[Entity] = [it for it in congestion() if it != port_policy(4)]
    bench.install(fabric(), job(), entries, [drop_precedence(1, (200, 200), (128, 128), 7)])
    for _ in range(GREEN):
        assert ecn(bench, ordinary(H1, H4, ECT_0), H1, H4) == ECT_0
    assert ecn(bench, ordinary(H1, H4, ECT_0), H1, H4) == CONGESTED
    bench.forward(H1, gradient(destination=H4, layer=1, magnitude=0, budget=100), H4)
    assert bench.drops(H1, gradient(destination=H4, layer=200, magnitude=128, budget=100))
    bench.congest(H1, ordinary(H1, H4), YELLOW - 2)
    assert bench.drops(H1, gradient(destination=H4, layer=1, magnitude=0, budget=100))
    assert bench.drops(H1, gradient(destination=H4, layer=1, magnitude=128, budget=100))


def test_a_port_without_a_rate_is_always_green(bench: Bench) -> None:
    entries = [it for it in congestion() if it != virtual_queue(2)]
    bench.install(fabric(), job(), entries)
    assert len(bench.process(H1, *[droppable(3)] * 50)) == 50
    assert bench.reasons() == {Reason.FORWARDED: 50}


def test_the_queue_drains_at_the_rate_of_the_port(in_process: InProcess, schema) -> None:
    """On the target whose clock the test holds: 1000 bytes leave the queue each second."""
    bench = Bench(in_process, schema)
    bench.install(fabric(), job(), congestion())
    bench.add(virtual_queue(2, P4MeterConfig(cir=1000, cburst=5500, pir=1000, pburst=11000)))
    bench.congest(H1, gradient(**PROTECTED), GREEN)
    assert ecn(bench, gradient(**PROTECTED)) == CONGESTED
    in_process.switch.now += 499_000_000
    assert ecn(bench, gradient(**PROTECTED)) == CONGESTED, "500 free bytes and 499 drained ones are no 1000"
    in_process.switch.now += 1_000_000
    assert ecn(bench, gradient(**PROTECTED)) == ECT_0
    in_process.switch.now += 60_000_000_000
    marks = [ecn(bench, gradient(**PROTECTED)) for _ in range(GREEN + 1)]
    assert marks == [ECT_0] * GREEN + [CONGESTED], "however long it was idle, the burst is the threshold"


def test_precedence_0_is_protected_whatever_the_thresholds_say(bench: Bench) -> None:
    policies = [it for it in congestion() if it != port_policy(2)]
    bench.install(fabric(), job(), policies, [port_policy(2, metered=0, yellow=0, red=0)])
    bench.congest(H1, gradient(**PROTECTED), GREEN + YELLOW + 5)
    assert bench.drops(H1, droppable(1))
