# SPDX-License-Identifier: Apache-2.0
"""What a run has shown: the figures and distributions that are kept of the program's output."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gradlane_sim import ideal
from gradlane_sim.specification import SECOND, Job, Json, Specification, ideal_time

# A curve has so many points.
POINTS = 200
# Of Reason in sim/src/policy.h.
TRIMMED, DROPPED = (6, 7), (12, 13)
# The sizes of flows that pFabric's figures tell apart: bytes.
SMALL, LARGE = 100_000, 10_000_000


@dataclass(frozen=True)
class Distribution:
    """Of times in s. `curve`: quantiles in equal steps, from the least to the greatest."""

    count: int
    mean: float
    p50: float
    p99: float
    curve: tuple[float, ...]

    @staticmethod
    def of(values: Sequence[float]) -> "Distribution | None":
        """None of nothing."""
        if not values:
            return None
        found = np.asarray(values)
        curve = np.quantile(found, np.linspace(0, 1, min(POINTS, len(found))))
        p50, p99 = (float(np.quantile(found, part)) for part in (0.5, 0.99))
        return Distribution(len(found), float(found.mean()), p50, p99, tuple(float(it) for it in curve))

    def to_json(self) -> Json:
        return {"count": self.count, "mean": self.mean, "p50": self.p50, "p99": self.p99, "curve": list(self.curve)}


def measured(specification: Specification, result: Json) -> Json:
    """What is kept of a run. Times are in s."""
    jobs = [_job(specification, index, row) for index, row in enumerate(result["jobs"])]
    pushes = [(end - start) / SECOND for _, _, _, pull, _, start, end in result["messages"] if not pull]
    return {
        "jobs": jobs,
        "messages": _shown(pushes),
        "flows": _flows(specification, result.get("flows", [])),
        "fairness": fairness([it["throughput"] for it in jobs]),
        "links": _links(specification, result),
        "drops": _drops(result["switches"]),
        "violations": result.get("violations", []),
        "missing": result.get("slices_missing", 0),
        "simulated": result["simulated"],
        "events": result["events"],
        "wall": result["wall"],
    }


def _shown(values: Sequence[float]) -> Json | None:
    found = Distribution.of(values)
    return found.to_json() if found else None


def _job(specification: Specification, index: int, row: Json) -> Json:
    job = specification.jobs[index]
    steps = max(0, row["steps_complete"] - job.warm)
    ends = [job.start, *row["step_ends"][: row["steps_complete"]]][job.warm :] or [job.start]
    operations = [(end - start) / SECOND for step, _, _, start, end, *_ in row["operations"] if step > job.warm]
    seconds = (ends[-1] - ends[0]) / SECOND
    return {
        "id": job.id,
        "error": row["error"],
        "steps": steps,
        "seconds": seconds,
        "ideal": ideal_time(specification.fabric, job),
        "step_times": [(b - a) / SECOND for a, b in pairwise(ends)],
        "iteration": _iteration(job, ends[0], row["worker_ends"]),
        "operations": _shown(operations),
        "throughput": steps * job.bytes * 8 / seconds if seconds else 0.0,
        "statistics": row.get("statistics", {}),
        "compared": row.get("compared", 0),
        "wrong": row.get("wrong", 0),
    }


def _iteration(job: Job, start: int, ends: Sequence[int]) -> float | None:
    """Seconds of a worker's own step: the mean over all workers, which need not take it together. None if one has not
    taken all."""
    if not all(ends):
        return None
    return sum(end - start for end in ends) / len(ends) / (job.steps - job.warm) / SECOND


def fairness(throughputs: Sequence[float]) -> float | None:
    """Jain's index: 1 if all have the same, 1/n if one has everything; None where there are no two."""
    if len(throughputs) < 2 or not any(throughputs):
        return None
    return sum(throughputs) ** 2 / (len(throughputs) * sum(it * it for it in throughputs))


def _flows(specification: Specification, rows: Iterable[Sequence[int]]) -> Json | None:
    """Of other flows that are over: how many times as long they took as they would have alone, by their sizes."""
    fabric = specification.fabric
    slowdowns: dict[str, list[float]] = {"all": [], "small": [], "large": []}
    times: dict[str, list[float]] = {"all": [], "small": [], "large": []}
    for start, end, a, b, size in rows:
        if not end:
            continue
        alone = ideal.alone(fabric, (start, a, b, size))
        seconds = (end - start) / SECOND
        for name, holds in (("all", True), ("small", size <= SMALL), ("large", size >= LARGE)):
            if holds:
                slowdowns[name].append(seconds / alone)
                times[name].append(seconds)
    if not times["all"]:
        return None
    asked = len(specification.background.flows) if specification.background else 0
    return {
        "asked": asked,
        "times": {name: _shown(values) for name, values in times.items()},
        "slowdowns": {name: _shown(values) for name, values in slowdowns.items()},
    }


def _links(specification: Specification, result: Json) -> Json:
    """By tier: which part of their capacity links used, and what their ports had no room for."""
    fabric = specification.fabric
    seconds = max(result["simulated"], 1e-9)
    found: dict[str, dict[str, Any]] = {}
    for row in result["links"]:
        ends = row["from"], row["to"]
        kind = "from hosts" if ends[0] < fabric.hosts else "to hosts" if ends[1] < fabric.hosts else "between switches"
        it = found.setdefault(kind, {"used": [], "dropped": 0, "lost": 0, "marked": 0, "depth_max": 0, "packets": 0})
        it["used"].append(row["bytes"] * 8 / (row["rate"] * seconds))
        for name in ("dropped", "lost", "marked", "packets"):
            it[name] += row[name]
        it["depth_max"] = max(it["depth_max"], row["depth_max"])
    for it in found.values():
        used = it.pop("used")
        it["mean_used"], it["most_used"] = sum(used) / len(used), max(used)
    return found


def _drops(switches: Iterable[Json]) -> Json:
    """What the gradient policy took, by layer and sixteenth of the magnitudes."""
    cells = Counter[tuple[int, int]]()
    trimmed = dropped = 0
    for row in switches:
        trimmed += sum(row["reasons"][reason] for reason in TRIMMED)
        dropped += sum(row["reasons"][reason] for reason in DROPPED)
        for layer, magnitude, count in row["drops"]:
            cells[layer, magnitude] += count
    return {"dropped": dropped, "trimmed": trimmed, "cells": [[*cell, count] for cell, count in sorted(cells.items())]}
