# SPDX-License-Identifier: Apache-2.0
"""Traces: of one packet through a program, and of packets through a switch that runs."""

import json
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from finsy.proto import p4r
from google.protobuf import text_format
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from gradlane_switch import Switch
from gradlane_switch.bmv2_json.program import load as load_program
from gradlane_switch.codegen.program import generate
from gradlane_switch.commands.trace_text import text
from gradlane_switch.dataplane.forwarding import DataPlane
from gradlane_switch.dataplane.port_config import parse_port
from gradlane_switch.native import build
from gradlane_switch.state.program_state import Lock
from tests.gradlane_switch.replaying import frame, steering_pipeline, write_pcap
from tests.gradlane_switch.small_programs import action, assign, entry, field, load, p4info, param, program, table
from tests.gradlane_switch.switch_process import COMMAND
from tests.gradlane_switch.tunnel_lab import TunnelLab
from tests.support import zygote

SPEC = field("standard_metadata", "egress_spec")


def routed() -> dict[str, Any]:
    """Two tables, one after the other: an LPM table that picks the port, and an exact one that may drop."""
    forward = action(0, "forward", [9], assign(SPEC, param(0)))
    drop = action(
        1, "drop", [], {"op": "mark_to_drop", "parameters": [{"type": "header", "value": "standard_metadata"}]}
    )
    none = action(2, "NoAction", [])
    routes = table(0, "routes", [("lpm", field("h", "address"))], [forward, drop], drop, following="filter")
    blocked = table(1, "filter", [("exact", field("h", "kind"))], [drop, none], none)
    return program([("address", 32), ("kind", 8)], [forward, drop, none], [routes, blocked])


def lpm(value: int, length: int) -> list[Any]:
    return [p4r.FieldMatch(field_id=1, lpm=p4r.FieldMatch.LPM(value=value.to_bytes(4, "big"), prefix_len=length))]


