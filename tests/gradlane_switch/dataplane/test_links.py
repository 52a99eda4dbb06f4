# SPDX-License-Identifier: Apache-2.0
"""The switch between hosts in namespaces: rates, priorities, buffers, impairments, and interfaces that misbehave."""

import os
import random
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from tests.gradlane_switch.switch_process import Controller, Process, admin
from tests.gradlane_switch.switched_hosts import HOSTS, Lab, entries, laboratory
from tests.support.namespaces import Arrival, Network, ip, numbers, receive, send, socket_in
from tests.support.needs import needs, needs_root

pytestmark = [
    pytest.mark.timed,
    needs_root,
    needs("ip", "ethtool"),
]

HEADERS = 14 + 20 + 8  # of a datagram's frame
LOW, HIGH = 0, 46 << 2  # IP_TOS; DSCP 46 is of queue class 5 here


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network(HOSTS)
    yield made
    made.close()


@pytest.fixture
def lab(network: Network, tmp_path: Path, program_json: Path, program_p4info: Path) -> Iterator[Callable[..., Lab]]:
    yield from laboratory(network, tmp_path, program_json, program_p4info)


def test_a_port_sends_at_its_rate(lab: Callable[..., Lab]) -> None:
    rate, size, count = 20_000_000, 1400, 600
    made = lab("", "", "rate=20mbit,buffer=1MB")
    sender, receiver = made.network.udp(1), made.network.udp(3)
    send(sender, 3, count, size)
    arrivals = receive(receiver, count)
    assert numbers(arrivals) == list(range(count))
    measured = (count - 1) * (size + HEADERS) * 8 / (arrivals[-1].at - arrivals[0].at)
    assert measured == pytest.approx(rate, rel=0.02)


def test_a_port_never_buffers_more_than_its_buffer(lab: Callable[..., Lab]) -> None:
    size, count, buffer = 1400, 200, 30_000
    made = lab("", "", f"rate=2mbit,buffer={buffer}B")
    sender, receiver = made.network.udp(1), made.network.udp(3)
    send(sender, 3, count, size)
    arrivals = receive(receiver, count)
    port = made.port(3)
    assert buffer - (size + HEADERS) < port["max_depth_bytes"] <= buffer
    assert port["tx"] == {"packets": len(arrivals), "bytes": len(arrivals) * (size + HEADERS)}
    dropped = port["queues"][0]["tail_dropped"]
    assert dropped["packets"] == count - len(arrivals)
    assert dropped["bytes"] == dropped["packets"] * (size + HEADERS)
    # Tail drop: what found a place stayed, and was sent in order.
    assert numbers(arrivals)[:20] == list(range(20))
    assert numbers(arrivals) == sorted(numbers(arrivals))


def test_a_higher_class_is_served_first(lab: Callable[..., Lab]) -> None:
    made = lab("", "", "rate=100kbit,buffer=64kB")
    low, high, receiver = made.network.udp(1), made.network.udp(1, tos=HIGH), made.network.udp(3)
    send(low, 3, 20, 500)
    send(high, 3, 5, 500, first=100)
    order = numbers(receive(receiver, 25))
    assert sorted(order) == [*range(20), *range(100, 105)]
    # Each low-class datagram takes 43 ms; those ahead of the others left before these arrived.
    assert order.index(104) - order.index(100) == 4
    assert order.index(100) <= 5
    queues = made.port(3)["queues"]
    assert [queues[0]["enqueued"]["packets"], queues[5]["enqueued"]["packets"]] == [20, 5]


