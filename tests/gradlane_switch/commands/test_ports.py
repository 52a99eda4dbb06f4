# SPDX-License-Identifier: Apache-2.0
"""Flags of the command: ports and their settings, and what is said when they are wrong."""

import socket
import threading
from pathlib import Path

import pytest

from gradlane_switch import PortError, ProgramError
from gradlane_switch.dataplane.port_config import BurstLoss, Impairment, PortConfig, PortSpec, parse_port
from gradlane_switch.native import build
from gradlane_switch.p4runtime.files import read_p4info
from tests.gradlane_switch.switch_process import COMMAND, Process, admin
from tests.support import zygote


def test_a_port_with_everything() -> None:
    text = "3@s1-eth3,rate=100mbit,buffer=64kB,loss=0.01,delay=1ms,jitter=50us,reorder=0.1,reorder-delay=2ms,rx-loss=1"
    tx = Impairment(loss=0.01, delay=1_000_000, jitter=50_000, reorder=0.1, reorder_delay=2_000_000)
    assert parse_port(text) == PortSpec(3, "s1-eth3", PortConfig(100_000_000, 64_000, tx=tx, rx=Impairment(loss=1.0)))
    assert parse_port("1@eth0") == PortSpec(1, "eth0", PortConfig())
    assert parse_port("0@eth0") == PortSpec(0, "eth0", PortConfig())
    text = "2@udp:127.0.0.1:5001-[::1]:5002,mtu=9000,weights=1:1:1:1:2:2:4:8,ecn=30kB,up=no"
    text += ",burst-loss=0.01:0.3,rx-corrupt=1"
    config = PortConfig(
        ecn=30_000,
        weights=(1, 1, 1, 1, 2, 2, 4, 8),
        up=False,
        tx=Impairment(burst_loss=BurstLoss(0.01, 0.3)),
        rx=Impairment(corrupt=1.0),
    )
    assert parse_port(text) == PortSpec(2, "udp:127.0.0.1:5001-[::1]:5002", config, 9000)
    assert parse_port("1@pcap:in.pcap,out.pcap,rate=1mbit").interface == "pcap:in.pcap,out.pcap"
    assert parse_port("1@pcap:,out.pcap").interface == "pcap:,out.pcap"
    assert parse_port("1@pcap:in.pcap,rate=1mbit").interface == "pcap:in.pcap"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("eth0", "'eth0' is not a port: write NUMBER@INTERFACE"),
        ("-1@eth0", "'-1@eth0' is not a port"),
        ("511@eth0", "port numbers go from 0 to 510 (v1model drops by 511)"),
        ("1@", "is not a port"),
        ("1@eth0,rate", "port 1@eth0: 'rate' has no value"),
        ("1@eth0,rate=fast", "port 1@eth0: 'fast' is not a rate"),
        ("1@eth0,buffer=-1kB", "'-1kB' is not a size"),
        ("1@eth0,loss=1.5", "'1.5' is not a probability"),
        ("1@eth0,delay=3", "'3' is not a time"),
        ("1@eth0,rx-rate=1mbit", "'rx-rate' is not a port setting"),
        ("1@eth0,weights=1:2:3", "'1:2:3' is not a list of weights: write 8 numbers"),
        ("1@eth0,weights=0:1:1:1:1:1:1:1", "is not a list of weights"),
        ("1@eth0,ecn=1", "'1' is not a size"),
        ("1@eth0,up=maybe", "'maybe' is neither yes nor no"),
        ("1@eth0,burst-loss=0.1", "'0.1' is not a burst loss: write ENTER:LEAVE"),
        ("1@eth0,burst-loss=0.1:2", "'2' is not a probability"),
        ("1@eth0,mtu=9000", "an interface has its own, see `ip link set eth0 mtu`"),
    ],
)
def test_a_bad_port_is_named(text: str, message: str) -> None:
    with pytest.raises(PortError) as caught:
        parse_port(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-i", "1@lo,rate=x"], "port 1@lo: 'x' is not a rate"),
        (["-i", "1@nosuch0"], "nosuch0: no such interface"),
        (["-i", "1@lo", "-i", "1@eth9"], "two ports have the same number"),
        (["-i", "1@vxlan:lo"], "'vxlan' is not a kind of port: there are tap, udp and pcap"),
        (["-i", "1@udp:localhost:1-localhost:2"], "is not a tunnel: write udp:LOCAL:PORT-PEER:PORT"),
        (["-i", "1@udp:127.0.0.1:1-127.0.0.1:99999"], "is not a tunnel"),
        (["-i", "1@udp:192.0.2.1:5001-192.0.2.2:5001"], "udp:192.0.2.1:5001-192.0.2.2:5001: Cannot assign"),
        (["-i", "1@tap:a-name-that-is-too-long"], "an interface's name has 1 to 15 characters"),
        (["--metrics", "9561"], "'9561' is not ADDRESS:PORT"),
        (["--drain", "2"], "'2' is not a time"),
        (["--entries", "e.txtpb"], "--entries needs --program"),
        (["-i", "1@pcap:,/tmp/x"], "pcap ports need --program"),
        (["--program", "p.json"], "--program and --p4info go together"),
        (["--program", "/nosuch.json", "--p4info", "/nosuch.txtpb"], "/nosuch.json: No such file or directory"),
        (["--cpu-port", "511"], "'511' is not a port number (1..510; v1model drops by 511)"),
        (["--bogus"], "unrecognized arguments: --bogus"),
    ],
)
def test_bad_flags_are_one_line_and_exit_2(arguments: list[str], message: str) -> None:
    done = zygote.run([*COMMAND, *arguments], 60)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("gradlane-switch: error: ")
    assert message in last or "packet sockets need root" in last


