# SPDX-License-Identifier: Apache-2.0
"""An aggregator's results go once into the switch and come out at every worker but the aggregator itself."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from gradlane.wire import Flag, Kind
from tests.p4src.packet_bench import Bench, Reason
from tests.p4src.packet_targets import CPU_PORT
from tests.support.entries import (
    ALWAYS_RED,
    GREEN,
    YELLOW,
    congestion,
    fabric,
    job,
    multicast,
    multicast_mac,
    virtual_queue,
)
from tests.support.gradlane_packets import FAR, H1, H2, H3, H4, U5, Hop, Host, Uplink, gradient, ip, ip6, rebuilt, tags

GROUP4, GROUP6 = "239.1.0.1", "ff0e::1:1"
PULL = Flag.PULL | Flag.MULTICAST


def to_group(source: Host = H1, address: str = GROUP4, through: Host | Uplink | None = None, **fields: object) -> bytes:
    packet = Ether(gradient(source, address, through=through, version=6 if ":" in address else 4, flags=PULL, **fields))
    packet.dst = multicast_mac(address)
    return bytes(packet)


@pytest.fixture
def groups(bench: Bench) -> Bench:
    """Both groups have the hosts of job 1 and an uplink."""
    bench.install(fabric(), job(), congestion(), multicast(GROUP4, 1, 1, 2, 3, 5), multicast(GROUP6, 2, 1, 2, 3, 5))
    return bench


@pytest.mark.parametrize("address", [GROUP4, GROUP6])
@pytest.mark.parametrize(("source", "others"), [(H1, [2, 3, 5]), (H2, [1, 3, 5]), (H3, [1, 2, 5])])
def test_a_result_reaches_every_worker_but_not_the_port_that_it_came_from(
    groups: Bench, source: Host, others: list[int], address: str
) -> None:
    frame = to_group(source, address, layer=2)
    copies = groups.process(source, frame)
    assert sorted(copy.port for copy in copies) == others
    transport = 34 if address == GROUP4 else 54
    for copy in copies:
        assert copy.queue in (None, 6)
        assert tags(copy.frame) == (6, 0, 2)
        assert (copy.packet[IP].ttl if address == GROUP4 else copy.packet[IPv6].hlim) == 63
        assert copy.frame[:12] == frame[:12], "the group's MAC address is the host's to choose"
        assert copy.frame[transport:] == frame[transport:]
        assert rebuilt(copy.frame) == copy.frame, "the checksums must be right"
    assert groups.decisions() == {(Reason.FORWARDED, 6, 0): 1}, "a multicast packet is one decision"


def test_a_result_from_the_fabric_reaches_the_hosts_here_and_does_not_go_back(groups: Bench) -> None:
    frame = to_group(FAR, through=U5, layer=2, ip_fields={"tos": 0b101_000_10})
    copies = groups.process(U5, frame)
    assert sorted(copy.port for copy in copies) == [1, 2, 3]
    assert {tags(copy.frame) for copy in copies} == {(5, 0, 2)}


def test_a_server_that_is_no_worker_reaches_them_all(groups: Bench) -> None:
    packet = ip(H4, GROUP4) / UDP(dport=9)
    packet.dst = multicast_mac(GROUP4)
    assert sorted(copy.port for copy in groups.process(H4, bytes(packet))) == [1, 2, 3, 5]


def test_each_address_has_a_group_of_its_own(groups: Bench) -> None:
    groups.add(*multicast("239.2.0.1", 9, 1, 4))
    assert [copy.port for copy in groups.process(H1, to_group(address="239.2.0.1"))] == [4]
    assert sorted(copy.port for copy in groups.process(H1, to_group())) == [2, 3, 5]


def test_a_multicast_address_without_a_route_is_dropped(groups: Bench) -> None:
    packet = Ether(to_group(address="239.1.0.4", layer=2))
    packet.dst = multicast_mac(GROUP4)
    assert groups.drops(H1, bytes(packet))
    assert groups.decisions() == {(Reason.DROPPED_NO_ROUTE, 6, 0): 1}


def test_a_multicast_mac_address_that_is_no_station_is_not_routed(groups: Bench) -> None:
    assert groups.drops(H1, to_group(address="239.1.0.4", layer=2))
    assert groups.decisions() == {(Reason.DROPPED_NO_BRIDGE, 6, 0): 1}


def test_the_guard_holds_for_multicast_too(groups: Bench) -> None:
    assert groups.drops(H4, to_group(H4))
    assert groups.decisions() == {(Reason.DROPPED_GUARD, 0, 0): 1}


def test_multicast_neither_fills_a_virtual_queue_nor_is_dropped_or_marked_by_policy(groups: Bench) -> None:
    # Port 0 stands for "not chosen yet", which is what a multicast packet has where others are metered.
    groups.add(virtual_queue(0, ALWAYS_RED))
    for _ in range(GREEN + YELLOW + 5):
        copies = groups.process(H1, to_group(layer=1, magnitude=0, budget=100))
        assert [tags(copy.frame) for copy in copies] == [(6, 3, 0)] * 3
    assert tags(groups.forward(H1, gradient(H1, H2, layer=1, kind=Kind.REPAIR), H2).frame)[2] == 2


def test_ordinary_multicast_is_replicated_as_it_is_but_for_its_time_to_live(groups: Bench) -> None:
    packet = ip6(H1, GROUP6, tc=0x2A) / UDP(dport=9)
    packet.dst = multicast_mac(GROUP6)
    for copy in groups.process(H1, bytes(packet)):
        want = Ether(bytes(packet))
        want[IPv6].hlim -= 1
        assert copy.frame == bytes(want)


def test_a_packet_at_the_end_of_its_time_is_not_replicated(groups: Bench) -> None:
    for address, name in ((GROUP4, "ttl"), (GROUP6, "hlim")):
        (sent,) = groups.process(H1, to_group(address=address, ip_fields={name: 1}))
        assert (sent.port, sent.reason) == (CPU_PORT, Reason.PUNTED_TTL)


def test_each_copy_of_a_trace_tells_of_its_own_port(groups: Bench) -> None:
    copies = groups.process(H1, to_group(kind=Kind.TRACE, layer=2, frame_bytes=78))
    told = {copy.port: Hop(copy.frame[78:]).egress_port for copy in copies}
    assert told == {2: 2, 3: 3, 5: 5}
