# SPDX-License-Identifier: Apache-2.0
"""The virtual queue of each port: what fills it, what turns yellow and red, what is dropped and what is marked."""

from dataclasses import replace

import pytest
from finsy import Action, P4TableEntry
from gradlane_packets import H1, H2, H3, H4, gradient, ip
from packet_bench import GREEN, POLICY, YELLOW, Bench, fabric_file, job_file
from packet_targets import InProcess
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw

from gradlane.wire import Kind
from gradlane_controller.counters import Reason
from gradlane_controller.policy import Entity

NOT_CAPABLE, ECT_1, ECT_0, CONGESTED = 0, 1, 2, 3
PROTECTED = {"layer": 1, "magnitude": 255, "budget": 100}
MAGNITUDE = {1: 128, 2: 64, 3: 0}


def ordinary(source=H1, destination=H2, tos: int = 0, size: int = 1000) -> bytes:
    return bytes(ip(source, destination, tos=tos) / UDP(dport=9) / Raw(bytes(size - 42)))


def droppable(precedence: int, **header: int) -> bytes:
    return gradient(**({"layer": 1, "magnitude": MAGNITUDE[precedence], "budget": 100} | header))


def ecn(bench: Bench, frame: bytes, source=H1, destination=H2) -> int:
    return bench.forward(source, frame, destination).packet[IP].tos & 3


def test_a_burst_is_green_up_to_the_first_threshold_yellow_up_to_the_second_and_then_red(bench: Bench) -> None:
    bench.install(job_file())
    marks = [ecn(bench, gradient(**PROTECTED)) for _ in range(GREEN + YELLOW + 5)]
    assert marks == [ECT_0] * GREEN + [CONGESTED] * (YELLOW + 5)
    assert bench.process(H1, droppable(1)) == [], "it must be red now: precedence 1 goes at red alone"


def test_the_bytes_of_the_whole_frame_fill_the_queue(bench: Bench) -> None:
    bench.install(job_file())
    marks = [ecn(bench, gradient(frame_bytes=550, **PROTECTED)) for _ in range(11)]
    assert marks == [ECT_0] * 10 + [CONGESTED], "5500 bytes are ten frames of 550 bytes"


@pytest.mark.parametrize("precedence", [1, 2, 3])
@pytest.mark.parametrize("fill", [GREEN, GREEN + YELLOW], ids=["yellow", "red"])
def test_slices_are_dropped_from_the_threshold_on_that_the_policy_names(
    bench: Bench, precedence: int, fill: int
) -> None:
    bench.install(job_file())
    bench.congest(H1, gradient(**PROTECTED), fill)
    gone = bench.process(H1, droppable(precedence)) == []
    assert gone == (fill > GREEN or precedence >= 2), "yellow = 2, red = 1 are the defaults of a job"
    reason = Reason.FORWARDED if not gone else Reason.DROPPED_RED if fill > GREEN else Reason.DROPPED_YELLOW
    assert bench.decisions()[reason, 6, precedence] == 1


def test_the_thresholds_of_the_job_file_are_the_ones_that_count(bench: Bench) -> None:
    bench.install(job_file(policy=POLICY + "yellow = 3\nred = 2"))
    bench.congest(H1, gradient(**PROTECTED), GREEN)
    assert bench.process(H1, droppable(3)) == []
    assert len(bench.process(H1, droppable(2))) == 1
    bench.congest(H1, gradient(**PROTECTED), YELLOW)
    assert bench.process(H1, droppable(3)) == []
    assert bench.process(H1, droppable(2)) == []
    assert len(bench.process(H1, droppable(1))) == 1


def test_below_the_first_threshold_nothing_is_dropped(bench: Bench) -> None:
    bench.install(job_file())
    for _ in range(GREEN):
        sent = bench.forward(H1, droppable(3), H2)
        assert sent.packet[IP].tos & 3 == NOT_CAPABLE
    assert bench.process(H1, droppable(3)) == []