def entries() -> list[Any]:
    exact = [p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x07"))]
    return [entry(1, lpm(0x0A000000, 8), 1, (4,)), entry(1, lpm(0x0A010000, 16), 1, (5,)), entry(2, exact, 2)]


@pytest.fixture
def switch() -> Switch:
    made = load(routed())
    for item in entries():
        made.insert(item)
    return made


def packet(address: str, kind: int) -> bytes:
    return bytes.fromhex(address) + bytes([kind]) + bytes(60)


def test_a_trace_names_every_step(switch: Switch) -> None:
    switch.now = 5_000_000
    trace = switch.trace(3, packet("0a010203", 1))
    events = trace.pop("events")
    assert trace == {"port": 3, "time": 5_000_000, "length": 65, "bytes": packet("0a010203", 1).hex()}
    assert events == [
        {"event": "state", "name": "start"},
        {"event": "parsed", "error": "NoError", "bytes": 5},
        {
            "event": "table",
            "name": "routes",
            "key": {"k0": "0xa010203"},
            "hit": True,
            "entry": {"match": {"k0": "0xa010000/16"}},
        },
        {"event": "action", "name": "forward", "data": {"p0": "0x5"}},
        {"event": "table", "name": "filter", "key": {"k0": "0x1"}, "hit": False},
        {"event": "action", "name": "NoAction", "data": {}},
        {"event": "egress", "port": 5},
        {"event": "sent", "port": 5, "queue": 0, "length": 65, "bytes": packet("0a010203", 1).hex()},
    ]


def test_a_trace_says_why_a_packet_was_dropped(switch: Switch) -> None:
    last = switch.trace(3, packet("0a000001", 7))["events"][-3:]
    assert [event["event"] for event in last] == ["table", "action", "dropped"]
    assert last[0]["entry"] == {"match": {"k0": "0x7"}}
    assert last[1]["name"] == "drop"
    assert last[2] == {"event": "dropped", "reason": "dropped in ingress"}
    short = switch.trace(3, b"abc")["events"]
    assert short[1] == {"event": "parsed", "error": "PacketTooShort", "bytes": 0}


def test_the_text_is_for_people(switch: Switch) -> None:
    lines = text(switch.trace(3, packet("0a010203", 1))).splitlines()
    assert lines[0] == "packet of 65 bytes at port 3, 0.000000 s"
    assert "  table routes (k0 = 0xa010203): hit (k0 = 0xa010000/16)" in lines
    assert "    action forward (p0 = 0x5)" in lines
    assert "  table filter (k0 = 0x1): miss" in lines
    switch.write(p4r.Update(type=p4r.Update.DELETE, entity=entries()[1]))
    assert "    action forward (p0 = 0x4)" in text(switch.trace(3, packet("0a010203", 1)))


def test_a_traced_packet_leaves_as_any_other(program_json: Path, program_p4info: Path) -> None:
    plain, traced = (Switch.load(program_json, program_p4info) for _ in range(2))
    for n in range(40):
        data = bytes(Ether(dst="02:00:00:00:00:ff") / IP(dst=f"10.0.{n % 5}.2", ttl=n) / UDP(sport=n, dport=47400))
        data = data[: 14 + n * 2] if n % 3 == 0 else data
        sent = [event for event in traced.trace(1, data)["events"] if event["event"] == "sent"]
        assert [(item["port"], bytes.fromhex(item["bytes"])) for item in sent] == plain.process(1, data)


def test_an_untraced_program_has_no_trace_of_tracing(program_json: Path) -> None:
    source = generate(load_program(program_json.read_bytes()))
    bare = re.sub(r"GL_TRACE\w*\([^;]*\);", ";", source)
    assert bare != source
    assert build.program_library(source).read_bytes() == build.program_library(bare).read_bytes()


# The command


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    document = routed()
    (tmp_path / "p.json").write_text(json.dumps(document))
    (tmp_path / "p.txtpb").write_text(text_format.MessageToString(p4info(document)))
    request = p4r.WriteRequest(updates=[p4r.Update(type=p4r.Update.INSERT, entity=item) for item in entries()])
    (tmp_path / "e.txtpb").write_text(text_format.MessageToString(request))
    names = {"program": "p.json", "p4info": "p.txtpb", "entries": "e.txtpb"}
    return [word for flag, name in names.items() for word in (f"--{flag}", str(tmp_path / name))]


def trace(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "trace", *arguments]
    return zygote.run(command, 60)


def test_a_reader_that_has_enough_ends_the_command_quietly(files: list[str]) -> None:
    command = [*COMMAND, "trace", packet("0a010203", 1).hex(), *files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 128 + signal.SIGPIPE


def test_the_command_traces_hex_and_files(tmp_path: Path, files: list[str], switch: Switch) -> None:
    done = trace(packet("0a010203", 1).hex(), "--port", "3", "--json", *files)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == switch.trace(3, packet("0a010203", 1))
    done = trace((packet("0a010203", 1) + bytes(1400)).hex(), *files)  # Longer than the name of a file may be.
    assert done.stdout.startswith("packet of 1465 bytes at port 1")
    write_pcap(tmp_path / "in.pcap", [(0, packet("0a010203", 1)), (5, packet("0b000000", 1))])
    done = trace(str(tmp_path / "in.pcap"), *files)
    assert done.stdout.count("packet of 65 bytes at port 1") == 2
    assert done.stdout.splitlines()[-1] == "  dropped: dropped in ingress"
    for arguments, message in [
        (["xyz", *files], "'xyz' is neither hex digits nor a file"),
        (["00"], "give either --program and --p4info, or --admin"),
        ([*files], "--program needs --p4info and a packet"),
    ]:
        done = trace(*arguments)
        assert done.returncode == 2
        assert message in done.stderr.splitlines()[-1]


def test_a_packet_enters_by_a_port(files: list[str]) -> None:
    done = trace("00", "--port", "511", *files)
    assert done.returncode == 1
    assert done.stderr.endswith("511 is not a port number (0..510; v1model drops by 511)\n")


def test_a_bad_entry_in_a_file_is_named(tmp_path: Path, files: list[str]) -> None:
    (tmp_path / "e.txtpb").write_text("updates { type: INSERT entity { table_entry { table_id: 7 } } }")
    done = trace("00", *files)
    assert done.returncode == 2
    assert "e.txtpb: updates[0]: " in done.stderr


# A switch that runs


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Callable[..., TunnelLab]]:
    running: list[TunnelLab] = []

    def start(*settings: str) -> TunnelLab:
        running.append(TunnelLab(tmp_path, *settings))
        return running[-1]

    yield start
    for made in running:
        made.close()


def test_a_packet_is_traced_through_a_switch_that_runs(lab: Callable[..., TunnelLab]) -> None:
    made = lab("", "rate=10mbit,buffer=2000B")
    done = trace(frame(2, 5, 100).hex(), "--port", "1", "--admin", str(made.path), "--json")
    assert done.returncode == 0, done.stderr
    place = {"port": 2, "queue": 5}
    assert json.loads(done.stdout)["events"][-4:] == [
        {"event": "queued", **place, "length": 100, "queue_bytes": 100, "port_bytes": 100},
        {"event": "dequeued", **place, "waited": 0},
        {"event": "egress", "port": 2},
        {"event": "sent", **place, "length": 100},
    ]
    assert made.hosts[2].receive(1) == [frame(2, 5, 100)]
    for port, reason in [(9, "port does not exist"), (0, "dropped in ingress")]:
        done = trace(frame(port, 0, 100).hex(), "--port", "1", "--admin", str(made.path))
        assert f"dropped: {reason}" in done.stdout.splitlines()[-1]
    made.admin(op="set", port=2, up=False)
    done = trace(frame(2, 0, 100).hex(), "--port", "1", "--admin", str(made.path))
    assert done.stdout.splitlines()[-1] == "  dropped: port is down (port 2, queue 0)"
    done = trace(frame(2, 0, 100).hex(), "--port", "7", "--admin", str(made.path))
    assert (done.returncode, "there is no port 7" in done.stderr) == (1, True)


def test_a_trace_follows_a_packet_through_its_queue(lab: Callable[..., TunnelLab]) -> None:
    made = lab("", "rate=1kbit,buffer=2950B")
    found: list[dict[str, Any]] = []
    changes: list[tuple[Callable[[], object], list[dict[str, Any]]]] = [
        (
            lambda: made.admin(op="set", port=2, rate="1gbit"),
            [{"event": "dequeued"}, {"event": "egress"}, {"event": "sent"}],
        ),
        (
            lambda: [made.hosts[1].send(frame(2, 7, 1450, n)) for n in range(2)],
            [{"event": "dropped", "reason": "pushed out of the queue"}],
        ),
        (
            lambda: made.admin(op="set", port=2, up=False),
            [{"event": "dropped", "reason": "port is down"}],
        ),
    ]

    def inject() -> None:
        found.append(made.admin(op="trace", port=1, inject=frame(2, 5, 100).hex()))

    made.admin(op="trace", port=1, inject=frame(0, 0, 60).hex())  # Compiled from now on.
    for n, (change, last) in enumerate(changes):
        # The link is busy for 12 s with the first packet, so the traced one waits until something changes.
        made.hosts[1].send(frame(2, 0, 1500))
        made.wait_until(lambda ports, n=n: ports[2]["queues"][0]["enqueued"]["packets"] == n + 1)
        tracer = threading.Thread(target=inject)
        tracer.start()
        made.wait_until(lambda ports: ports[2]["queues"][5]["depth_packets"] == 1)
        change()
        tracer.join()
        first, *others = found[-1]["events"][-len(last) - 1 :]
        assert first["event"] == "queued"
        assert [{key: event[key] for key in wanted} for event, wanted in zip(others, last, strict=True)] == last
        made.admin(op="set", port=2, rate="1gbit")
        made.wait_until(lambda ports: ports[2]["depth_bytes"] == 0)
        made.admin(op="set", port=2, rate="1kbit")


@pytest.mark.parametrize(
    ("ports", "last"),
    [
        ((",rx-loss=1", ""), {"event": "dropped", "reason": "lost on the link from the host"}),
        (("", ",loss=1"), {"event": "dropped", "reason": "lost on the link to the host", "port": 2, "queue": 4}),
    ],
)
def test_what_is_lost_on_a_link_is_traced(tmp_path: Path, ports: tuple[str, str], last: dict[str, Any]) -> None:
    write_pcap(tmp_path / "in.pcap", [(0, frame(2, 4, 100))])
    names = (f"1@pcap:{tmp_path}/in.pcap", f"2@pcap:,{tmp_path}/out.pcap")
    lock = Lock()
    dataplane = DataPlane(lock, [parse_port(f"{name}{text}") for name, text in zip(names, ports, strict=True)], 0)
    try:
        dataplane.install(steering_pipeline(lock))
        traces = dataplane.trace(1)
        dataplane.replay()
        [packet], lost = dataplane.traced(traces, True)
    finally:
        dataplane.stop()
    assert (packet["events"][-1], lost) == (last, 0)


def test_packets_are_traced_as_they_come(lab: Callable[..., TunnelLab]) -> None:
    made = lab("", "rate=1mbit,buffer=2000B", "")
    outputs: list[str] = []
    live = ("--admin", str(made.path), "--port", "1", "--packets", "4", "--json")
    tracer = threading.Thread(target=lambda: outputs.append(trace(*live).stdout))
    tracer.start()
    n = 0
    while tracer.is_alive():
        made.hosts[1].send(frame(2, 0, 1000, n))
        made.hosts[3].send(frame(1, 0, 60, n))
        made.hosts[1].receive(1, silence=0.05)
        n += 1
    packets = [json.loads(line) for line in outputs[0].splitlines()]
    assert len(packets) == 4
    assert {item["port"] for item in packets} == {1}
    assert all(item["events"][-1]["event"] in ("sent", "dropped") for item in packets)
    # The trace has ended: another may begin.
    answer = made.admin(op="trace", time="0ms", packets=1)
    assert answer == {"ok": True, "packets": 0, "lost_events": 0}
    assert "not a positive number" in made.admin(op="trace", packets=0)["error"]
    assert '"inject" needs "port"' in made.admin(op="trace", inject="00")["error"]
