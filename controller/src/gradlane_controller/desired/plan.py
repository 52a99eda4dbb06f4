# SPDX-License-Identifier: Apache-2.0
"""The desired state: the fabric, the jobs, and what each switch has to hold for them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gradlane import job
from gradlane.job import Job
from gradlane_controller.desired.pipeline import Programs, check_capacity, count_entries
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.links import End
from gradlane_controller.policy import Entity, Numbers, assign, desired_entities, summed_jobs
from gradlane_controller.policy.sums import BECAME_OTHERS, SummedJob, place
from gradlane_controller.policy.tuning import Tuning


@dataclass(frozen=True)
class Plan:
    """`jobs` by name, their `numbers` in the data plane, `entities` by switch, what is `summed` by job id."""

    fabric: Fabric
    jobs: Mapping[str, Job]
    numbers: Numbers
    entities: Mapping[str, Sequence[Entity]]
    summed: Mapping[int, SummedJob]

    @cached_property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """How many entities of each kind, by switch."""
        return {name: count_entries(entities) for name, entities in self.entities.items()}

    def beside(self, other: "Plan") -> "Plan":
        """This plan, with the other's lists of entities where they are equal: who holds one need not get it again."""
        held = other.entities
        return replace(
            self, entities={name: held[name] if held.get(name) == it else it for name, it in self.entities.items()}
        )

    def switches_of(self, it: Job) -> set[str]:
        """The switches at which a job has ranks."""
        return {port.switch for port in self.fabric.host_ports(member.host for member in it.members)}

    def sums_of(self, it: Job) -> dict[str, Any] | None:
        """Which slots of which switches a job is summed in, and how many of its 16 buckets each root has, or why none
        now; None for a job that does not ask for it."""
        if it.sum_lanes is None:
            return None
        found = self.summed.get(it.id)
        if found is None:
            reason = place(self.fabric, it)[1] or BECAME_OTHERS
            return {"switches": [], "slots": None, "roots": {}, "reason": reason}
        base = found.sums.base
        return {
            "switches": [switch.name for switch in self.fabric.switches if switch.name in found.sums.switches],
            "slots": [base, base + it.transport.sum_slots - 1],
            "roots": {} if found.ways.flaws else dict(found.ways.roots),
            "reason": f"no tree of switches is whole: {'; '.join(found.ways.flaws)}" if found.ways.flaws else "",
        }

    def not_summed(self) -> dict[str, str]:
        """By name, the jobs that ask for sums in switches, and why there are none now."""
        found = {name: self.sums_of(it) for name, it in self.jobs.items()}
        return {name: sums["reason"] for name, sums in found.items() if sums is not None and sums["reason"]}


def make_plan(
    programs: Programs,
    fabric: Fabric,
    jobs: Mapping[str, Job],
    known: Numbers | None = None,
    down: Collection[End] = (),
    lacking: Collection[str] = (),
    loads: Mapping[End, float] | None = None,
    avoided: Collection[str] = (),
    tunings: Mapping[str, Tuning] | None = None,
) -> Plan:
    """Jobs keep the numbers that are `known`; the rest as `desired_entities` takes it.

    Raises JobError or PipelineError if the switches can't hold it.
    """
    entities = desired_entities(fabric, jobs.values(), known, down, lacking, loads, avoided, tunings)
    for switch in fabric.switches:
        check_capacity(programs.of(switch), switch.name, entities[switch.name])
    numbers = assign(fabric, jobs.values(), known)
    summed = summed_jobs(fabric, jobs.values(), numbers, down, lacking, loads, avoided)
    return Plan(fabric, jobs, numbers, entities, {it.job.id: it for it in summed})


def load_jobs(paths: Iterable[Path]) -> dict[str, Job]:
    """The jobs of files, by name. Raises JobError."""
    jobs: dict[str, Job] = {}
    for path in paths:
        it = job.load(path)
        if it.name in jobs:
            raise job.JobError(
                str(path), "job.name", f"is {it.name!r}, like that of {jobs[it.name].file}; each needs its own"
            )
        jobs[it.name] = it
    return jobs
