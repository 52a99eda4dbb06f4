# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a job reach their Agreement: they measure the paths between them, and rank 0 decides."""

import asyncio
import functools
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from gradlane.control.peer import Stage
from gradlane.control.peers import Peers
from gradlane.control.probing import Path, Prober, Probes
from gradlane.errors import AgentError
from gradlane.job import MAX_PACKET, Job, headers, largest_slice
from gradlane.job.agreement import Agreement
from gradlane.job.costs import Conditions

SAMPLE = 4  # paths that a rank measures, all at once; others measure as many to it
GENERATIONS_PER_SECOND = 16  # a job has far fewer, and 32 bits of them last for 8 years


@dataclass(frozen=True)
class _Measured:
    """By one rank. `packet`: the least that its paths carry, the one to `rank`; `rate` is None if not known. `runners`:
    threads that it has for jobs."""

    packet: int
    rank: int
    latency: float
    rate: float | None
    runners: int


async def agree(job: Job, rank: int, peers: Peers, prober: Prober, runners: int) -> Agreement:
    """Measures the paths and agrees on them, when all are connected. Raises AgentError naming what prevents it."""
    if rank == 0:
        # Numbers of a job that comes later are higher, so the switches' slots are its own.
        identity = {
            "token": secrets.randbits(64),
            "message_base": int(time.time() * 1000) & 0xFFFFFFFF,
            "generation": int(time.time() * GENERATIONS_PER_SECOND) & 0xFFFFFFFF or 1,
        }
        peers.tell("session", identity)
    else:
        [identity] = await peers.rendezvous.told("session", [0], job.patience)
    addresses = [member.address for member in job.members]
    probes = prober.add(job.id, rank, int(identity["token"]), addresses, peers.signs.hear)  # until the job ends
    peers.beat = probes.beat
    await peers.rendezvous.near(Stage.TOKEN_KNOWN, job.patience)
    measured = await _measure(job, rank, peers, prober, probes, runners)
    if rank == 0:
        others = list(range(1, len(job.members)))
        theirs = [_Measured(**values) for values in await peers.rendezvous.told("paths", others, job.patience)]
        agreed = _decide(job, [measured, *theirs])
        peers.tell("agreement", agreed)
    else:
        peers.tell("paths", asdict(measured), [0])
        [agreed] = await peers.rendezvous.told("agreement", [0], job.patience)
    return Agreement(
        int(identity["token"]),
        int(identity["message_base"]),
        int(agreed["slice_bytes"]),
        Conditions(float(agreed["rate"]), float(agreed["latency"]), job.transport.contention, job.racks),
        int(identity["generation"]),
        int(agreed["shards"]) if job.can_be_cut else 1,
        bool(agreed["steered"]),
    )


async def _measure(job: Job, rank: int, peers: Peers, prober: Prober, probes: Probes, runners: int) -> _Measured:
    others = _sample(peers.neighbours)
    if not others:
        return _Measured(prober.largest(prober.address), rank, 0.0, None, runners)
    wanted = job.transport.slice_bytes
    needed = None if wanted is None else wanted + headers(job.family)

    def lived(other: int) -> Callable[[], float]:
        return functools.partial(peers.lived, other)

    async def path(other: int) -> Path:
        return await probes.path(other, needed, peers.name(other), lived(other))

    paths = await asyncio.gather(*map(path, others))
    packet, narrowest = min((path.packet, other) for path, other in zip(paths, others, strict=True))
    if needed is not None and packet < needed:
        raise AgentError(
            f"the path from {peers.name(rank)} to {peers.name(narrowest)} carries packets of {packet} bytes, and "
            f"transport.slice_bytes = {wanted} makes them {needed}: it must be at most "
            f'{largest_slice(packet, job.family)}, or "auto"'
        )
    # Each rank sends its train to the next one, so that no two meet at a port.
    following = (rank + 1) % len(job.members)
    rate = await probes.rate(following, packet, job.transport.buffer // 2, lived(following))
    return _Measured(packet, narrowest, max(path.latency for path in paths), rate, runners)


def _sample(neighbours: list[int]) -> list[int]:
    """Some of them, the next and others further away: a host's own link is part of all of its paths."""
    if len(neighbours) <= SAMPLE:
        return neighbours
    return [neighbours[k * (len(neighbours) - 1) // (SAMPLE - 1)] for k in range(SAMPLE)]


def _decide(job: Job, measured: list[_Measured]) -> dict[str, float]:
    runners = [m.runners for m in measured]
    packet = min(m.packet for m in measured)
    rates = [float(f"{m.rate:.3g}") for m in measured if m.rate is not None]  # the measurement is no more exact
    return {
        "slice_bytes": job.transport.slice_bytes or largest_slice(min(packet, MAX_PACKET), job.family),
        "rate": min([float(job.transport.rate), *rates]),
        "latency": max(m.latency for m in measured),
        "shards": min(runners) if job.can_be_cut else 1,
        # A switch that sums adds up checksums, too, which count the port.
        "steered": int(max(runners) > 1 and job.sum_lanes is None),
    }
