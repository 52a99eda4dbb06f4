# SPDX-License-Identifier: Apache-2.0
"""What the gradient data plane must do with a packet, in Python: from a fabric, jobs and the papers, not from the P4.

Integers only: the virtual queue is RFC 2698's meter, message numbers are serial numbers (RFC 1982).
"""

from collections import Counter
from dataclasses import dataclass

from gradlane.job import Job
from gradlane.wire import Kind
from gradlane_controller.counters import Reason
from gradlane_controller.fabric import Fabric, Port

NOT_CAPABLE, CAPABLE, CONGESTED = 0, 2, 3
GREEN, YELLOW, RED = range(3)
NANO = 1_000_000_000


@dataclass
class VirtualQueue:
    """A two-rate three-colour meter with CIR = PIR; tokens in bytes x 10^9."""

    rate: int
    bursts: tuple[int, int]

    def __post_init__(self) -> None:
        self.tokens = [burst * NANO for burst in self.bursts]
        self.seen = 0

    def color(self, length: int, now: int) -> int:
        for bucket, burst in enumerate(self.bursts):
            self.tokens[bucket] = min(burst * NANO, self.tokens[bucket] + self.rate * (now - self.seen))
        self.seen = now
        committed, peak = self.tokens
        if peak < length * NANO:
            return RED
        self.tokens[1] -= length * NANO
        if committed < length * NANO:
            return YELLOW
        self.tokens[0] -= length * NANO
        return GREEN


@dataclass(frozen=True)
class Slice:
    """A gradient packet as it enters. `destination`: the number of a port with a host."""

    port: int
    source: int
    destination: int
    job: int
    kind: int
    layer: int
    magnitude: int
    budget: int
    message: int
    length: int


@dataclass(frozen=True)
class Verdict:
    """What becomes of a packet. `egress` None: dropped."""

    reason: Reason
    queue_class: int = 0
    drop_precedence: int = 0
    egress: int | None = None
    ecn: int = NOT_CAPABLE


class Model:
    """The policy of one switch with one hop's share equal to the whole budget."""

    def __init__(self, fabric: Fabric, jobs: tuple[Job, ...]) -> None:
        self._ports = {port.number: port for port in fabric.ports}
        self._jobs = {job.id: job for job in jobs}
        self._queues = {
            port.number: VirtualQueue(
                port.rate // 8,
                (int(port.buffer * fabric.thresholds.yellow), int(port.buffer * fabric.thresholds.red)),
            )
            for port in fabric.ports
        }
        # By slot: the message that owns it and how many of its slices are gone.
        self._slots: dict[int, tuple[int, int]] = {}
        self.drops: Counter[tuple[int, int]] = Counter()

    def decide(self, it: Slice, now: int) -> Verdict:
        """The verdict on a packet that enters at `now` (ns)."""
        job = self._jobs.get(it.job)
        if job is None or it.port != it.source or not self._has_rank(job, self._ports[it.source]):
            return Verdict(Reason.DROPPED_GUARD)
        queue_class, precedence = self._tags(job, it)
        color = GREEN
        here = [other for other in self._jobs.values() if self._has_rank(other, self._ports[it.destination])]
        policy = here[0].policy if here else None
        if queue_class >= (1 if policy and policy.priority else 0):
            color = self._queues[it.destination].color(it.length, now)
        threshold = {GREEN: 8, YELLOW: policy.yellow if policy else 7, RED: policy.red if policy else 1}[color]
        reason = self._spend(job, it, color) if 0 < precedence >= threshold else Reason.FORWARDED
        if reason in (Reason.DROPPED_YELLOW, Reason.DROPPED_RED):
            self.drops[min(it.layer, 63), it.magnitude // 16] += 1
            return Verdict(reason, queue_class, precedence)
        ecn = NOT_CAPABLE if precedence else CAPABLE if color == GREEN else CONGESTED
        return Verdict(reason, queue_class, precedence, it.destination, ecn)

    @staticmethod
    def _has_rank(job: Job, port: Port) -> bool:
        return any(member.host == port.host for member in job.members)

    @staticmethod
    def _tags(job: Job, it: Slice) -> tuple[int, int]:
        if it.kind not in (Kind.DATA, Kind.REPAIR):
            return 7, 0
        rows = job.policy.queue_classes if job.policy.priority else ()
        queue_class = next((r.queue_class for r in rows if r.layers[0] <= it.layer <= r.layers[1]), 0)
        if it.kind == Kind.REPAIR or it.budget == 0:
            return queue_class, 0
        for row in job.policy.drop_precedences:
            if row.layers[0] <= it.layer <= row.layers[1] and row.magnitudes[0] <= it.magnitude <= row.magnitudes[1]:
                return queue_class, row.drop_precedence
        return queue_class, 0

    def _spend(self, job: Job, it: Slice, color: int) -> Reason:
        slot = job.slots.base + (it.message & job.slots.mask)
        owner, gone = self._slots.get(slot, (it.message, 0))
        ahead = (it.message - owner) % 2**32
        if ahead >= 2**31:
            return Reason.STALE_MESSAGE
        if ahead:
            gone = 0
        if gone >= it.budget:
            return Reason.BUDGET_SPENT
        self._slots[slot] = it.message, gone + 1
        return Reason.DROPPED_RED if color == RED else Reason.DROPPED_YELLOW