@pytest.mark.parametrize(
    "frame",
    [
        gradient(**PROTECTED),
        gradient(layer=1, magnitude=0, budget=0),
        gradient(layer=1, magnitude=0, budget=100, kind=Kind.REPAIR),
        gradient(layer=1, magnitude=0, budget=100, kind=Kind.STOP),
        gradient(layer=1, magnitude=0, budget=100, kind=Kind.BITMAP),
    ],
    ids=["large magnitude", "no budget", "repair", "stop", "bitmap"],
)
def test_a_protected_packet_is_marked_and_never_dropped_by_policy_even_at_red(bench: Bench, frame: bytes) -> None:
    bench.install(job_file())
    bench.congest(H1, gradient(**PROTECTED), GREEN + YELLOW)
    for _ in range(30):
        assert ecn(bench, frame) == CONGESTED
    assert not any(reason.name.startswith("DROPPED") for reason, _, _ in bench.decisions())


def test_a_dropped_slice_does_not_fill_the_queue_beyond_red(bench: Bench) -> None:
    bench.install(job_file())
    bench.congest(H1, gradient(**PROTECTED), GREEN + YELLOW)
    for _ in range(30):
        assert bench.process(H1, droppable(3)) == []
    assert bench.decisions()[Reason.DROPPED_RED, 6, 3] == 30


def test_ordinary_traffic_is_marked_where_it_is_ecn_capable_and_never_dropped(bench: Bench) -> None:
    bench.install(job_file())
    dscp_46 = 46 << 2  # class 5 in the fabric file
    bench.congest(H1, gradient(**PROTECTED), GREEN)
    for capable in (ECT_0, ECT_1, CONGESTED):
        assert ecn(bench, ordinary(tos=dscp_46 | capable)) == CONGESTED
    for _ in range(YELLOW + 5):
        assert ecn(bench, ordinary(tos=dscp_46)) == NOT_CAPABLE


def test_traffic_below_the_metered_classes_neither_fills_the_queue_nor_is_marked(bench: Bench) -> None:
    bench.install(job_file())
    for _ in range(30):
        assert ecn(bench, ordinary(tos=ECT_0)) == ECT_0
    assert ecn(bench, gradient(**PROTECTED)) == ECT_0, "best effort must not have filled the queue"
    bench.congest(H1, gradient(**PROTECTED), GREEN + YELLOW)
    assert ecn(bench, ordinary(tos=ECT_0)) == ECT_0
    assert len(bench.process(H1, gradient(layer=200, magnitude=0, budget=100))) == 1, (
        "a layer in no class is not metered"
    )


def test_the_lowest_metered_class_itself_fills_the_queue(bench: Bench) -> None:
    bench.install(job_file())
    for _ in range(GREEN):
        assert ecn(bench, ordinary(tos=8 << 2 | ECT_0)) == ECT_0  # DSCP 8 has class 1
    assert ecn(bench, gradient(**PROTECTED)) == CONGESTED


def test_without_priority_best_effort_shares_the_queue_and_fills_it(bench: Bench) -> None:
    bench.install(job_file(policy=POLICY + "priority = false"))
    for _ in range(GREEN):
        assert ecn(bench, ordinary(tos=ECT_0)) == ECT_0
    assert ecn(bench, ordinary(tos=ECT_0)) == CONGESTED
    assert bench.process(H1, droppable(3)) == []


def test_each_port_has_a_virtual_queue_of_its_own(bench: Bench) -> None:
    bench.install(job_file())
    bench.congest(H1, gradient(H1, H2, **PROTECTED), GREEN + YELLOW)
    assert ecn(bench, gradient(H1, H3, **PROTECTED), H1, H3) == ECT_0
    assert ecn(bench, gradient(H3, H2, **PROTECTED), H3, H2) == CONGESTED


