# SPDX-License-Identifier: Apache-2.0
"""What the data plane must do with a frame, in Python: from the documentation, not from the P4.

Integers only: a virtual queue is RFC 2698's meter, message numbers are serial numbers (RFC 1982), a flow's member is
chosen by CRC-32.
"""

from collections import Counter
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import NamedTuple
from zlib import crc32

from tests.p4src.model.model_packet import Packet, View, checksum_is_right
from tests.p4src.model.policy_entries import JobRow, Meter, Policy
from tests.p4src.packet_bench import Reason

GREEN, YELLOW, RED = range(3)
NOT_CAPABLE, CAPABLE, CONGESTED = 0, 2, 3
DATA, REPAIR, TRIMMED, TRACE, RETURNED = 0, 1, 2, 7, 8
TOP = 7
NANO = 1_000_000_000
PARTS = {
    "whole": lambda budget: budget,
    "rest_of_half": lambda budget: budget - budget // 2,
    "half": lambda budget: budget // 2,
    "quarter": lambda budget: budget // 4,
    "eighth": lambda budget: budget // 8,
    "sixteenth": lambda budget: budget // 16,
    "nothing": lambda budget: 0,
}


class Buckets:
    """A two-rate three-colour meter with CIR = PIR; tokens times 10^9."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._tokens = [burst * NANO for burst in (meter.committed, meter.peak)]
        self._seen: int | None = None

    def color(self, amount: int, now: int) -> int:
        for bucket, burst in enumerate((self._meter.committed, self._meter.peak)):
            gained = 0 if self._seen is None else self._meter.rate * (now - self._seen)
            self._tokens[bucket] = min(burst * NANO, self._tokens[bucket] + gained)
        self._seen = now
        committed, peak = self._tokens
        if peak < amount * NANO:
            return RED
        self._tokens[1] -= amount * NANO
        if committed < amount * NANO:
            return YELLOW
        self._tokens[0] -= amount * NANO
        return GREEN


class Copy(NamedTuple):
    """A frame that leaves. In a trace's newest record, depth and wait are 0."""

    port: int
    queue: int
    frame: bytes


@dataclass
class Outcome:
    """What becomes of a frame.

    decision: job index, reason, queue class, drop precedence
    punted: it goes to the controller, as it came
    trace: it is a trace that has got another record
    multicast: it goes to a group
    """

    decision: tuple[int, Reason, int, int]
    copies: list[Copy] = field(default_factory=list)
    punted: bool = False
    trace: bool = False
    multicast: bool = False


class _Dropped(Exception):
    """The packet goes nowhere, for this reason."""


@dataclass
class _State:
    """What is known about a packet on its way through the switch."""

    it: View
    port: int
    from_fabric: bool
    switch_id: int  # 0 where the port is not known
    reason: Reason = Reason.FORWARDED
    gradient: bool = False
    job: JobRow | None = None
    queue_class: int = 0
    precedence: int = 0
    dscp: int = 0
    ecn: int = 0
    member: bool = False
    demoted: bool = False
    color: int = GREEN
    egress: int = 0
    group: int | None = None  # of a multicast
    trimmed: bool = False


