# SPDX-License-Identifier: Apache-2.0
"""What one job file alone can't show: whether a job fits the fabric and the other jobs."""

from collections.abc import Iterable
from itertools import combinations, pairwise

from gradlane.job import Job, JobError, Member
from gradlane_controller.data_plane import BUCKETS
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.policy.thresholds import frame_bytes, thresholds
from gradlane_controller.policy.usage import Usage

MAX_JOBS = 255  # JOBS of p4src/shared/types.p4


def check_jobs(fabric: Fabric, jobs: Iterable[Job]) -> None:
    """Checks each job and each two. Raises JobError that names both sides of a contradiction."""
    jobs = tuple(jobs)
    for job in jobs:
        for member in job.members:
            _check_member(fabric, job, member)
        _check_groups(fabric, job)
    for a, b in combinations(jobs, 2):
        _check_pair(a, b)
    if len(jobs) > MAX_JOBS:
        raise jobs[-1].error("job", f"{jobs[-1].name!r} is one too many: a fabric carries {MAX_JOBS} jobs")


def check_shared_ports(fabric: Fabric, usage: Usage) -> None:
    """Jobs that send by the same port must agree on what it drops and when. Raises JobError."""
    names = {(port.switch, port.number): f"the port of host {port.host!r}" for port in fabric.ports}
    names |= {
        (port.switch, port.number): f"the link from {port.switch!r} to {port.peer!r}" for port in fabric.link_ports
    }
    for place, users in usage.shared_ports().items():
        for a, b in pairwise(users):
            for key in ("priority", "yellow", "red"):
                mine, other = getattr(b.policy, key), getattr(a.policy, key)
                if mine != other:
                    what = f"share {names[place]}, so they need the same {key}: {other} and {mine}"
                    raise _contradiction(a, b, f"policy.{key}", what)


def _check_member(fabric: Fabric, job: Job, member: Member) -> None:
    port = fabric.port_of(member.host)
    if port is None:
        hosts = ", ".join(port.host for port in fabric.ports)
        raise job.member_error(
            member.rank, f"host {member.host!r} is at no port of {fabric.file}; its hosts are {hosts}"
        )
    own = port.address if member.address.version == 4 else port.address6
    if member.address != own:
        raise job.member_error(
            member.rank,
            f"address {member.address} is not that of {member.host!r} in {fabric.file}: {own or 'it has no address6'}",
        )
    if job.transport.rate > port.rate:
        raise job.error(
            "transport.rate",
            f"is {job.transport.rate} bit/s, above the {port.rate} bit/s of {member.host!r} in {fabric.file}",
        )
    frame = frame_bytes(job)
    burst, _ = thresholds(fabric, port)
    if frame > burst:
        raise job.error(
            "transport.slice_bytes",
            f"makes frames of {frame} bytes, above the yellow threshold of {burst} bytes at {member.host!r} in "
            f"{fabric.file}: each would count as congestion",
        )


def _check_groups(fabric: Fabric, job: Job) -> None:
    groups = job.multicast_addresses
    edges = {port.switch for port in fabric.host_ports(member.host for member in job.workers)}
    if job.sum_lanes is not None and len(edges) > 1:
        groups += BUCKETS - 1  # each may go down by links of its own
    if 2 * groups > job.slots.mask:
        raise job.error(
            "slots.mask",
            f"is {job.slots.mask}, but the job has {groups} multicast groups, which are numbered by half of the slot "
            "range; mask must be at least twice that number",
        )


def _check_pair(a: Job, b: Job) -> None:
    if a.name == b.name:
        raise _contradiction(a, b, "job.name", "have the same name; each job needs its own")
    if a.id == b.id:
        raise _contradiction(a, b, "job.id", f"both have id {a.id}; each job needs its own")
    if a.slots.base <= b.slots.last and b.slots.base <= a.slots.last:
        raise _contradiction(
            a,
            b,
            "slots.base",
            f"overlap in budget slots: {a.slots.base}-{a.slots.last} and {b.slots.base}-{b.slots.last}",
        )
    if a.transport.multicast is not None and b.transport.multicast is not None:
        a_base, b_base = int(a.transport.multicast), int(b.transport.multicast)
        if a_base < b_base + b.multicast_addresses and b_base < a_base + a.multicast_addresses:
            raise _contradiction(
                a,
                b,
                "transport.multicast",
                f"overlap in multicast addresses, from {a.transport.multicast} and {b.transport.multicast} on",
            )


def _contradiction(a: Job, b: Job, key: str, what: str) -> JobError:
    return b.error(key, f"jobs {a.name!r} ({a.file}) and {b.name!r} {what}")
