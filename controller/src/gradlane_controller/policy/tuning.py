# SPDX-License-Identifier: Apache-2.0
"""What of a job's treatment may differ from what the files say, in steps, and how far: the bounds of [adaptive].

Whatever steps are asked for, those are taken that the bounds leave, and nothing in the network changes but what is the
job's own: its tags, and the thresholds of ports by which no other job sends.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace

from gradlane.job import Job
from gradlane.job.policy import MAX_MAGNITUDE
from gradlane_controller.network.fabric import Adaptive, Fabric, LinkPort, Port
from gradlane_controller.network.links import End
from gradlane_controller.policy.thresholds import frame_bytes, moved_thresholds
from gradlane_controller.policy.usage import Usage

MAGNITUDES = 32  # of a step of protection
MOST_STEPS = 16  # from what a file says


@dataclass(frozen=True)
class Tuning:
    """Steps away from what the files say; all zero: as they say.

    `threshold`: how often the thresholds of the job's own ports are doubled, negative: halved. `protection`: 32
    magnitudes each, that may not be dropped although the job's file lists them, from the largest of these down.
    `tolerance`: how often the tolerance of the job's file is halved.
    """

    threshold: int = 0
    protection: int = 0
    tolerance: int = 0

    @property
    def tolerated(self) -> float:
        """The part of the job's tolerance that is left."""
        return 0.5**self.tolerance

    def moved(self, knob: str, steps: int) -> "Tuning":
        """With one of these so many steps further."""
        return replace(self, **{knob: getattr(self, knob) + steps})

    def to_json(self) -> dict[str, int]:
        """By name."""
        return {knob: getattr(self, knob) for knob in KNOBS}


KNOBS = tuple(it.name for it in fields(Tuning))
NEUTRAL = Tuning()


@dataclass(frozen=True)
class Limits:
    """From how many steps to how many each knob of a job may be set; 0 is always among them."""

    threshold: tuple[int, int] = (0, 0)
    protection: tuple[int, int] = (0, 0)
    tolerance: tuple[int, int] = (0, 0)

    def clamp(self, it: Tuning) -> Tuning:
        """The nearest tuning within."""
        return Tuning(**{knob: min(max(getattr(it, knob), low), high) for knob, (low, high) in self._all()})

    def _all(self) -> Iterable[tuple[str, tuple[int, int]]]:
        return ((knob, getattr(self, knob)) for knob in KNOBS)


def limits_of(fabric: Fabric, usage: Usage, job: Job) -> Limits:
    """Those of a job. A step that would change nothing is beyond them."""
    bounds = fabric.adaptive
    if bounds is None:
        return Limits()
    return Limits(_of_threshold(fabric, usage, job), _of_protection(bounds, job), _of_tolerance(bounds, job))


def tuned_jobs(fabric: Fabric, usage: Usage, jobs: Iterable[Job], tunings: Mapping[str, Tuning]) -> list[Job]:
    """The jobs as the switches should treat them; `tunings` by name."""
    return [
        _protected(job, limits_of(fabric, usage, job).clamp(tunings[job.name]).protection)
        if job.name in tunings
        else job
        for job in jobs
    ]


def moved_ports(
    fabric: Fabric, usage: Usage, jobs: Iterable[Job], tunings: Mapping[str, Tuning]
) -> dict[End, tuple[int, int]]:
    """The thresholds, yellow and red, of ports where they are not as the file says."""
    moved: dict[End, tuple[int, int]] = {}
    for job in jobs:
        if job.name in tunings:
            steps = limits_of(fabric, usage, job).clamp(tunings[job.name]).threshold
            if steps:
                moved |= {
                    (port.switch, port.number): moved_thresholds(fabric, port, steps, frame_bytes(job))
                    for port in usage.own_ports(job)
                }
    return moved


def _protected(job: Job, steps: int) -> Job:
    if steps == 0:
        return job
    most = _largest(job) - MAGNITUDES * steps
    rows = [row for row in job.policy.drop_precedences if row.magnitudes[0] <= most]
    cut = tuple(replace(row, magnitudes=(row.magnitudes[0], min(row.magnitudes[1], most))) for row in rows)
    return replace(job, policy=replace(job.policy, drop_precedences=cut))


def _largest(job: Job) -> int:
    """The largest magnitude that may be dropped, -1 if none may."""
    return max((row.magnitudes[1] for row in job.policy.drop_precedences), default=-1)


def _of_threshold(fabric: Fabric, usage: Usage, job: Job) -> tuple[int, int]:
    ports, frame = usage.own_ports(job), frame_bytes(job)
    low, high = (_reach(fabric, ports, frame, direction) for direction in (-1, 1))
    return -low, high


def _reach(fabric: Fabric, ports: Iterable[Port | LinkPort], frame: int, direction: int) -> int:
    """How many steps in that direction change anything."""
    reach = 0
    for port in ports:
        now = moved_thresholds(fabric, port, direction * reach, frame)
        while reach < MOST_STEPS and (after := moved_thresholds(fabric, port, direction * (reach + 1), frame)) != now:
            now, reach = after, reach + 1
    return reach


def _of_protection(bounds: Adaptive, job: Job) -> tuple[int, int]:
    if bounds.droppable is None:
        return 0, 0
    droppable = _largest(job) + 1
    return 0, max(0, droppable - math.ceil((MAX_MAGNITUDE + 1) * bounds.droppable)) // MAGNITUDES


def _of_tolerance(bounds: Adaptive, job: Job) -> tuple[int, int]:
    """Jobs that switches sum have another tolerance for each worker, all or nothing (docs/files.md)."""
    tolerates = any(row.push or row.pull for row in (job.loss, *job.loss.classes))
    if bounds.tolerance is None or not tolerates or job.sum_lanes is not None:
        return 0, 0
    return 0, min(MOST_STEPS, math.floor(-math.log2(bounds.tolerance)))
