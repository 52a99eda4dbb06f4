# SPDX-License-Identifier: Apache-2.0
"""GradlaneSwitch and Bmv2Switch in Mininet networks of their own."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import needs, needs_bmv2, needs_mininet, needs_root
from tests.support.paths import SWITCH_PROGRAMS

pytest.importorskip("mininet.node")
pytestmark = [needs_root, needs_mininet, needs("ethtool", "setpriv")]

SEND = 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hello", ("10.0.2.2", 9))'
RECEIVE = """
import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("10.0.2.2", 9))
receiver.settimeout(60)
print("ready", flush=True)
print(receiver.recv(100).decode())
"""
PROGRAM = SWITCH_PROGRAMS / "router"


def test_hosts_reach_each_other_through_it(tmp_path: Path) -> None:
    from mininet.link import Link
    from mininet.node import Host

    from lab.net.switch_nodes import GradlaneSwitch

    admin = tmp_path / "admin.sock"
    switch = GradlaneSwitch(
        "glnsw1",
        dpid="7",
        program=PROGRAM.with_suffix(".json"),
        p4info=PROGRAM.with_suffix(".p4info.txtpb"),
        entries=entries(tmp_path / "entries.txtpb"),
        grpc=f"unix:{tmp_path}/p4runtime.sock",
        admin=admin,
        log=tmp_path / "switch.log",
        setting="buffer=64kB",
        settings={2: "rate=10mbit,buffer=64kB"},
        flags=("--seed", "3"),
        inNamespace=True,
    )
    hosts = [Host(f"glnh{n}") for n in (1, 2)]
    links = [
        Link(host, switch, port1=0, port2=n, addr1=f"02:00:00:00:00:{n:02x}", addr2=f"02:00:00:00:01:{n:02x}")
        for n, host in enumerate(hosts, 1)
    ]
    try:
        for n, host in enumerate(hosts, 1):
            host.cmd(f"ip address add 10.0.{n}.2/24 dev {host.name}-eth0")
            host.cmd(f"ip neighbour add 10.0.{n}.1 lladdr 02:00:00:00:00:ff dev {host.name}-eth0 nud permanent")
            host.cmd(f"ip route add default via 10.0.{n}.1")
            host.cmd(f"ethtool -K {host.name}-eth0 tx off")
        switch.start([])
        receiver = hosts[1].popen([sys.executable, "-c", RECEIVE], stdout=subprocess.PIPE)
        assert receiver.stdout.readline() == b"ready\n"
        hosts[0].cmd(f"{sys.executable} -c '{SEND}'")
        assert receiver.communicate(timeout=60)[0] == b"hello\n"
        assert switch.device_id == 7
        ports = ask(admin)
        assert [(port["port"], port["interface"], port["rate"]) for port in ports] == [
            (1, "glnsw1-eth1", 0),
            (2, "glnsw1-eth2", 10_000_000),
        ]
    finally:
        switch.stop()
        for link in links:
            link.stop()
        for host in hosts:
            host.terminate()
    assert not admin.exists()


def test_a_switch_that_cannot_start_says_why(tmp_path: Path) -> None:
    from lab.net.switch_nodes import GradlaneSwitch

    switch = GradlaneSwitch("glnsw2", dpid="8", log=tmp_path / "log", flags=("--program", "/nosuch"), inNamespace=True)
    try:
        with pytest.raises(RuntimeError, match="--program and --p4info go together"):
            switch.start([])
    finally:
        switch.stop()


@needs_bmv2
def test_bmv2_has_the_queues_that_its_ports_were_given(tmp_path: Path) -> None:
    from mininet.link import Link
    from mininet.node import Host

    from lab.net.switch_nodes import Bmv2Switch

    switch = Bmv2Switch(
        "glnsw3",
        dpid="9",
        setting="rate=10mbit,buffer=20kB",
        dscp_classes={46: 5},
        cpu_port=255,
        log=tmp_path / "log",
        notifications=tmp_path / "bmv2.ipc",
        inNamespace=True,
    )
    host = Host("glnh3")
    link = Link(host, switch, port1=0, port2=4)
    try:
        switch.start([])
        shown = switch.cmd("tc qdisc show dev glnsw3-eth4")
        assert shown.count("bfifo") == 8
        assert shown.count("limit 20000b") == 8
        assert "ceil 10Mbit" in switch.cmd("tc class show dev glnsw3-eth4")
        words = Path(f"/proc/{switch._process.pid}/cmdline").read_text().split("\0")  # pyright: ignore[reportPrivateUsage]
        assert "4@glnsw3-eth4" in words
        assert words[words.index("--priority-queues") + 1] == "8"
        assert words[words.index("--cpu-port") + 1] == "255"
    finally:
        switch.stop()
        link.stop()
        host.terminate()


def test_bmv2_has_no_impairments(tmp_path: Path) -> None:
    from mininet.link import Link
    from mininet.node import Host

    from lab.net.switch_nodes import Bmv2Switch

    switch = Bmv2Switch("glnsw4", dpid="10", setting="rate=1mbit,buffer=9kB,loss=0.1", inNamespace=True)
    host = Host("glnh4")
    link = Link(host, switch, port1=0, port2=1)
    try:
        with pytest.raises(ValueError, match="BMv2 has no 'loss' for a port; rate and buffer can be set"):
            switch.start([])
    finally:
        switch.stop()
        link.stop()
        host.terminate()


def ask(path: Path) -> list[dict[str, object]]:
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rw") as lines:
        connection.connect(str(path))
        lines.write('{"op": "ports"}\n')
        lines.flush()
        return json.loads(lines.readline())["ports"]


def entries(path: Path) -> Path:
    """Routes to both hosts, as p4.v1.WriteRequest in text format."""
    from finsy.proto import p4i, p4r
    from google.protobuf import text_format

    info = text_format.Parse(PROGRAM.with_suffix(".p4info.txtpb").read_text(), p4i.P4Info())
    ids = {item.preamble.alias: item.preamble.id for item in [*info.tables, *info.actions]}
    request = p4r.WriteRequest()
    for n in (1, 2):
        update = request.updates.add(type=p4r.Update.INSERT)
        entry = update.entity.table_entry
        entry.table_id = ids["routes"]
        entry.match.add(field_id=1).lpm.CopyFrom(p4r.FieldMatch.LPM(value=bytes([10, 0, n, 0]), prefix_len=24))
        entry.action.action.action_id = ids["forward"]
        for number, value in enumerate([bytes([n]), b"\x02\0\0\0\0" + bytes([n]), b"\x02\0\0\0\0\xff"], 1):
            entry.action.action.params.add(param_id=number, value=value)
    path.write_text(text_format.MessageToString(request))
    return path
