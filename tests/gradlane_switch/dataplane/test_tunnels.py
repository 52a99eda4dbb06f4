# SPDX-License-Identifier: Apache-2.0
"""A switch that runs, without privileges: tunnels, ports that come and go, churn of settings, draining, metrics."""

import os
import random
import socket
import struct
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradlane_switch.dataplane import pcap
from tests.gradlane_switch.compiled_programs import session
from tests.gradlane_switch.replaying import balance, frame, number, waiting
from tests.gradlane_switch.switch_process import COMMAND, Controller, admin
from tests.gradlane_switch.tunnel_lab import Host, TunnelLab
from tests.support import zygote
from tests.support.paths import SWITCH_PROGRAMS

_SO_TIMESTAMPNS = 35


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Callable[..., TunnelLab]]:
    running: list[TunnelLab] = []

    def start(*settings: str, **more: object) -> TunnelLab:
        folder = tmp_path / str(len(running))
        folder.mkdir()
        running.append(TunnelLab(folder, *settings, **more))  # type: ignore[arg-type]
        return running[-1]

    yield start
    for made in running:
        made.close()


def test_a_frame_goes_through_a_tunnel_as_it_is(lab: Callable[..., TunnelLab]) -> None:
    made = lab("", "")
    for sent in (b"\2\0", b"\2\0 short", *(frame(2, 0, size) for size in (18, 60, 1514, 1518))):
        made.hosts[1].send(sent)
        assert made.hosts[2].receive(1) == [sent]
    made.hosts[1].send(frame(2, 0, 1519))
    assert "oversize frame of 1519 bytes" in made.process.wait_for("oversize")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.sendto(frame(2, 0, 60), made.hosts[1].switch)
    assert made.hosts[2].receive(1, silence=0.2) == []


def test_a_tunnel_without_another_end_is_no_error(lab: Callable[..., TunnelLab]) -> None:
    made = lab("", "", "")
    made.hosts[2].close()
    for n in range(50):
        made.hosts[1].send(frame(2, 0, 60, n))
        made.hosts[1].send(frame(3, 0, 60, n))
    assert [number(data) for data in made.hosts[3].receive(50)] == list(range(50))
    two = made.wait_until(lambda ports: ports[2]["tx"]["packets"] == 50)[2]
    assert two["up"]
    assert two["drops"]["tx_errors"]["packets"] == 0


def test_ports_come_and_go_while_packets_are_forwarded(lab: Callable[..., TunnelLab]) -> None:
    made = lab("", "")
    third = Host()
    third.release()
    try:
        made.hosts[1].send(frame(3, 0, 60))
        made.wait_until(lambda ports: ports[1]["drops"]["no_port"]["packets"] == 1)
        assert made.admin(op="add", port=f"3@{third.interface},rate=1mbit") == {"ok": True}
        made.hosts[1].send(frame(3, 0, 60, 1))
        assert third.receive(1) == [frame(3, 0, 60, 1)]
        third.send(frame(2, 0, 60, 2))
        assert made.hosts[2].receive(1) == [frame(2, 0, 60, 2)]
        assert made.ports()[3]["rate"] == 1_000_000
        for n in range(3):
            made.hosts[1].send(frame(3, 0, 1500, n))  # They wait when the port goes.
        made.wait_until(lambda ports: waiting(ports[3]) > 0)
        assert made.admin(op="remove", port=3) == {"ok": True}
        made.process.wait_for(f"port 3 ({third.interface}) removed")
        assert 3 not in made.ports()
        made.hosts[1].send(frame(2, 0, 60, 3))
        assert made.hosts[2].receive(1) == [frame(2, 0, 60, 3)]
        assert made.admin(op="add", port=f"3@{third.interface}") == {"ok": True}
        third.receive(3, silence=0.1)
        made.hosts[1].send(frame(3, 0, 60, 4))
        assert third.receive(1) == [frame(3, 0, 60, 4)]
    finally:
        third.close()
    other = Host()
    other.close()
    for request, message in [
        ({"op": "add", "port": "3@udp:127.0.0.1:9-127.0.0.1:9"}, "two ports have the same number"),
        ({"op": "add", "port": f"4@{third.interface}"}, "two ports have the same interface"),
        ({"op": "add", "port": "4@nosuch0"}, "nosuch0"),
        ({"op": "add", "port": 4}, '"add" needs a port as -i has it'),
        ({"op": "add", "port": "4@pcap:x"}, "a clock of its own"),
        (
            {"op": "add", "port": f"4@{other.interface},mtu=9000"},
            "above 1500, the largest that this switch was started for: start it with --mtu 9000",
        ),
        ({"op": "remove", "port": 9}, "there is no port 9: there are 1, 2, 3"),
        ({"op": "remove"}, '"remove" needs a port number'),
    ]:
        assert message in admin(made.path, request)["error"]
    assert sorted(made.ports()) == [1, 2, 3]


