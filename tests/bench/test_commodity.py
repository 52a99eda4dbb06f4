# SPDX-License-Identifier: Apache-2.0
"""The emulated commodity switch does what a switch without P4 does, no more; what its benchmark makes of figures."""

from pathlib import Path

import pytest
from finsy import P4MeterEntry, P4Schema
from finsy.proto import p4r
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from bench.training import commodity, commodity_switch
from gradlane_switch import Switch

BUILD = Path(commodity_switch.__file__).parent / "build"
ALL_ARMS = {"gradlane-ps", "gradlane-ps-host", "gradlane", "gradlane-host", "ps-tcp", "ddp-gloo-fp16"}


@pytest.fixture
def switch() -> Switch:
    """Hosts 10.0.N.2 at ports 1 to 3, with so little rate that no bucket fills up again during a test."""
    ports = [
        commodity_switch.Port(n, f"10.0.{n}.2", f"02:00:00:00:0{n}:02", f"02:00:00:00:0{n}:01", 8_000, 16_000)
        for n in (1, 2, 3)
    ]
    program = Switch.load(BUILD / "commodity.json", BUILD / "commodity.p4info.txtpb")
    schema = P4Schema(BUILD / "commodity.p4info.txtpb")
    for entry in commodity_switch.entries(ports, "239.1.0.0/24", [1, 2], {46: 5, 56: 7}):
        kind = p4r.Update.MODIFY if isinstance(entry, P4MeterEntry) else p4r.Update.INSERT
        program.write(p4r.Update(type=kind, entity=entry.encode(schema)))
    return program


def frame(destination: str, dscp: int, payload: int = 1000, ttl: int = 9) -> bytes:
    ip = IP(src="10.0.1.2", dst=destination, tos=dscp << 2, ttl=ttl)
    return bytes(Ether(dst="02:00:00:00:01:01") / ip / UDP(sport=1, dport=47400) / bytes(payload))


def test_it_routes_by_address_and_serves_by_dscp(switch: Switch) -> None:
    for dscp, queue in ((0, 0), (6 << 3, 6), (5 << 3, 5), (46, 5), (56, 7)):
        ((port, served, sent),) = switch.process_queued(1, frame("10.0.2.2", dscp, payload=10))
        assert (port, served) == (2, queue)
        assert (Ether(sent).src, Ether(sent).dst) == ("02:00:00:00:02:01", "02:00:00:00:02:02")
        assert Ether(sent)[IP].ttl == 8
        again = Ether(sent)[IP].copy()
        del again.chksum
        assert IP(bytes(again)).chksum == Ether(sent)[IP].chksum


def test_it_drops_what_it_cannot_route(switch: Switch) -> None:
    assert switch.process(1, frame("10.9.9.9", 0)) == []
    assert switch.process(1, frame("10.0.2.2", 0, ttl=1)) == []
    assert switch.process(1, bytes(Ether(dst="ff:ff:ff:ff:ff:ff", type=0x0806)) + bytes(46)) == []


def test_multicast_goes_to_the_receivers_but_not_back(switch: Switch) -> None:
    assert sorted(port for port, _ in switch.process(3, frame("239.1.0.7", 40))) == [1, 2]
    assert [port for port, _ in switch.process(1, frame("239.1.0.7", 40))] == [2]


def test_early_drops_follow_the_drop_precedence_and_know_no_budget(switch: Switch) -> None:
    passed = [bool(switch.process(1, frame("10.0.2.2", 5 << 3 | 3))) for _ in range(60)]
    assert all(passed[:3])  # below the lower threshold, 4 kB
    assert not any(passed[8 + 8 :])  # above the upper one for long: every one, whatever its message tolerates
    assert all(switch.process(1, frame("10.0.2.2", 5 << 3)) for _ in range(60))
    half = sum(bool(switch.process(1, frame("10.0.2.2", 5 << 3 | 1))) for _ in range(400))
    assert 130 < half < 270
    assert switch.read_counter("IngressImpl.early_drops", 5 << 3 | 3).packets == passed.count(False)
    assert all(switch.process(1, frame("10.0.3.2", 5 << 3 | 3, payload=10)) for _ in range(10)), "another port"


def test_best_effort_and_other_traffic_is_left_to_tail_drop(switch: Switch) -> None:
    for dscp in (0, 1, 3, 46, 56):
        assert all(switch.process(1, frame("10.0.2.2", dscp)) for _ in range(60))


def test_figures_are_compared_with_tcp_on_the_same_switch() -> None:
    assert {arm for runs in commodity.RUNS.values() for _, arm in runs} == ALL_ARMS
    results = [
        commodity.Result("incast", network, arm, seed, p50 + seed, 2 * p50, delivered, delivered and 7, 5, 4, 0)
        for seed in (1, 2, 3)
        for network, arm, p50, delivered in (
            ("P4", "gradlane-ps", 98, 0.95),
            ("commodity", "gradlane-ps-host", 198, 0.97),
            ("commodity", "ps-tcp", 298, None),
        )
    ]
    rows = commodity.table(results).rows
    assert [row[1:5] for row in rows] == [
        ["P4", "gradlane-ps", "100 / 196", "3.00x"],
        ["commodity", "gradlane-ps-host", "200 / 396", "1.50x"],
        ["commodity", "ps-tcp", "300 / 596", "1.00x"],
    ]
    assert [row[5] for row in rows] == ["95.00%", "97.00%", "-"]


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--scenarios", "gray"], "scenario 'gray' is unknown"), (["--seeds", "x"], "no list of different seeds")],
)
def test_what_is_not_compared_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    with pytest.raises(SystemExit):
        commodity.main(words)
    assert said in capsys.readouterr().err
