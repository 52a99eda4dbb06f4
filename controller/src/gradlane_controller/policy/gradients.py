# SPDX-License-Identifier: Apache-2.0
"""Who may send gradients of a job, what the switches know of the job, and its tags."""

from collections.abc import Iterable, Mapping, Sequence

from finsy import Action, Match, P4TableEntry

from gradlane.job import Job
from gradlane.job.policy import MAX_LAYER, MAX_MAGNITUDE
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.policy.entities import Entity, kept, mapped

MAX_SHARE = 65535  # what a switch may take of a message is by its place on the path, not by the job
RANGE_PRIORITY = 1  # P4Runtime wants one above zero for range keys; the ranges are disjoint, so one is enough


def known_jobs(jobs: Iterable[Job], indices: Mapping[int, int]) -> list[Entity]:
    """What every switch on a job's paths has to know of it."""
    return [
        P4TableEntry(
            "jobs",
            match=Match(job=job.id),
            action=Action(
                "set_job",
                job_index=indices[job.id],
                slot_base=job.slots.base,
                slot_mask=job.slots.mask,
                max_share=MAX_SHARE,
                trim=int(job.policy.on_congestion == "trim"),
                spray=int(job.policy.spray),
            ),
        )
        for job in jobs
    ]


def senders_and_tags(fabric: Fabric, jobs: Iterable[Job]) -> Mapping[str, list[Entity]]:
    """By switch, where gradients enter: who is permitted, at its port only, and the tags that its packets get there."""
    entities: dict[str, list[Entity]] = {switch.name: [] for switch in fabric.switches}
    for job in jobs:
        ports = fabric.host_ports(member.host for member in job.members)
        for port in ports:
            entities[port.switch] += [
                _sender(port.number, mapped(address), job.id)
                for address in (port.address, port.address6)
                if address is not None
            ]
        tags = [*_queue_classes(job), *_drop_precedences(job)]
        for switch in {port.switch for port in ports}:
            entities[switch] += tags
    return entities


@kept
def _sender(port: int, source: str, job: int) -> Entity:
    match = Match(ingress_port=port, source=source, job=job)
    return P4TableEntry("senders", match=match, action=Action("permit"))


def _queue_classes(job: Job) -> Sequence[Entity]:
    if not job.policy.priority:
        return ()
    return [
        P4TableEntry(
            "queue_classes",
            match=Match({"job": job.id, **_ranges(layer=row.layers)}),
            action=Action("set_queue_class", queue_class=row.queue_class),
            priority=RANGE_PRIORITY,
        )
        for row in job.policy.queue_classes
    ]


def _drop_precedences(job: Job) -> Sequence[Entity]:
    return [
        P4TableEntry(
            "drop_precedences",
            match=Match({"job": job.id, **_ranges(layer=row.layers, magnitude=row.magnitudes)}),
            action=Action("set_drop_precedence", drop_precedence=row.drop_precedence),
            priority=RANGE_PRIORITY,
        )
        for row in job.policy.drop_precedences
    ]


def _ranges(**ranges: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """The ranges that say something: P4Runtime wants a field that matches every value left out."""
    every = {"layer": (0, MAX_LAYER), "magnitude": (0, MAX_MAGNITUDE)}
    return {name: values for name, values in ranges.items() if values != every[name]}
