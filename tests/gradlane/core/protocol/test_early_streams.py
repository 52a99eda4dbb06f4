# SPDX-License-Identifier: Apache-2.0
"""What comes before this rank has submitted may be of any plan; then its port is only for those that the plan has."""

from collections.abc import Sequence

import pytest
from gradlane._core import lib

from gradlane.wire import HEADER_BYTES, Header, Kind
from tests.gradlane.core.protocol.network import Cluster, mean_in_rank_order, values_of

RANKS, SIZE = 12, 24_000
LINK = 100_000_000  # bit/s
LATE = 5


def told_shares(
    algorithm: int, group: Sequence[int] = range(RANKS), known: bool = False
) -> tuple[list[float], list[float]]:
    """An operation that rank LATE submits after it has heard of it: the shares of its link that it tells its senders
    before that, and then, one after the other. `known`: it knows who is in the group."""
    cluster = Cluster(RANKS, rate=LINK, slice_bytes=1024)
    told: list[float] = []
    before: list[float] = []
    whole = len(group) == RANKS
    tensor = 1 if whole else lib.GL_FIRST_GROUP + 3
    if known:
        assert not lib.gl_engine_group(cluster.engines[LATE], tensor, list(group), len(group))
    record = cluster.ledger.sent

    def sent(source: int, datagram: bytes) -> None:
        record(source, datagram)
        if source == LATE and Header.unpack(datagram).kind == Kind.REPORT:
            share = datagram[HEADER_BYTES + 4 : HEADER_BYTES + 8]  # bit/ms
            told.append(int.from_bytes(share, "big") * 1e3 / LINK)

    cluster.ledger.sent = sent
    values = [values_of(rank, 1, 1, SIZE).round() for rank in range(RANKS)]
    results = {}
    for rank in [*(rank for rank in group if rank != LATE), LATE]:
        if rank == LATE:
            cluster.run(until=lambda: any(lib.gl_heard(cluster.engines[LATE], other) for other in range(RANKS)))
            if not whole:
                cluster.run(until=lambda: len(told) >= 3)
            before[:] = told
            told.clear()
        results[rank] = values[rank].copy()
        assert not cluster.start(
            rank, 1, tensor, lib.GL_ALL_REDUCE, values[rank], results[rank], SIZE, algorithm=algorithm, reduction=1,
            element_type=cluster.element_type, group=None if whole else group,
        )  # fmt: skip
    cluster.run(until=lambda: all((1, tensor) in cluster.completed(rank) for rank in group))
    for result in results.values():
        assert (result == mean_in_rank_order([values[rank] for rank in group])).all()
    return before, told


@pytest.mark.parametrize(
    ("algorithm", "streams"),
    [(lib.GL_RING, 1), (lib.GL_GRID, 5), (lib.GL_DIRECT, RANKS - 1)],
    ids=["ring", "grid", "direct"],
)
def test_a_late_submission_frees_the_port_of_ranks_that_its_plan_does_not_hear(algorithm: int, streams: int) -> None:
    assert told_shares(algorithm)[1][0] >= 0.9 / streams


@pytest.mark.parametrize(
    ("group", "known", "streams"),
    [((2, LATE), True, 1), ((2, LATE), False, 1), ((1, 2, 4, LATE), True, 3), ((1, 2, 4, LATE), False, 2)],
)
def test_before_a_group_is_called_here_its_port_is_for_its_members(
    group: Sequence[int], known: bool, streams: int
) -> None:
    """Nobody else is expected, and all who are: with the second slice at the latest. Of a group that is not known those
    count who have come."""
    before, _ = told_shares(lib.GL_DIRECT, group, known)
    assert before[1] == pytest.approx(0.98 / streams, rel=0.02)


def test_groups_that_make_no_sense_are_refused() -> None:
    engine = Cluster(RANKS, rate=LINK, slice_bytes=1024).engines[0]
    assert lib.gl_engine_group(engine, 1, [0, 1], 2) == -1
    assert lib.gl_engine_group(engine, lib.GL_FIRST_GROUP, [0, RANKS], 2) == -1
    assert lib.gl_engine_group(engine, lib.GL_FIRST_GROUP, [0, RANKS - 1], 2) == 0
