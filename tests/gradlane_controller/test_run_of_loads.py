# SPDX-License-Identifier: Apache-2.0
"""The controller as a process: what ports send by queue class, as it reads, tells and shows it."""

import time
import urllib.request
from functools import partial

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.running_switches import Target
from tests.gradlane_controller.test_run import command
from tests.gradlane_controller.test_run_of_sums import SCHEMA
from tests.gradlane_controller.texts import fabric_text, job_text, leafspine_text
from tests.support.agents import until
from tests.support.gradlane_packets import H1, H2

SENT = SCHEMA.counters["sent"].id
CELLS = [*range(16), 2 << 3 | 7, 3 << 3 | 7]  # of a port: paths and trees by class, trimmed slices in class 7


def metrics(it) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{it.http}/metrics") as found:
        lines = found.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


def sends(switch: FakeSwitch, rates: dict[tuple[int, int], tuple[int, float]], ports: list[int]) -> None:
    """From now on, in packets/s and bit/s by port and cell of the port; other cells of these ports stay."""
    begun = time.monotonic()

    def count() -> None:
        passed = time.monotonic() - begun
        for port in ports:
            for cell in CELLS:
                packets, bits = rates.get((port, cell), (0, 0.0))
                counted = 10**9 + int(packets * passed), 10**12 + int(bits / 8 * passed)
                switch.counters[SENT, port << 5 | cell] = counted

    switch.count = count


@pytest.fixture
def running(make_fake_switch, run_controller):
    """A leaf-spine; at leaf1 port 1 has a host, and port 5 leads to spine1. Nobody else counts anything."""
    switches = [make_fake_switch() for _ in range(4)]
    fabric = leafspine_text(addresses=[switch.address for switch in switches])
    it = run_controller(fabric, job_text(hosts=(1, 3)), more=("--no-link-check",))
    it.wait_for("ready:")
    rates = {(1, 0): (100, 2e6), (5, 6): (900, 40e6), (5, 8 + 6): (900, 20e6), (5, 7): (10, 1e6)}
    # Of trimmed slices what is left, whatever the bytes were that came.
    rates |= {(5, 16 + 7): (1000, 90e6), (5, 24 + 7): (2000, 90e6)}
    sends(switches[0], rates, [1, 5])
    return it


def end(it, name: str) -> tuple[list[int] | None, int | None]:
    """What an end of a link sends."""
    return next(
        (link["sent"][n], link["trees"][n])
        for link in it.ask("GET", "/links")[1]["links"]
        for n, known in enumerate(link["ends"])
        if known == name
    )


def test_links_metrics_and_people_are_told_what_each_port_sends_by_class(running) -> None:
    wanted = [0, 0, 0, 0, 0, 0, 60e6, 1e6 + 8 * (78 * 1000 + 98 * 2000)]
    near = partial(pytest.approx, rel=0.03, abs=10_000)
    until(lambda: end(running, "leaf1:5") == (near(wanted), near(20e6)))
    assert end(running, "leaf2:5") == (None, None), "that switch has counted nothing"
    found = metrics(running)
    own = 'gradlane_controller_port_{}_bits{{port="{}",{}switch="leaf1"}}'.format
    of_link = [found[own("sent", 5, f'queue_class="{n}",')] for n in range(8)]
    assert of_link == near(wanted)
    assert found[own("tree", 5, "")] == near(20e6)
    of_host = [found[own("sent", 1, f'queue_class="{n}",')] for n in range(8)]
    assert of_host == near([2e6, *[0] * 7])
    assert sum(name.startswith("gradlane_controller_port_sent_bits") for name in found) == 16
    shown = command("links", *running.access).stdout.splitlines()
    head = next(line for line in shown if line.split()[:2] == ["end", "all"])
    assert head.split() == ["end", "all", "trees", *map(str, range(8))]
    row = next(line for line in shown if line.split()[0:1] == ["leaf1:5"] and "-" not in line).split()
    assert [float(cell) for cell in row[1:]] == pytest.approx([63.2, 20, 0, 0, 0, 0, 0, 0, 60, 3.2], abs=2)
    unknown = next(line for line in shown if line.split()[0:1] == ["leaf2:5"] and "-" not in line)
    assert unknown.split()[1:] == ["?"] * 10


def test_a_switch_that_tells_of_a_part_of_a_port_alone_tells_nothing(make_fake_switch, run_controller) -> None:
    switch = make_fake_switch()
    it = run_controller(fabric_text(switch.address), job_text())
    it.wait_for("ready:")
    sends(switch, {(1, 0): (100, 2e6), (2, 0): (100, 2e6)}, [1, 2])
    complete, all_cells = switch.count, [SENT, 2 << 5 | 31]

    def count() -> None:
        complete()
        del switch.counters[tuple(all_cells)]

    switch.count = count
    name = 'gradlane_controller_port_sent_bits{{port="{}",queue_class="0",switch="s1"}}'.format
    until(lambda: metrics(it).get(name(1), 0) > 1e6)
    assert name(2) not in metrics(it)


def test_what_a_switch_sends_to_a_host_is_known_of_every_switch(target: Target, run_controller) -> None:
    it = run_controller(fabric_text(target.address, target.kind), job_text())
    it.wait_for("ready:", 60)
    frame = Ether(src=H1.mac, dst=H2.mac) / IP(src=H1.address, dst=H2.address) / UDP(dport=9) / Raw(bytes(1000))
    name = 'gradlane_controller_port_sent_bits{{port="{}",queue_class="0",switch="s1"}}'.format

    def is_told() -> bool:
        for _ in range(5):
            target.wires.send(1, frame)
        return metrics(it).get(name(2), 0) > 0

    until(is_told)
    assert metrics(it)[name(3)] == 0
