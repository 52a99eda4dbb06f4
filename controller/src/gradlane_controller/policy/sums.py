# SPDX-License-Identifier: Apache-2.0
"""Sums of workers' gradients in a switch: at which one, in which of its slots, and who contributes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from finsy import Action, Match, P4TableEntry

from gradlane.job import Job, JobError
from gradlane.job.transport import SUM_SLOTS
from gradlane_controller.network.fabric import Fabric, Port
from gradlane_controller.policy.entities import Entity, mapped


@dataclass(frozen=True)
class Sums:
    """A job's slots: those of `switch` from `base` on, as many as its file wants, in a range that is aligned to it."""

    switch: str
    base: int


def place(fabric: Fabric, job: Job) -> tuple[str | None, str]:
    """The switch that sums a job's gradients, or None, and why there is none."""
    if job.sum_lanes is None:
        return None, "its file does not ask for it"
    first, *others = fabric.host_ports(member.host for member in job.workers)
    for port in others:
        if port.switch != first.switch:
            return None, (
                f"{first.host!r} is at switch {first.switch!r} and {port.host!r} at {port.switch!r}; all workers must "
                "be at one"
            )
    if not fabric.aggregates(first.switch):
        return None, f"switch {first.switch!r} has no `aggregation = true` in {fabric.file}"
    if _gateway(fabric, first) is None:
        return (
            None,
            f"no port of switch {first.switch!r} has a `gateway` in {fabric.file}, from which results could come",
        )
    return first.switch, ""


def _gateway(fabric: Fabric, port: Port) -> IPv4Address | None:
    """Of that port, else of any of its switch. A Linux kernel takes no result that comes from an address of its own,
    as it would for whoever contributed last."""
    return next((it.gateway for it in (port, *fabric.ports_at(port.switch)) if it.gateway is not None), None)


def assign_slots(fabric: Fabric, jobs: Iterable[Job], known: Mapping[int, Sums]) -> dict[int, Sums]:
    """By job id, the slots of all that are summed: the known ones if they suit, else the lowest free ones.

    Raises JobError for a job that does not fit beside the others.
    """
    wanted = [(job, switch) for job in jobs if (switch := place(fabric, job)[0]) is not None]
    kept: dict[int, tuple[Job, Sums]] = {}
    for job, switch in wanted:
        found = known.get(job.id)
        if found is not None and found.switch == switch and _fits(found, job, kept.values()):
            kept[job.id] = job, found
    for job, switch in wanted:
        if job.id not in kept:
            free = (Sums(switch, base) for base in range(0, SUM_SLOTS, job.transport.sum_slots))
            found = next((sums for sums in free if _fits(sums, job, kept.values())), None)
            if found is None:
                raise _too_many(job, switch, kept.values())
            kept[job.id] = job, found
    return {number: sums for number, (_, sums) in kept.items()}


def _fits(sums: Sums, job: Job, others: Iterable[tuple[Job, Sums]]) -> bool:
    size = job.transport.sum_slots
    return (
        sums.base % size == 0
        and 0 <= sums.base <= SUM_SLOTS - size
        and all(
            sums.switch != taken.switch
            or sums.base + size <= taken.base
            or taken.base + other.transport.sum_slots <= sums.base
            for other, taken in others
        )
    )


def _too_many(job: Job, switch: str, others: Iterable[tuple[Job, Sums]]) -> JobError:
    taken = [f"{other.transport.sum_slots} of job {other.name!r}" for other, sums in others if sums.switch == switch]
    return JobError(
        job.file,
        "transport.sum_slots",
        f"is {job.transport.sum_slots}, but so many in a row are not free of the {SUM_SLOTS} slots that switch "
        f"{switch!r} has for sums: it has {', '.join(taken)}; take fewer, or another collective than 'switch'",
    )


def contributors(fabric: Fabric, switch: str, jobs: Iterable[Job], sums: Mapping[int, Sums]) -> list[Entity]:
    """Whose gradients this switch adds up, each at its port only; `sums` by job id."""
    return [
        P4TableEntry(
            "contributors",
            match=Match(ingress_port=port.number, source=mapped(worker.address), job=job.id),
            action=Action(
                "contribute",
                member=1 << worker.rank,
                all=(1 << len(job.workers)) - 1,
                slot_base=sums[job.id].base,
                slot_mask=job.transport.sum_slots - 1,
                own=port.mac,
                address=str(_gateway(fabric, port)),
            ),
        )
        for job in jobs
        if job.id in sums and sums[job.id].switch == switch
        for worker, port in zip(job.workers, fabric.host_ports(it.host for it in job.workers), strict=True)
    ]