@pytest.mark.parametrize("high_count", [5, 10])
def test_in_a_full_buffer_a_higher_class_pushes_out_the_lowest(lab: Callable[..., Lab], high_count: int) -> None:
    size, slots = 1000, 10
    made = lab("", "", f"rate=100kbit,buffer={slots * (size + HEADERS)}B")
    low, high, receiver = made.network.udp(1), made.network.udp(1, tos=HIGH), made.network.udp(3)
    send(low, 3, 30, size)
    send(high, 3, high_count, size, first=100)
    send(low, 3, 5, size, first=30)
    order = numbers(receive(receiver, 45))
    assert [number for number in order if number >= 100] == list(range(100, 100 + high_count))
    lows = [number for number in order if number < 100]
    queues = made.port(3)["queues"]
    assert queues[5]["tail_dropped"]["packets"] == 0
    assert queues[0]["tail_dropped"]["packets"] == 35 - len(lows)
    # Each datagram takes 83 ms, so not many got through meanwhile; of those that waited, the first stay.
    assert slots - high_count < len(lows) <= slots - high_count + 5
    stayed = slots - high_count
    assert lows[:stayed] == list(range(stayed))


def test_losses_depend_on_the_seed_and_the_packets_number_alone(lab: Callable[..., Lab]) -> None:
    def lost(seed: int) -> set[int]:
        made = lab("rx-loss=0.1", "", "loss=0.2", seed=seed)
        sender, receiver = made.network.udp(1), made.network.udp(3)
        send(sender, 3, 500, 100)
        missing = set(range(500)) - set(numbers(receive(receiver, 500, silence=0.3)))
        made.stop()
        return missing

    first = lost(7)
    assert lost(7) == first
    assert lost(8) != first
    # 1 - 0.9 * 0.8 = 28 % of 500, within five standard deviations.
    assert 90 <= len(first) <= 190


def test_delay_and_jitter(lab: Callable[..., Lab]) -> None:
    made = lab("", "", "delay=20ms,jitter=10ms")
    sender, receiver = made.network.udp(1), made.network.udp(3)
    undelayed = made.network.udp(2)
    latencies: list[float] = []
    since_sent: list[float] = []  # the reference may be late itself
    for number in range(20):
        send(sender, 2, 1, 100, first=number)
        sent = time.time()
        send(sender, 3, 1, 100, first=number)
        [reference], [delayed] = receive(undelayed, 1), receive(receiver, 1)
        latencies.append(delayed.at - reference.at)
        since_sent.append(delayed.at - sent)
    assert min(since_sent) >= 0.0195
    assert 0.0195 <= sorted(latencies)[10] <= 0.032
    assert max(latencies) - min(latencies) > 0.001
    assert made.port(3)["tx_link"]["delayed"] == 20


def test_reordering_is_counted_as_rfc_4737_has_it(lab: Callable[..., Lab]) -> None:
    made = lab("", "", "reorder=0.1,reorder-delay=5ms")
    sender, receiver = made.network.udp(1), made.network.udp(3)
    send(sender, 3, 400, 100, rate=4000)
    order = numbers(receive(receiver, 400))
    assert sorted(order) == list(range(400))
    expected, late = 0, 0
    for number in order:
        late += number < expected
        expected = max(expected, number + 1)
    assert made.port(3)["tx_link"]["reordered"] == late
    assert 10 <= late <= 80


def test_settings_change_while_it_runs(lab: Callable[..., Lab]) -> None:
    made = lab("", "", "")
    sender, receiver = made.network.udp(1), made.network.udp(3)
    send(sender, 3, 10, 100)
    assert len(receive(receiver, 10)) == 10
    assert made.admin(op="set", port=3, loss=1) == {"ok": True}
    send(sender, 3, 10, 100)
    assert receive(receiver, 10, silence=0.1) == []
    assert made.port(3)["tx_link"]["lost"]["packets"] == 10
    assert made.admin(op="set", port=3, loss=0, rate=1_000_000, buffer=50_000, **{"rx-delay": "2ms"}) == {"ok": True}
    settings = made.port(3)
    assert (settings["rate"], settings["buffer"], settings["rx_link"]["delay"]) == (1_000_000, 50_000, 2_000_000)
    for request, message in [
        ({"op": "set", "port": 9, "loss": 0.1}, "there is no port 9: there are 1, 2, 3"),
        ({"op": "set", "port": 3, "loss": 2}, "'2' is not a probability"),
        ({"op": "set", "port": 3, "speed": 2}, "'speed' is not a port setting"),
        ({"op": "set", "port": 3, "buffer": 100}, "buffer=100 is less than one frame of s3"),
        ({"op": "set", "loss": 0.5}, '"set" needs a port number'),
        ({"op": "explode"}, "'explode' is not an operation"),
    ]:
        assert message in made.admin(**request)["error"]
    assert made.admin(op="clear") == {"ok": True}
    assert made.port(3)["tx"] == {"packets": 0, "bytes": 0}


