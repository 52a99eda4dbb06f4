# SPDX-License-Identifier: Apache-2.0
"""Who may contribute, and what has the form of a contribution: all else changes nothing in any slot."""

from typing import Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from gradlane.wire import Flag, Kind
from tests.p4src.packet_bench import Count, Reason
from tests.p4src.packet_targets import CPU_PORT
from tests.p4src.sums.sum_bench import (
    GROUP,
    GROUP_PORTS,
    GROUPS,
    H1,
    H2,
    H3,
    H4,
    SumBench,
    contribution,
    words,
)
from tests.p4src.sums.tofino_sums import TofinoSums
from tests.support.entries import UNDRAINED, aggregator, senders, set_job
from tests.support.gradlane_packets import FAR, U5, gradient, tags
from tests.support.sum_switch import Event

RESULT = (Event.CONTRIBUTION, Event.RESULT)


def nothing_has_changed(sums: SumBench) -> None:
    """The slice that h1 and h3 had begun is finished by h2 with what they had contributed, as the model has it."""
    assert sums.send(H2, contribution(H2, words(2, 9))) == RESULT


@pytest.fixture
def begun(sums: SumBench) -> SumBench:
    """h1 and h3 have contributed to a slice."""
    sums.send(H1, contribution(H1, words(2, 7)))
    sums.send(H3, contribution(H3, words(2, 8)))
    return sums


@pytest.mark.parametrize(
    "fields",
    [
        {"lanes": b""},
        {"lanes": words(12)[: 1421 - 12]},
        {"lanes": words(2)[:-4]},
        {"lanes": words(3)[:-127]},
        {"lanes": words(11) + words(1)[:16]},
        {"flags": Flag.SUM | Flag.PULL},
        {"flags": Flag.SUM | Flag.PULL, "lanes": words(1)},
        {"budget": 1},
    ],
    ids=lambda fields: ", ".join(f"{k} {len(v) if isinstance(v, bytes) else v}" for k, v in fields.items()),
)
def test_what_does_not_have_the_form_of_a_contribution_is_dropped(begun: SumBench, fields: dict[str, object]) -> None:
    frame = contribution(H2, **{"lanes": words(2, 3), **fields})
    assert begun.bench.drops(H2, frame)
    assert begun.counted()[1, Event.REFUSED].packets == 1
    assert begun.bench.reasons()[Reason.DROPPED_SUM] == 1
    nothing_has_changed(begun)


def test_a_datagram_without_a_whole_sum_header_is_dropped(begun: SumBench) -> None:
    for octets in (0, 1, 11):
        frame = gradient(H2, GROUP, flags=Flag.SUM, frame_bytes=78 + octets)
        packet = Ether(frame)
        packet.dst = Ether(contribution()).dst
        assert begun.bench.drops(H2, bytes(packet))
    assert begun.counted()[1, Event.REFUSED].packets == 3
    nothing_has_changed(begun)


@pytest.mark.parametrize("destination", ["10.0.3.2", "10.0.9.2"])
def test_a_contribution_is_for_a_group(begun: SumBench, destination: str) -> None:
    assert begun.bench.drops(H2, contribution(H2, words(2, 3), destination=destination))
    assert begun.counted()[1, Event.REFUSED].packets == 1
    nothing_has_changed(begun)


def test_over_ipv6_a_contribution_has_a_checksum(sums: SumBench) -> None:
    if isinstance(sums.bench.target, TofinoSums):
        frame = contribution(H2, words(1, 3), job=2)
        assert sums.bench.target.as_it_is(H2.port, frame) == [], "there it is none"
        assert sums.counted() == {(2, Event.REFUSED): Count(1, len(frame))}
        return
    for source in (H1, H3, H4):
        sums.send(source, contribution(source, job=2), 2)
    assert sums.send(H2, contribution(H2, words(1, 3), job=2, checksum=0), 2) == (Event.REFUSED,)
    sums.check_counters()
    assert sums.send(H2, contribution(H2, words(1, 9), job=2), 2) == RESULT


def test_a_worker_contributes_from_one_address(begun: SumBench) -> None:
    """Its job's, not the one that it has of the other IP version."""
    if begun.of_tofino:
        pytest.skip("all are of IPv4 there")
    for job, version in ((1, 6), (2, 4)):
        assert begun.bench.drops(H2, contribution(H2, words(2, 3), job=job, destination=GROUPS[version]))
        assert begun.counted()[job, Event.NO_SLOTS].packets == 1
    nothing_has_changed(begun)


def test_without_an_entry_nobody_contributes(begun: SumBench) -> None:
    begun.bench.add(*senders([H4], 1))
    assert begun.send(H4, contribution(H4, words(2, 3))) == (Event.NO_SLOTS,)
    begun.check_counters()
    nothing_has_changed(begun)


def test_an_entry_is_for_one_port_one_address_and_one_job(begun: SumBench) -> None:
    assert begun.bench.drops(H4, contribution(H1, words(2), through=H4)), "of another port"
    assert begun.bench.drops(H2, contribution(H2, words(2), job=9)), "of another job"
    assert begun.bench.drops(H4, contribution(H4, words(2))), "of a stranger"
    assert begun.bench.reasons()[Reason.DROPPED_GUARD] == 3
    nothing_has_changed(begun)


