# SPDX-License-Identifier: Apache-2.0
"""What a switch changes behind the IP header reaches the socket of a host: its kernel finds the UDP checksum right.

The frames that leave the switch go over a wire into a network namespace. The kernel there counts by itself what it
drops.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator

import pytest
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether

from gradlane import wire
from gradlane.wire import Kind
from tests.p4src.packet_bench import Bench
from tests.p4src.packet_targets import InProcess
from tests.support.agents import until
from tests.support.entries import ALWAYS_RED, Entity, budget_share, fabric, job, port_policy, virtual_queue
from tests.support.gradlane_packets import GRADIENT_HEADERS, H1, H2, gradient
from tests.support.namespaces import Namespaces, ip, socket_in
from tests.support.needs import needs_root

FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
BARE = GRADIENT_HEADERS
pytestmark = needs_root


class Receiver(Namespaces):
    """Host h2 in a namespace of its own, at a wire whose other end is in another; a socket on the transport's port."""

    def __init__(self) -> None:
        self._host, self._outside = (f"glc{os.getpid()}-{name}" for name in ("h", "w"))
        super().__init__(self._host, self._outside)
        self._wire = socket_in(self._outside, socket.AF_PACKET, socket.SOCK_RAW)
        self._wire.bind(("wire0", 0))
        self._sockets = {
            version: socket_in(self._host, family, socket.SOCK_DGRAM) for version, family in FAMILIES.items()
        }
        for version, address in ((4, H2.address), (6, H2.address6)):
            self._sockets[version].bind((address, wire.UDP_PORT))
            self._sockets[version].settimeout(5)

    def _build(self) -> None:
        outside = ("wire0", "netns", self._outside)
        ip("link", "add", "eth0", "netns", self._host, "type", "veth", "peer", "name", *outside)
        ip("-n", self._host, "link", "set", "eth0", "address", H2.mac, "up")
        ip("-n", self._outside, "link", "set", "wire0", "up")
        ip("-n", self._host, "addr", "add", f"{H2.address}/24", "dev", "eth0")
        ip("-n", self._host, "addr", "add", f"{H2.address6}/64", "dev", "eth0", "nodad")
        # What comes from elsewhere has a way back.
        ip("-n", self._host, "route", "add", "default", "dev", "eth0")
        # The kernel takes no IPv6 before it has seen that there is a carrier.
        until(lambda: "state UP" in self._link())

    def _link(self) -> str:
        command = ["ip", "-n", self._host, "link", "show", "eth0"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def send(self, frame: bytes) -> None:
        """Puts a frame on the wire."""
        self._wire.send(frame)

    def takes(self, version: int, frame: bytes) -> bytes:
        """What the host's socket gets of a frame on the wire, within 5 s."""
        self.send(frame)
        return self._sockets[version].recv(65536)

    def close(self) -> None:
        for made in getattr(self, "_sockets", {}).values():
            made.close()
        if hasattr(self, "_wire"):
            self._wire.close()
        super().close()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as it:
        yield it


def always_red() -> list[Entity]:
    """The port of h2 has always more than it can send."""
    return [virtual_queue(H2.port, ALWAYS_RED), port_policy(H2.port), budget_share(0, 0, "whole")]


@pytest.mark.parametrize("version", [4, 6])
def test_a_trimmed_slice_reaches_the_socket(bench: Bench, receiver: Receiver, version: int) -> None:
    bench.install(fabric(), job(trim=True), always_red())
    for number in range(20):
        sent = bench.forward(H1, gradient(version=version, layer=1, magnitude=0, budget=99, slice=number), H2)
        header = wire.Header.unpack(receiver.takes(version, sent.frame))
        assert (header.kind, header.slice) == (Kind.TRIMMED, number)


@pytest.mark.parametrize("version", [4, 6])
def test_a_trace_reaches_the_socket_from_any_number_of_switches(bench: Bench, receiver: Receiver, version: int) -> None:
    bench.install(fabric(switch_id=0xFEDC), job())
    frame = gradient(version=version, kind=Kind.TRACE, layer=50, message=7, slice=3, frame_bytes=BARE[version])
    for records in range(1, wire.MAX_HOPS + 1):
        sent = bench.forward(H1, frame, H2)
        assert sent.packet[UDP].chksum != 0, "it is still guarded"
        assert len(receiver.takes(version, sent.frame)) == wire.HEADER_BYTES + records * wire.HOP_BYTES
        # Back to h1's port, as if to the next switch.
        packet = sent.packet
        packet.src, packet.dst = H1.mac, H1.gateway
        frame = bytes(packet)


def test_a_trace_without_a_checksum_has_none_behind_the_switch(bench: Bench, receiver: Receiver) -> None:
    bench.install(fabric(), job())
    packet = Ether(gradient(kind=Kind.TRACE, layer=50, frame_bytes=BARE[4]))
    packet[UDP].chksum = 0
    sent = bench.forward(H1, bytes(packet), H2)
    assert sent.packet[UDP].chksum == 0
    assert len(receiver.takes(4, sent.frame)) == wire.HEADER_BYTES + wire.HOP_BYTES


def test_a_trace_that_was_damaged_before_a_switch_is_still_known_as_that(bench: Bench, receiver: Receiver) -> None:
    bench.install(fabric(), job())
    whole = gradient(version=6, kind=Kind.TRACE, layer=50, frame_bytes=BARE[6] + 16)
    damaged = bytearray(whole)
    damaged[-1] ^= 4
    receiver.send(bench.forward(H1, bytes(damaged), H2).frame)
    # What comes behind it is the first that arrives.
    assert receiver.takes(6, bench.forward(H1, whole, H2).frame).endswith(whole[BARE[6] :])


def plus(word: int, more: int) -> int:
    """A sum of one's complements."""
    total = word + more
    return (total & 0xFFFF) + (total >> 16)


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.TRACE])
def test_a_sum_that_would_say_that_there_is_none_is_written_as_its_other_zero(
    in_process: InProcess, schema, receiver: Receiver, kind: int
) -> None:
    """On gradlane-switch alone: its clock stands still, so that a record is the same twice."""
    bench = Bench(in_process, schema)
    token, found = 0x1234, 0
    for _ in range(2):
        # The second time so that all words together are 0xFFFF.
        bench.install(fabric(), job(trim=True), always_red())
        token = plus(token, found)
        sent = bench.forward(H1, gradient(version=6, kind=kind, layer=1, magnitude=0, budget=9, token=token), H2)
        receiver.takes(6, sent.frame)
        found = sent.packet[UDP].chksum
    assert found == 0xFFFF
