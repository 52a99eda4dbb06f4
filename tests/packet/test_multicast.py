# SPDX-License-Identifier: Apache-2.0
"""An aggregator's results go once into the switch and come out at every worker but the aggregator itself."""

import pytest
from finsy import P4MeterConfig, P4MeterEntry
from finsy.proto import p4r
from gradlane_packets import H1, H2, H3, H4, Host, gradient, ip
from packet_bench import GREEN, YELLOW, Bench, job_file
from scapy.layers.inet import IP, UDP

from gradlane.wire import Flag, Kind
from gradlane_controller.counters import Reason

MULTICAST = 'multicast = "239.1.0.1"'
PULL = Flag.PULL | Flag.MULTICAST


@pytest.mark.parametrize(("source", "others"), [(H1, {2, 3}), (H2, {1, 3}), (H3, {1, 2})])
def test_a_result_reaches_every_worker_but_not_the_port_that_it_came_from(
    bench: Bench, source: Host, others: set[int]
) -> None:
    bench.install(job_file(transport=MULTICAST))
    group = f"239.1.0.{source.port}"
    frame = gradient(source, group, flags=PULL, layer=2)
    copies = bench.process(source, frame)
    assert sorted(copy.port for copy in copies) == sorted(others)
    for copy in copies:
        assert copy.queue in (None, 6)
        assert copy.packet[IP].tos == 0b110_000_10
        assert copy.packet[IP].ttl == 63
        assert copy.frame[:12] == frame[:12], "the group's MAC address is the host's to choose"
        assert copy.frame[26:] == frame[26:]
        rebuilt = copy.packet
        del rebuilt[IP].chksum
        assert bytes(rebuilt) == copy.frame, "the IPv4 checksum must be right"
    assert bench.decisions() == {(Reason.FORWARDED, 6, 0): 1}, "a multicast packet is one decision"


def test_a_server_that_is_no_worker_reaches_them_all(bench: Bench) -> None:
    job = job_file(hosts=(H1, H2, H3), transport=MULTICAST)
    bench.install(job)
    copies = bench.process(H4, bytes(ip(H4, "239.1.0.1") / UDP(dport=9)))
    assert sorted(copy.port for copy in copies) == [1, 2, 3]


def test_each_job_has_groups_of_its_own(bench: Bench) -> None:
    bench.install(job_file(transport=MULTICAST), job_file(2, (H1, H4), base=4096, transport='multicast = "239.2.0.1"'))
    assert [copy.port for copy in bench.process(H4, gradient(H4, "239.2.0.2", job=2, flags=PULL))] == [1]
    assert sorted(copy.port for copy in bench.process(H1, gradient(H1, "239.1.0.1", flags=PULL))) == [2, 3]


def test_a_multicast_address_without_a_group_is_dropped(bench: Bench) -> None:
    bench.install(job_file(transport=MULTICAST))
    assert bench.process(H1, gradient(H1, "239.1.0.4", flags=PULL)) == []
    assert bench.decisions() == {(Reason.DROPPED_NO_ROUTE, 6, 0): 1}


def test_the_guard_holds_for_multicast_too(bench: Bench) -> None:
    bench.install(job_file(transport=MULTICAST))
    assert bench.process(H4, gradient(H4, "239.1.0.1", flags=PULL)) == []
    assert bench.decisions() == {(Reason.DROPPED_GUARD, 0, 0): 1}


def test_multicast_neither_fills_a_virtual_queue_nor_is_dropped_by_policy(bench: Bench) -> None:
    bench.install(job_file(transport=MULTICAST))
    # Port 0 stands for "not chosen yet", which is what a multicast packet has where others are metered.
    always_red = P4MeterConfig(cir=1, cburst=1, pir=1, pburst=1)
    bench.write(p4r.Update.MODIFY, P4MeterEntry("virtual_queue", index=0, config=always_red))
    for _ in range(GREEN + YELLOW + 5):
        copies = bench.process(H1, gradient(H1, "239.1.0.1", flags=PULL, layer=1, magnitude=0, budget=100))
        assert [copy.packet[IP].tos & 3 for copy in copies] == [0, 0], "not dropped, and not marked"
    assert bench.forward(H1, gradient(H1, H2, layer=1, kind=Kind.REPAIR), H2).packet[IP].tos & 3 == 2


def test_a_multicast_packet_at_the_end_of_its_ttl_is_dropped(bench: Bench) -> None:
    bench.install(job_file(transport=MULTICAST))
    assert bench.process(H1, gradient(H1, "239.1.0.1", flags=PULL, ip_fields={"ttl": 1})) == []
