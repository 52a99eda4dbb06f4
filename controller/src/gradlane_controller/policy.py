# SPDX-License-Identifier: Apache-2.0
"""What the switch has to hold: a pure function of the fabric and the jobs.

Virtual queues are two-rate three-colour meters (RFC 2698). With CIR = PIR = the port's rate in bytes/s, the tokens
missing from a bucket are the bytes that would be queued at a link of that rate. So the committed burst size is the
occupancy at which packets turn yellow, and the peak burst size the occupancy at which they turn red.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations

from finsy import (
    Action,
    Match,
    P4MeterConfig,
    P4MeterEntry,
    P4MulticastGroupEntry,
    P4TableEntry,
)

from gradlane.job import MAX_LAYER, MAX_MAGNITUDE, Job, JobError, Member
from gradlane_controller.fabric import Fabric, Port

Entity = P4TableEntry | P4MulticastGroupEntry | P4MeterEntry

MAX_SHARE = 65535  # one switch on the path, so it may spend a message's whole budget
HEADERS = 78  # Ethernet, IPv4, UDP and Gradlane headers (14 + 20 + 8 + 36 bytes) of a slice's frame
RANGE_PRIORITY = 1  # P4Runtime wants one above zero for range keys; the ranges are disjoint, so one is enough


def check_jobs(fabric: Fabric, jobs: Iterable[Job]) -> None:
    """Checks what one job file alone can't show. Raises JobError that names both sides of a contradiction."""
    jobs = tuple(jobs)
    for job in jobs:
        for member in job.members:
            _check_member(fabric, job, member)
        if job.transport.multicast is not None and 2 * len(job.aggregators) > job.slots.mask:
            raise JobError(
                job.file,
                "slots.mask",
                f"is {job.slots.mask}, but the job has {len(job.aggregators)} aggregators with multicast, whose groups "
                "are numbered by half of the slot range; mask must be at least twice that number",
            )
    for a, b in combinations(jobs, 2):
        _check_pair(a, b)


def desired_entities(fabric: Fabric, jobs: Iterable[Job]) -> list[Entity]:
    """Every entity that the switch has to hold, no more and no less. Raises JobError like `check_jobs`."""
    jobs = tuple(jobs)
    check_jobs(fabric, jobs)
    entities: list[Entity] = []
    for port in fabric.ports:
        entities.append(_route(port))
        entities.append(_virtual_queue(fabric, port))
        here = [job for job in jobs if any(member.host == port.host for member in job.members)]
        if here:  # the others agree, see _check_pair
            entities.append(_port_policy(port, here[0]))
    for dscp, queue_class in fabric.dscp_classes:
        entities.append(
            P4TableEntry(
                "dscp_classes", match=Match(dscp=dscp), action=Action("set_queue_class", queue_class=queue_class)
            )
        )
    for job in jobs:
        entities += _senders(fabric, job)
        entities += _queue_classes(job)
        entities += _drop_precedences(job)
        entities += _multicast(fabric, job)
    return entities


def _check_member(fabric: Fabric, job: Job, member: Member) -> None:
    where = f"rank {member.rank}"
    port = fabric.port_of(member.host)
    if port is None:
        hosts = ", ".join(port.host for port in fabric.ports)
        raise JobError(job.file, where, f"host {member.host!r} is at no port of {fabric.file}; its hosts are {hosts}")
    if member.address != port.address:
        raise JobError(
            job.file, where, f"address {member.address} is not that of {member.host!r} in {fabric.file}: {port.address}"
        )
    if job.transport.rate > port.rate:
        raise JobError(
            job.file,
            "transport.rate",
            f"is {job.transport.rate} bit/s, above the {port.rate} bit/s of {member.host!r} in {fabric.file}",
        )
    frame = job.transport.slice_bytes + HEADERS
    burst = int(port.buffer * fabric.thresholds.yellow)
    if frame > burst:
        raise JobError(
            job.file,
            "transport.slice_bytes",
            f"makes frames of {frame} bytes, above the yellow threshold of {burst} bytes at {member.host!r} in "
            f"{fabric.file}: each would count as congestion",
        )