def test_a_vlan_tag_stays_in_the_frame(lab: Callable[..., Lab]) -> None:
    """The kernel takes the tag out of frames on packet sockets; the program must see it: not IPv4, so dropped."""
    made = lab("", "", "")
    raw = socket_in(made.network.host(1), socket.AF_PACKET, socket.SOCK_RAW)
    with raw:
        raw.bind(("eth0", 0))
        datagram = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28, 0, 0, 64, 17, 0, b"\x0a\0\1\2", b"\x0a\0\3\2") + bytes(8)
        ethernet = bytes.fromhex("0200000000ff 020000000001".replace(" ", ""))
        raw.send(ethernet + bytes.fromhex("8100002a0800") + datagram)
        raw.send(ethernet + bytes.fromhex("0800") + datagram)
        raw.send(ethernet + bytes.fromhex("8100002a0800") + datagram)
    receiver = made.network.udp(3)
    send(made.network.udp(1), 3, 1, 100)
    assert len(receive(receiver, 1)) == 1
    assert made.port(1)["drops"]["program"]["packets"] == 2
    assert made.port(3)["tx"]["packets"] == 2


@pytest.fixture
def fragile_network() -> Iterator[Network]:
    made = Network(HOSTS, "f")
    yield made
    made.close()


def test_an_interface_that_vanishes_takes_only_its_port_down(lab: Callable[..., Lab], fragile_network: Network) -> None:
    made = lab("", "", "", where=fragile_network)
    ip("-n", made.network.switch, "link", "set", "s2", "down")
    assert "port 2 (s2): down: Network is down" in made.process.wait_for("port 2")
    ip("-n", made.network.switch, "link", "set", "s2", "up")
    sender, second = made.network.udp(1), made.network.udp(2)
    # The host notices its carrier a little later.
    while not receive(sender, 1, silence=0.05):
        send(second, 1, 1, 100)
    made.process.wait_for("port 2 (s2): up")
    ip("-n", made.network.switch, "link", "del", "s2")
    send(sender, 2, 3, 100)
    made.process.wait_for("was refused")
    receiver = made.network.udp(3)
    send(sender, 3, 5, 100)
    assert len(receive(receiver, 5)) == 5
    assert not made.port(2)["up"]
    assert made.port(2)["drops"]["tx_errors"]["packets"] == 3


def test_random_traffic_is_accounted_for(lab: Callable[..., Lab]) -> None:
    """Whatever comes in goes out, is dropped by a full buffer, is lost on a link, or still waits."""
    made = lab("rx-loss=0.05", "rx-reorder=0.1", "rate=10mbit,buffer=8kB,loss=0.05,jitter=1ms")
    draw = random.Random(1)
    senders = [made.network.udp(1), made.network.udp(2), made.network.udp(1, tos=HIGH), made.network.udp(2, tos=HIGH)]
    receiver = made.network.udp(3)
    for _ in range(600):
        draw.choice(senders).sendto(bytes(draw.randint(1, 1472)), ("10.0.3.2", 9))
    arrivals: list[Arrival] = receive_all(receiver)
    ports = {number: made.port(number) for number in (1, 2, 3)}
    out = ports[3]
    entered = sum(ports[number]["rx"]["packets"] - ports[number]["rx_link"]["lost"]["packets"] for number in (1, 2))
    enqueued = sum(queue["enqueued"]["packets"] for queue in out["queues"])
    dropped = sum(queue["tail_dropped"]["packets"] for queue in out["queues"])
    assert ports[1]["rx"]["packets"] + ports[2]["rx"]["packets"] == 600
    assert out["depth_bytes"] == 0
    assert out["tx"]["packets"] == len(arrivals)
    # A packet that was pushed out counts as enqueued and as dropped; one that found no place only as dropped.
    assert out["tx"]["packets"] + out["tx_link"]["lost"]["packets"] + dropped == entered
    assert enqueued <= entered
    assert out["max_depth_bytes"] <= 8000


