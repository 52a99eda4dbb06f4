# SPDX-License-Identifier: Apache-2.0
"""The simulated switch sums as gradlane-switch with the P4 program does, and as the model in Python: random
contributions, partial sums, results and reminders, lost, repeated and reordered, at a root, below it and between.

The simulation has neither IPv6 nor UDP checksums. TTL and checksum of IPv4 are not compared, nor the Ethernet header,
which a simulated switch does not have.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from finsy import P4Schema
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.l2 import Ether

from gradlane import wire
from gradlane_sim import tables
from tests.p4src.conftest import unrestricted
from tests.p4src.packet_bench import Bench, Reason
from tests.p4src.packet_targets import InProcess, Sent
from tests.p4src.sums.sum_bench import JOBS, SumBench, contribution, datagram_of, words
from tests.p4src.sums.test_random_sums import SEEDS, USUAL, Step, steps
from tests.sim.replay import Entering, Fate, replay
from tests.support.effort import tries
from tests.support.gradlane_packets import H1, H2, H3, Host
from tests.support.paths import SUM_P4INFO, SUM_PROGRAM
from tests.support.sum_switch import Event

IPV4, CHECKSUM = 14, slice(40, 42)  # where the IPv4 header begins in a frame, and UDP's checksum is
NOT_COMPARED = {1, 8, 10, 11}  # of the IPv4 header; TOS is compared copy by copy


@pytest.fixture(scope="module")
def switch() -> InProcess:
    return InProcess(P4Schema(SUM_P4INFO, SUM_PROGRAM.read_bytes()), unrestricted(SUM_PROGRAM, SUM_P4INFO))


@pytest.fixture
def bench(switch: InProcess, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for number, place in JOBS.items():
        monkeypatch.setitem(JOBS, number, replace(place, version=4))
    return Bench(switch, P4Schema(SUM_P4INFO, SUM_PROGRAM.read_bytes()))


def without_checksum(frame: bytes) -> bytes:
    found = bytearray(frame)
    found[CHECKSUM] = bytes(2)
    return bytes(found)


def check(bench: Bench, sequence: Sequence[Step]) -> Counter[tuple[int, Event]]:
    """Runs a sequence through all three, and compares every frame that leaves and every counter."""
    sums = SumBench(bench)
    sums.install()
    packets: list[Entering] = []
    left: list[list[Sent]] = []
    now = bench.target.switch.now  # pyright: ignore[reportAttributeAccessIssue]
    for number, source, with_checksum in sequence:
        frame = without_checksum(with_checksum)
        left.append(sums.process(source, frame, number)[1])
        inside = not isinstance(source, Host)
        packets.append(Entering(now, len(frame), source.port, inside, 0, [], frame[IPV4:]))
    found = replay(tables.policy([it for group in sums.entities() for it in group]), packets)
    for packet, fate, sent in zip(packets, found.fates, left, strict=True):
        same(packet, fate, sent)
    assert found.sums == sums.events
    of_reasons = Counter[int]()
    for (_, reason), count in sums.decisions.items():
        of_reasons[reason] += count
    assert {reason: count for reason, count in enumerate(found.reasons) if count} == of_reasons
    return sums.events


def same(packet: Entering, fate: Fate, sent: Sequence[Sent]) -> None:
    """What leaves by which ports, with which tags, in which queues."""
    what = packet, fate
    if not sent:
        assert fate.reason in (Reason["ABSORBED"], Reason["DROPPED_SUM"]), what
        return
    copies = fate.copies or [[fate.egress, fate.head[1]]]
    assert sorted((port, tos) for port, tos in copies) == sorted((it.port, it.frame[IPV4 + 1]) for it in sent), what
    for it in sent:
        assert compared(it.frame[IPV4:]) == compared(fate.head), what
        assert it.queue == fate.queue_class, what


def compared(packet: bytes) -> bytes:
    return bytes(0 if n in NOT_COMPARED else octet for n, octet in enumerate(packet))


def test_random_sequences_have_the_same_fates(bench: Bench) -> None:
    @settings(USUAL, max_examples=tries(12))
    @given(SEEDS, st.integers(20, 60))
    def run(random: Random, length: int) -> None:
        check(bench, steps(random, length, SumBench(bench)))

    run()


def test_the_same_sequences_reach_every_event_of_every_job(bench: Bench) -> None:
    """Always the same ones, so that a test that compares nothing is seen."""
    reached: Counter[tuple[int, Event]] = Counter()
    for seed in range(4):
        reached.update(check(bench, steps(Random(seed), 250, SumBench(bench))))
    assert {event for _, event in reached} == set(Event)
    assert {number for number, _ in reached} == set(JOBS)


def test_random_networks_between_workers_and_a_switch(bench: Bench) -> None:
    """Three workers send the slices of a stream; each datagram may be lost, come twice, or late."""
    for seed in range(5):
        random = Random(seed)
        sent: list[tuple[float, Step]] = []
        for number in range(40):
            for host in (H1, H2, H3):
                lanes = words(2, random.randrange(1000))
                for time in range(random.choice([0, 1, 1, 1, 2, 3])):
                    kind = wire.Kind.REPAIR if time else wire.Kind.DATA
                    frame = contribution(host, lanes, number=number, kind=kind)
                    sent.append((number + 3 * time + random.random() * 4, (1, host, frame)))
        events = check(bench, [it for _, it in sorted(sent, key=lambda row: row[0])])
        assert events[1, Event.RESULT] > 5
        assert events[1, Event.DUPLICATE] > 0
        assert events[1, Event.ANSWER] > 0


def test_lanes_carry_within_a_word_and_not_beyond(bench: Bench) -> None:
    full = bytes([0xFF]) * (2 * wire.SUM_WORD)
    one = bytes(wire.SUM_WORD - 1) + b"\x01" + bytes(wire.SUM_WORD)
    check(bench, [(1, host, contribution(host, lanes)) for host, lanes in ((H1, full), (H2, one), (H3, one))])


def test_what_goes_to_a_host_is_refused(bench: Bench) -> None:
    """The model knows no addresses."""
    sums = SumBench(bench)
    sums.install()
    frame = without_checksum(contribution(H1, words(2), destination="10.0.3.2"))
    assert bench.drops(H1, frame)
    packets = [Entering(0, len(frame), H1.port, False, 0, [3], frame[IPV4:])]
    found = replay(tables.policy([it for group in sums.entities() for it in group]), packets)
    assert found.fates[0].reason == Reason["DROPPED_SUM"]
    assert found.sums == {key: count.packets for key, count in sums.counted().items()} == {(1, Event.REFUSED): 1}


@pytest.mark.parametrize("fields", [{"budget": 1}, {"flags": wire.Flag.SUM | wire.Flag.PULL}], ids=str)
def test_what_has_not_the_form_is_refused(bench: Bench, fields: dict[str, Any]) -> None:
    assert check(bench, [(1, H1, contribution(H1, words(2), **fields))]) == {(1, Event.REFUSED): 1}


@pytest.mark.parametrize("size", [1, 11])
def test_of_every_length(bench: Bench, size: int) -> None:
    sequence = [(1, host, contribution(host, words(size))) for host in (H1, H2, H3)]
    assert check(bench, sequence)[1, Event.RESULT] == 1
    assert len(datagram_of(bytes(Ether(sequence[0][2])))) == wire.HEADER_BYTES + wire.SUM_BYTES + size * wire.SUM_WORD
