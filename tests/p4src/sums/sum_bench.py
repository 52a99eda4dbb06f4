# SPDX-License-Identifier: Apache-2.0
"""Contributions as frames, and a switch beside the model of its slots: each frame must leave it as the model says."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from finsy import P4TableEntry
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from gradlane import wire
from gradlane.wire import Flag, Lanes
from tests.p4src.model.model_packet import ones_complement
from tests.p4src.packet_bench import Bench, Count, Reason
from tests.p4src.packet_targets import Sent
from tests.support.entries import (
    SUM_MAC,
    SUM_SOURCE,
    congestion,
    contributor,
    fabric,
    job,
    multicast,
    multicast_mac,
)
from tests.support.gradlane_packets import H1, H2, H3, H4, TOKEN, Gradlane, Host, Uplink, ip
from tests.support.sum_switch import Contributor, Event, Outcome, SumHeader, SumSwitch

GROUP = "239.1.0.9"
GROUP_NUMBER = 7
# Where a copy of a result goes: the workers of both jobs, and an uplink.
GROUP_PORTS = (1, 2, 3, 4, 5)
WORKERS = {1: (H1, H2, H3), 2: (H1, H2, H3, H4)}
SLOTS = {1: (8, 7), 2: (16, 3)}
LANE_BYTES = {Lanes.INT16_LANES: 2, Lanes.INT32_LANES: 4}


def member(host: Host) -> int:
    """The bit of a host's worker. Not the lowest ones: bits may lie anywhere."""
    return 1 << (7 * host.port - 4)


def everybody(number: int) -> int:
    """The bits of all workers of a job."""
    return sum(member(host) for host in WORKERS[number])


def rows(number: int) -> list[P4TableEntry]:
    """The entries of `contributors` for a job."""
    base, mask = SLOTS[number]
    return [
        contributor(host.port, host.address, number, member(host), everybody(number), base, mask)
        for host in WORKERS[number]
    ]


def row(number: int, host: Host) -> Contributor | None:
    """The same, as the model has it."""
    if host not in WORKERS.get(number, ()):
        return None
    return Contributor(member(host), everybody(number), *SLOTS[number])


