# SPDX-License-Identifier: Apache-2.0
"""The policies of simulated switches are the controller's entries: a switch that has those decides alike."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
import tomli_w
from finsy import P4Schema
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from bench.controller.large_fabric import LargeFabric
from gradlane import job, wire
from gradlane.job import Job
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import Fabric, LinkPort, Port
from gradlane_controller.policy import Entity, desired_entities
from gradlane_sim import tables
from tests.p4src.conftest import unrestricted
from tests.p4src.packet_bench import Bench, Reason
from tests.p4src.packet_targets import InProcess
from tests.sim.replay import Entering, replay
from tests.support.gradlane_packets import TOKEN, Gradlane
from tests.support.paths import P4INFO, PROGRAM

IPV4 = 14  # where it begins in a frame
SMALL = LargeFabric(3, 2, 6)
MAGNITUDES = [(0, 63, 3), (64, 127, 2), (128, 223, 1)]


def small_fabric(**changes: object) -> Fabric:
    """Two hosts at each of three leaves, two spines; buffers of three frames."""
    document = SMALL.document([f"127.0.0.1:{n}" for n in range(1, 6)])
    for it in (*document["port"], *document["link"]):
        it |= {"rate": "1mbit", "buffer": "8kB"}
    document |= {"dscp": [{"dscp": 46, "queue_class": 5}], **changes}
    return fabric_file.parse(tomli_w.dumps(document), "fabric.toml")


def two_jobs() -> list[Job]:
    """Of all hosts, that meet at every port; their ids are not their indices."""
    found: list[Job] = []
    for number, (trim, weight) in enumerate([("drop", 1), ("trim", 3)], 1):
        document = SMALL.job(1, 6)
        document["job"] |= {"name": f"j{number}", "id": 10 * number, "key": f"{number:032x}"}
        document["slots"] = {"base": 256 * number, "mask": 3}
        document["transport"] |= {"rate": "1mbit", "buffer": "8kB"}
        document["policy"] = {
            "on_congestion": trim,
            "weight": weight,
            "queue_classes": [{"layers": [0, 3], "class": 6}, {"layers": [4, 65535], "class": 5}],
            "drop_precedences": [
                {"magnitudes": [first, last], "drop_precedence": value} for first, last, value in MAGNITUDES
            ],
        }
        found.append(job.parse(tomli_w.dumps(document), f"j{number}.toml"))
    return found


def way(fabric: Fabric, switch: str, to: Port) -> list[int]:
    """The egress ports towards a host, as the simulator finds them: shortest ways, in the order of the ports."""
    if to.switch == switch:
        return [to.number]
    links = sorted(fabric.link_ports_at(switch), key=lambda it: it.number)
    direct = [it.number for it in links if it.peer == to.switch]
    return direct or [it.number for it in links]


def frame(random: Random, fabric: Fabric, entry: Port | LinkPort, source: Port, destination: Port) -> bytes:
    """A slice of few messages, now and then something else."""
    own, peer = (entry.mac, entry.peer_mac) if isinstance(entry, LinkPort) else (entry.mac, entry.host_mac)
    tos = random.choice([0, 46 << 2, 0b110_011_00, 0b101_001_10, random.randrange(256)])
    packet = Ether(src=peer, dst=own) / IP(src=str(source.address), dst=str(destination.address), tos=tos)
    if random.randrange(8) == 0:
        return bytes(packet / TCP(sport=random.randrange(65536), dport=80) / Raw(bytes(random.choice([0, 900]))))
    length = random.choice([0, 500, 900, 1432])
    header = Gradlane(
        version=wire.VERSION,
        kind=random.choice([0] * 9 + [1, 3, 5]),
        job=random.choice([10, 20]),
        layer=random.choice([0, 3, 4, 600]),
        magnitude=random.randrange(256),
        message=random.choice([1, 2, 5, 6, 2**32 - 3]),
        slices=100,
        slice=random.randrange(100),
        budget=random.choice([0, 1, 3, 8, 100]),
        way=random.choice([0, 0, 0, 1, 2]),
        length=length,
        token=TOKEN,
    )
    return bytes(packet / UDP(sport=wire.UDP_PORT, dport=wire.UDP_PORT) / header / Raw(bytes(length)))


@pytest.mark.parametrize("switch", ["leaf2", "spine1"])
@pytest.mark.parametrize("thresholds", [{}, {"thresholds": {"yellow": 0.4, "red": 0.9}}], ids=["derived", "stated"])
def test_a_switch_with_the_controllers_entries_decides_as_the_simulated_one(
    switch: str, thresholds: dict[str, object]
) -> None:
    fabric = small_fabric(**thresholds)
    entities = desired_entities(fabric, two_jobs())[switch]
    schema = P4Schema(P4INFO, PROGRAM.read_bytes())
    target = InProcess(schema, unrestricted(PROGRAM, P4INFO))
    bench = Bench(target, schema)
    bench.install(entities)
    random, bits = Random(1), tables.chosen_bits(entities)
    packets: list[Entering] = []
    left: list[tuple[int, bytes] | None] = []
    for _ in range(1500):
        entry = random.choice([*fabric.ports_at(switch), *fabric.link_ports_at(switch)])
        inside = isinstance(entry, LinkPort)
        source = random.choice([it for it in fabric.ports if it.switch != switch]) if inside else entry
        assert isinstance(source, Port)
        destination = random.choice([it for it in fabric.ports if it.host != source.host])
        now = target.switch.now = target.switch.now + random.choice([0, 100_000, 3_000_000])
        sent = frame(random, fabric, entry, source, destination)
        ports = way(fabric, switch, destination)
        packets.append(Entering(now, len(sent), entry.number, inside, bits.get(entry.number, 0), ports, sent[IPV4:]))
        out = bench.process(entry.number, sent)
        assert len(out) < 2
        left.append((out[0].port, out[0].frame[IPV4 : IPV4 + 64]) if out else None)
    found = replay(tables.policy(entities), packets)
    for packet, fate, wanted in zip(packets, found.fates, left, strict=True):
        dropped = fate.reason in (Reason.DROPPED_YELLOW, Reason.DROPPED_RED, Reason.DROPPED_NO_ROUTE)
        what = packet, fate
        if wanted is None:
            assert dropped, what
        else:
            assert not dropped, what
            assert (fate.egress, fate.head[1]) == (wanted[0], wanted[1][1]), what
            assert (fate.trimmed, fate.head[2:8], fate.head[12:]) == (
                len(wanted[1]) < len(packet.packet[:64]) or wanted[1][2:4] != packet.packet[2:4],
                wanted[1][2:8],
                wanted[1][12:],
            ), what
    counted: Counter[Reason] = Counter()
    for (_, reason, _, _), count in bench.decision_cells(0, 1, 2).items():
        counted[Reason.FORWARDED if reason == Reason.MALFORMED else reason] += count.packets
    assert {Reason(n): count for n, count in enumerate(found.reasons) if count} == counted
    assert found.drops == {key: count.packets for key, count in bench.drop_map().items()}
    assert counted.keys() >= {Reason.FORWARDED, Reason.BUDGET_SPENT, Reason.TRIMMED_RED, Reason.DROPPED_RED}


def test_nodes_are_numbered_as_the_simulator_does() -> None:
    found = tables.policies(small_fabric(), two_jobs())
    assert [it["switch"] for it in found] == [6, 7, 8, 9, 10]
    assert [[port["port"] for port in it["ports"]] for it in found] == [[1, 2, 3, 4]] * 3 + [[1, 2, 3]] * 2
    leaf, spine = found[0], found[-1]
    assert leaf["budget_shares"] == [["whole", "quarter"], ["rest_of_half", "nothing"]]
    assert spine["budget_shares"][1] == ["rest_of_half", "eighth"], "two spines are parallel"
    assert [port["to_fabric"] for port in leaf["ports"]] == [False, False, True, True]
    assert [it["id"] for it in leaf["jobs"]] == [10, 20]
    assert [it["trim"] for it in spine["jobs"]] == [False, True]
    assert spine["jobs"][0]["classes"] == [], "tags are given where a host's packets enter"
    assert {(it["job"], it["rate"]) for it in leaf["job_shares"]} == {(10, 250_000), (20, 750_000)}


def test_ports_that_the_simulator_does_not_have_are_refused() -> None:
    fabric = small_fabric()
    moved = replace(fabric.ports[0], number=9)
    with pytest.raises(ValueError, match="'leaf1' must be numbered 1 to 4"):
        tables.policies(replace(fabric, ports=(moved, *fabric.ports[1:])), two_jobs())


def test_without_jobs_gradients_are_ordinary_traffic() -> None:
    entities: list[Entity] = desired_entities(small_fabric(), [])["leaf1"]
    found = tables.policy(entities)
    assert (found["jobs"], found["job_shares"]) == ([], [])
    assert [port["to_fabric"] for port in found["ports"]] == [False, False, True, True]
