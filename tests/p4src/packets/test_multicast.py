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
    UNDRAINED,
    YELLOW,
    aggregator,
    congestion,
    fabric,
    job,
    multicast,
    multicast_mac,
    sender,
    senders,
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
    """Both groups have the hosts of job 1 and an uplink. Each of the hosts is an aggregator."""
    bench.install(fabric(), job(), congestion(), multicast(GROUP4, 1, 1, 2, 3, 5), multicast(GROUP6, 2, 1, 2, 3, 5))
    bench.add(*(aggregator(port, group) for port in (1, 2, 3) for group in (1, 2)))
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
    groups.add(sender(4, H4.address, 1), aggregator(4, 1))
    assert sorted(copy.port for copy in groups.process(H4, to_group(H4))) == [1, 2, 3, 5]


def test_each_address_has_a_group_of_its_own(groups: Bench) -> None:
    groups.add(*multicast("239.2.0.1", 9, 1, 4), aggregator(1, 9))
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


@pytest.mark.parametrize("address", [GROUP4, GROUP6])
def test_only_gradients_of_a_jobs_aggregators_reach_its_group(groups: Bench, address: str) -> None:
    packet = (ip if address == GROUP4 else ip6)(H1, address) / UDP(dport=9)
    packet.dst = multicast_mac(address)
    assert groups.drops(H1, bytes(packet)), "not a gradient"
    packet = (ip if address == GROUP4 else ip6)(H4, address) / UDP(dport=9)
    packet.dst = multicast_mac(address)
    assert groups.process(H4, *[bytes(packet)] * 20) == [], "a stranger"
    groups.add(*job(2, (H1, H4), base=4096))
    assert groups.drops(H1, to_group(address=address, job=2)), "of another job"
    assert groups.drops(H4, to_group(H4, address, job=2)), "a stranger's gradient"
    assert groups.drops(H1, to_group(address=address, budget=0x4000)), "one whose header does not hold together"
    groups.add(*senders([H4], 1))
    assert groups.drops(H4, to_group(H4, address)), "a member that aggregates nothing"
    assert groups.reasons() == {Reason.DROPPED_GROUP: 25}
    assert len(groups.process(H1, to_group(address=address))) == 3


def test_an_aggregator_reaches_its_own_group_alone(groups: Bench) -> None:
    groups.add(*multicast("239.2.0.1", 9, 1, 4), aggregator(2, 9))
    assert groups.drops(H1, to_group(address="239.2.0.1"))
    copies = groups.process(H2, to_group(H2, "239.2.0.1"))
    assert sorted(copy.port for copy in copies) == [1, 4]  # ports are heard in any order


@pytest.mark.parametrize("address", [GROUP4, GROUP6])
def test_a_copy_meets_the_congestion_of_its_own_port_and_is_never_dropped_by_policy(
    groups: Bench, address: str
) -> None:
    frame = to_group(address=address, layer=1)
    for port, mark in ((2, 3), (3, 2)):
        groups.add(virtual_queue(port, ALWAYS_RED if mark == 3 else UNDRAINED))
    copies = groups.process(H1, frame)
    assert {copy.port: tags(copy.frame) for copy in copies} == {2: (6, 0, 3), 3: (6, 0, 2), 5: (6, 0, 2)}
    droppable = to_group(address=address, layer=1, magnitude=0, budget=100)
    assert {copy.port: tags(copy.frame) for copy in groups.process(H1, droppable)} == dict.fromkeys(
        (2, 3, 5), (6, 3, 0)
    )
    assert groups.reasons() == {Reason.FORWARDED: 2}


def test_copies_fill_the_virtual_queues_of_their_ports(groups: Bench) -> None:
    marks = [{copy.port: tags(copy.frame)[2] for copy in groups.process(H1, to_group())} for _ in range(GREEN + 1)]
    assert marks == [dict.fromkeys((2, 3, 5), 2)] * GREEN + [dict.fromkeys((2, 3, 5), 3)]


def test_copies_and_what_else_leaves_by_a_port_fill_one_virtual_queue(groups: Bench) -> None:
    if groups.target.name.startswith("tna"):
        pytest.skip("on Tofino they have one each (docs/tofino.md)")
    for _ in range(GREEN + YELLOW):
        groups.process(H1, to_group())
    assert groups.drops(H1, gradient(H1, H2, layer=1, magnitude=0, budget=9))
    assert tags(groups.forward(H1, gradient(H1, H2, layer=1, kind=Kind.REPAIR), H2).frame)[2] == 3
    assert tags(groups.forward(H2, gradient(H2, H1, layer=1, kind=Kind.REPAIR), H1).frame)[2] == 2, "no copy left there"


def test_multicast_from_the_fabric_is_replicated_as_it_is_but_for_its_time_to_live(groups: Bench) -> None:
    packet = ip6(FAR, GROUP6, U5, tc=0x2A) / UDP(dport=9)
    packet.dst = multicast_mac(GROUP6)
    copies = groups.process(U5, bytes(packet))
    assert len(copies) == 3
    for copy in copies:
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
