# SPDX-License-Identifier: Apache-2.0
"""The controller against the switches themselves. A switch that is not installed is skipped by name."""

import signal
from pathlib import Path

import grpc
from finsy import P4Schema
from finsy.proto import p4r, p4r_grpc
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.l2 import ARP, Ether

from gradlane_controller.network.frames import make_lldp, parse_lldp
from tests.gradlane_controller.running_switches import Target
from tests.gradlane_controller.texts import fabric_text, job_text
from tests.support.gradlane_packets import H1, H2, H3, gradient
from tests.support.paths import P4INFO

DIGEST = P4Schema(P4INFO).digests["guard_violation_t"].id


def read_everything(target: Target, *, digest: bool = True) -> set[bytes]:
    """What the switch holds, asked for by a client that shares no code with the controller. BMv2 refuses to read a
    `digest` that it does not have."""
    with grpc.insecure_channel(target.address) as channel:
        request = p4r.ReadRequest(device_id=1)
        request.entities.add().table_entry.SetInParent()
        request.entities.add().packet_replication_engine_entry.multicast_group_entry.SetInParent()
        request.entities.add().meter_entry.SetInParent()
        if digest:
            request.entities.add().digest_entry.digest_id = DIGEST
        return {
            entity.SerializeToString(deterministic=True)
            for answer in p4r_grpc.P4RuntimeStub(channel).Read(request, timeout=60)
            for entity in answer.entities
            if not entity.HasField("meter_entry") or entity.meter_entry.HasField("config")
        }


def test_state_survives_controllers_and_comes_back_after_the_switch(
    target: Target,
    run_controller,
) -> None:
    fabric = fabric_text(target.address, target.kind)
    job = job_text(servers=(3,), transport='multicast = "239.1.0.1"')
    first = run_controller(fabric, job)
    first.wait_for("ready:", 60)
    held = read_everything(target)
    entries = first.ask("GET", "/status")[1]["switches"][0]["entries"]
    assert len(held) == sum(entries.values())
    assert first.ask("GET", "/counters")[1]["senders"][2]["host"] == "h3"
    assert first.end(signal.SIGKILL) == -signal.SIGKILL

    second = run_controller(fabric, job)
    assert "0 inserted, 0 modified, 0 deleted" in second.wait_for("converged")
    assert second.ask("POST", "/jobs", job_text("other", 2, base=4096))[0] == 200
    assert len(read_everything(target)) > len(held)
    assert second.ask("DELETE", "/jobs/other")[0] == 200
    assert read_everything(target) == held

    target.process.stop()
    second.wait_for("trying again")
    target.process.start()
    second.wait_for("converged", 60)
    assert read_everything(target) == held


def test_thresholds_follow_the_file_and_ports_that_go_lose_their_meter(
    target: Target, run_controller, tmp_path: Path
) -> None:
    fabric = fabric_text(target.address, target.kind)
    it = run_controller(fabric, job_text())
    it.wait_for("ready:", 60)
    before = read_everything(target)
    (tmp_path / "fabric.toml").write_text(fabric.replace("red = 0.5", "red = 0.75").replace("number = 4", "number = 5"))
    it.reload()
    after = [p4r.Entity.FromString(entity) for entity in read_everything(target)]
    bursts = {
        e.meter_entry.index.index: e.meter_entry.config.pburst for e in after if e.meter_entry.meter_id == 0x14000001
    }
    assert bursts == {1: 48000, 2: 48000, 3: 48000, 5: 48000}
    assert len(after) == len(before)


def test_what_a_job_would_change_is_told_of_what_the_switch_holds(target: Target, run_controller) -> None:
    it = run_controller(fabric_text(target.address, target.kind), job_text())
    it.wait_for("ready:", 60)
    held, other = read_everything(target), job_text("other", 2, base=4096)
    (switch,) = it.ask("GET", "/plan?live=true")[1]["switches"]
    assert (switch["changes"], switch["problem"]) == ([], "")
    (switch,) = it.ask("POST", "/plan?live=true", other)[1]["switches"]
    assert {change["change"] for change in switch["changes"]} == {"insert"}
    assert read_everything(target) == held
    assert it.ask("POST", "/jobs", other)[0] == 200
    assert len(read_everything(target)) - len(held) == len(switch["changes"]) > 5


