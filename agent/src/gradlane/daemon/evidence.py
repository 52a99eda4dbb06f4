# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a running job know of late workers and slow links: each tells the one that leads, which judges."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

from gradlane.datapath.engines import Engines
from gradlane.job import Job, links, stragglers
from gradlane.job.links import Links
from gradlane.job.stragglers import Lateness, Moment, Neighbour, Report

_LEAST_SLICES = 64  # of a flow from one report to the next, that it says something
_LIFE = 3.5  # s that a report counts
_MOST_SECONDS = 1e6  # that a worker can be late, or its neighbour


@dataclass(frozen=True)
class Known:
    """By rank: how late workers come, and what slow links carry (bit/s)."""

    late: Mapping[int, Lateness] = field(default_factory=dict[int, Lateness])
    slow: Mapping[int, float] = field(default_factory=dict[int, float])

    def __bool__(self) -> bool:
        return bool(self.late or self.slow)

    def packed(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {"late": _packed(self.late), "slow": {str(rank): round(rate) for rank, rate in self.slow.items()}}

    def text(self, rank: int) -> str:
        """What there is to say of a rank."""
        parts = [str(self.late[rank])] if rank in self.late else []
        return "; ".join([*parts, links.text(self.slow[rank])] if rank in self.slow else parts)


def unpacked(content: Mapping[str, Any], job: Job) -> Known:
    """What `packed` gave. Raises ValueError, TypeError, KeyError or AttributeError if it makes no sense."""
    slow = {_rank(rank, len(job.members)): links.checked(rate) for rank, rate in content["slow"].items()}
    return Known(_unpacked(content["late"], job), {rank: rate for rank, rate in slow.items() if rate is not None})


@dataclass
class Evidence:
    """At one rank. `look` is called now and then; at the leader `hear` takes what the others' `look` gave."""

    job: Job
    rank: int
    engine: Engines
    _counts: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])  # by rank, at the last look
    _late: dict[int, Report] = field(default_factory=dict[int, Report])  # by owner
    _rings: dict[int, Neighbour] = field(default_factory=dict[int, Neighbour])  # by rank
    _waits: dict[int, dict[Moment, float]] = field(default_factory=dict[int, dict[Moment, float]])  # for sums, by rank
    _links: dict[int, tuple[float, links.Report]] = field(default_factory=dict[int, tuple[float, links.Report]])
    _fresh: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        self._verdicts = Links(len(self.job.members), self.job.transport.rate)

    def look(self) -> dict[str, Any]:
        """What this rank knows now; {}: nothing."""
        late, neighbour, link = self._lateness(), self.engine.neighbour(), self._link()
        found: dict[str, Any] = {}
        if late.steps:
            found |= {"step": late.step, "steps": late.steps, "late": _packed(late.late)}
            if late.known is not None:
                found["known"] = sorted(late.known)
        if neighbour is not None:
            found["ring"] = {"rank": neighbour.rank, "later": _rows(neighbour.later)}
        if waits := self.engine.sum_waits():
            found["sums"] = _rows(waits)
        if link.flows:
            flows = {str(rank): held for rank, held in link.flows.items()}
            found["link"] = {"receives": link.receives, "sends": link.sends, "flows": flows}
        return found

    def _lateness(self) -> Report:
        late: dict[int, Lateness] = {}
        step, seconds = self.engine.lateness()  # of workers, whose ranks are the lowest
        known = {rank for rank, its in enumerate(seconds) if its}
        steps = max(map(len, seconds))
        for rank in known:
            if (found := stragglers.summary(seconds[rank])) is not None:
                late[rank] = found
        return Report(step, steps, late, None if len(known) == len(self.job.workers) else frozenset(known))

    def _link(self) -> links.Report:
        flows: dict[int, bool] = {}
        *of_ranks, of_group = self.engine.held()
        for to, (delivered, held) in ((links.GROUP, of_group), *enumerate(of_ranks)):
            before = self._counts.get(to, (0, 0))
            if to == self.rank or delivered - before[0] < _LEAST_SLICES:
                continue
            self._counts[to] = delivered, held
            flows[to] = 2 * (held - before[1]) >= delivered - before[0]
        receives, sends = map(links.carried, self.engine.link())
        return links.Report(receives, sends, flows)

    # At the leader

    def take_over(self, known: Known) -> None:
        """What the leader before this one has found of links: they are looked at from there on."""
        self._verdicts.take_over(known.slow)

    def drop(self, rank: int) -> None:
        """A rank is dead: neither what it said nor what was found of it counts any more."""
        for known in (self._late, self._rings, self._waits, self._links):
            known.pop(rank, None)
        self._fresh.discard(rank)
        self._verdicts.drop(rank)

    def hear(self, rank: int, report: Mapping[str, Any], now: float, most: int) -> None:
        """What a rank knows; `most`: the last step that it can have come to. Raises ValueError, TypeError, KeyError or
        AttributeError if it makes no sense."""
        if "late" in report:
            step, steps = _step(report["step"], most), _count(report["steps"], stragglers.REMEMBERED)
            of = itertools.islice(report["known"], len(self.job.workers)) if "known" in report else None
            known = None if of is None else frozenset(_rank(worker, len(self.job.workers)) for worker in of)
            self._late[rank] = Report(step, steps, _unpacked(report["late"], self.job), known)
        if "ring" in report:
            ring = report["ring"]
            self._rings[rank] = Neighbour(_rank(ring["rank"], len(self.job.workers)), _moments(ring["later"], most))
        if "sums" in report:
            self._waits[_rank(rank, len(self.job.workers))] = _moments(report["sums"], most)
        if "link" in report:
            link = report["link"]
            flows = {_receiver(to, len(self.job.members)): bool(held) for to, held in link["flows"].items()}
            told = links.Report(links.checked(link["receives"]), links.checked(link["sends"]), flows)
            self._links[rank] = now, told
            self._fresh.add(rank)

    def judge(self, now: float, newest: int) -> Known:
        """What all that has been heard comes to; `newest`: the step that this rank has come to."""
        workers = len(self.job.workers)
        late = stragglers.worst(
            stragglers.merged(list(self._late.values()), newest),
            stragglers.around(self._rings, workers, newest),
            stragglers.before_sums(self._waits, workers, newest),
        )
        reports = {rank: report for rank, (at, report) in self._links.items() if now - at < _LIFE}
        self._verdicts.look(reports, self._fresh)
        self._fresh = set()
        return Known(late, self._verdicts.slow)