def test_a_port_of_a_larger_mtu_is_added_if_the_switch_expects_it(lab: Callable[..., TunnelLab]) -> None:
    made = lab("", flags=("--mtu", "9000"))
    other = Host()
    other.release()
    try:
        request = {"op": "add", "port": f"2@{other.interface},mtu=9001"}
        assert "above 9000, the largest" in admin(made.path, request)["error"]
        assert made.admin(op="add", port=f"2@{other.interface},mtu=9000") == {"ok": True}
        other.send(frame(1, 0, 1500))
        assert made.hosts[1].receive(1) == [frame(1, 0, 1500)]
    finally:
        other.close()


def test_a_pcap_file_takes_what_leaves_beside_other_ports_with_the_time_of_day(
    lab: Callable[..., TunnelLab], tmp_path: Path
) -> None:
    made = lab("", "")
    before = time.time_ns()
    assert made.admin(op="add", port=f"3@pcap:,{tmp_path}/out.pcap") == {"ok": True}
    sent = [frame(3, 0, 60 + n, n) for n in range(20)]
    for data in sent:
        made.hosts[1].send(data)
    made.wait_until(lambda ports: ports[3]["tx"]["packets"] == len(sent))
    assert made.admin(op="remove", port=3) == {"ok": True}
    written = list(pcap.frames(tmp_path / "out.pcap"))
    assert [data for _, data in written] == sent
    assert all(before <= at <= time.time_ns() for at, _ in written)


def test_a_port_that_is_down_drops_what_comes_either_way(lab: Callable[..., TunnelLab]) -> None:
    made = lab("", "rate=100kbit,buffer=64kB", "")
    for n in range(5):
        made.hosts[1].send(frame(2, 4, 1000, n))
    made.wait_until(lambda ports: ports[2]["queues"][4]["enqueued"]["packets"] == 5)
    assert made.admin(op="set", port=2, up=False) == {"ok": True}
    assert not made.ports()[2]["up"]
    made.process.wait_for(f"port 2 ({made.hosts[2].interface}) set down")
    made.hosts[1].send(frame(2, 0, 60))
    made.hosts[2].send(frame(3, 0, 60))
    ports = made.wait_until(
        lambda ports: ports[2]["drops"]["tx_down"]["packets"] == ports[2]["drops"]["rx_down"]["packets"] == 1
    )
    assert 3 <= ports[2]["queues"][4]["flushed"]["packets"] <= 4
    assert balance(list(ports.values())) == 0
    assert made.admin(op="set", port=2, up=True, rate="unlimited") == {"ok": True}
    made.hosts[2].receive(5, silence=0.1)
    made.hosts[2].send(frame(3, 0, 60, 7))
    assert made.hosts[3].receive(1) == [frame(3, 0, 60, 7)]


def test_a_smaller_buffer_holds_at_once(lab: Callable[..., TunnelLab]) -> None:
    made = lab("", "rate=100kbit,buffer=64kB")
    for n in range(20):
        made.hosts[1].send(frame(2, n % 2, 1000, n))
    made.wait_until(lambda ports: sum(queue["enqueued"]["packets"] for queue in ports[2]["queues"]) == 20)
    assert made.admin(op="set", port=2, buffer=5000) == {"ok": True}
    two = made.ports()[2]
    assert two["depth_bytes"] <= 5000
    pushed = [queue["pushed_out"]["packets"] for queue in two["queues"][:2]]
    assert pushed[0] >= 9
    assert pushed[1] <= 5
    assert balance(list(made.ports().values())) == 0


