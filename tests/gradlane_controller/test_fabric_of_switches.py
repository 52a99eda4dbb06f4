# SPDX-License-Identifier: Apache-2.0
"""A leaf-spine of gradlane-switch processes under one controller: what hosts send arrives, over every path."""

import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet

from tests.gradlane_controller.running_switches import SwitchProcess, Tunnels, gradlane_switch
from tests.gradlane_controller.texts import job_text, leafspine_text
from tests.support.gradlane_packets import Gradlane
from tests.support.ports import free_ports

HOSTS = {"leaf1": (1, 2), "leaf2": (1, 2), "spine1": (), "spine2": ()}
LINKS = {
    ("leaf1", 5): ("spine1", 1),
    ("leaf1", 6): ("spine2", 1),
    ("leaf2", 5): ("spine1", 2),
    ("leaf2", 6): ("spine2", 2),
}


class Wire:
    """The link between leaf2 and spine1, which goes through here so that it can be broken."""

    def __init__(self, a: int, b: int) -> None:
        self.broken = False
        self._sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in (a, b)]
        for each in self._sockets:
            each.bind(("127.0.0.1", 0))
        self.ends = [each.getsockname()[1] for each in self._sockets]
        for receiver, sender, to in ((0, 1, b), (1, 0, a)):
            threading.Thread(target=self._carry, args=(receiver, sender, to), daemon=True).start()

    def _carry(self, receiver: int, sender: int, to: int) -> None:
        try:
            while frame := self._sockets[receiver].recv(65536):
                if not self.broken:
                    self._sockets[sender].sendto(frame, ("127.0.0.1", to))
        except OSError:
            pass  # closed

    def close(self) -> None:
        for each in self._sockets:
            each.close()


class Lab:
    """The switches by name, the ends of their hosts' ports, and the fabric file."""

    def __init__(self, folder: Path) -> None:
        self.wires = {name: Tunnels(HOSTS[name]) for name in HOSTS}
        interfaces = {name: dict(self.wires[name].interfaces) for name in HOSTS}
        for a, b in LINKS.items():
            here, there = free_ports(2, socket.SOCK_DGRAM)
            ends = [there, here]
            if a == ("leaf2", 5):
                self.wire = Wire(here, there)
                ends = self.wire.ends
            interfaces[a[0]][a[1]] = f"udp:127.0.0.1:{here}-127.0.0.1:{ends[0]}"
            interfaces[b[0]][b[1]] = f"udp:127.0.0.1:{there}-127.0.0.1:{ends[1]}"
        addresses = [f"127.0.0.1:{port}" for port in free_ports(4)]
        self.switches: dict[str, SwitchProcess] = {
            name: gradlane_switch(address, interfaces[name], folder, number)
            for number, (name, address) in enumerate(zip(HOSTS, addresses, strict=True), 1)
        }
        self.fabric = leafspine_text(addresses=addresses)

    def start(self) -> None:
        for each in self.switches.values():
            each.start()
        for each in self.switches.values():
            each.wait_until_reachable()

    def host(self, number: int) -> tuple[Tunnels, int]:
        """The wires and the port of h1 to h4."""
        return self.wires["leaf1" if number < 3 else "leaf2"], 1 if number % 2 else 2

    def send(self, number: int, frame: Packet) -> None:
        wires, port = self.host(number)
        wires.send(port, frame)

    def expect(self, number: int, like: Callable[[Packet], bool], seconds: float = 60) -> Packet:
        wires, port = self.host(number)
        return wires.expect(port, like, seconds)

    def close(self) -> None:
        for each in self.switches.values():
            each.stop()
        for each in (*self.wires.values(), self.wire):
            each.close()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    it = Lab(tmp_path)
    try:
        it.start()
        yield it
    finally:
        it.close()


def ip(source: int, destination: str, **fields: int) -> Packet:
    frame = Ether(src=f"02:00:00:00:0{source}:02", dst=f"02:00:00:00:0{source}:01")
    return frame / IP(src=f"10.0.{source}.2", dst=destination, **fields)


def slice_of(message: int, number: int, destination: str = "10.0.3.2", source: int = 1) -> Packet:
    header = Gradlane(version=1, job=1, slices=100, slice=number, message=message, length=100)
    return ip(source, destination) / UDP(sport=47400, dport=47400) / header / (b"x" * 100)


def decided(controller, job: str | None) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for row in controller.ask("GET", "/counters")[1]["decisions"]:
        if row["job"] == job:
            counts[row["switch"], row["reason"]] += row["packets"]
    return counts


def test_a_leaf_spine(lab: Lab, run_controller) -> None:
    it = run_controller(lab.fabric, job_text(hosts=(1, 3, 4), transport='multicast = "239.1.0.1"'))
    it.wait_for("ready:", 120)

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
    stop = threading.Event()
    sent = 0

    def send() -> None:
        nonlocal sent
        while not stop.is_set():
            lab.send(1, slice_of(sent // 100, sent % 100))
            sent += 1
            time.sleep(0.002)

    got: list[int] = []

    def receive(seconds: float) -> None:
        wires, _ = lab.host(3)
        while (found := wires.receive(seconds)) is not None:
            frame = Ether(found[1])
            if Gradlane in frame:
                got.append(100 * frame[Gradlane].message + frame[Gradlane].slice)

    sender = threading.Thread(target=send)
    receiver = threading.Thread(target=receive, args=(10,))
    sender.start()
    receiver.start()
    try:
        first.end(signal.SIGKILL)
        second = run_controller(lab.fabric, *jobs)
        for _ in HOSTS:
            assert "0 inserted, 0 modified, 0 deleted" in second.wait_for("converged", 60)
    finally:
        stop.set()
        sender.join()
        receiver.join()
    assert sent > 100
    assert sorted(got) == list(range(sent))


def test_traffic_goes_around_a_link_that_fails_where_its_sender_does_not_see_it(
    lab: Lab,
    run_controller,
) -> None:
    job = job_text(hosts=(1, 3))
    it = run_controller(lab.fabric, job)
    it.wait_for("ready:", 120)

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
    deadline = time.monotonic() + 60
    while min(decided(it, None)[leaf, "punted_probe"] for leaf in ("leaf1", "leaf2")) < 4:  # probes over both spines
        assert time.monotonic() < deadline
    lab.switches["spine1"].stop()
    it.wait_for("link leaf1:5 - spine1:1 is down", 60)
    it.wait_for("link leaf2:5 - spine1:2 is down", 60)
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
