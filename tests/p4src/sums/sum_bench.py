# SPDX-License-Identifier: Apache-2.0
"""Contributions as frames, and a switch beside the model of its slots: each frame must leave it as the model says."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from ipaddress import ip_address
from operator import or_

from finsy import P4MulticastGroupEntry, P4TableEntry
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from gradlane import wire
from gradlane.wire import Flag, Lanes
from tests.p4src.model.model_packet import ones_complement
from tests.p4src.packet_bench import Bench, Count, Reason, Way
from tests.p4src.packet_targets import Sent
from tests.p4src.sums.tofino_sums import BOTH, SLICE, TofinoSums, fitted
from tests.support.entries import (
    BUCKETS,
    SUM_MAC,
    SUM_SOURCES,
    Entity,
    congestion,
    contributor,
    fabric,
    job,
    multicast,
    multicast_mac,
    subtree,
    sum_tree,
)
from tests.support.gradlane_packets import FAR, H1, H2, H3, H4, TOKEN, Gradlane, Host, Uplink, ip, ip6, tags
from tests.support.sum_switch import Contributor, Event, Outcome, SumHeader, SumSwitch

GROUPS = {4: "239.1.0.9", 6: "ff18::9"}  # by IP version
GROUP = GROUPS[4]
_UDP_AT = {4: 34, 6: 54}
LANE_BYTES = {Lanes.INT16_LANES: 2, Lanes.INT32_LANES: 4}
EPOCH = 5
TAGS = 6 << 5 | 2  # class 6, ECN-capable: what hosts' slices get, and those of the fabric have


def member(host: Host) -> int:
    """The bit of a host's worker. Not the lowest ones: bits may lie anywhere."""
    return 1 << (7 * host.port - 4)


def bits_of(hosts: Iterable[Host]) -> int:
    """Those of several."""
    return sum(map(member, hosts))


@dataclass(frozen=True)
class Place:
    """What a switch has of a job that sums: hosts at its ports, switches beneath it (by port, the bits of the workers
    there), ports towards the root, which take turns by a slice's number, and the bits of the workers `beyond`.

    `group`: its multicast group, which has `ports`; `version`: of IP. `stands_for`: in a job of more workers than bits,
    by port, those that the switch there has given to its own children.
    """

    hosts: tuple[Host, ...]
    base: int
    mask: int
    group: int
    ports: tuple[int, ...]
    beneath: Mapping[int, int] = field(default_factory=dict[int, int])
    ups: tuple[int, ...] = ()
    beyond: int = 0
    version: int = 4
    stands_for: Mapping[int, int] = field(default_factory=dict[int, int])

    @property
    def here(self) -> int:
        """The bits of all workers beneath this switch."""
        return reduce(or_, self.beneath.values(), bits_of(self.hosts))

    @property
    def everybody(self) -> int:
        """The bits of all the job's workers."""
        return self.here | self.beyond

    def up(self, number: int) -> int:
        """The port by which a slice's partial sum leaves."""
        return self.ups[number % len(self.ups)] if self.ups else 0

    def entries(self, job: int) -> list[P4TableEntry]:
        """Those of all three tables."""
        slots = {"base": self.base, "mask": self.mask, "group": self.group, "epoch": EPOCH, "version": self.version}
        who = {"everybody": self.everybody, "here": self.here}
        found = [sum_tree(job, bucket, **who, up=self.up(bucket), **slots) for bucket in BUCKETS]
        found += [contributor(host.port, self._address(host), job, member(host)) for host in self.hosts]
        for port, bits in self.beneath.items():
            told = self.stands_for.get(port)
            found.append(subtree(port, job, bits) if told is None else subtree(port, job, told, bits))
        return found

    def _address(self, host: Host) -> str:
        return host.address if self.version == 4 else host.address6

    def row(self, source: Host | Uplink, number: int, result: bool = False) -> Contributor | None:
        """The same, as the model has it, for what comes of a slice from a host or by an uplink: a result, or not."""
        slots = self.base, self.mask, self.here, EPOCH
        if isinstance(source, Host):
            return Contributor(member(source), self.everybody, *slots) if source in self.hosts else None
        if not result and source.port not in self.beneath:
            return None
        above = source.port == self.up(number)
        told = self.stands_for.get(source.port, 0)
        return Contributor(self.beneath.get(source.port, 0), self.everybody, *slots, True, above, told)