def test_an_address_in_use_exits_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [*COMMAND, "--grpc-server-addr", address]
        done = zygote.run(command, 60)
    assert done.returncode == 1
    assert f"gradlane-switch: error: can't listen on {address}" in done.stderr


def test_a_stale_admin_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with Process("--admin", str(path)) as first:
        assert admin(path, {"op": "ports"})["ports"] == []
        command = [*COMMAND, "--grpc-server-addr", "127.0.0.1:0", "--admin", str(path)]
        second = zygote.run(command, 60)
        assert second.returncode == 1
        assert f"error: admin socket {path}: another process listens there" in second.stderr
        assert "error" in admin(path, {"op": 3})
        assert first.stop() == 0
    assert not path.exists()


def test_how_long_packets_have_waited_for_a_change_is_told_and_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with Process("--admin", str(path)):
        waited = admin(path, {"op": "forwarding"})["forwarding"]["longest_wait_ns"]
        assert 0 <= waited < 10**9
        assert admin(path, {"op": "clear"}) == {"ok": True}
        assert admin(path, {"op": "forwarding"}) == {"forwarding": {"longest_wait_ns": 0}}


def test_a_bad_p4info_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "info.txtpb"
    path.write_text("tables { nonsense: 1 }")
    with pytest.raises(ProgramError, match=r"info\.txtpb: not a readable P4Info"):
        read_p4info(path)


def test_builds_are_cached_by_content_and_safe_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = "int gl_answer(void); int gl_answer(void) { return 42; }\n"
    results: list[Path] = []
    threads = [threading.Thread(target=lambda: results.append(build.program_library(source))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 1
    assert [path.name for path in (tmp_path / "gradlane-switch").iterdir()] == [results[0].name]
    assert build.program_library(source + " ") != results[0]
    with pytest.raises(build.BuildError, match=r"failed on the program: (.|\n)*error"):
        build.program_library("int x = ;")
    (tmp_path / "gradlane-switch").chmod(0o777)
    with pytest.raises(build.BuildError, match="can be written by another user"):
        build.program_library(source)
