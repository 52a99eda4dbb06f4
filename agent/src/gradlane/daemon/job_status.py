# SPDX-License-Identifier: Apache-2.0
"""What operators see of a job's peers and layer classes: parts of its status."""

from collections.abc import Iterator
from typing import Any

from gradlane.control.peers import Peers
from gradlane.datapath.engines import Engines
from gradlane.ipc.status import ClassStatus, PeerStatus
from gradlane.job import Job, costs
from gradlane.job.agreement import Agreement
from gradlane.job.loss import Loss

_TYPICAL_SIZES = {"64 KiB": 64 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20, "64 MiB": 64 << 20}


def flows(engine: Engines, own: int) -> dict[str, Any]:
    """The state of the flows to all ranks but the own. `paths`: traces by the path they took; `hops`: what the latest
    trace met."""
    return {
        str(rank): {
            "rate": flow.rate,
            "srtt_us": flow.srtt_us,
            "paths": {path.name: path.count for path in flow.paths},
            "hops": list(flow.paths[0].hops) if flow.paths else [],
        }
        for rank, flow in enumerate(engine.flows())
        if rank != own
    }


def peers(
    job: Job, rank: int, connections: Peers, flows: dict[str, Any], engine: Engines | None
) -> dict[str, PeerStatus]:
    """Every other rank of the job, as this one sees it. `flows`: what that says of each, empty before the join."""
    found: dict[str, PeerStatus] = {}
    for member in job.members:
        if member.rank == rank:
            continue
        peer = found[str(member.rank)] = flows.get(str(member.rank), {})
        peer["host"], peer["address"] = member.host, str(member.address)
        peer["control"], heard = connections.state(member.rank)
        if heard is not None:
            peer["heard_seconds"] = heard
        if engine is not None:
            peer["counts"] = engine.peer_counts(member.rank)
    return found


def classes(loss: Loss, engine: Engines) -> list[ClassStatus]:
    """The rows of `[[loss.classes]]`, then one without a range: all other layers."""
    found: list[ClassStatus] = [
        {"layers": list(row.layers), "push": row.push, "pull": row.pull, "counts": engine.class_counts(index)}
        for index, row in enumerate(loss.classes)
    ]
    return [*found, {"push": loss.push, "pull": loss.pull, "counts": engine.class_counts(len(found))}]


def algorithms(job: Job, agreement: Agreement) -> Iterator[str]:
    """Which algorithm all-reduces have, and why."""
    forced = job.transport.collective
    if forced == "switch":
        yield "gradients are summed by a switch, as the job file says, and directly by the hosts what it does not sum"
        return
    if forced != "auto":
        yield f"all-reduces are {forced}, as the job file says"
        return
    for size, nbytes in _TYPICAL_SIZES.items():
        choice = costs.choose(
            nbytes,
            len(job.workers),
            agreement.conditions,
            processes=job.processes,
            servers=len(job.servers),
            tolerance=job.loss.push,
            uneven=job.transport.ownership != "even" and not job.changes_algorithm,
            late=job.loss.late is not None,
            sums=job.transport.sums(nbytes // 4, agreement.slice_bytes),
        )
        yield f"all-reduce of {size}: {choice.reason}"
