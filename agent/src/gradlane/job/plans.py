# SPDX-License-Identifier: Apache-2.0
"""How the steps of a job are reduced while it runs: by which algorithm, without whom, and who owns how much.

A plan is chosen by the cost model (costs.py, ownership.py) from what is known of the workers at the time: how late they
come, what their links carry, how many bytes there are. What counts is the time after the last worker has come:

    direct      the slowest owner's line of ownership.py, at the port efficiency of n - 1 senders, and the latencies
    ring, grid  that of equal shares over the slowest link; what the others have done before is of little use
    StragglAR   its rounds over the slowest link, and what is left of the others' reduction, over the slowest of theirs

What tolerates loss is reduced directly in any case, since only there a message has a budget: those are `fixed` bytes.
A plan changes for what saves at least GAIN of that time, and back to the plain one when nothing speaks against it.
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gradlane.job import costs, ownership
from gradlane.job.costs import GAIN, Conditions
from gradlane.job.ownership import Case, Owner

MOST_WEIGHT = MOST_GENERATION = (1 << 32) - 1
MOST_STRAGGLAR = 64  # GL_STRAGGLAR_MOST of core/plan/schedule.h
_MOST_BYTES = 1 << 40
ALGORITHMS = ("direct", "ring", "grid", "stragglar")


@dataclass(frozen=True)
class Plan:
    """`weights`: of the owners' shares of what is reduced directly. That is all but exact tensors of at least `least`
    bytes, for which `algorithm` is; `straggler`: whom StragglAR does not wait for. `generation`: of a switch's sums of
    the tensors that it has slots for; 0: hosts reduce these, too."""

    weights: tuple[int, ...]
    algorithm: str = "direct"
    straggler: int = 0
    least: int = 0
    generation: int = 0

    def packed(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {
            "weights": list(self.weights),
            "algorithm": self.algorithm,
            "straggler": self.straggler,
            "least": self.least,
            "generation": self.generation,
        }


def parse(content: Mapping[str, Any], owners: int, workers: int) -> Plan:
    """What `packed` gave. Raises ValueError, TypeError or KeyError if it makes no sense in a job of so many."""
    weights = tuple(int(weight) for weight in content["weights"])
    numbers = (int(content[name]) for name in ("straggler", "least", "generation"))
    plan = Plan(weights, str(content["algorithm"]), *numbers)
    sound = (
        len(weights) == owners
        and min(weights) >= 0
        and 0 < sum(weights) <= MOST_WEIGHT
        and plan.algorithm in ALGORITHMS
        and 0 <= plan.straggler < workers
        and 0 <= plan.least <= _MOST_BYTES
        and 0 <= plan.generation <= MOST_GENERATION
        and (plan.algorithm != "stragglar" or workers <= MOST_STRAGGLAR)
    )
    if not sound:
        raise ValueError(f"a plan {str(content)[:100]!r} for {workers} workers with {owners} owners")
    return plan


@dataclass(frozen=True)
class Situation:
    """What a plan is for. `fixed`, `free`: bytes of a contribution that have to be reduced directly, and others;
    `late`: seconds, by worker; `rates`: bit/s of owners' links that are not as in `conditions`; `choice`: of
    an algorithm."""

    conditions: Conditions
    workers: int
    fixed: int = 0
    free: int = 0
    late: Mapping[int, float] | None = None
    rates: Mapping[int, float] | None = None
    servers: int = 0
    multicast: bool = False
    choice: bool = True

    @property
    def owners(self) -> int:
        """How many there are."""
        return self.servers or self.workers

    @property
    def uneven(self) -> bool:
        """Whether somebody is late or slow."""
        return bool(self.late or self.rates)

    def _late(self, rank: int) -> float:
        return (self.late or {}).get(rank, 0.0)

    def _rate(self, owner: int) -> float:
        return (self.rates or {}).get(owner + (self.workers if self.servers else 0), self.conditions.rate)

    @property
    def last(self) -> float:
        """Seconds that the last worker comes after the first."""
        return max((self.late or {}).values(), default=0.0)

    def case(self, nbytes: int) -> Case:
        """So many bytes of it, directly."""
        senders = self.workers if self.servers else self.workers - 1
        owners = tuple(
            Owner(self._over([k]).carried(senders), 0.0 if self.servers else self._late(k)) for k in range(self.owners)
        )
        return Case(max(1, nbytes), self.workers, owners, self.last, bool(self.servers), self.multicast)

    def direct(self, nbytes: int, weights: tuple[int, ...]) -> float:
        """Seconds after the last worker has come."""
        if not nbytes:
            return 0.0
        messages = max(self.workers, self.servers) if self.servers else self.workers - 1
        racks = None if self.servers else self.conditions.racks
        core = nbytes * 8 * costs.between_racks("direct", self.workers, racks) / self.conditions.rate
        wire = ownership.seconds(self.case(nbytes), weights) - self.last
        bits = wire * self.conditions.carried(messages)
        least = max(core, costs.processor(2 * messages, bits))
        start = costs.START_SECONDS if messages else 0.0
        return start + 2 * self.conditions.latency + max(wire, least)

    def by(self, plan: Plan, nbytes: int) -> float:
        """The same of a plan's algorithm."""
        if plan.algorithm == "direct" or not nbytes:
            return self.direct(nbytes, plan.weights)
        everybody = self._over(range(self.workers))
        if plan.algorithm in ("ring", "grid"):
            return costs.seconds(plan.algorithm, nbytes, self.workers, everybody)
        others = [k for k in range(self.workers) if k != plan.straggler]
        reduce = costs.stragglar(nbytes, self.workers, self._over(others)).reduce
        merge = costs.stragglar(nbytes, self.workers, everybody).merge
        return max(self.last, max(map(self._late, others)) + reduce) + merge - self.last

    def _over(self, workers: Iterable[int]) -> Conditions:
        """The slowest of their links."""
        return replace(self.conditions, rate=min(map(self._rate, workers)))

    def seconds(self, plan: Plan) -> float:
        """What the step takes after the last worker has come."""
        if plan.algorithm == "direct":
            return self.direct(self.fixed + self.free, plan.weights)
        return self.direct(self.fixed, plan.weights) + self.by(plan, self.free)

    def plans(self) -> list[Plan]:
        """Those that come into question."""
        weights = tuple(ownership.weights(ownership.best(self.case(self.fixed + self.free))))
        found = [Plan(weights)]
        if not self.choice or self.workers < 3:
            return found
        others = [Plan(weights, name) for name in (("ring", "grid") if self.workers > 3 else ("ring",))]
        if self.last and self.workers <= MOST_STRAGGLAR:
            others.append(Plan(weights, "stragglar", max(self.late or {}, key=self._late)))
        for plan in others:
            if (least := self._least(plan)) is not None:
                found.append(replace(plan, least=least))
        return found

    def _least(self, plan: Plan) -> int | None:
        """From how many bytes on an algorithm is faster than direct; None: never."""
        low, high = 0, _MOST_BYTES
        if self.by(plan, high) >= self.direct(high, plan.weights):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self.by(plan, middle) < self.direct(middle, plan.weights):
                high = middle
            else:
                low = middle
        return high


