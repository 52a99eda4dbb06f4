# SPDX-License-Identifier: Apache-2.0
"""The background bursts: what is offered, when, and that it costs the receivers nothing."""

import socket
import threading
import time
from dataclasses import replace

import pytest

from lab.training import bursts
from lab.training.bursts import Plan

PLAN = Plan(["127.0.4.1"], rate=40_000_000, period=0.1, duty=0.3, start=0.0, seconds=0.4, port=40009)
FRAME = 1442  # bytes of one datagram on the wire


class Collector(threading.Thread):
    """Counts what arrives, and when."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__(daemon=True)
        self.times: list[float] = []
        self.sizes: set[int] = set()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**22)
        self.socket.bind((address, port))
        self.socket.settimeout(2.0)

    def run(self) -> None:
        with self.socket:
            while True:
                try:
                    data = self.socket.recv(65536)
                except TimeoutError:
                    return
                self.times.append(time.monotonic())
                self.sizes.add(len(data))


def collect(plan: Plan, addresses: list[str]) -> tuple[bursts.Report, list[Collector]]:
    collectors = [Collector(address, plan.port) for address in addresses]
    for collector in collectors:
        collector.start()
    report = bursts.send(plan)
    for collector in collectors:
        collector.join(60)
    return report, collectors


@pytest.mark.parametrize("rate", [1_000_000, 40_000_000, 150_000_000])
def test_a_burst_offers_its_rate(rate: int) -> None:
    plan = replace(PLAN, rate=rate, period=1.0, duty=0.5)
    offered = plan.sends_per_burst * plan.datagrams_per_send * FRAME * 8
    assert offered == pytest.approx(rate * 0.5, rel=0.03)
    assert plan.sends_per_burst * plan.send_interval <= 0.5


@pytest.mark.timed
def test_every_burst_arrives_in_whole_datagrams_and_on_time() -> None:
    start = time.monotonic() + 0.05
    report, (collector,) = collect(replace(PLAN, start=start), ["127.0.4.1"])
    assert report.bursts == 4
    assert report.datagrams == 4 * PLAN.sends_per_burst * PLAN.datagrams_per_send
    assert len(collector.times) == report.datagrams
    assert collector.sizes == {1400}
    assert report.bytes == 1400 * report.datagrams
    first_of_burst = collector.times[:: len(collector.times) // 4]
    for i, moment in enumerate(first_of_burst):
        assert moment >= start + 0.1 * i
        assert moment <= start + 0.1 * i + report.late_max + 0.05


@pytest.mark.timed
def test_staggered_receivers_take_turns() -> None:
    start = time.monotonic() + 0.05
    plan = replace(PLAN, receivers=["127.0.4.1", "127.0.4.2"], stagger=True, start=start, seconds=0.1)
    _, (first, second) = collect(plan, list(plan.receivers))
    assert first.times[0] < start + 0.05 <= second.times[0]
    assert len(first.times) == len(second.times)


def test_bursts_that_are_over_are_left_out() -> None:
    report = bursts.send(replace(PLAN, period=4.0, duty=0.01, seconds=16.0, start=time.monotonic() - 13.0))
    assert report.bursts == 1


def test_what_is_discarded_is_refused_by_nobody() -> None:
    with bursts.discard("127.0.4.3", 40010) as sink, bursts.discard("127.0.4.3", 40010):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(("127.0.4.3", 40010))
            for _ in range(3):
                sender.send(b"x" * 1400)  # the second would raise ConnectionRefusedError after an ICMP error
        sink.setblocking(False)
        with pytest.raises(BlockingIOError):
            sink.recv(10)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"receivers": []}, "at least one address"),
        ({"duty": 1.5}, "duty is 1.5"),
        ({"period": 1e-4}, "too short"),
        ({"rate": 10**10}, "at most 500 Mbit/s"),
    ],
)
def test_a_plan_that_cannot_be_sent_is_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        replace(PLAN, **changes)