def _rank(text: Any, ranks: int) -> int:
    rank = int(text)
    if not 0 <= rank < ranks:
        raise ValueError(f"rank {rank} of {ranks}")
    return rank


def _receiver(text: Any, ranks: int) -> int:
    return links.GROUP if int(text) == links.GROUP else _rank(text, ranks)


def _count(value: Any, most: int) -> int:
    count = int(value)
    if not 0 <= count <= most:
        raise ValueError(f"{count} steps: there can be {most}")
    return count


def _step(value: Any, most: int) -> int:
    step = int(value)
    if not 0 <= step <= most:
        raise ValueError(f"it reports on step {step}, and no rank can have come beyond {most}")
    return step


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not math.isfinite(seconds) or abs(seconds) > _MOST_SECONDS:
        raise ValueError(f"late by {value!r} s")
    return seconds


def _rows(moments: Mapping[Moment, float]) -> list[list[float]]:
    """As JSON takes it."""
    return [[*moment, round(seconds, 5)] for moment, seconds in moments.items()]


def _moments(rows: Any, most: int) -> dict[Moment, float]:
    """What `_rows` gave."""
    return {
        (_step(step, most), int(tensor)): _seconds(seconds)
        for step, tensor, seconds in itertools.islice(rows, stragglers.REMEMBERED)
    }


def _packed(late: Mapping[int, Lateness]) -> dict[str, list[float]]:
    return {str(rank): [round(value, 4) for value in astuple(it)] for rank, it in late.items()}


def _unpacked(late: Mapping[str, Any], job: Job) -> dict[int, Lateness]:
    found: dict[int, Lateness] = {}
    for rank, (steps, count, *quartiles) in late.items():
        low, median, high = map(_seconds, quartiles)
        of = _count(steps, stragglers.REMEMBERED)
        found[_rank(rank, len(job.workers))] = Lateness(of, _count(count, of), low, median, high)
    return found