def plain(situation: Situation) -> Plan:
    """The plan where nobody is late or slow, whatever the tensors."""
    return _fastest(replace(situation, late=None, rates=None, fixed=0, free=_MOST_BYTES))


@functools.lru_cache
def _fastest(even: Situation) -> Plan:
    return min(even.plans(), key=even.seconds)


@dataclass(frozen=True)
class Better:
    """A plan, how many times as fast it is as the current one once the last worker has come, and what was compared."""

    plan: Plan
    times: float
    compared: str


def better(situation: Situation, current: Plan) -> Better | None:
    """A plan that saves at least GAIN against the current one; the plain one again where nobody is late or slow."""
    now = situation.seconds(current)
    if not now:
        return None  # there is nothing to reduce, or nobody to reduce it with
    if not situation.uneven:
        found = plain(situation)
        if found == current:
            return None
        return Better(found, now / situation.seconds(found), "nobody is late, and no link slow")
    candidates = situation.plans()
    found = min(candidates, key=situation.seconds)
    then = situation.seconds(found)
    if now <= then * (1 + GAIN):
        return None
    times = ", ".join(f"{plan.algorithm} {situation.seconds(plan) * 1e3:.1f} ms" for plan in candidates)
    return Better(found, now / then, f"{times} for {situation.fixed + situation.free} bytes")
