# SPDX-License-Identifier: Apache-2.0
"""The program's input: a specification, with the settings that the agent and the controller make of its files."""

import itertools

from gradlane.errors import GradlaneError
from gradlane.job import racks
from gradlane_sim import fabric_files, job_files, tables
from gradlane_sim.carriers import Gradlane
from gradlane_sim.errors import SpecificationError
from gradlane_sim.specification import Fabric, Job, Json, Specification


def document(specification: Specification) -> Json:
    """Raises SpecificationError where the agent or the controller would refuse it."""
    fabric, seed = specification.fabric, specification.seed
    try:
        parsed = {
            job.id: job_files.parse(job, fabric, fabric_files.racks(fabric, job.members[: job.workers]))
            for job in specification.jobs
            if isinstance(job.carrier, Gradlane)
        }
        # Rivals alone have switches of their own, without the controller's virtual queues.
        sums = any(job.algorithm == "switch" for job in specification.jobs)
        policies = tables.policies(fabric_files.parse(fabric, sums), parsed.values()) if parsed else []
        shape = fabric_files.to_json(fabric)
    except GradlaneError as problem:
        raise SpecificationError(str(problem)) from None
    jobs: list[Json] = []
    for job in specification.jobs:
        carrier = job.carrier
        ours = isinstance(carrier, Gradlane)
        told = job_files.carrier(parsed[job.id], carrier.known) if ours else carrier.to_json()
        rows = {"rows": _rows(specification.fabric, job)} if job.algorithm == "grid" and not ours else {}
        jobs.append({**job.to_json(seed + job.id), **rows, "carrier": told})
    found: Json = {"seed": seed, "limit": specification.limit, "fabric": shape, "policies": policies, "jobs": jobs}
    if specification.background:
        found["background"] = specification.background.to_json()
    if specification.capture:
        found["pcap"] = specification.capture.to_json()
    found["faults"] = [fault.to_json() for fault in specification.faults]
    return found


def _rows(fabric: Fabric, job: Job) -> list[list[int]]:
    """The ranks in each row of a rival's grid: those that Gradlane's agents would have."""
    found = fabric_files.racks(fabric, job.members)
    ranks = iter(sorted(range(job.workers), key=lambda rank: found.of[rank] if found else 0))
    return [list(itertools.islice(ranks, length)) for length in racks.rows(job.workers, found)]
