# SPDX-License-Identifier: Apache-2.0
"""Gradients that a switch sums as the controller has told it, as hosts send and get them."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from gradlane import wire
from gradlane.wire import Flag, Lanes
from tests.gradlane_controller.controller_process import Running
from tests.gradlane_controller.running_switches import Target, Wires
from tests.gradlane_controller.texts import fabric_text, summed_text
from tests.support.gradlane_packets import H1, H2, H3, H4, TOKEN, Gradlane, Host, ip
from tests.support.sum_switch import SumHeader

WORKERS = (H1, H2, H3)
ADDRESS, MAC = "239.1.1.4", "01:00:5e:01:01:04"  # of job 1, behind those of its three workers


def contribution(source: Host, values: Sequence[int], number: int = 0) -> Packet:
    """A slice of 16-bit lanes with these unsigned values."""
    lanes = np.asarray(values, ">u2").tobytes()
    payload = SumHeader(generation=5, slot=number).pack() + lanes
    header = Gradlane(
        job=1, source=WORKERS.index(source) if source in WORKERS else 0, message=number, token=TOKEN, flags=Flag.SUM,
        element_type=3 << 4 | Lanes.INT16_LANES, length=len(payload), slices=1,
    )  # fmt: skip
    outer = ip(source, ADDRESS)
    outer[Ether].dst = MAC
    return outer / UDP(sport=wire.UDP_PORT, dport=wire.UDP_PORT) / header / Raw(payload)


def result_of(number: int) -> Callable[[Packet], bool]:
    return lambda it: Gradlane in it and it[Gradlane].message == number and bool(it[Gradlane].flags & Flag.PULL)


def lanes_of(frame: Packet) -> list[int]:
    payload = bytes(frame[Gradlane].payload)
    return np.frombuffer(payload[wire.SUM_BYTES : frame[Gradlane].length], ">u2").tolist()


def sums(it: Running) -> dict[str, int]:
    """What was counted of job 1."""
    rows = it.ask("GET", "/counters")[1]["sums"]
    return next((row["events"] for row in rows if row["job"] == "j1"), {})


def expect_results(wires: Wires, number: int) -> dict[int, list[int]]:
    """The lanes by port."""
    found: dict[int, list[int]] = {}
    for _ in WORKERS:
        while True:
            received = wires.receive(60)
            assert received is not None, f"results at {sorted(found)} only"
            port, frame = received[0], Ether(received[1])
            if result_of(number)(frame):
                assert frame[IP].src in {f"10.0.{n}.1" for n in (1, 2, 3)}, "a worker takes nothing from itself"
                assert frame[Ether].dst == MAC
                found[port] = lanes_of(frame)
                break
    return found


@pytest.mark.parametrize("number", [0, 1023])
def test_workers_get_the_sum_of_what_they_have_sent(target: Target, run_controller, number: int) -> None:
    it = run_controller(fabric_text(target.address, target.kind, aggregation=True), summed_text(1))
    it.wait_for("ready:", 120)
    values = np.random.default_rng(1).integers(0, 1 << 14, (3, 64))
    for source, row in zip(WORKERS, values, strict=True):
        target.wires.send(source.port, contribution(source, row, number))
    expected = values.sum(axis=0).tolist()
    assert expect_results(target.wires, number) == {1: expected, 2: expected, 3: expected}
    # Again: who has missed the result gets it, alone.
    target.wires.send(2, contribution(H2, values[1], number))
    assert lanes_of(target.wires.expect(2, result_of(number))) == expected
    # Somebody who is not of the job, before it and after it is gone.
    target.wires.send(4, contribution(H4, values[0], number))
    it.wait_for("refused at")
    nothing = dict.fromkeys(("duplicate", "stale", "no_slots", "refused", "late", "partial"), 0)
    assert sums(it) == {"contribution": 3, "result": 1, "answer": 1, **nothing}


def test_a_job_that_has_gone_is_summed_no_longer(target: Target, run_controller) -> None:
    it = run_controller(fabric_text(target.address, target.kind, aggregation=True), summed_text(1))
    it.wait_for("ready:", 120)
    held = len(it.ask("GET", "/status")[1]["switches"][0]["entries"])
    assert it.ask("POST", "/jobs", summed_text(2, hosts=(3, 4)))[0] == 200
    for name in ("j1", "j2"):
        assert it.ask("DELETE", f"/jobs/{name}")[0] == 200
    for source in WORKERS:
        target.wires.send(source.port, contribution(source, [1] * 64))
    it.wait_for("refused at")
    # Nothing leaves but what the controller says by itself.
    while (received := target.wires.receive(1)) is not None:
        assert Gradlane not in Ether(received[1])
    assert it.ask("POST", "/jobs", summed_text(1))[0] == 200
    assert len(it.ask("GET", "/status")[1]["switches"][0]["entries"]) == held
    assert sums(it) == {}
    for source in WORKERS:
        target.wires.send(source.port, contribution(source, [1] * 64))
    assert expect_results(target.wires, 0) == dict.fromkeys((1, 2, 3), [3] * 64)
