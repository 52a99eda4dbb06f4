# SPDX-License-Identifier: Apache-2.0
"""What an agent asks its engine of all ranks costs one turn with the transport's thread."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from gradlane._core import ffi, lib

from gradlane.datapath.engine import Engine
from gradlane.job.stragglers import REMEMBERED
from tests.gradlane.core.protocol.network import Cluster, values_of

WORKERS, SERVERS = 6, 2


class Turns:
    """A thread of the transport whose lock counts."""

    def __init__(self) -> None:
        self.taken = 0

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        self.taken += 1
        yield


def engine_of(cluster: Cluster, rank: int) -> tuple[Engine, Turns]:
    """As an agent has it."""
    engine: Any = object.__new__(Engine)
    engine._loop = turns = Turns()
    engine._job = SimpleNamespace(workers=range(WORKERS), members=range(WORKERS + SERVERS))
    engine.pointer = cluster.engines[rank]
    return engine, turns


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """After some steps, in which rank 0 sends traces to the first server alone."""
    made = Cluster(WORKERS, SERVERS, trace_every=1)
    made.way = lambda source, to: [{"switch_id": 1 + to, "queue_class": 5, "depth": 3}]
    for step in range(1, 4):
        for rank in range(WORKERS):
            made.submit(rank, step, 0, values_of(rank, step, 0, 3000))
        made.run(until=lambda step=step: made.all_completed(step))
    made.run()
    return made


@pytest.mark.parametrize("rank", [0, WORKERS])
def test_what_is_asked_of_all_is_what_is_asked_of_each(cluster: Cluster, rank: int) -> None:
    engine, turns = engine_of(cluster, rank)
    latest, lateness = engine.lateness()
    held = engine.held()
    assert turns.taken == 2
    found = ffi.new("gl_lateness *")
    for worker in range(WORKERS):
        assert lib.gl_engine_lateness(cluster.engines[rank], worker, found) == 0
        assert (latest, lateness[worker]) == (found.step, [late / 1e6 for late in found.late[0 : found.steps]])
    assert len(lateness) == WORKERS
    assert len(held) == WORKERS + SERVERS + 1
    delivered, below = ffi.new("uint64_t *"), ffi.new("uint64_t *")
    for to, its in enumerate(held):
        lib.gl_flow_held(cluster.engines[rank], to, delivered, below)
        assert its == (delivered[0], below[0])
    if rank == WORKERS:
        assert latest == 3
        assert 0 < max(map(len, lateness)) <= REMEMBERED
    assert any(delivered for delivered, _ in held)


def test_paths_are_asked_for_where_there_are_some(cluster: Cluster) -> None:
    engine, turns = engine_of(cluster, 0)
    flows = engine.flows()
    assert turns.taken == 1 + SERVERS
    rate, srtt = ffi.new("uint64_t *"), ffi.new("uint32_t *")
    for to, flow in enumerate(flows):
        lib.gl_flow_state(cluster.engines[0], to, rate, srtt)
        assert (flow.rate, flow.srtt_us) == (rate[0], srtt[0])
        names = [[hop["switch"] for hop in path.hops] for path in flow.paths]
        assert names == ([[1 + to]] if to >= WORKERS else [])
    assert len(flows) == WORKERS + SERVERS
    assert flows[WORKERS].srtt_us > 0
