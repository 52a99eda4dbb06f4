# SPDX-License-Identifier: Apache-2.0
"""Who reaches the top class: a job's members, and no more of theirs than their port's bound."""

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from gradlane.wire import CONTROL_DSCP, Flag, Kind
from tests.p4src.packet_bench import Bench, Reason
from tests.support.entries import Entity, control_rate, dscp_class, fabric, job, queue_class, source, sources, without
from tests.support.gradlane_packets import FAR, H1, H2, H4, HOSTS, U5, Host, gradient, ip, ip6, tags

TOS = CONTROL_DSCP << 2
CONTROL = [dscp_class(CONTROL_DSCP, 7)]


def members(*hosts: Host) -> list[Entity]:
    """Every host's addresses; these are a job's members."""
    return [entry for host in HOSTS for entry in sources(host, int(host in hosts))]


@pytest.fixture
def control(bench: Bench) -> Bench:
    """h1 is a member."""
    bench.install(without(fabric(), "sources"), members(H1), job(), CONTROL)
    return bench


def ordinary(host: Host, ecn: int = 0, size: int = 100) -> bytes:
    return bytes(ip(host, H2, tos=TOS | ecn) / TCP(dport=47401) / Raw(bytes(size - 54)))


@pytest.mark.parametrize("ecn", range(4))
def test_a_members_control_connections_have_the_top_class(control: Bench, ecn: int) -> None:
    sent = control.forward(H1, ordinary(H1, ecn), H2)
    assert sent.queue in (None, 7)
    assert sent.packet[IP].tos == TOS | ecn
    assert control.decisions() == {(Reason.FORWARDED, 7, 0): 1}


def test_anybody_elses_are_best_effort_and_lose_their_dscp_so_that_no_other_switch_believes_it(control: Bench) -> None:
    for frame in (ordinary(H4, 1), bytes(ip6(H4, H2, tc=TOS | 1) / UDP(dport=9))):
        sent = control.forward(H4, frame, H2)
        assert sent.queue in (None, 0)
        assert (sent.packet[IPv6].tc if IPv6 in sent.packet else sent.packet[IP].tos) == 1, "ECN is the host's"
    assert control.decisions() == {(Reason.DEMOTED, 0, 0): 2}


def test_a_member_is_one_by_its_address_not_by_its_port(control: Bench) -> None:
    control.add(source(1, H1.mac, "10.0.1.3"))
    control.forward(H1, bytes(ip(H1, H2, src="10.0.1.3", tos=TOS) / UDP(dport=9)), H2)
    assert control.decisions() == {(Reason.DEMOTED, 0, 0): 1}


def test_what_comes_from_the_fabric_was_judged_where_it_came_in(control: Bench) -> None:
    control.add(control_rate(U5.port, 1))
    sent = control.forward(U5, bytes(ip(FAR, H2, U5, tos=TOS) / TCP(dport=47401)), H2)
    assert sent.packet[IP].tos == TOS
    assert control.decisions() == {(Reason.FORWARDED, 7, 0): 1}


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.DATA, Kind.REPAIR, Kind.TRIMMED)])
def test_what_a_member_sends_there_is_bounded_and_the_rest_waits_in_best_effort(control: Bench, kind: Kind) -> None:
    control.add(control_rate(1, 350), control_rate(2, 1))
    frame = gradient(kind=kind, flags=Flag.RETURNED, frame_bytes=100)
    found = [tags(sent.frame) for sent in control.process(H1, *[frame] * 5)]
    assert found == [(7, 0, 2)] * 3 + [(0, 0, 2)] * 2
    assert control.decisions(1) == {(Reason.FORWARDED, 7, 0): 3, (Reason.DEMOTED, 0, 0): 2}


def test_connections_and_datagrams_have_one_bound_and_others_do_not_use_it_up(control: Bench) -> None:
    control.add(control_rate(1, 350), source(1, H1.mac, "10.0.1.3"))
    control.process(H1, *[bytes(ip(H1, H2, src="10.0.1.3", tos=TOS) / UDP(dport=9))] * 10)
    found = control.process(H1, ordinary(H1), gradient(kind=Kind.STOP, frame_bytes=100), *[ordinary(H1)] * 2)
    assert [sent.frame[15] for sent in found] == [TOS, TOS | 2, TOS, 0]


def test_slices_that_a_policy_puts_there_are_bounded_too_and_none_of_a_lower_class(bench: Bench) -> None:
    bench.install(fabric(), job(), [queue_class(1, (200, 200), 7), control_rate(1, 2500)])
    assert [tags(it.frame)[0] for it in bench.process(H1, *[gradient(layer=200)] * 4)] == [7, 7, 0, 0]
    assert [tags(it.frame)[0] for it in bench.process(H1, *[gradient(layer=1)] * 4)] == [6] * 4


@pytest.mark.parametrize("kind", range(8, 16))
@pytest.mark.parametrize("version", [4, 6])
def test_a_kind_that_is_not_assigned_makes_no_gradient(control: Bench, kind: int, version: int) -> None:
    fields = {"tos" if version == 4 else "tc": TOS}
    sent = control.forward(H4, gradient(H4, H2, kind=kind, version=version, ip_fields=fields), H2)
    assert tags(sent.frame) == (0, 0, 0)
    control.forward(H1, gradient(kind=kind), H2)
    control.forward(U5, gradient(FAR, H2, kind=kind, through=U5), H2)
    assert control.decisions() == {(Reason.DEMOTED, 0, 0): 1, (Reason.MALFORMED, 0, 0): 2}


def test_a_punted_packet_is_told_as_it_came(control: Bench) -> None:
    assert control.punt(H4, bytes(ip(H4, H2, tos=TOS, ttl=1) / UDP(dport=9))).reason == Reason.PUNTED_TTL