def test_a_second_controller_stands_by_and_takes_over(target: Target, run_controller) -> None:
    fabric = fabric_text(target.address, target.kind)
    first = run_controller(fabric, job_text())
    first.wait_for("ready:", 60)
    held = read_everything(target)
    second = run_controller(fabric, job_text())
    second.wait_for("stands by: ")
    first.end(signal.SIGKILL)
    assert "0 inserted, 0 modified, 0 deleted" in second.wait_for("converged")
    assert read_everything(target) == held


def test_what_a_host_asks_is_answered_and_what_is_refused_is_told(
    target: Target,
    run_controller,
) -> None:
    text = fabric_text(target.address, target.kind)
    for n in range(1, 5):
        text = text.replace(f"number = {n}\n", f'number = {n}\ngateway = "10.0.{n}.1"\n')
    it = run_controller(text, job_text())
    it.wait_for("ready:", 60)
    wires = target.wires

    def routed(**fields: object) -> IP:
        return Ether(src=H1.mac, dst=H1.gateway) / IP(src=H1.address, **fields)

    question = Ether(src=H1.mac, dst="ff:ff:ff:ff:ff:ff") / ARP(hwsrc=H1.mac, psrc=H1.address, pdst="10.0.1.1")
    assert wires.ask(1, question, lambda it: ARP in it)[ARP].hwsrc == H1.gateway
    reply = wires.ask(1, routed(dst="10.0.1.1") / ICMP(id=7, seq=1) / b"hello", lambda it: ICMP in it)
    assert (reply[IP].src, reply[ICMP].type, reply[ICMP].id) == ("10.0.1.1", 0, 7)
    expired = wires.ask(1, routed(dst=H2.address, ttl=1) / UDP(dport=33434), lambda it: ICMP in it)
    assert (expired[IP].src, expired[ICMP].type) == ("10.0.1.1", 11)
    # What needs no answer is forwarded.
    wires.send(1, Ether(src=H1.mac, dst=H2.mac) / IP(src=H1.address, dst=H2.address) / UDP(dport=9))
    assert wires.expect(2, lambda it: UDP in it)[IP].ttl == 64
    wires.send(1, gradient(H1, H2))
    assert wires.expect(2, lambda it: UDP in it and it[UDP].dport == 47400)[Ether].dst == H2.mac
    # h3 is not of the job.
    wires.send(3, gradient(H3, H2))
    assert "port 3 of 's1' (host 'h3'): gradients of job 1 from 10.0.3.2" in it.wait_for("refused at")
    (violation,) = it.ask("GET", "/violations")[1]["violations"]
    assert violation.pop("last").endswith("+00:00")
    assert [violation] == [
        {"switch": "s1", "port": 3, "host": "h3", "source": "10.0.3.2", "job": "demo", "job_id": 1, "times": 1}
    ]
    status, counters = it.ask("GET", "/counters")
    assert status == 200, counters
    decided = {(row["job"], row["reason"]): row["packets"] for row in counters["decisions"]}
    assert decided["demo", "forwarded"] == 1
    assert decided[None, "dropped_guard"] == 1
    assert decided[None, "punted_arp"] >= 1


def test_a_links_end_is_told_and_heard_by_lldp(target: Target, fake_switch, run_controller) -> None:
    """The other switch is there, but nothing that is sent to it arrives anywhere."""
    text = fabric_text(target.address, target.kind).replace("[[port]]", '[[port]]\nswitch = "s1"')
    text += f'[[switch]]\nname = "s2"\naddress = "{fake_switch.address}"\n'
    text += '[[link]]\nends = ["s1:5", "s2:1"]\nrate = "100mbit"\nbuffer = "64kB"\n'
    it = run_controller(text)
    it.wait_for("ready:", 60)
    # BMv2 sends frames to whom it got some from. What nobody has sealed is no neighbour's.
    target.wires.send(5, make_lldp(bytes.fromhex("020100020007"), "s2", 7, 2, bytes(16)))
    said = target.wires.expect(5, lambda frame: frame.type == 0x88CC)
    neighbour = parse_lldp(bytes(said))
    assert neighbour is not None
    assert neighbour[:2] == ("s1", 5)
    assert said.src == "02:01:00:01:00:05"
    # A loop: its own frame is a wrong neighbour's.
    target.wires.send(5, said)
    line = it.wait_for("is connected to")
    assert "port 5 of 's1' is connected to port 5 of 's1', not to port 1 of 's2'" in line