def _check_pair(a: Job, b: Job) -> None:
    def refuse(key: str, what: str) -> JobError:
        return JobError(b.file, key, f"jobs {a.name!r} ({a.file}) and {b.name!r} {what}")

    if a.name == b.name:
        raise refuse("job.name", "have the same name; each job needs its own")
    if a.id == b.id:
        raise refuse("job.id", f"both have id {a.id}; each job needs its own")
    if a.slots.base <= b.slots.last and b.slots.base <= a.slots.last:
        raise refuse(
            "slots.base",
            f"overlap in budget slots: {a.slots.base}-{a.slots.last} and {b.slots.base}-{b.slots.last}",
        )
    if a.transport.multicast is not None and b.transport.multicast is not None:
        a_base, b_base = int(a.transport.multicast), int(b.transport.multicast)
        if a_base < b_base + len(b.aggregators) and b_base < a_base + len(a.aggregators):
            raise refuse(
                "transport.multicast",
                f"overlap in multicast addresses, from {a.transport.multicast} and {b.transport.multicast} on",
            )
    shared = {member.host for member in a.members} & {member.host for member in b.members}
    if shared:
        for key in ("priority", "yellow", "red"):
            mine, other = getattr(b.policy, key), getattr(a.policy, key)
            if mine != other:
                raise refuse(
                    f"policy.{key}",
                    f"share the port of host {min(shared)!r}, so they need the same {key}: {other} and {mine}",
                )


def _route(port: Port) -> P4TableEntry:
    return P4TableEntry(
        "routes",
        match=Match(destination=str(port.prefix)),
        action=Action("forward", port=port.number, next_hop=port.host_mac, own=port.mac),
    )


def _virtual_queue(fabric: Fabric, port: Port) -> P4MeterEntry:
    rate = max(port.rate // 8, 1)
    config = P4MeterConfig(
        cir=rate,
        cburst=int(port.buffer * fabric.thresholds.yellow),
        pir=rate,
        pburst=int(port.buffer * fabric.thresholds.red),
    )
    return P4MeterEntry("virtual_queue", index=port.number, config=config)


def _port_policy(port: Port, job: Job) -> P4TableEntry:
    # Best effort waits behind prioritised gradients, so it fills the virtual queue only when they share its class.
    return P4TableEntry(
        "port_policies",
        match=Match(egress_port=port.number),
        action=Action(
            "set_policy",
            lowest_metered_class=1 if job.policy.priority else 0,
            yellow=job.policy.yellow,
            red=job.policy.red,
        ),
    )


def _ports(fabric: Fabric, members: Sequence[Member]) -> list[Port]:
    by_host = {port.host: port for port in fabric.ports}
    return [by_host[member.host] for member in members]


def _senders(fabric: Fabric, job: Job) -> list[P4TableEntry]:
    return [
        P4TableEntry(
            "senders",
            match=Match(ingress_port=port.number, source=str(port.address), job=job.id),
            action=Action("permit", slot_base=job.slots.base, slot_mask=job.slots.mask, max_share=MAX_SHARE),
        )
        for port in _ports(fabric, job.members)
    ]


def _queue_classes(job: Job) -> list[P4TableEntry]:
    if not job.policy.priority:
        return []
    return [
        P4TableEntry(
            "queue_classes",
            match=Match({"job": job.id, **_ranges(layer=row.layers)}),
            action=Action("set_queue_class", queue_class=row.queue_class),
            priority=RANGE_PRIORITY,
        )
        for row in job.policy.queue_classes
    ]


def _drop_precedences(job: Job) -> list[P4TableEntry]:
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


def _multicast(fabric: Fabric, job: Job) -> list[Entity]:
    """A group per aggregator. Slot ranges are disjoint, so half of the range numbers groups of the job's alone.

    Half, because BMv2 refuses groups from 32768 on.
    """
    entities: list[Entity] = []
    replicas = tuple(sorted(port.number for port in _ports(fabric, job.workers)))
    for index in range(len(job.aggregators)):
        address = job.multicast_address(index)
        if address is None:
            break
        group = (job.slots.base + 1) // 2 + index + 1
        entities.append(P4MulticastGroupEntry(group, replicas=replicas))
        entities.append(
            P4TableEntry("routes", match=Match(destination=f"{address}/32"), action=Action("replicate", group=group))
        )
    return entities
