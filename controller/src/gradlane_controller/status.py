# SPDX-License-Identifier: Apache-2.0
"""The state of the switches and the jobs, for people and programs."""

from collections.abc import Collection, Mapping
from typing import Any

from gradlane.job import Job
from gradlane_controller.desired.plan import Plan
from gradlane_controller.session.managed_switch import ManagedSwitch

MAX_REFUSED = 20  # entries that are named


def status(plan: Plan, switches: Collection[ManagedSwitch], drained: Collection[str] = ()) -> dict[str, Any]:
    """What GET /v1/status answers."""
    return {
        "ready": all(managed.ready for managed in switches),
        "switches": [_of_switch(plan, managed, managed.where.name in drained) for managed in switches],
        "jobs": [_of_job(plan, it) for it in plan.jobs.values()],
    }


def summary(plan: Plan, away: Mapping[str, str]) -> str:
    """One line for people. `away`: why switches are not ready, by name."""
    where = plan.fabric.switches
    names = f"switches {', '.join(it.name for it in where)}"
    switches = names if len(where) > 1 else ", ".join(f"switch {it.name} at {it.address}" for it in where)
    entries = sum(len(entities) for entities in plan.entities.values())
    absent = f", not ready: {'; '.join(away.values())}" if away else ""
    return f"{switches}, jobs: {len(plan.jobs)}, entries: {entries}{absent}"


def _of_switch(plan: Plan, managed: ManagedSwitch, drained: bool) -> dict[str, Any]:
    entities = plan.entities[managed.where.name]
    return {
        "name": managed.where.name,
        "address": managed.where.address,
        "device_id": managed.where.device_id,
        "target": managed.where.target,
        "connected": managed.connection.connected,
        "primary": managed.connection.primary,
        "ready": managed.ready,
        "drained": drained,
        "up_to_date": managed.holds(entities) and not managed.refused,
        "problem": managed.problem,
        "mended": {"times": managed.mended.times, "entities": managed.mended.entities},
        "refused": list(managed.refused.values())[:MAX_REFUSED],
        "entries": plan.counts[managed.where.name],
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
