# SPDX-License-Identifier: Apache-2.0
"""What agents say of the jobs at their hosts: the latest of each, and what all of them together say of a job.

An agent can say what it likes, but of jobs that have a rank at its host alone, and no more than fits these shapes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gradlane.job import Job
from gradlane.wire import MAX_RANKS
from gradlane_controller.network.growth import growth

FRESH_SECONDS = 10.0  # that a report counts
MOST_JOBS = 256  # of a host
MOST_ROWS = 16  # stragglers, or waits, that an agent names in a job
MOST_SHOWN = 64  # ... that are shown of all of them

_Count = Annotated[int, Field(ge=0, lt=1 << 63)]
_Rank = Annotated[int, Field(ge=0, lt=MAX_RANKS)]
_Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
_Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Text = Annotated[str, Field(max_length=300)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Budget(_Part):
    """Fractions of what was to come: what is lost, and what may be."""

    used: _Fraction
    allowed: _Fraction


class Straggler(_Part):
    """A worker that is late, or whose link is slow."""

    rank: _Rank
    evidence: _Text


class Wait(_Part):
    """For which rank the host's own waits, since when."""

    rank: _Rank
    seconds: _Seconds
    why: _Text


class Sums(_Part):
    """Whether switches sum, and why they do or don't; `share`: of the bytes so far, those by switches."""

    by_switch: bool
    reason: _Text
    share: _Fraction


class JobReport(_Part):
    """A job at the host. `step_seconds`: of the steps since the last report, None: there was none; `budget` likewise.
    `repaired`, `lost`: slices since the job began."""

    name: Annotated[str, Field(max_length=63)]
    id: Annotated[int, Field(ge=1, le=65535)]
    rank: _Rank
    state: Literal["joining", "running", "leaving"]
    step: _Count
    step_seconds: _Seconds | None
    in_flight: _Count
    budget: Budget | None
    repaired: _Count
    lost: _Count
    stragglers: Annotated[list[Straggler], Field(max_length=MOST_ROWS)]
    waits: Annotated[list[Wait], Field(max_length=MOST_ROWS)]
    sums: Sums | None


class Report(_Part):
    """What the agent of a host says of itself and of its jobs. `name`: how the host calls itself."""

    name: Annotated[str, Field(max_length=255)]
    version: Annotated[str, Field(max_length=100)]
    addresses: Annotated[list[Annotated[str, Field(max_length=45)]], Field(max_length=64)]
    jobs: Annotated[list[JobReport], Field(max_length=MOST_JOBS)]


@dataclass(frozen=True)
class _Kept:
    at: float
    when: datetime
    report: Report


class Reports:
    """The latest one of each host. `clock`: in seconds, counts from anywhere."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_host: dict[str, _Kept] = {}
        self._slices: dict[tuple[str, int], list[int]] = {}  # by a job's name and id

    def put(self, host: str, report: Report, when: datetime, jobs: Mapping[str, Job]) -> list[JobReport]:
        """What that agent says now; returns what counts of it: of jobs that are there, as it says, at that host."""
        own = [it for it in report.jobs if _is_at(it, host, jobs.get(it.name))]
        kept = {it.name: it for it in own}
        before = {(it.name, it.id): it for it in (self._by_host[host].report.jobs if host in self._by_host else ())}
        for it in kept.values():
            earlier = before.get((it.name, it.id))
            more = growth(earlier and (earlier.repaired, earlier.lost), (it.repaired, it.lost))
            known = self._slices.get((it.name, it.id), [0, 0])
            self._slices[it.name, it.id] = [known[0] + more[0], known[1] + more[1]]
        if len(self._slices) > len(jobs):
            self.slices(jobs)  # forgets others
        self._by_host[host] = _Kept(self._clock(), when, report.model_copy(update={"jobs": list(kept.values())}))
        return list(kept.values())

    def clear(self) -> None:
        """Others hear the agents now."""
        self._by_host.clear()
        self._slices.clear()

    def keep(self, hosts: Mapping[str, Any]) -> None:
        """Forgets those of all other hosts."""
        self._by_host = {host: it for host, it in self._by_host.items() if host in hosts}

    def slices(self, jobs: Mapping[str, Job]) -> dict[str, tuple[int, int]]:
        """How many slices agents have repaired and lost of these jobs since they report them here, by name; it only
        grows, whoever restarts or falls silent."""
        self._slices = {key: it for key, it in self._slices.items() if key[0] in jobs and jobs[key[0]].id == key[1]}
        return {name: (repaired, lost) for (name, _), (repaired, lost) in self._slices.items()}

    @property
    def count(self) -> int:
        """How many hosts have reported."""
        return len(self._by_host)

    def hosts(self) -> list[dict[str, Any]]:
        """Whose agents report, or did."""
        return [
            {
                "host": host,
                "name": it.report.name,
                "version": it.report.version,
                "addresses": it.report.addresses,
                "jobs": [each.name for each in it.report.jobs],
                "at": it.when.isoformat(timespec="milliseconds"),
            }
            for host, it in sorted(self._by_host.items())
        ]

    def of_jobs(self, jobs: Mapping[str, Job]) -> dict[str, dict[str, Any]]:
        """What is known now of jobs, by name, as the live state says it; of others nothing is."""
        since = self._clock() - FRESH_SECONDS
        found: dict[str, list[tuple[str, JobReport]]] = {}
        for host, kept in self._by_host.items():
            for it in kept.report.jobs if kept.at >= since else ():
                if _is_at(it, host, jobs.get(it.name)):
                    found.setdefault(it.name, []).append((host, it))
        return {name: _merged(jobs[name], rows) for name, rows in found.items()}


def _is_at(it: JobReport, host: str, job: Job | None) -> bool:
    return job is not None and it.id == job.id and it.rank < len(job.members) and job.members[it.rank].host == host


def _merged(job: Job, rows: list[tuple[str, JobReport]]) -> dict[str, Any]:
    """One job by all that its hosts say. A step is over when all workers have come to its end; servers begin none."""
    hosts = [member.host for member in job.members]
    steps = [it.step for _, it in rows if it.rank < len(job.workers)]
    seconds = [it.step_seconds for _, it in rows if it.step_seconds is not None]
    budgets = [it.budget for _, it in rows if it.budget is not None]
    worst = max(budgets, key=_overdrawn, default=None)
    stragglers: dict[str, dict[str, Any]] = {}
    for host, it in rows:
        for each in it.stragglers:
            if each.rank < len(hosts):
                late = hosts[each.rank]
                said = stragglers.setdefault(late, {"host": late, "evidence": each.evidence, "by": []})["by"]
                said += [host] * (host not in said)
    waits: list[dict[str, Any]] = [
        {"who": host, "for": hosts[each.rank], "seconds": each.seconds, "why": each.why}
        for host, it in rows
        for each in it.waits
        if each.rank < len(hosts)
    ]
    return {
        "step": {"number": min(steps, default=0), "seconds": median(seconds) if seconds else None},
        "budget": None if worst is None else {"used": worst.used, "allowed": worst.allowed},
        "in_flight": sum(it.in_flight for _, it in rows),
        "repaired": sum(it.repaired for _, it in rows),
        "lost": sum(it.lost for _, it in rows),
        "stragglers": [*stragglers.values()][:MOST_SHOWN],
        "waits": sorted(waits, key=lambda it: -it["seconds"])[:MOST_SHOWN],
        "agents": len(rows),
    }


def _overdrawn(it: Budget) -> float:
    return it.used - it.allowed
