# SPDX-License-Identifier: Apache-2.0
"""The desired state: the fabric, the jobs, and what each switch has to hold for them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradlane import job
from gradlane.job import Job
from gradlane_controller.desired.pipeline import Pipeline, check_capacity
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.policy import Entity, assign_indices, desired_entities


@dataclass(frozen=True)
class Plan:
    """`jobs` by name, `indices` in the data plane by job id, `entities` by switch."""

    fabric: Fabric
    jobs: Mapping[str, Job]
    indices: Mapping[int, int]
    entities: Mapping[str, Sequence[Entity]]

    def switches_of(self, it: Job) -> set[str]:
        """The switches at which a job has ranks."""
        return {port.switch for port in self.fabric.host_ports(member.host for member in it.members)}


def make_plan(
    pipeline: Pipeline,
    fabric: Fabric,
    jobs: Mapping[str, Job],
    known: Mapping[int, int] | None = None,
    down: Collection[tuple[str, int]] = (),
) -> Plan:
    """Jobs keep the indices that are `known`; `down` are ends of links, as switch and port, that do not work now.

    Raises JobError or PipelineError if the switches can't hold it.
    """
    entities = desired_entities(fabric, jobs.values(), known, down)
    for switch, wanted in entities.items():
        check_capacity(pipeline, switch, wanted)
    return Plan(fabric, jobs, assign_indices(jobs.values(), known or {}), entities)


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