def words(count: int, value: int = 1, lanes: Lanes = Lanes.INT32_LANES) -> bytes:
    """Lanes that fill some words; they count upwards from `value`."""
    width = LANE_BYTES[lanes]
    most = 1 << 8 * width - 3  # so that even the sum of many fits
    return b"".join(((value + n) % most).to_bytes(width, "big") for n in range(count * wire.SUM_WORD // width))


def contribution(
    source: Host = H1,
    lanes: bytes | None = None,
    *,
    job: int = 1,
    generation: int = 1,
    number: int = 0,
    slot: int | None = None,
    exponent: int = -3,
    destination: str = GROUP,
    through: Host | Uplink | None = None,
    checksum: int | None = None,
    **fields: int,
) -> bytes:
    """A contribution's frame; `fields` are those of the Gradlane header, `checksum` is UDP's if not the right one."""
    body = words(1) if lanes is None else lanes
    summed = SumHeader(generation, 0, number & 0xFFFF if slot is None else slot, exponent)
    chosen = {
        "job": job,
        "token": TOKEN,
        "flags": Flag.SUM,
        "element_type": 3 << 4 | Lanes.INT32_LANES,
        "source": source.port,
        "message": number,
        "slices": 100,
        "length": wire.SUM_BYTES + len(body),
    }
    datagram = UDP(sport=wire.UDP_PORT, dport=wire.UDP_PORT) / Gradlane(**chosen | fields) / Raw(summed.pack() + body)
    if checksum is not None:
        datagram.chksum = checksum
    packet = ip(source, destination, through) / datagram
    packet.dst = multicast_mac(destination) if destination.startswith("239.") else (through or source).gateway
    return bytes(packet)


def datagram_of(frame: bytes) -> bytes:
    """Gradlane header and payload."""
    return frame[42:]


def checksum_input(frame: bytes) -> bytes:
    """All that the UDP checksum of a frame covers, with the checksum itself."""
    return frame[26:34] + bytes((0, 17)) + frame[38:40] + frame[34:]


def defect(frame: bytes) -> int | None:
    """What the checksum is wrong by, as the model has it; None: it is none."""
    return None if frame[40:42] == bytes(2) else ones_complement(checksum_input(frame))


def result(frame: bytes, outcome: Outcome, queue_class: int = 6) -> bytes:
    """The frame of a result: what a contribution's becomes by the model's outcome."""
    assert outcome.datagram is not None
    packet = Ether(frame)
    made = Ether(src=SUM_MAC, dst=packet.dst) / IP(
        src=SUM_SOURCE, dst=packet[IP].dst, ttl=packet[IP].ttl - 1, tos=queue_class << 5 | 2, id=packet[IP].id
    )
    made /= UDP(sport=packet[UDP].sport, dport=packet[UDP].dport, chksum=0) / Raw(outcome.datagram)
    raw = bytearray(bytes(made))
    if outcome.defect is not None:
        # So that all together is short of 0 by the defect.
        checksum = ones_complement(checksum_input(bytes(raw))) + (outcome.defect ^ 0xFFFF)
        checksum = (checksum & 0xFFFF) + (checksum >> 16)
        raw[40:42] = (checksum or 0xFFFF).to_bytes(2, "big")
    return bytes(raw)


@dataclass
class SumBench:
    """A switch with two jobs that sum, and the model of its slots."""

    bench: Bench
    model: SumSwitch = field(default_factory=SumSwitch)
    events: Counter[tuple[int, Event]] = field(default_factory=Counter)
    decisions: Counter[tuple[int, Reason]] = field(default_factory=Counter)

    def install(self, *more: Iterable[object]) -> None:
        """The program anew."""
        self.bench.install(
            fabric(),
            job(1),
            job(2, WORKERS[2], base=4096),
            congestion(),
            multicast(GROUP, GROUP_NUMBER, *GROUP_PORTS),
            rows(1),
            rows(2),
            *more,
        )

    def send(self, source: Host, frame: bytes, number: int = 1) -> tuple[Event, ...]:
        """A worker's contribution. Checks what leaves, byte by byte, and returns what became of it."""
        outcome = self.model.take(row(number, source), datagram_of(frame), defect(frame))
        sent = self.bench.process(source, frame)
        for event in outcome.events:
            self.events[number, event] += 1
        if outcome.datagram is None:
            assert sent == [], outcome
            absorbed = outcome.events == (Event.CONTRIBUTION,)
            self.decisions[number, Reason.ABSORBED if absorbed else Reason.DROPPED_SUM] += 1
            return outcome.events
        self.decisions[number, Reason.FORWARDED] += 1
        ports = GROUP_PORTS if outcome.to_all else (source.port,)
        assert sorted(copy.port for copy in sent) == list(ports)
        expected = result(frame, outcome)
        for copy in sent:
            # Virtual queues, which mark, are another matter.
            assert unmarked(copy) == expected, (copy.port, copy.frame.hex(), expected.hex())
        return outcome.events

    def counted(self) -> dict[tuple[int, Event], Count]:
        """The cells of the counter `sums` that are not zero, by job index and event."""
        found = self.bench.cells("sums", range(2048))
        return {(index >> 3, Event(index & 7)): count for index, count in found.items()}

    def check_counters(self) -> None:
        """Both counters tell of everything that was sent."""
        assert {key: count.packets for key, count in self.counted().items()} == self.events
        found: Counter[tuple[int, Reason]] = Counter()
        for (number, reason, _, _), count in self.bench.decision_cells(0, 1, 2).items():
            found[number, reason] += count.packets
        assert found == self.decisions


def unmarked(copy: Sent) -> bytes:
    """A frame as it would be had it met no congestion."""
    packet = Ether(copy.frame)
    assert packet[IP].tos & 3 in (2, 3)
    packet[IP].tos = packet[IP].tos & ~3 | 2
    checksum = packet[IP].chksum
    del packet[IP].chksum
    raw = bytes(packet)
    assert copy.frame[15] & 3 != 2 or raw[24:26] == checksum.to_bytes(2, "big"), "the IP checksum must be right"
    return raw
