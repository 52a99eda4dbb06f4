# SPDX-License-Identifier: Apache-2.0
"""What an agent tells a controller: a small, bounded part of its status, the same whatever the jobs do.

The controller refuses what is longer, or of another form (trainings/reports.py of the controller).
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gradlane.ipc.status import AgentStatus, Counts, JobStatus
from gradlane.job import links

MOST_JOBS = 256
MOST_ROWS = 16  # of stragglers, and of waits
_MOST_TEXT = 300  # characters


@dataclass(frozen=True)
class _Seen:
    """Of a job, when its last step was seen to begin; and what was counted, when something was last to come."""

    step: int
    at: float
    counts: Counts
    step_seconds: float | None
    budget: dict[str, float] | None


class Projection:
    """Of one agent: it knows what it has said before, as steps and budgets are told of the time since."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, float], _Seen] = {}

    def report(self, name: str, status: AgentStatus, now: float) -> dict[str, Any]:
        """`name`: of the host; `now`: in seconds of a clock that counts from anywhere."""
        jobs = dict(list(status["jobs"].items())[:MOST_JOBS])
        seen = {(it["id"], it["since"]): self._look(it, now) for it in jobs.values()}
        self._seen = seen
        return {
            "name": name[:255],
            "version": status["version"][:100],
            "addresses": status["addresses"][:64],
            "jobs": [_job(shown, it, seen[it["id"], it["since"]]) for shown, it in jobs.items()],
        }

    def _look(self, it: JobStatus, now: float) -> _Seen:
        before = self._seen.get((it["id"], it["since"]))
        step, counts = it.get("step", 0), it["counts"]
        if before is None:
            return _Seen(step, now, counts, None, None)
        steps = step - before.step
        seconds = (now - before.at) / steps if steps > 0 else before.step_seconds
        expected = _since(counts, before.counts, "slices_expected")
        budget = before.budget
        if expected > 0:
            used, allowed = (_since(counts, before.counts, key) / expected for key in ("slices_lost", "budget_total"))
            budget = {"used": min(1.0, max(0.0, used)), "allowed": min(1.0, max(0.0, allowed))}
        at = now if steps > 0 else before.at
        return _Seen(step, at, counts if expected > 0 else before.counts, seconds, budget)


def _since(counts: Counts, before: Counts, key: str) -> int:
    return counts.get(key, 0) - before.get(key, 0)


def _job(shown: str, it: JobStatus, seen: _Seen) -> dict[str, Any]:
    counts, sums = it["counts"], it.get("sums")
    return {
        "name": shown.partition(" ")[0][:63],  # where several have the same name, the id follows
        "id": it["id"],
        "rank": it["rank"],
        "state": it["state"],
        "step": it.get("step", 0),
        "step_seconds": seen.step_seconds,
        "in_flight": it.get("in_flight", 0),
        "budget": seen.budget,
        "repaired": counts.get("slices_repaired", 0),
        "lost": counts.get("slices_lost", 0),
        "stragglers": list(_stragglers(it))[:MOST_ROWS],
        "waits": sorted(_waits(it), key=_longest)[:MOST_ROWS],
        "sums": None
        if sums is None
        else {"by_switch": sums["by_switch"], "reason": sums["reason"][:_MOST_TEXT], "share": sums["share"]},
    }


def _longest(wait: Mapping[str, Any]) -> float:
    return -wait["seconds"]


def _stragglers(it: JobStatus) -> Iterator[dict[str, Any]]:
    """Those who are called so, with the evidence: the same as `gradlane status` says."""
    for each in it.get("stragglers", []):
        texts: list[str] = []
        if each["straggler"]:
            low, median, high = (f"{each[key] * 1e3:.0f}" for key in ("low", "median", "high"))
            texts.append(
                f"late by {median} ms ({low} to {high}) in {each['late_steps']} of the last {each['steps']} steps"
            )
        if each["link"] is not None:
            texts.append(links.text(each["link"]))
        if texts:
            yield {"rank": each["rank"], "evidence": "; ".join(texts)[:_MOST_TEXT]}


def _waits(it: JobStatus) -> Iterator[dict[str, Any]]:
    """For whom this rank waits: to join the job, to be heard of, or in an operation that makes no progress."""
    found: dict[int, dict[str, Any]] = {}
    for rank, peer in it["peers"].items():
        control = peer.get("control")
        if control == "none" and it["state"] == "joining":
            found[int(rank)] = {"seconds": max(0.0, time.time() - it["since"]), "why": "has not joined the job"}
        elif control == "silent":
            found[int(rank)] = {"seconds": peer.get("heard_seconds", 0.0), "why": "its agent is silent"}
    for rank, wait in it.get("waits", {}).items():
        found.setdefault(int(rank), {"seconds": wait["seconds"], "why": wait["what"]})
    for rank, wait in found.items():
        yield {"rank": rank, "seconds": round(wait["seconds"], 3), "why": wait["why"][:_MOST_TEXT]}
