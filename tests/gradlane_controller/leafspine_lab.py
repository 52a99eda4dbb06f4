# SPDX-License-Identifier: Apache-2.0
"""A leaf-spine of gradlane-switch processes, with the ends of hosts' ports here, and what hosts send."""

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from gradlane.wire import HEADER_BYTES, UDP_PORT, Header, Kind
from tests.gradlane_controller.controller_process import Running
from tests.gradlane_controller.running_switches import SwitchProcess, Tunnels, gradlane_switch
from tests.gradlane_controller.texts import leafspine_text
from tests.support.agents import pause, until
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


def ip(source: int, destination: str, **fields: int) -> Packet:
    frame = Ether(src=f"02:00:00:00:0{source}:02", dst=f"02:00:00:00:0{source}:01")
    return frame / IP(src=f"10.0.{source}.2", dst=destination, **fields)


def slice_of(message: int, number: int, destination: str = "10.0.3.2", source: int = 1) -> Packet:
    header = Gradlane(version=1, job=1, slices=100, slice=number, message=message, length=100)
    return ip(source, destination) / UDP(sport=47400, dport=47400) / header / (b"x" * 100)


def decided(controller, job: str | None) -> Counter[tuple[str, str]]:
    """Packets by switch and reason; while a switch is slow to answer, the controller has no counters to give."""
    answers: list[Any] = []

    def answered() -> bool:
        status, document = controller.ask("GET", "/counters")
        answers.append(document)
        return status == 200

    until(answered, lambda: answers[-1])
    counts: Counter[tuple[str, str]] = Counter()
    for row in answers[-1]["decisions"]:
        if row["job"] == job:
            counts[row["switch"], row["reason"]] += row["packets"]
    return counts


# Of a slice's frame: scapy would take the better part of a core to make hundreds in a second, and to read them.
_PAYLOAD = b"x" * 100
_BEFORE = bytes(ip(1, "10.0.3.2") / UDP(sport=UDP_PORT, dport=UDP_PORT, chksum=0) / bytes(HEADER_BYTES + 100))[:42]
_PROTOCOL, _PORT = 23, slice(36, 38)


class Stream:
    """Slices from h1 to h3, one after the other, until `stop`; `lost` are those that have not come then."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._stop, self.sent, self.got = lab, threading.Event(), 0, list[int]()
        self._threads = [threading.Thread(target=it, daemon=True) for it in (self._send, self._receive)]
        for each in self._threads:
            each.start()

    def _send(self) -> None:
        while not self._stop.is_set():
            message, number = divmod(self.sent, 100)
            header = Header(Kind.DATA, 1, 0, message, 0, slice=number, slices=100, length=len(_PAYLOAD))
            wires, port = self._lab.host(1)
            wires.send(port, _BEFORE + header.pack() + _PAYLOAD)
            self.sent += 1
            time.sleep(0.002)

    def _receive(self) -> None:
        wires, _ = self._lab.host(3)
        while (found := wires.receive(5)) is not None:
            frame = found[1]
            if frame[_PROTOCOL] == socket.IPPROTO_UDP and int.from_bytes(frame[_PORT], "big") == UDP_PORT:
                header = Header.unpack(frame[len(_BEFORE) :])
                self.got.append(100 * header.message + header.slice)

    def stop(self) -> None:
        """Waits until nothing arrives any more."""
        self._stop.set()
        for each in self._threads:
            each.join()

    @property
    def lost(self) -> list[int]:
        return sorted(set(range(self.sent)) - set(self.got))


@contextmanager
def stream(lab: Lab) -> Iterator[Stream]:
    it = Stream(lab)
    try:
        yield it
    finally:
        it.stop()


def wait_until_whole(it: Running) -> None:
    """It says that it is ready also if a switch was late, as on a busy machine: until all are there, and all links."""
    begun = time.monotonic()
    while not (
        it.ask("GET", "/status")[1]["ready"] and all(link["up"] for link in it.ask("GET", "/links")[1]["links"])
    ):
        assert time.monotonic() < begun + 120, (it.ask("GET", "/status"), it.ask("GET", "/links"))
        pause(begun)