def test_an_aggregator_is_no_contributor_nor_the_other_way_round(begun: SumBench) -> None:
    begun.bench.add(aggregator(4, 7), *senders([H4], 1))
    assert begun.send(H4, contribution(H4, words(2))) == (Event.NO_SLOTS,)
    plain = contribution(H2, words(2), flags=0)
    assert begun.bench.drops(H2, plain)
    assert begun.bench.reasons()[Reason.DROPPED_GROUP] == 1
    nothing_has_changed(begun)


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.DATA, Kind.REPAIR, Kind.TRIMMED)])
def test_only_data_is_summed(begun: SumBench, kind: Kind) -> None:
    assert begun.bench.drops(H2, contribution(H2, words(2), kind=kind))
    assert begun.bench.reasons()[Reason.DROPPED_GROUP] == 1
    nothing_has_changed(begun)


@pytest.mark.parametrize("fields", [{"slices": 0}, {"slice": 100}, {"length": 140 + 128}, {"length": 0}])
def test_a_header_that_does_not_hold_together_is_no_contribution(begun: SumBench, fields: dict[str, int]) -> None:
    assert begun.bench.drops(H2, contribution(H2, words(1), **fields))
    assert begun.bench.reasons()[Reason.DROPPED_GROUP] == 1
    unicast = contribution(H2, words(1), destination=H3.address, **fields)
    assert begun.bench.forward(H2, unicast, H3).frame[34:] == unicast[34:], "it is ordinary traffic"
    assert begun.bench.reasons()[Reason.MALFORMED] == 1
    nothing_has_changed(begun)


def test_a_frame_that_is_cut_off_is_dropped(begun: SumBench) -> None:
    frame = begun.fitted(contribution(H2, words(2)))
    for size in (len(frame) - 1, len(frame) - 128, 42 + 36 + 12, 42 + 36 + 11):
        assert begun.bench.drops(H2, frame[:size])
    assert begun.bench.reasons()[Reason.DROPPED_TRUNCATED] == 4
    nothing_has_changed(begun)


def test_a_contribution_at_the_end_of_its_time_goes_to_the_controller(begun: SumBench) -> None:
    packet = Ether(begun.fitted(contribution(H2, words(2))))
    packet[IP].ttl = 1
    del packet[IP].chksum
    (sent,) = begun.bench.process(H2, bytes(packet))
    assert (sent.port, sent.reason, sent.frame) == (CPU_PORT, Reason.PUNTED_TTL, bytes(packet))
    nothing_has_changed(begun)


def test_without_a_route_a_contribution_is_dropped(begun: SumBench) -> None:
    packet = Ether(contribution(H2, words(2)))
    packet[IP].dst = "239.1.0.10"
    del packet[IP].chksum, packet[UDP].chksum
    assert begun.bench.drops(H2, bytes(packet))
    assert begun.bench.reasons()[Reason.DROPPED_NO_ROUTE] == 1
    nothing_has_changed(begun)


@pytest.mark.parametrize("flags", [Flag.SUM | Flag.PULL, Flag.SUM])
def test_no_sum_passes_from_the_fabric_but_those_of_jobs_that_are_summed_here(begun: SumBench, flags: int) -> None:
    begun.bench.add(set_job(9, index=5))
    for job, source, through in ((9, FAR, U5), (1, H1, U5), (1, H2, U5)):
        frame = contribution(source, words(2, 5), through=through, job=job, flags=flags, number=8)
        if flags == Flag.SUM or job == 9:
            assert begun.bench.drops(U5, frame)
    assert begun.bench.cells("sums", range(5 << 4, 6 << 4)).keys() == {5 << 4 | Event.NO_SLOTS}
    assert begun.counted().get((1, Event.NO_SLOTS), Count(0, 0)).packets == 2 * (flags == Flag.SUM)
    nothing_has_changed(begun)


@pytest.mark.parametrize("fields", [{"destination": H2.address}, {"budget": 1}, {"lanes": words(2)[:-4]}], ids=str)
@pytest.mark.parametrize("flags", [Flag.SUM | Flag.PULL, Flag.SUM])
def test_sums_from_the_fabric_have_the_form_too(begun: SumBench, flags: int, fields: dict[str, Any]) -> None:
    frame = contribution(FAR, **{"lanes": words(2), "through": U5, "flags": flags, **fields})
    assert begun.bench.drops(U5, frame)
    assert begun.counted()[1, Event.REFUSED].packets == 1
    nothing_has_changed(begun)


def test_a_result_meets_the_congestion_of_each_port(sums: SumBench) -> None:
    """Copies have CE where the virtual queue is no longer green; an answer, too. None is dropped."""
    marks: list[dict[int, int]] = []
    green = UNDRAINED.cburst // len(sums.fitted(contribution(H1, words(7))))
    assert green == (25 if sums.of_tofino else 5), "frames of 986 bytes"
    for number in range(green + 3):
        for source in (H1, H2):
            sums.send(source, contribution(source, words(7), number=number))
        copies = sums.bench.process(H3, contribution(H3, words(7), number=number))
        marks.append({copy.port: tags(copy.frame)[2] for copy in copies})
    assert marks == [dict.fromkeys(GROUP_PORTS, 2)] * green + [dict.fromkeys(GROUP_PORTS, 3)] * 3
    (answer,) = sums.bench.process(H3, contribution(H3, words(7), number=green + 2))
    assert tags(answer.frame) == (6, 0, 3)


def test_a_contribution_takes_no_part_of_a_queue(sums: SumBench) -> None:
    for number in range(20):
        sums.send(H1, contribution(H1, words(7), number=number))
    plain = sums.bench.forward(H3, gradient(H3, H1, layer=1), H1)
    assert tags(plain.frame) == (6, 0, 2)
