# SPDX-License-Identifier: Apache-2.0
"""The desired state: the fabric, the jobs, and what each switch has to hold for them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradlane import job
from gradlane.job import Job
from gradlane_controller.desired.pipeline import Programs, check_capacity
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.policy import Entity, Numbers, assign, desired_entities
from gradlane_controller.policy.sums import place


@dataclass(frozen=True)
class Plan:
    """`jobs` by name, their `numbers` in the data plane, `entities` by switch."""

    fabric: Fabric
    jobs: Mapping[str, Job]
    numbers: Numbers
    entities: Mapping[str, Sequence[Entity]]

    def switches_of(self, it: Job) -> set[str]:
        """The switches at which a job has ranks."""
        return {port.switch for port in self.fabric.host_ports(member.host for member in it.members)}

    def sums_of(self, it: Job) -> dict[str, Any] | None:
        """Which slots of which switch a job is summed in, or why none; None for a job that does not ask for it."""
        if it.sum_lanes is None:
            return None
        found = self.numbers.sums.get(it.id)
        if found is None:
            return {"switch": None, "slots": None, "reason": place(self.fabric, it)[1]}
        return {"switch": found.switch, "slots": [found.base, found.base + it.transport.sum_slots - 1], "reason": ""}

    def not_summed(self) -> dict[str, str]:
        """By name, the jobs that ask for sums in a switch, and why there are none."""
        found = {name: self.sums_of(it) for name, it in self.jobs.items()}
        return {name: sums["reason"] for name, sums in found.items() if sums is not None and sums["reason"]}


def make_plan(
    programs: Programs,
    fabric: Fabric,
    jobs: Mapping[str, Job],
    known: Numbers | None = None,
    down: Collection[tuple[str, int]] = (),
) -> Plan:
    """Jobs keep the numbers that are `known`; `down` are ends of links, as switch and port, that do not work now.

    Raises JobError or PipelineError if the switches can't hold it.
    """
    entities = desired_entities(fabric, jobs.values(), known, down)
    for switch in fabric.switches:
        check_capacity(programs.of(switch), switch.name, entities[switch.name])
    return Plan(fabric, jobs, assign(fabric, jobs.values(), known), entities)


def load_jobs(files: Iterable[Path], folder: Path | None = None) -> dict[str, Job]:
    """The jobs by name; one in the folder replaces one of the same name in a file. Raises JobError."""
    return {**_load_all(files), **_load_all(sorted(folder.glob("*.toml")) if folder else ())}


def _load_all(paths: Iterable[Path]) -> dict[str, Job]:
    jobs: dict[str, Job] = {}
    for path in paths:
        it = job.load(path)
        if it.name in jobs:
            raise job.JobError(
                str(path), "job.name", f"is {it.name!r}, like that of {jobs[it.name].file}; each needs its own"
            )
        jobs[it.name] = it
    return jobs
