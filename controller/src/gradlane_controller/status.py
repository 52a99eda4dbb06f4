# SPDX-License-Identifier: Apache-2.0
"""The state of the switches and the jobs, for people and programs."""

from collections.abc import Collection
from typing import Any

from gradlane.job import Job
from gradlane_controller.desired.pipeline import count_entries
from gradlane_controller.desired.plan import Plan
from gradlane_controller.session.managed_switch import ManagedSwitch


def status(plan: Plan, switches: Collection[ManagedSwitch]) -> dict[str, Any]:
    """What GET /v1/status answers."""
    return {
        "ready": all(managed.ready for managed in switches),
        "switches": [_of_switch(plan, managed) for managed in switches],
        "jobs": [_of_job(plan, it) for it in plan.jobs.values()],
    }


def _of_switch(plan: Plan, managed: ManagedSwitch) -> dict[str, Any]:
    entities = plan.entities[managed.where.name]
    return {
        "name": managed.where.name,
        "address": managed.where.address,
        "device_id": managed.where.device_id,
        "target": managed.where.target,
        "connected": managed.connection.connected,
        "primary": managed.connection.primary,
        "ready": managed.ready,
        "up_to_date": managed.holds(entities),
        "problem": managed.problem,
        "mended": {"times": managed.mended.times, "entities": managed.mended.entities},
        "entries": count_entries(entities),
        "pipeline": {
            "name": managed.schema.name,
            "version": managed.schema.version,
            "cookie": f"{managed.schema.p4cookie:016x}",
        },
    }


def _of_job(plan: Plan, it: Job) -> dict[str, Any]:
    return {
        "name": it.name,
        "id": it.id,
        "index": plan.numbers.indices[it.id],
        "file": it.file,
        "workers": [member.host for member in it.workers],
        "servers": [member.host for member in it.servers],
        "slots": [it.slots.base, it.slots.last],
        "sums": plan.sums_of(it),
    }