EVERY = 0xFFFFFFFF
# Two jobs whose workers are all here, with an uplink in their group; one that goes on up; one of which there are
# workers here, and beneath two other switches. And two of more workers than bits: one summed above, one here. Some
# have IPv6.
JOBS = {
    1: Place((H1, H2, H3), 8, 7, 7, (1, 2, 3, 4, 5)),
    2: Place((H1, H2, H3, H4), 16, 3, 7, (1, 2, 3, 4, 5), version=6),
    3: Place((H2, H4), 32, 7, 8, (2, 4), ups=(5, 8), beyond=0x8001, version=6),
    4: Place((H3,), 64, 7, 9, (3, 6, 7), beneath={6: 0x7, 7: 0xF0}),
    5: Place(
        (H1, H3), 128, 7, 10, (1, 3, 6, 7), beneath={6: 0x4, 7: 0x1}, ups=(5, 8),
        beyond=EVERY & ~(bits_of((H1, H3)) | 0x5), version=6, stands_for={6: 0x7FFFFFFF, 7: 0x6},
    ),
    6: Place(
        (H2,), 136, 7, 11, (2, 6, 7), beneath={6: 0x800000F0, 7: EVERY & ~(bits_of((H2,)) | 0x800000F0)},
        stands_for={6: 0xFFFF, 7: 0x800000F0},
    ),
}  # fmt: skip
GROUP_PORTS = JOBS[1].ports


def everybody(number: int) -> int:
    """The bits of all workers of a job."""
    return JOBS[number].everybody


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
    members: int = 0,
    epoch: int = 0,
    destination: str | None = None,
    through: Host | Uplink | None = None,
    checksum: int | None = None,
    **fields: int,
) -> bytes:
    """A contribution's frame; `fields` are those of the Gradlane header, `checksum` is UDP's if not the right one.

    `destination`: its IP version is that of the frame; None: the group of the job in JOBS, or of IPv4.
    """
    body = words(1) if lanes is None else lanes
    summed = SumHeader(generation, members, number & 0xFFFF if slot is None else slot, exponent, epoch)
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
    to = destination or GROUPS[JOBS[job].version if job in JOBS else 4]
    outer, octet = (ip6, "tc") if ":" in to else (ip, "tos")
    packet = outer(source, to, through, **({octet: TAGS} if isinstance(through, Uplink) else {})) / datagram
    packet.dst = multicast_mac(to) if ip_address(to).is_multicast else (through or source).gateway
    return bytes(packet)


def partial(through: Uplink, members: int, lanes: bytes | None = None, **fields: int) -> bytes:
    """What a switch beneath sends up; with the flag PULL what one above sends down."""
    return contribution(FAR, lanes, **{"members": members, **fields}, through=through)


def version_of(frame: bytes) -> int:
    """Of IP."""
    return frame[14] >> 4


def datagram_of(frame: bytes) -> bytes:
    """Gradlane header and payload."""
    return frame[_UDP_AT[version_of(frame)] + 8 :]


def checksum_of(frame: bytes) -> bytes:
    """Of UDP."""
    at = _UDP_AT[version_of(frame)] + 6
    return frame[at : at + 2]


def checksum_input(frame: bytes) -> bytes:
    """All that the UDP checksum of a frame covers, with the checksum itself (RFC 768; RFC 8200, section 8.1)."""
    at = _UDP_AT[version_of(frame)]
    addresses = frame[26:34] if version_of(frame) == 4 else frame[22:54]
    return addresses + bytes((0, 17)) + frame[at + 4 : at + 6] + frame[at:]


def defect(frame: bytes) -> int | None:
    """What the checksum is wrong by, as the model has it; None: it is none."""
    return None if checksum_of(frame) == bytes(2) else ones_complement(checksum_input(frame))


def made(frame: bytes, outcome: Outcome) -> bytes:
    """The frame of what a switch makes of one by the model's outcome: a result, or a partial sum."""
    assert outcome.datagram is not None
    packet = Ether(frame)
    new = Ether(src=SUM_MAC, dst=packet.dst)
    if IPv6 in packet:
        new /= IPv6(src=SUM_SOURCES[6], dst=packet[IPv6].dst, hlim=packet[IPv6].hlim - 1, tc=TAGS)
    else:
        new /= IP(src=SUM_SOURCES[4], dst=packet[IP].dst, ttl=packet[IP].ttl - 1, tos=TAGS, id=packet[IP].id)
    new /= UDP(sport=packet[UDP].sport, dport=packet[UDP].dport, chksum=0) / Raw(outcome.datagram)
    raw = bytearray(bytes(new))
    if outcome.defect is not None:
        # So that all together is short of 0 by the defect.
        checksum = ones_complement(checksum_input(bytes(raw))) + (outcome.defect ^ 0xFFFF)
        checksum = (checksum & 0xFFFF) + (checksum >> 16)
        at = _UDP_AT[version_of(frame)] + 6
        raw[at : at + 2] = (checksum or 0xFFFF).to_bytes(2, "big")
    return bytes(raw)