def test_packets_all_leave_in_order_while_the_program_is_replaced(
    lab: Callable[..., TunnelLab], tmp_path: Path
) -> None:
    made = lab("", "rate=1mbit,buffer=1MB")
    with Controller(made.process.address, 1) as controller:
        controller.arbitrate()
        for n in range(200):
            made.hosts[1].send(frame(2, 0, 1000, n))
            if n % 50 == 25:
                controller.set_pipeline(tmp_path / "0" / "p.json", tmp_path / "0" / "p.txtpb")
        assert waiting(made.ports()[2]) > 20
    assert [number(data) for data in made.hosts[2].receive(200)] == list(range(200))
    assert balance(list(made.ports().values())) == 0


def test_what_egress_has_for_controllers_when_the_program_is_replaced_reaches_them(
    lab: Callable[..., TunnelLab],
) -> None:
    made = lab("", "rate=16kbit", flags=("--cpu-port", "200"))
    files = (SWITCH_PROGRAMS / "queues.json", SWITCH_PROGRAMS / "queues.p4info.txtpb")
    with Controller(made.process.address, 1) as controller:
        controller.arbitrate()
        controller.set_pipeline(*files)
        controller.insert(session(5, [(200, 1)]))
        made.hosts[1].send(bytes([2]).ljust(1000, b"\0"))  # It takes half a second.
        made.hosts[1].send(bytes([2, 0, 2, 5]).ljust(100, b"\0"))  # Egress clones it.
        made.wait_until(lambda ports: waiting(ports[2]) == 1)
        controller.set_pipeline(*files)
        assert next(controller.stream).packet.payload[:4] == bytes([2, 0, 2, 5])
        assert waiting(made.ports()[2]) == 1
    assert [len(data) for data in made.hosts[2].receive(2, silence=2)] == [1000, 100]
    assert balance(list(made.ports().values())) == 0


def test_nothing_is_unaccounted_for_while_settings_change(lab: Callable[..., TunnelLab]) -> None:
    made = lab("", "", "", flags=("--seed", "3"))
    draw = random.Random(1)
    choices: dict[str, list[object]] = {
        "rate": [1_000_000, 50_000_000, "unlimited"],
        "buffer": [2000, 20_000, 100_000],
        "weights": ["strict", [1, 2, 3, 4, 5, 6, 7, 8]],
        "ecn": ["off", 3000],
        "up": [True, True, True, False],
        "loss": [0, 0.1],
        "burst-loss": [0, "0.1:0.3"],
        "delay": ["0ms", "2ms"],
        "jitter": ["0ms", "3ms"],
        "reorder": [0, 0.2],
        "duplicate": [0, 0.2],
        "corrupt": [0, 0.01],
        "rx-loss": [0, 0.1],
        "rx-delay": ["0ms", "1ms"],
        "rx-duplicate": [0, 0.2],
    }
    sent = 0
    for step in range(150):
        for _ in range(20):
            sender = draw.choice((1, 3))
            made.hosts[sender].send(
                frame(draw.choice((0, 2, 2, 2, 3, 9)), draw.randrange(8), draw.randint(20, 1514), step)
            )
            sent += 1
        key = draw.choice(list(choices))
        answer = made.admin(op="set", port=draw.choice((1, 2, 3)), **{key: draw.choice(choices[key])})
        assert answer == {"ok": True}
        if step % 10 == 0:
            assert balance(list(made.ports().values())) == 0
    for port in (1, 2, 3):
        made.admin(op="set", port=port, rate="unlimited", up=True)
    ports = made.wait_until(
        lambda ports: (
            not any(waiting(port) for port in ports.values())
            and sum(port["rx"]["packets"] for port in ports.values()) == sent
        )
    )
    assert balance(list(ports.values())) == 0
    out = sum(len(made.hosts[n].receive(10_000, silence=0.1)) for n in (1, 2, 3))
    assert out == sum(port["tx"]["packets"] for port in ports.values())


