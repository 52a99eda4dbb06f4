# SPDX-License-Identifier: Apache-2.0
"""A leaf-spine of gradlane-switch processes under one controller: what hosts send arrives, over every path."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether

from tests.gradlane_controller.leafspine_lab import HOSTS, Lab, decided, ip, slice_of, stream, wait_until_whole
from tests.gradlane_controller.texts import job_text
from tests.support.gradlane_packets import Gradlane


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    it = Lab(tmp_path)
    try:
        it.start()
        yield it
    finally:
        it.close()


def test_a_leaf_spine(lab: Lab, run_controller) -> None:
    it = run_controller(lab.fabric, job_text(hosts=(1, 3, 4), transport='multicast = "239.1.0.1"'))
    it.wait_for("ready:", 120)
    wait_until_whole(it)

    # Ordinary traffic crosses three switches.
    lab.send(1, ip(1, "10.0.4.2", ttl=64) / UDP(dport=9) / b"hello")
    arrived = lab.expect(4, lambda frame: UDP in frame)
    assert (arrived[Ether].src, arrived[Ether].dst) == ("02:00:00:00:04:01", "02:00:00:00:04:02")
    assert arrived[IP].ttl == 61

    # The other leaf answers for its gateway, over the spines; hosts of the other leaf are behind the own gateway.
    wires, port = lab.host(1)
    pong = wires.ask(port, ip(1, "10.0.3.1") / ICMP(), lambda frame: ICMP in frame)
    assert (pong[IP].src, pong[IP].ttl) == ("10.0.3.1", 62)
    question = Ether(src="02:00:00:00:01:02", dst="ff:ff:ff:ff:ff:ff") / ARP(hwsrc="02:00:00:00:01:02", pdst="10.0.3.2")
    assert wires.ask(port, question, lambda frame: ARP in frame)[ARP].hwsrc == "02:00:00:00:01:01"

    # Slices are sprayed evenly over the spines, whatever the flow.
    for message, number in ((message, number) for message in range(2) for number in range(100)):
        lab.send(1, slice_of(message, number))
        lab.expect(3, lambda frame: Gradlane in frame)
    by_switch = decided(it, "demo")
    assert by_switch == {(name, "forwarded"): 200 if "leaf" in name else 100 for name in HOSTS}

    # An aggregator's results reach every worker but itself, by a tree: once over one of the spines.
    multicast = Ether(src="02:00:00:00:01:02", dst="01:00:5e:01:00:01") / IP(src="10.0.1.2", dst="239.1.0.1", ttl=16)
    header = Gradlane(version=1, job=1, slices=1, length=100)
    lab.send(1, multicast / UDP(sport=47400, dport=47400) / header / (b"x" * 100))
    for host in (3, 4):
        assert lab.expect(host, lambda frame: Gradlane in frame)[IP].dst == "239.1.0.1"
    assert decided(it, "demo") - by_switch == {(name, "forwarded"): 1 for name in ("leaf1", "leaf2", "spine1")}

    # h2 is not of the job; leaf1 says so, and nobody else has seen it.
    lab.send(2, slice_of(9, 0, source=2))
    assert "refused at port 2 of 'leaf1' (host 'h2')" in it.wait_for("refused")


def test_a_controllers_death_and_return_interrupt_nothing(
    lab: Lab,
    run_controller,
) -> None:
    jobs = (job_text(hosts=(1, 3)), job_text("other", 2, hosts=(2, 4), base=4096))
    first = run_controller(lab.fabric, *jobs)
    first.wait_for("ready:", 120)
    wait_until_whole(first)
    with stream(lab) as slices:
        first.end(signal.SIGKILL)
        second = run_controller(lab.fabric, *jobs)
        for _ in HOSTS:
            assert "0 inserted, 0 modified, 0 deleted" in second.wait_for("converged", 60)
    assert slices.sent > 100
    assert sorted(slices.got) == list(range(slices.sent))


def test_traffic_goes_around_a_link_that_fails_where_its_sender_does_not_see_it(
    lab: Lab,
    run_controller,
) -> None:
    job = job_text(hosts=(1, 3))
    it = run_controller(lab.fabric, job)
    it.wait_for("ready:", 120)
    wait_until_whole(it)

    def arrivals() -> int:
        """Of 100 slices from h1 to h3."""
        for number in range(100):
            lab.send(1, slice_of(1, number))
        wires, _ = lab.host(3)
        count = 0
        while (found := wires.receive(2)) is not None:
            count += Gradlane in Ether(found[1])
        return count

    assert arrivals() == 100
    lab.wire.broken = True
    assert "link leaf2:5 - spine1:2 is down" in it.wait_for("is down", 60)
    for _ in range(3):  # spine2 has nothing to do with it
        it.wait_for("converged", 60)
    assert arrivals() == 100
    assert [link["up"] for link in it.ask("GET", "/links")[1]["links"]] == [True, False, True, True]
    # A new controller goes on with what the switches have, until it knows the links.
    it.end(signal.SIGKILL)
    it = run_controller(lab.fabric, job)
    for _ in HOSTS:
        assert "0 inserted, 0 modified, 0 deleted" in it.wait_for("converged", 60)
    assert arrivals() == 100
    lab.wire.broken = False
    assert "link leaf2:5 - spine1:2 works" in it.wait_for("works", 60)
    for _ in range(3):  # spine2 has nothing to do with it
        it.wait_for("converged", 60)
    before = decided(it, "demo")
    assert arrivals() == 100
    assert (decided(it, "demo") - before)["spine1", "forwarded"] == 50


def test_a_dead_spine_is_gone_around_by_multicast_too(lab: Lab, run_controller) -> None:
    it = run_controller(lab.fabric, job_text(hosts=(1, 3, 4), transport='multicast = "239.1.0.1"'))
    it.wait_for("ready:", 120)
    wait_until_whole(it)
    deadline = time.monotonic() + 60
    while min(decided(it, None)[leaf, "punted_probe"] for leaf in ("leaf1", "leaf2")) < 4:  # probes over both spines
        assert time.monotonic() < deadline
    lab.switches["spine1"].stop()
    said = [it.wait_for("is down", 60) for _ in range(2)]  # whichever is found first
    assert [any(link in line for line in said) for link in ("leaf1:5 - spine1:1", "leaf2:5 - spine1:2")] == [True, True]
    multicast = Ether(src="02:00:00:00:01:02", dst="01:00:5e:01:00:01") / IP(src="10.0.1.2", dst="239.1.0.1", ttl=16)
    header = Gradlane(version=1, job=1, slices=1, length=100)
    while True:  # until the switches have their entries
        lab.send(1, multicast / UDP(sport=47400, dport=47400) / header / (b"x" * 100))
        try:
            found = lab.expect(3, lambda frame: Gradlane in frame, 1)
        except AssertionError:
            assert time.monotonic() < deadline + 60
        else:
            break
    assert found[IP].dst == "239.1.0.1"