@dataclass
class SumBench:
    """A switch with jobs that sum, and the model of its slots."""

    bench: Bench
    jobs: Mapping[int, Place] = field(default_factory=lambda: JOBS)
    model: SumSwitch = field(default_factory=SumSwitch)
    events: Counter[tuple[int, Event]] = field(default_factory=Counter[tuple[int, Event]])
    decisions: Counter[tuple[int, Reason]] = field(default_factory=Counter[tuple[int, Reason]])
    left: dict[tuple[int, int], Count] = field(default_factory=dict[tuple[int, int], Count])  # by port and queue class

    def __post_init__(self) -> None:
        if self.of_tofino:
            fit = {number: place for number, place in self.jobs.items() if not place.stands_for}
            self.jobs = {number: replace(place, version=4) for number, place in fit.items()}

    @property
    def of_tofino(self) -> bool:
        """Whether slices have one size, no IPv6 and no UDP checksums, and jobs no more workers than bits."""
        return isinstance(self.bench.target, TofinoSums)

    @property
    def most_words(self) -> int:
        """Of a slice."""
        return 1 if self.of_tofino else wire.MAX_SUM_WORDS

    def fitted(self, frame: bytes) -> bytes:
        """The frame as the target gets it."""
        return fitted(frame) if self.of_tofino else frame

    def entities(self) -> list[Sequence[Entity]]:
        """What the switch holds."""
        groups = {place.group: place.ports for place in self.jobs.values()}
        first, *others = groups
        return [
            fabric(),
            *(job(number, place.hosts, base=4096 * (number - 1)) for number, place in self.jobs.items()),
            congestion(),
            multicast(GROUPS[4], first, *groups[first]),
            multicast(GROUPS[6], first, *groups[first])[1:],
            [P4MulticastGroupEntry(group, replicas=groups[group]) for group in others],
            *(place.entries(number) for number, place in self.jobs.items()),
        ]

    def install(self, *more: Iterable[Entity]) -> None:
        """The program anew."""
        self.bench.install(*self.entities(), *more)

    def send(self, source: Host | Uplink, frame: bytes, number: int = 1) -> tuple[Event, ...]:
        """A SUM of a worker or of another switch. Checks what leaves, byte by byte; what became of it."""
        return self.process(source, frame, number)[0]

    def process(self, source: Host | Uplink, frame: bytes, number: int = 1) -> tuple[tuple[Event, ...], list[Sent]]:
        """As `send`; and what leaves."""
        place = self.jobs[number]
        frame = self.fitted(frame)
        header = wire.Header.unpack(datagram_of(frame))
        row = place.row(source, header.message, bool(header.flags & Flag.PULL))
        # Of the model's datagrams one without a checksum is as good as any.
        wrong = None if self.of_tofino else defect(frame)
        refused = (version_of(frame) == 6 and wrong is None) or (self.of_tofino and header.length != SLICE)
        outcome = Outcome((Event.REFUSED,)) if refused else self.model.take(row, datagram_of(frame), wrong)
        sent = self.bench.process(source, frame)
        for event in outcome.events:
            self.events[number, event] += 1
        if outcome.datagram is None:
            assert sent == [], outcome
            absorbed = outcome.events == (Event.CONTRIBUTION,)
            self.decisions[number, Reason.ABSORBED if absorbed else Reason.DROPPED_SUM] += 1
            return outcome.events, sent
        self.decisions[number, Reason.FORWARDED] += 1
        ports = place.ports if outcome.to_all else (place.up(header.message) if outcome.up else source.port,)
        assert sorted(copy.port for copy in sent) == list(ports), outcome.events
        expected = made(frame, outcome)
        for copy in sent:
            # Virtual queues, which mark, are another matter.
            assert unmarked(copy) == expected, (copy.port, copy.frame.hex(), expected.hex())
            place = copy.port, tags(copy.frame)[0]
            before = self.left.get(place, Count(0, 0))
            self.left[place] = Count(before.packets + 1, before.bytes + len(copy.frame))
        return outcome.events, sent

    def counted(self) -> dict[tuple[int, Event], Count]:
        """The cells of the counter `sums` that are not zero, by job index and event."""
        found: dict[tuple[int, Event], Count] = {}
        for index, count in self.bench.cells("sums", range((len(self.jobs) + 1) << 4)).items():
            for event in BOTH.get(index & 15, (index & 15,)) if self.of_tofino else (index & 15,):
                key = index >> 4, Event(event)
                before = found.get(key, Count(0, 0))
                found[key] = Count(before.packets + count.packets, before.bytes + count.bytes)
        return found

    def check_counters(self) -> None:
        """All counters tell of everything that was sent, and of all that has left."""
        assert {key: count.packets for key, count in self.counted().items()} == self.events
        found: Counter[tuple[int, Reason]] = Counter()
        for (number, reason, _, _), count in self.bench.decision_cells(0, *self.jobs).items():
            found[number, reason] += count.packets
        assert found == self.decisions
        if not self.of_tofino:
            departures = self.bench.departures()
            assert {
                (port, number): it for (port, way, number), it in departures.items() if way == Way["TREE"]
            } == self.left


def unmarked(copy: Sent) -> bytes:
    """A frame as it would be had it met no congestion."""
    octet = tags(copy.frame)
    assert octet[2] in (2, 3)
    packet = Ether(copy.frame)
    if IPv6 in packet:
        packet[IPv6].tc = packet[IPv6].tc & ~3 | 2
        return bytes(packet)
    packet[IP].tos = packet[IP].tos & ~3 | 2
    checksum = packet[IP].chksum
    del packet[IP].chksum
    raw = bytes(packet)
    assert octet[2] != 2 or raw[24:26] == checksum.to_bytes(2, "big"), "the IP checksum must be right"
    return raw