@pytest.mark.alone
def test_the_rate_is_exact_by_the_clock_too(lab: Callable[..., TunnelLab]) -> None:
    """1 s at 20 Mbit/s: what the host gets in that time differs from it by 1 % at most."""
    made = lab("", "rate=20mbit,buffer=4MB")
    size, count = 1000, 2600
    receiver = made.hosts[2].socket
    receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    receiver.settimeout(2)
    times: list[float] = []
    for n in range(count):
        made.hosts[1].send(frame(2, 0, size, n))
        if n % 2:  # Faster than they leave, but not all at once: an unprivileged socket's buffer is small.
            times.append(arrival(receiver))
    times += [arrival(receiver) for _ in range(count - len(times))]
    first = times[len(times) // 100]
    window = sum(1 for at in times if first <= at < first + 1)
    assert window * size * 8 == pytest.approx(20_000_000, rel=0.01)


def arrival(receiver: socket.socket) -> float:
    """The kernel's receive time of the next datagram, in s."""
    _, [(_, _, data)], _, _ = receiver.recvmsg(2048, 64)
    seconds, nanoseconds = struct.unpack("qq", data)
    return seconds + nanoseconds / 1e9


def test_sigterm_lets_packets_leave_for_a_bounded_time(lab: Callable[..., TunnelLab]) -> None:
    made = lab("", "rate=400kbit,buffer=64kB")
    for n in range(10):
        made.hosts[1].send(frame(2, 0, 1000, n))
    made.wait_until(lambda ports: ports[2]["queues"][0]["enqueued"]["packets"] == 10)
    assert made.process.stop() == 0
    assert [number(data) for data in made.hosts[2].receive(10)] == list(range(10))

    hurried = lab("", "rate=80kbit,buffer=64kB", flags=("--drain", "300ms"))
    for n in range(10):
        hurried.hosts[1].send(frame(2, 0, 1000, n))
    hurried.wait_until(lambda ports: ports[2]["queues"][0]["enqueued"]["packets"] == 10)
    start = time.monotonic()
    assert hurried.process.terminate_and_read().count("packets still waited after 0.3 s") == 1
    assert time.monotonic() - start < 5
    assert len(hurried.hosts[2].receive(10, silence=0.1)) < 8


def test_the_service_manager_is_told(lab: Callable[..., TunnelLab], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify.sock"))
        manager.settimeout(60)
        made = lab("", environment={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify.sock")})
        assert manager.recv(64).startswith(b"READY=1\n")
        assert made.process.stop() == 0
        assert manager.recv(64) == b"STOPPING=1"


def test_metrics_are_those_of_the_admin_socket(lab: Callable[..., TunnelLab]) -> None:
    made = lab("", "loss=0.5", flags=("--metrics", "127.0.0.1:0", "--seed", "2"))
    url = made.process.wait_for("metrics at").split()[-1]
    for n in range(200):
        made.hosts[1].send(frame(2, n % 8, 100, n))
    ports = made.wait_until(lambda ports: ports[1]["rx"]["packets"] == 200)
    with urllib.request.urlopen(url, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    values = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}
    assert values['gradlane_switch_port_rx_packets_total{port="1"}'] == 200
    assert values['gradlane_switch_port_tx_bytes_total{port="2"}'] == ports[2]["tx"]["bytes"]
    lost = ports[2]["tx_link"]["lost"]["packets"]
    assert values['gradlane_switch_dropped_packets_total{port="2",queue="",reason="tx_link_lost"}'] == lost > 50
    assert values['gradlane_switch_queue_enqueued_packets_total{port="2",queue="7"}'] == 25
    assert values[f'gradlane_switch_port_up{{interface="{made.hosts[1].interface}",port="1"}}'] == 1


def test_the_port_command(lab: Callable[..., TunnelLab]) -> None:
    made = lab("rate=10mbit", "")
    third = Host()
    third.close()

    def port(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, "port", *arguments, "--admin", str(made.path)]
        return zygote.run(command, 60)

    rows = port("list").stdout.splitlines()
    assert [row.split()[:4] for row in rows[1:]] == [
        ["1", made.hosts[1].interface, "up", "10mbit"],
        ["2", made.hosts[2].interface, "up", "unlimited"],
    ]
    assert port("add", f"3@{third.interface},loss=0.1").returncode == 0
    assert port("set", "3", "up=no", "rate=1mbit").returncode == 0
    assert port("list").stdout.splitlines()[3].split()[2:4] == ["down", "1mbit"]
    assert port("remove", "3").returncode == 0
    for arguments, code, message in [
        (("remove", "3"), 1, "there is no port 3: there are 1, 2"),
        (("set", "1", "rate=fast"), 2, "'fast' is not a rate"),
        (("set", "1", "weights=1:2"), 2, "'1:2' is not a list of weights"),
        (("add", "x"), 2, "'x' is not a port"),
    ]:
        done = port(*arguments)
        assert (done.returncode, message in done.stderr) == (code, True), done.stderr
