# SPDX-License-Identifier: Apache-2.0
"""The rivals in the simulator, each with its queues, on fabrics that take seconds."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from gradlane_sim.carriers import Carrier, Rival
from gradlane_sim.document import document
from gradlane_sim.fabrics import single
from gradlane_sim.program import DEFAULT, Program
from gradlane_sim.specification import (
    Background,
    Fabric,
    Flow,
    HostStops,
    Job,
    LinkChanges,
    Queue,
    Specification,
    Tensor,
)

MBIT = 1_000_000
MS = 1_000_000  # ns

DCTCP = Rival("tcp", (("congestion", "dctcp"), ("min_rto", 5 * MS)))
CUBIC = Rival("tcp", (("congestion", "cubic"), ("min_rto", 5 * MS)))
PFABRIC = Rival("pfabric", (("window", 18_000), ("rto", MS)))
TRIMMING = Rival("trimming", (("window", 18_000), ("rto", 20 * MS)))
# The queues with which each is used, at 1 Gbit/s.
MARK = Queue("mark", (("threshold", 30_000),))
NO_MARK = Queue("mark", (("threshold", 10**9),))
PIAS = Queue("pias", (("thresholds", (10_000, 100_000)), ("mark", 30_000)))
SMALLEST_FIRST = Queue("pfabric")
TRIM = Queue("trim", (("threshold", 12_000),))


@cache
def program() -> Program:
    if not DEFAULT.exists():
        pytest.skip(f"{DEFAULT} is not built: `make sim` does it")
    return Program()


def fabric(hosts: int, queue: Queue, buffer: int = 300_000, loss: float = 0.0, delay: int = 5_000) -> Fabric:
    """Hosts at one switch, at 1 Gbit/s."""
    found = single(hosts, 1000 * MBIT, buffer, delay)
    return replace(found, queue=queue, links=tuple(replace(link, loss=loss) for link in found.links))


def job(carrier: Carrier, hosts: int, size: int, **settings: Any) -> Job:
    return Job(1, tuple(range(hosts)), carrier, (Tensor(0, size, 1),), **settings)


def run(
    on: Fabric,
    jobs: Iterable[Job] = (),
    flows: Sequence[Flow] = (),
    carrier: Rival | None = None,
    faults: Sequence[LinkChanges | HostStops] = (),
    limit: int = 20_000 * MS,
) -> dict[str, Any]:
    background = Background(carrier, tuple(flows)) if carrier else None
    specification = Specification(on, tuple(jobs), background=background, faults=tuple(faults), limit=limit)
    return program().run(document(specification), _quietly)


def _quietly(simulated: float, wall: float) -> None:
    pass


def durations(result: dict[str, Any]) -> list[float]:
    """Of the flows, s; each has to be over."""
    assert all(end for _, end, *_ in result["flows"])
    return [(end - start) / 1e9 for start, end, *_ in result["flows"]]


def port(result: dict[str, Any], a: int, b: int) -> dict[str, Any]:
    """What node `a` sends to node `b`."""
    return next(it for it in result["links"] if (it["from"], it["to"]) == (a, b))
