# SPDX-License-Identifier: Apache-2.0
"""What operators see of a job's peers and layer classes: parts of its status."""

from typing import Any

from gradlane.control.peers import Peers
from gradlane.datapath.engine import Engine
from gradlane.ipc.status import ClassStatus, PeerStatus
from gradlane.job import Job
from gradlane.job.loss import Loss


def path(engine: Engine, rank: int) -> dict[str, Any]:
    """What is known of the paths to a rank. `routes`: traces by their path; `hops`: what the latest trace met."""
    rate, srtt = engine.flow(rank)
    paths = engine.paths(rank)
    return {
        "rate": rate,
        "srtt_us": srtt,
        "routes": {path.name: path.count for path in paths},
        "hops": list(paths[0].hops) if paths else [],
    }


def peers(job: Job, rank: int, connections: Peers, paths: dict[str, Any], engine: Engine | None) -> dict[str, Any]:
    """Every other rank of the job, as this one sees it. `paths`: what `path` says of each, empty before the join."""
    found: dict[str, PeerStatus] = {}
    for member in job.members:
        if member.rank == rank:
            continue
        peer = found[str(member.rank)] = paths.get(str(member.rank), {})
        peer["host"], peer["address"] = member.host, str(member.address)
        peer["control"], heard = connections.state(member.rank)
        if heard is not None:
            peer["heard_seconds"] = heard
        if engine is not None:
            peer["counts"] = engine.peer_counts(member.rank)
    return found


def classes(loss: Loss, engine: Engine) -> list[ClassStatus]:
    """The rows of `[[loss.classes]]`, then one without a range: all other layers."""
    found: list[ClassStatus] = [
        {"layers": list(row.layers), "push": row.push, "pull": row.pull, "counts": engine.class_counts(index)}
        for index, row in enumerate(loss.classes)
    ]
    return [*found, {"push": loss.push, "pull": loss.pull, "counts": engine.class_counts(len(found))}]