class Model:
    """One switch with a policy. `drops`: what the policy took, by layer and upper half of the magnitude."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._queues = {port: Buckets(meter) for port, meter in policy.queues.items()}
        self._shares = {key: Buckets(share.meter) for key, share in policy.job_shares.items()}
        self._punts = {key: Buckets(meter) for key, meter in policy.punt_rates.items()}
        self._controls = {port: Buckets(meter) for port, meter in policy.control_rates.items()}
        # By slot: the message that owns it and how many of its slices are gone.
        self._slots: dict[int, tuple[int, int]] = {}
        self.drops: Counter[tuple[int, int]] = Counter()

    def process(self, port: int, frame: bytes, now: int) -> Outcome:
        """The outcome of a frame that enters at `now` (ns)."""
        it = View(frame)
        known = port in self._policy.fabric_ports | self._policy.edge_ports
        switch_id = self._policy.switch_id if known else 0
        state = _State(it, port, port in self._policy.fabric_ports, switch_id)
        packet = Packet(frame, it)
        punted = False
        try:
            self._admit(state)
            if state.gradient:
                self._guard(state)
            self._check_source(state)
            self._tag(state, len(frame), now)
            punt = self._route(state, packet)
            if punt is not None:
                state.reason = punt
                punted = True
                bucket = self._punts.get((port, punt))
                if bucket is not None and bucket.color(1, now) != GREEN:
                    punted = False
                    raise _Dropped(Reason.DROPPED_PUNT_RATE)
            else:
                if state.group is None:
                    self._congest(state, len(frame), now)
                else:
                    self._check_group(state)
                self._mark(state)
        except _Dropped as dropped:
            state.reason = dropped.args[0]
        outcome = Outcome(self._decision(state), punted=punted)
        if state.reason.name.startswith(("DROPPED_YELLOW", "DROPPED_RED", "TRIMMED")):
            self.drops[min(it.gradlane.layer, 511), it.gradlane.magnitude >> 4] += 1
        if not punted and not state.reason.name.startswith("DROPPED"):
            outcome.multicast = state.group is not None
            outcome.trace = state.gradient and it.gradlane.kind == TRACE and not it.gradlane.flags & RETURNED
            ports = [state.egress] if state.group is None else self._policy.multicast.get(state.group, ())
            for egress in ports:
                if state.group is None or egress != port:
                    if state.group is not None and state.gradient:
                        self._meter_copy(state, egress, len(frame), now)
                    outcome.copies.append(self._leave(state, packet, egress, outcome.trace))
        return outcome

    @staticmethod
    def _decision(state: _State) -> tuple[int, Reason, int, int]:
        return state.job.index if state.job else 0, state.reason, state.queue_class, state.precedence

    @staticmethod
    def _admit(state: _State) -> None:
        it = state.it
        if it.truncated:
            raise _Dropped(Reason.DROPPED_TRUNCATED)
        if it.ip == 4:
            if it.ip_version != 4 or it.header_words != 5:
                raise _Dropped(Reason.DROPPED_BAD_IP)
            if not checksum_is_right(it.frame[14:34]):
                raise _Dropped(Reason.DROPPED_CHECKSUM)
        elif it.ip == 6 and it.ip_version != 6:
            raise _Dropped(Reason.DROPPED_BAD_IP)
        if it.hidden:
            raise _Dropped(Reason.DROPPED_HIDDEN)
        state.dscp, state.ecn = it.dscp, it.ecn
        if it.unknown_version:
            state.reason = Reason.UNKNOWN_VERSION
        elif it.short_gradlane:
            state.reason = Reason.MALFORMED
        elif it.has_gradlane:
            h = it.gradlane
            trimmed = h.kind == TRIMMED
            state.gradient = (
                h.kind < 8
                and 1 <= h.slices <= 8192
                and h.slice < h.slices
                and h.budget <= h.slices
                and (it.udp_length == 44 + (0 if trimmed else h.length) or (trimmed and not state.from_fabric))
            )
            if state.gradient and trimmed and not state.from_fabric:
                raise _Dropped(Reason.DROPPED_GUARD)
            if not state.gradient:
                state.reason = Reason.MALFORMED

    def _guard(self, state: _State) -> None:
        job = state.it.gradlane.job
        if not state.from_fabric and (state.port, state.it.source, job) not in self._policy.senders:
            raise _Dropped(Reason.DROPPED_GUARD)
        state.job = self._policy.jobs.get(job)

    def _check_source(self, state: _State) -> None:
        it = state.it
        place = state.port, it.source_mac, 0 if it.neighbour_discovery else it.source
        if not state.from_fabric and place not in self._policy.sources:
            state.job = None
            raise _Dropped(Reason.DROPPED_SOURCE)
        state.member = state.gradient or bool(self._policy.sources.get(place))

    def _check_group(self, state: _State) -> None:
        place = state.port, state.group, state.it.gradlane.job
        if not state.from_fabric and not (state.gradient and place in self._policy.aggregators):
            raise _Dropped(Reason.DROPPED_GROUP)

    def _meter_copy(self, state: _State, egress: int, length: int, now: int) -> None:
        state.color = self._queues[egress].color(length, now) if egress in self._queues else GREEN

    def _tag(self, state: _State, length: int, now: int) -> None:
        h = state.it.gradlane
        if not state.gradient:
            state.queue_class = self._policy.dscp_classes.get(state.dscp, 0)
        elif state.from_fabric:
            state.queue_class, state.precedence = state.dscp >> 3, state.dscp & 7
        elif h.kind in (DATA, REPAIR) or (h.kind == TRACE and not h.flags & RETURNED):
            for job, layers, queue_class in self._policy.queue_classes:
                if job == h.job and layers[0] <= h.layer <= layers[1]:
                    state.queue_class = queue_class
            for job, layers, magnitudes, precedence in self._policy.drop_precedences:
                inside = layers[0] <= h.layer <= layers[1] and magnitudes[0] <= h.magnitude <= magnitudes[1]
                if h.kind == DATA and h.budget and job == h.job and inside:
                    state.precedence = precedence
        else:
            state.queue_class = TOP
        if state.queue_class == TOP and not state.from_fabric:
            bucket = self._controls.get(state.port)
            if not state.member or (bucket and bucket.color(length, now) != GREEN):
                state.queue_class, state.demoted, state.reason = 0, True, Reason.DEMOTED

    def _route(self, state: _State, packet: Packet) -> Reason | None:
        """Chooses where the packet goes; a reason: to the controller."""
        it, policy = state.it, self._policy
        if it.ethertype == 0x0806:
            return Reason.PUNTED_ARP
        if it.ethertype == 0x88CC:
            if not state.from_fabric:
                raise _Dropped(Reason.DROPPED_LLDP)
            return Reason.PUNTED_LLDP
        if it.neighbour_discovery:
            return Reason.PUNTED_ND
        if it.destination_mac not in policy.stations:
            if it.destination_mac not in policy.bridged:
                raise _Dropped(Reason.DROPPED_NO_BRIDGE)
            state.egress = policy.bridged[it.destination_mac]
            return None
        if it.ip is None:
            raise _Dropped(Reason.DROPPED_NOT_IP)
        fitting = [row for row in policy.routes if _covers(row[0], it)]
        if not fitting:
            raise _Dropped(Reason.DROPPED_NO_ROUTE)
        _, action, number = max(fitting, key=lambda row: row[0].prefixlen)
        if action == "local":
            return Reason.PUNTED_LOCAL
        if action == "probe":
            if not state.from_fabric:
                raise _Dropped(Reason.DROPPED_NO_ROUTE)
            return Reason.PUNTED_PROBE
        if it.ttl <= 1:
            return Reason.PUNTED_TTL
        packet.set_ttl(it.ttl - 1)
        if action == "replicate":
            state.group = number
            return None
        members = policy.groups.get(number, ())
        if not members:
            raise _Dropped(Reason.DROPPED_NO_ROUTE)
        number = crc32(it.flow()) % 65536
        if state.gradient and state.job and state.job.spray:
            in_turn = it.gradlane.message + it.gradlane.slice
            number = (number + (it.gradlane.way or in_turn)) % 65536
        if state.from_fabric:
            number >>= policy.chosen_bits
        member = members[number % len(members)]
        state.egress = member.port
        packet.set_macs(member.mac, member.gateway)
        return None

    def _congest(self, state: _State, length: int, now: int) -> None:
        h, policy = state.it.gradlane, self._policy
        lowest, yellow, red, to_fabric = policy.port_policies.get(state.egress, (0, 7, 1, 0))
        share_color: int | None = None
        excess_class = 0
        key = (state.job.index if state.job else 0, state.egress)
        if state.gradient and key in self._shares:
            share_color = self._shares[key].color(length, now)
            excess_class = policy.job_shares[key].excess_class
        if state.queue_class >= lowest and state.egress in self._queues:
            state.color = self._queues[state.egress].color(length, now)
        if state.color == GREEN or not state.gradient:
            return
        if share_color not in (None, GREEN) and excess_class < state.queue_class < TOP:
            state.queue_class = excess_class
        threshold = yellow if state.color == YELLOW else red
        if h.kind != DATA or state.precedence == 0 or state.precedence < threshold:
            return
        if share_color == GREEN:
            state.reason = Reason.WITHIN_SHARE
            return
        part = policy.budget_shares.get((int(state.from_fabric), to_fabric), "nothing")
        if not self._take(state, min(PARTS[part](h.budget), state.job.max_share if state.job else 0)):
            return
        if state.job and state.job.trim:
            state.reason = Reason.TRIMMED_RED if state.color == RED else Reason.TRIMMED_YELLOW
            state.queue_class, state.precedence, state.ecn, state.trimmed = TOP, 0, CAPABLE, True
        else:
            raise _Dropped(Reason.DROPPED_RED if state.color == RED else Reason.DROPPED_YELLOW)

    def _take(self, state: _State, share: int) -> bool:
        message = state.it.gradlane.message
        base, mask = (state.job.base, state.job.mask) if state.job else (0, 0)
        slot = (base + (message & mask)) % 65536
        owner, gone = self._slots.get(slot, (message, 0))
        ahead = (message - owner) % 2**32
        if ahead >= 2**31:
            state.reason = Reason.STALE_MESSAGE
            return False
        gone = 0 if ahead else gone
        if gone >= share:
            state.reason = Reason.BUDGET_SPENT
            return False
        self._slots[slot] = message, gone + 1
        return True

    @staticmethod
    def _mark(state: _State) -> None:
        if state.gradient or state.demoted:
            state.dscp = state.queue_class << 3 | state.precedence
        if state.gradient and not state.from_fabric:
            state.ecn = NOT_CAPABLE if state.precedence else CAPABLE
        if state.color != GREEN and state.ecn != NOT_CAPABLE:
            state.ecn = CONGESTED

    def _leave(self, state: _State, packet: Packet, egress: int, trace: bool) -> Copy:
        dscp = self._policy.rewrites.get((egress, state.dscp), state.dscp)
        ecn = CONGESTED if state.color != GREEN and state.ecn != NOT_CAPABLE else state.ecn
        hop = None
        if trace:
            tags = state.queue_class << 4 | state.color
            hop = b"".join(n.to_bytes(2, "big") for n in (state.switch_id, state.port, egress)) + bytes((tags,))
        return Copy(egress, state.queue_class, packet.leaving(dscp << 2 | ecn, hop, state.trimmed))


def _covers(network: IPv4Network | IPv6Network, it: View) -> bool:
    return network.version == it.ip and it.destination in range(
        int(network.network_address), int(network.broadcast_address) + 1
    )
