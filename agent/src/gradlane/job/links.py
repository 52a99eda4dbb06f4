# SPDX-License-Identifier: Apache-2.0
"""Which hosts' links carry less than the job file says, by what senders and receivers see of them while they are used.

Each host measures what its link carries, in windows of time without a pause, and which of its flows congestion control
holds below what their receivers leave them. A link that is not asked for more also carries little, so neither says
enough by itself (as in BBR, CACM 2017, a sample counts only where the network was the limit, not the application):

    receiving   flows of nearly all who send to a host are held, and it receives less than its link should carry
    sending     nearly all of a host's flows are held, and it sends less

In a ring a host has one flow, which may be held up at either end: then both ends are under suspicion. Where more than
half of the hosts are, it is the network between them, or the machine, and nobody's link. A flow to a multicast group
goes as its slowest receiver does. It counts where its host has no other, unless those of more than half of the hosts
that have one are held: then it is a receiver.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SLOW, SOUND = 0.8, 0.9  # of its rate: a link that carries less is slow; a slow one that carries more is not any more
MOST_FLOWS = 3 / 4
LOOKS = 3  # in succession
CHANGE = 0.1  # of what a slow link carries: less is noise
LEAST_WINDOWS = 8
CALM = 10  # looks at flows that are not held, after which a slow link is given another chance
MOST_CALM = 640  # ... if it has had several
LEAST_RATE, MOST_RATE = 1e3, 1e13  # bit/s that a link may carry
GROUP = -1  # in place of a rank, all that receive a host's multicast


@dataclass(frozen=True)
class Report:
    """What a host has seen since its last report. `receives`, `sends`: bit/s that its link carried, None: not known;
    `flows`: by receiver whether the flow was held, of those that sent enough; GROUP: that to the multicast group."""

    receives: float | None = None
    sends: float | None = None
    flows: Mapping[int, bool] = field(default_factory=dict[int, bool])


def carried(windows: Sequence[float]) -> float | None:
    """What a link carries by the rates of its latest windows: the best quarter of them had no lack of slices."""
    if len(windows) < LEAST_WINDOWS:
        return None
    return sorted(windows)[len(windows) * 3 // 4]


@dataclass
class Direction:
    """What is thought of a host's link in one direction. `carries`: bit/s of a slow one; None: it is sound."""

    rate: float
    carries: float | None = None
    _looks: int = 0
    _calm: int = 0
    _patience: int = CALM

    def look(self, measured: float | None, held: bool, used: bool) -> None:
        """What a report says. `held`: it holds flows up; `used`: there were flows."""
        if self.carries is None:
            self._looks = self._looks + 1 if held and measured is not None and measured < SLOW * self.rate else 0
            if measured is not None and self._looks == LOOKS:
                self.carries, self._looks, self._calm = measured, 0, 0
            return
        self._calm = 0 if held else self._calm + used
        sound = measured is not None and measured > SOUND * self.rate
        other = measured is not None and held and abs(measured - self.carries) > CHANGE * self.carries
        self._looks = self._looks + 1 if sound or other else 0
        if sound and self._looks >= LOOKS:
            self.carries, self._looks, self._patience = None, 0, CALM
        elif other and self._looks >= LOOKS:
            self.carries, self._looks = measured, 0
        elif self._calm >= self._patience:
            # Nothing holds it up, but it may just not be asked for much: if it is slow yet, that will show.
            self.carries, self._looks, self._patience = None, 0, min(2 * self._patience, MOST_CALM)


class Links:
    """Of all ranks, as rank 0 sees them. `rate`: bit/s that each should carry."""

    def __init__(self, ranks: int, rate: float) -> None:
        self._of = {rank: (Direction(rate), Direction(rate)) for rank in range(ranks)}

    def take_over(self, slow: Mapping[int, float]) -> None:
        """What another has found, who did not say in which direction."""
        for rank, carries in slow.items():
            for direction in self._of.get(rank, ()):
                direction.carries = carries

    def drop(self, rank: int) -> None:
        """A rank is dead: its link is nothing any more."""
        self._of.pop(rank, None)

    def look(self, reports: Mapping[int, Report], fresh: set[int]) -> None:
        """At the latest reports, by rank; `fresh`: whose are new."""
        receiving, sending = suspects(reports)
        for rank in fresh & reports.keys() & self._of.keys():
            report, (into, out) = reports[rank], self._of[rank]
            used = any(rank in other.flows for other in reports.values())
            into.look(report.receives, rank in receiving, used)
            out.look(report.sends, rank in sending, bool(report.flows))

    @property
    def slow(self) -> dict[int, float]:
        """What slow links carry, bit/s, by rank."""
        found = {rank: [d.carries for d in both if d.carries is not None] for rank, both in self._of.items()}
        return {rank: min(rates) for rank, rates in found.items() if rates}


def suspects(reports: Mapping[int, Report]) -> tuple[set[int], set[int]]:
    """Ranks whose links hold flows up: receiving, sending."""
    receiving: set[int] = set()
    for rank in reports:
        flows = [other.flows[rank] for other in reports.values() if rank in other.flows]
        if flows and sum(flows) >= MOST_FLOWS * len(flows):
            receiving.add(rank)
    groups = [it.flows[GROUP] for it in reports.values() if GROUP in it.flows]
    sending: set[int] = set()
    for rank, report in reports.items():
        flows = [held for to, held in report.flows.items() if to != GROUP]
        if not flows and 2 * sum(groups) <= len(groups):
            flows = list(report.flows.values())
        if flows and sum(flows) >= MOST_FLOWS * len(flows):
            sending.add(rank)
    few = len(reports) / 2
    return (receiving if len(receiving) <= few else set[int]()), (sending if len(sending) <= few else set[int]())


def checked(value: object) -> float | None:
    """A rate as another rank says it, None if it knows none. Raises ValueError."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not LEAST_RATE <= value <= MOST_RATE:
        raise ValueError(f"a link that carries {str(value)[:40]} bit/s: it is {LEAST_RATE:g} to {MOST_RATE:g}")
    return float(value)


def text(carries: float) -> str:
    """For people: "its link carries 48.7 Mbit/s"."""
    return f"its link carries {carries / 1e6:.3g} Mbit/s"
