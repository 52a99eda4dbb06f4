# SPDX-License-Identifier: Apache-2.0
"""The program's input: a specification, with the settings that the agent and the controller make of its files."""

from gradlane.errors import GradlaneError
from gradlane_sim import fabric_files, job_files, tables
from gradlane_sim.carriers import Gradlane
from gradlane_sim.errors import SpecificationError
from gradlane_sim.specification import Json, Specification


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
        told = job_files.carrier(parsed[job.id], carrier.known) if isinstance(carrier, Gradlane) else carrier.to_json()
        jobs.append({**job.to_json(seed + job.id), "carrier": told})
    found: Json = {"seed": seed, "limit": specification.limit, "fabric": shape, "policies": policies, "jobs": jobs}
    if specification.background:
        found["background"] = specification.background.to_json()
    if specification.capture:
        found["pcap"] = specification.capture.to_json()
    found["faults"] = [fault.to_json() for fault in specification.faults]
    return found