def test_what_came_while_the_switch_was_off_the_cpu_is_forwarded_in_the_order_of_its_arrival(
    lab: Callable[..., Lab],
) -> None:
    """More of one port than it takes in at once, and between them others of another port."""
    made = lab("", "", "")
    senders, receiver = [made.network.udp(1)] * 3 + [made.network.udp(2)], made.network.udp(3)
    made.process.pause()
    for number in range(400):
        send(senders[number % 4], 3, 1, 100, first=number)
    made.process.signal(signal.SIGCONT)
    assert numbers(receive(receiver, 400)) == list(range(400))


def test_what_came_while_the_switch_was_off_the_cpu_meets_the_queues_of_its_time(lab: Callable[..., Lab]) -> None:
    """At 10 Mbit/s each is gone before the next one comes, however late the switch looks at them."""
    made = lab("", "", "rate=10mbit,buffer=3kB")
    sender, receiver = made.network.udp(1), made.network.udp(3)
    made.process.pause()
    send(sender, 3, 20, 1400, rate=200)
    made.process.signal(signal.SIGCONT)
    assert numbers(receive(receiver, 20)) == list(range(20))
    assert made.port(3)["max_depth_bytes"] < 2 * (1400 + HEADERS)


def receive_all(receiver: socket.socket) -> list[Arrival]:
    """Datagrams, down to an empty payload's size, until none come."""
    arrivals: list[Arrival] = []
    receiver.settimeout(0.5)
    while True:
        try:
            payload, _, _, _ = receiver.recvmsg(2048, 64)
        except TimeoutError:
            return arrivals
        arrivals.append(Arrival(payload, 0.0))


@pytest.mark.skipif(not os.path.exists("/dev/net/tun"), reason="needs /dev/net/tun")
def test_a_tap_interface_is_a_port(network: Network, tmp_path: Path, program_json: Path, program_p4info: Path) -> None:
    """The host of a TAP port is the machine itself, here the switch's namespace."""
    address, path = f"unix:{tmp_path}/p4runtime.sock", tmp_path / "admin.sock"
    ports = ("-i", "1@s1", "-i", "3@tap:gltap3,loss=0", "--admin", str(path))
    with Process(*ports, prefix=("ip", "netns", "exec", network.switch), address=address):
        with Controller(address, 1) as controller:
            controller.arbitrate()
            controller.set_pipeline(program_json, program_p4info)
            controller.insert(*entries(text_format.Parse(program_p4info.read_text(), p4i.P4Info())))
        with socket_in(network.switch, socket.AF_PACKET, socket.SOCK_RAW, 0x0300) as raw:
            raw.bind(("gltap3", 3))
            raw.settimeout(60)
            host = network.udp(1)
            send(host, 3, 1, 100)
            received = raw.recv(2048)
            while received[12:14] != b"\x08\x00" or received[30:34] != b"\x0a\0\3\2":
                received = raw.recv(2048)
            assert len(received) == 100 + HEADERS
            # And back: what the machine sends on the interface comes in at the port.
            back = bytearray(received)
            back[26:30], back[30:34] = received[30:34], b"\x0a\0\1\2"
            raw.send(bytes(back))
            assert len(receive(host, 1)) == 1
        [_, tap] = admin(path, {"op": "ports"})["ports"]
        assert (tap["port"], tap["interface"], tap["up"]) == (3, "tap:gltap3", True)
        assert tap["tx"]["packets"] >= 1
        assert tap["rx"]["packets"] >= 1
    network.close_sockets()
