# SPDX-License-Identifier: Apache-2.0
"""What comes before this rank has submitted may be of any plan; then its port is only for those that the plan has."""

import pytest
from gradlane._core import lib

from gradlane.wire import HEADER_BYTES, Header, Kind
from tests.gradlane.core.protocol.network import Cluster, mean_in_rank_order, values_of

RANKS, SIZE = 12, 24_000
LINK = 100_000_000  # bit/s
LATE = 5


def told_shares(algorithm: int) -> list[float]:
    """A step that rank LATE submits after it has heard another: the shares of its link that it tells its senders then,
    one after the other."""
    cluster = Cluster(RANKS, rate=LINK, slice_bytes=1024)
    told: list[float] = []
    record = cluster.ledger.sent

    def sent(source: int, datagram: bytes) -> None:
        record(source, datagram)
        if source == LATE and Header.unpack(datagram).kind == Kind.REPORT:
            share = datagram[HEADER_BYTES + 4 : HEADER_BYTES + 8]  # bit/ms
            told.append(int.from_bytes(share, "big") * 1e3 / LINK)

    cluster.ledger.sent = sent
    values = [values_of(rank, 1, 1, SIZE).round() for rank in range(RANKS)]
    results = {}
    for rank in [*(rank for rank in range(RANKS) if rank != LATE), LATE]:
        if rank == LATE:
            cluster.run(until=lambda: any(lib.gl_heard(cluster.engines[LATE], other) for other in range(RANKS)))
            told.clear()
        results[rank] = values[rank].copy()
        assert not cluster.start(
            rank, 1, 1, lib.GL_ALL_REDUCE, values[rank], results[rank], SIZE, algorithm=algorithm, reduction=1,
            element_type=cluster.element_type,
        )  # fmt: skip
    cluster.run(until=lambda: cluster.all_completed(1))
    for result in results.values():
        assert (result == mean_in_rank_order(values)).all()
    return told


@pytest.mark.parametrize(
    ("algorithm", "streams"),
    [(lib.GL_RING, 1), (lib.GL_GRID, 5), (lib.GL_DIRECT, RANKS - 1)],
    ids=["ring", "grid", "direct"],
)
def test_a_late_submission_frees_the_port_of_ranks_that_its_plan_does_not_hear(algorithm: int, streams: int) -> None:
    assert told_shares(algorithm)[0] >= 0.9 / streams