def test_a_port_without_a_job_protects_what_red_does_not_name_and_meters_every_class(bench: Bench) -> None:
    """The default of port_policies: yellow drops precedence 7, red every droppable class, and class 0 is metered."""
    bench.install(job_file(policy=POLICY.replace("[128, 159], drop_precedence = 1", "[128, 159], drop_precedence = 7")))
    for _ in range(GREEN):
        assert ecn(bench, ordinary(H1, H4, ECT_0), H1, H4) == ECT_0
    assert ecn(bench, ordinary(H1, H4, ECT_0), H1, H4) == CONGESTED
    slices = {"destination": H4, "layer": 1, "budget": 100}
    assert len(bench.process(H1, gradient(magnitude=0, **slices))) == 1
    assert bench.process(H1, gradient(magnitude=128, **slices)) == []
    bench.congest(H1, ordinary(H1, H4), YELLOW - 1)
    assert bench.process(H1, gradient(magnitude=0, **slices)) == []
    assert bench.process(H1, gradient(magnitude=64, **slices)) == []


def test_the_drop_map_tells_layer_and_magnitude_of_what_the_policy_dropped(bench: Bench) -> None:
    policy = """
queue_classes = [ { layers = [0, 65535], class = 6 } ]
drop_precedences = [ { magnitudes = [0, 255], drop_precedence = 3 } ]
"""
    bench.install(job_file(policy=policy))
    bench.congest(H1, gradient(kind=Kind.REPAIR), GREEN)
    for layer, magnitude in ((0, 0), (5, 0x7F), (62, 15), (62, 16), (63, 255), (64, 255), (65535, 255)):
        assert bench.process(H1, gradient(layer=layer, magnitude=magnitude, budget=100)) == []
    packets = {index: count.packets for index, count in bench.cells("drop_map").items()}
    assert packets == {0: 1, 5 << 4 | 7: 1, 62 << 4: 1, 62 << 4 | 1: 1, 63 << 4 | 15: 3}


def test_the_drop_map_counts_nothing_but_policy_drops(bench: Bench) -> None:
    bench.install(job_file())
    for frame in (gradient(job=9, layer=1), gradient(layer=1), gradient(H1, "192.0.2.1", layer=1), ordinary()):
        bench.process(H1, frame)
    bench.congest(H1, gradient(**PROTECTED), GREEN + YELLOW)
    assert len(bench.process(H1, droppable(3, budget=0))) == 1
    assert bench.cells("drop_map") == {}


def test_a_decision_is_counted_at_reason_class_precedence_with_its_bytes(bench: Bench) -> None:
    bench.install(job_file())
    bench.congest(H1, gradient(layer=4), GREEN)
    assert bench.process(H1, gradient(layer=1, magnitude=0, budget=9, frame_bytes=600)) == []
    cells = {index: (count.packets, count.bytes) for index, count in bench.cells("decisions").items()}
    # FORWARDED (0), class 5, precedence 0; DROPPED_YELLOW (3), class 6, precedence 3.
    assert cells == {0b0000_101_000: (GREEN, 1000 * GREEN), 0b0011_110_011: (1, 600)}


def test_the_queue_drains_at_the_rate_of_the_port(in_process: InProcess, schema) -> None:
    """On the target whose clock the test holds: 8000 bit/s take 1000 bytes off the queue each second."""
    bench = Bench(in_process, schema)
    bench.install(job_file(), where=fabric_file("8kbit"))
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
    """P4Runtime takes a threshold of 0, which no job file can state."""

    def drop_everything(entity: Entity) -> Entity:
        if not isinstance(entity, P4TableEntry) or entity.table_id != "port_policies":
            return entity
        return replace(entity, action=Action("set_policy", lowest_metered_class=0, yellow=0, red=0))

    bench.install(job_file(), change=drop_everything)
    for _ in range(GREEN + YELLOW + 5):
        assert len(bench.process(H1, gradient(**PROTECTED))) == 1
    assert bench.process(H1, droppable(1)) == []
