# SPDX-License-Identifier: Apache-2.0
"""Hosts that leave segmentation and checksums to hardware: the switch does what a network card would do."""

import hashlib
import json
import random
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.gradlane_switch import small_programs as small
from tests.gradlane_switch.switch_process import Process
from tests.gradlane_switch.switched_hosts import HOSTS, Lab, laboratory
from tests.support.effort import tries
from tests.support.namespaces import Network, numbers, receive, send, socket_in
from tests.support.needs import needs, needs_root

pytestmark = [
    needs_root,
    needs("ip", "ethtool"),
]

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING, ETH_P_ALL = 263, 15, 23, 3
SOL_UDP, UDP_SEGMENT = 17, 103
VNET_HEADER = 10
NEEDS_CHECKSUM, TCPV4, TCPV6, UDP_L4 = 1, 1, 4, 5
FIN, PSH, CWR = 1, 8, 128


def offload(network: Network, namespace: str, interface: str, state: str) -> None:
    words = [word for what in ("tx", "sg", "tso", "gso", "tx-udp-segmentation") for word in (what, state)]
    network.run(namespace, "ethtool", "-K", interface, *words)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Hosts with their offloads on."""
    made = Network(HOSTS, "o")
    for number in range(1, HOSTS + 1):
        offload(made, made.host(number), "eth0", "on")
        offload(made, made.switch, f"s{number}", "on")
    yield made
    made.close()


@pytest.fixture
def lab(network: Network, tmp_path: Path, program_json: Path, program_p4info: Path) -> Iterator[Callable[..., Lab]]:
    yield from laboratory(network, tmp_path, program_json, program_p4info)


# Datagrams and connections


def segmented(made: Lab, count: int, size: int, host: int = 3) -> None:
    """Numbered datagrams to a host, in one frame of host 1."""
    sender = made.network.udp(1)
    sender.setsockopt(SOL_UDP, UDP_SEGMENT, size)
    payload = b"".join(struct.pack("!I", number) + bytes(size - 4) for number in range(count))
    sender.sendto(payload, (f"10.0.{host}.2", 9))


def test_datagrams_of_one_frame_are_forwarded_one_by_one(lab: Callable[..., Lab]) -> None:
    made = lab("", "", "")
    receiver = made.network.udp(3)
    segmented(made, 40, 1400)
    arrivals = receive(receiver, 40)
    assert numbers(arrivals) == list(range(40))
    assert {len(item.payload) for item in arrivals} == {1400}
    assert made.port(1)["rx"] == {"packets": 40, "bytes": 40 * 1442}
    assert made.port(3)["tx"] == {"packets": 40, "bytes": 40 * 1442}


@pytest.mark.timed
def test_datagrams_of_one_frame_leave_at_the_port_s_rate(lab: Callable[..., Lab]) -> None:
    # So slow that the ms by which a busy machine is late are few of its time.
    made = lab("", "", "rate=1mbit,buffer=100kB")
    receiver = made.network.udp(3)
    segmented(made, 40, 1400)
    arrivals = receive(receiver, 40)
    assert numbers(arrivals) == list(range(40))
    assert arrivals[-1].at - arrivals[0].at == pytest.approx(39 * 1442 * 8 / 1e6, rel=0.05)


def test_datagrams_of_one_frame_are_dropped_one_by_one(lab: Callable[..., Lab]) -> None:
    made = lab("", "", "rate=10mbit,buffer=10000B,loss=0.2")
    receiver = made.network.udp(3)
    segmented(made, 40, 1400)
    arrivals = receive(receiver, 40, silence=0.1)
    port = made.port(3)
    dropped = sum(queue["tail_dropped"]["packets"] for queue in port["queues"])
    assert 30 <= dropped < 40
    assert len(arrivals) == 40 - dropped - port["tx_link"]["lost"]["packets"]


def test_an_interface_without_offloads_gets_packets_one_by_one(lab: Callable[..., Lab], network: Network) -> None:
    made = lab("", "", "")
    offload(network, network.switch, "s3", "off")
    try:
        receiver = made.network.udp(3)
        made.process.pause()  # so that the first leaves together with one that the interface takes
        send(made.network.udp(1), 3, 1, 100, first=1000)
        segmented(made, 20, 1000)
        made.process.signal(signal.SIGCONT)
        first = numbers(receive(receiver, 21))
        segmented(made, 20, 1000)
        assert (first, numbers(receive(receiver, 20))) == ([1000, *range(20)], [*range(20)])
        assert made.port(3)["drops"]["tx_errors"]["packets"] == 0
    finally:
        offload(network, network.switch, "s3", "on")


def test_more_than_the_switch_forwards_in_one_go_is_forwarded_at_once_all_the_same(lab: Callable[..., Lab]) -> None:
    made = lab("", "", "")
    receiver = made.network.udp(3)
    made.process.pause()
    for _ in range(60):
        segmented(made, 40, 100)
    made.process.signal(signal.SIGCONT)
    assert numbers(receive(receiver, 60 * 40)) == 60 * list(range(40))


@pytest.mark.parametrize("setting", ["", "rate=50mbit,buffer=200kB,loss=0.01"])
def test_a_connection_of_hosts_with_offloads_gets_its_bytes(lab: Callable[..., Lab], setting: str) -> None:
    made = lab("", "", setting)
    data = hashlib.shake_256(b"offload").digest(4 << 20)
    listener = socket_in(made.network.host(3), socket.AF_INET, socket.SOCK_STREAM)
    sender = socket_in(made.network.host(1), socket.AF_INET, socket.SOCK_STREAM)
    got = hashlib.sha256()
    with listener, sender:
        listener.bind(("10.0.3.2", 0))
        listener.listen()

        def drain() -> None:
            accepted, _ = listener.accept()
            accepted.settimeout(60)
            with accepted:
                while part := accepted.recv(1 << 16):
                    got.update(part)

        thread = threading.Thread(target=drain)
        thread.start()
        sender.settimeout(60)
        sender.connect(listener.getsockname())
        sender.sendall(data)
        sender.shutdown(socket.SHUT_WR)
        thread.join()
    assert got.digest() == hashlib.sha256(data).digest()
    assert made.port(1)["oversize"]["packets"] == 0
    assert made.port(1)["rx"]["packets"] >= len(data) // 1460, "counted packet by packet"


# What a card would make of a frame, and what the kernel makes of it


def fold(data: bytes) -> int:
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def whole(tcp: bool, ipv6: bool, flags: int, payload: bytes, size: int) -> bytes:
    """A frame and its virtio_net_hdr, as a host hands it to a card that segments."""
    protocol = 6 if tcp else 17
    length = (32 if tcp else 8) + len(payload)
    if ipv6:
        addresses = bytes(15) + b"\1" + bytes(15) + b"\2"
        network = struct.pack("!IHBB", 0x60012345, length, protocol, 64) + addresses
    else:
        addresses = b"\x0a\0\0\1\x0a\0\0\2"
        network = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0xFFF0, 0x4000, 64, protocol, 0) + addresses
        network = network[:10] + struct.pack("!H", fold(network) ^ 0xFFFF) + network[12:]
    pseudo = fold(addresses + struct.pack("!IHH", length, 0, protocol))
    if tcp:
        head = (
            struct.pack("!HHIIBBHHH", 1, 2, 0xFFFFF000, 7, 8 << 4, 16 | flags, 500, pseudo, 0)
            + b"\1\1\x08\x0a"
            + bytes(8)
        )
        kind = (TCPV6 if ipv6 else TCPV4) | (128 if flags & CWR else 0)
    else:
        head = struct.pack("!HHHH", 1, 2, length, pseudo)
        kind = UDP_L4
    ethernet = bytes.fromhex("020000000002020000000001") + (b"\x86\xdd" if ipv6 else b"\x08\0")
    start = len(ethernet) + len(network)
    header = struct.pack("=BBHHHH", NEEDS_CHECKSUM, kind, start + len(head), size, start, 16 if tcp else 6)
    return header + ethernet + network + head + payload


class Wire:
    """A switch that sends all that comes in at port 1 out at port 2, and packet sockets at both ends."""

    def __init__(self, network: Network, folder: Path) -> None:
        everything = small.action(
            0, "out", [], small.assign(small.field("standard_metadata", "egress_spec"), small.const(2))
        )
        document = small.program([("first", 8)], [everything], [small.table(0, "t", [], [everything], everything)])
        program, info = folder / "wire.json", folder / "wire.txtpb"
        program.write_text(json.dumps(document))
        info.write_text(text_format.MessageToString(small.p4info(document)))
        self.network = network
        self.process = Process(
            "--program", str(program), "--p4info", str(info), "-i", "1@s1,buffer=1MB", "-i", "2@s2,buffer=1MB",
            prefix=("ip", "netns", "exec", network.switch), address=f"unix:{folder}/p4runtime.sock",
        )  # fmt: skip
        try:
            self.sender = self.open(1, vnet=True)
            self.single, self.joined = self.open(2, vnet=False), self.open(2, vnet=True)
        except BaseException:
            self.process.stop()
            raise

    def open(self, host: int, *, vnet: bool) -> socket.socket:
        made = socket_in(self.network.host(host), socket.AF_PACKET, socket.SOCK_RAW)
        if vnet:
            made.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        made.bind(("eth0", 0 if host == 1 else ETH_P_ALL))
        made.settimeout(20)
        return made

    def offloads(self, state_in: str, state_out: str) -> None:
        offload(self.network, self.network.host(1), "eth0", state_in)
        offload(self.network, self.network.switch, "s2", state_out)

    def forward(self, frame: bytes, receiver: socket.socket, total: int) -> list[bytes]:
        """What comes out for a frame, until so many bytes of it have come."""
        self.sender.send(frame)
        arrived: list[bytes] = []
        while sum(map(len, arrived)) < total:
            arrived.append(receiver.recv(70_000))
        return arrived

    def drain(self) -> None:
        for receiver in (self.single, self.joined):
            while select.select([receiver], [], [], 0)[0]:
                receiver.recv(70_000)

    def close(self) -> None:
        for item in (self.sender, self.single, self.joined):
            item.close()
        assert self.process.stop() == 0


@pytest.fixture(scope="module")
def wire(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    made = Wire(network, tmp_path_factory.mktemp("wire"))
    yield made
    made.close()
    made.offloads("on", "on")


frames = given(
    tcp=st.booleans(),
    ipv6=st.booleans(),
    flags=st.sampled_from([0, PSH, FIN | PSH, CWR, CWR | PSH]),
    size=st.integers(40, 1400),
    count=st.integers(2, 40),
    short=st.integers(0, 39),
    seed=st.integers(0, 1 << 32),
)


def test_frames_are_cut_as_the_kernel_cuts_them(wire: Wire) -> None:
    @settings(max_examples=tries(50), deadline=None, phases=[Phase.generate])
    @frames
    def check(tcp: bool, ipv6: bool, flags: int, size: int, count: int, short: int, seed: int) -> None:
        payload = random.Random(seed).randbytes(size * count - short)
        frame = whole(tcp, ipv6, flags, payload, size)
        total = len(payload) + count * (len(frame) - VNET_HEADER - len(payload))
        wire.offloads("off", "off")
        wire.drain()
        by_kernel = wire.forward(frame, wire.single, total)
        assert len(by_kernel) == count
        wire.offloads("on", "off")
        assert wire.forward(frame, wire.single, total) == by_kernel

    check()


def test_what_was_cut_leaves_in_one_frame_as_it_was(wire: Wire) -> None:
    wire.offloads("on", "on")
    time.sleep(1.1)  # An interface that has refused a joined frame is not tried for a second.

    @settings(max_examples=tries(100), deadline=None, phases=[Phase.generate])
    @frames
    def check(tcp: bool, ipv6: bool, flags: int, size: int, count: int, short: int, seed: int) -> None:
        frame = whole(tcp, ipv6, flags, random.Random(seed).randbytes(size * count - short), size)
        wire.drain()
        (back,) = wire.forward(frame, wire.joined, len(frame))
        # hdr_len is a hint: the kernel says how much of the frame is in one piece.
        assert back[:2] + back[4:] == frame[:2] + frame[4:]

    check()


def test_a_checksum_left_to_hardware_is_completed(wire: Wire) -> None:
    wire.offloads("on", "on")
    frame = whole(False, False, 0, b"payload", 0)
    frame = frame[:1] + b"\0" + frame[2:]  # no segmentation
    wire.drain()
    (got,) = wire.forward(frame, wire.single, 49)
    pseudo = got[26:34] + struct.pack("!IHH", 15, 0, 17)
    assert fold(pseudo + got[34:]) == 0xFFFF


def test_headers_that_contradict_the_offload_do_not_stop_the_switch(wire: Wire) -> None:
    """What a guest or a container with CAP_NET_RAW can send; the kernel refuses some of it itself."""
    wire.offloads("on", "on")
    wire.drain()
    good = whole(False, False, 0, bytes(3000), 1000)
    bad = [good[: 12 + at] + bytes([value]) + good[13 + at :] for at in range(32) for value in (0, 0x80, 0xFF)]
    bad += [good[:at] + bytes([value]) + good[at + 1 :] for at in range(VNET_HEADER) for value in (0, 0x80, 0xFF)]
    sent = 0
    for number, frame in enumerate(bad):
        try:
            sent += wire.sender.send(frame) > 0
        except OSError:
            continue
        marker = number.to_bytes(2, "big") * 1500
        wire.sender.send(whole(False, False, 0, marker, 1000))
        while marker[:1000] not in wire.joined.recv(70_000):
            pass  # What has become of the others; silence is an error.
    assert sent > 50, "the kernel lets some of them through"
