# SPDX-License-Identifier: Apache-2.0
"""Send and receive with a tolerance: what may stay missing, what stays as it was, and that it always ends."""

import numpy as np
import pytest
from gradlane._core import ffi, lib
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gradlane.wire import Header, Kind
from tests.gradlane.core.protocol.network import Cluster, Impairment, Ledger
from tests.support.effort import tries

COMPLETED, MISMATCH = 1, 3
PER_SLICE = 16
GROUP = int(lib.GL_FIRST_GROUP)
EVERYTHING = 1_000_000
CLEAN = Impairment()


def pair(loss: int, impairment: Impairment = CLEAN, seed: int = 0) -> Cluster:
    """Rank 0 sends to rank 1. Messages of a pair may lose `loss`, whatever the job's classes say, which is nothing."""
    cluster = Cluster(2, impairment=impairment, seed=seed)
    cluster.ledger = Ledger(lambda _: loss)
    return cluster


def start(cluster: Cluster, rank: int, step: int, values: np.ndarray, loss: int) -> None:
    ends = {
        0: (lib.GL_SEND, values, None, 1),
        1: (lib.GL_RECEIVE, None, values, 0),
    }
    collective, source, result, root = ends[rank]
    code = cluster.start(rank, step, GROUP, collective, source, result, values.size, root=root, loss=(loss, 0))
    assert code == 0


def arrived(before: np.ndarray, sent: np.ndarray, found: np.ndarray) -> list[bool]:
    """Of each slice whether it has come; one that has not is as it was, and none is half of both."""
    came: list[bool] = []
    for first in range(0, sent.size, PER_SLICE):
        part = slice(first, first + PER_SLICE)
        came.append(bool((found[part] == sent[part]).all()))
        assert came[-1] or (found[part] == before[part]).all()
    return came


@settings(max_examples=tries(60), deadline=None)
@example(slices=40, loss=EVERYTHING, dropped=set(range(40)), probability=0.0, receiver_first=True)
@example(slices=40, loss=EVERYTHING, dropped=set(range(40)), probability=0.6, receiver_first=False)
@given(
    slices=st.integers(1, 60),
    loss=st.sampled_from([0, 1, 100_000, 500_000, 999_999, EVERYTHING]),
    dropped=st.sets(st.integers(0, 59)),
    probability=st.sampled_from([0.0, 0.3, 0.6]),
    receiver_first=st.booleans(),
)
def test_at_most_the_tolerance_stays_missing_and_that_as_it_was(
    slices: int, loss: int, dropped: set[int], probability: float, receiver_first: bool
) -> None:
    """`dropped`: of the first pass; all else is lost by chance, too."""
    cluster = pair(loss, Impairment(loss=probability), slices)
    repairs: list[int] = []

    def passes(source: int, to: int, header: Header) -> bool:
        if header.kind == Kind.REPAIR:
            repairs.append(header.slice)
        return header.kind != Kind.DATA or header.slice not in dropped

    cluster.filter = passes
    sent = np.arange(1, slices * PER_SLICE + 1, dtype=np.float32)
    found = -sent
    for rank in (1, 0) if receiver_first else (0, 1):
        start(cluster, rank, 1, found if rank else sent, loss)
        if rank == receiver_first:
            with pytest.raises(TimeoutError):
                cluster.run(until=lambda: False, limit=50_000)
    cluster.run(until=lambda: cluster.all_completed(1))
    missing = arrived(-sent, sent, found).count(False)
    assert missing <= slices * loss // EVERYTHING
    counts = cluster.statistics(1)
    assert (counts.slices_expected, counts.slices_lost) == (slices, missing)
    assert counts.budget_violations == 0
    if loss == EVERYTHING:
        assert not repairs
    if probability == 0 and loss == EVERYTHING:
        assert missing == len(dropped & set(range(slices)))


def test_what_is_lost_of_one_message_may_come_with_the_next() -> None:
    """The receiver has the latest that it got of each slice; an older one never takes the place of a newer one."""
    cluster = pair(EVERYTHING, Impairment(loss=0.4, duplicate=0.2, jitter=400), 3)
    found, history = np.zeros(20 * PER_SLICE, np.float32), np.zeros((31, 20))
    for step in range(1, 31):
        sent = np.full(20 * PER_SLICE, step, np.float32)
        start(cluster, 1, step, found, EVERYTHING)
        start(cluster, 0, step, sent, EVERYTHING)
        cluster.run(until=lambda step=step: cluster.all_completed(step))
        history[step] = found.reshape(20, PER_SLICE).max(axis=1)
        assert (found.reshape(20, PER_SLICE) == history[step][:, None]).all()
    assert (np.diff(history, axis=0) >= 0).all()
    assert 0.4 < (np.diff(history, axis=0) > 0).mean() < 0.8
    assert cluster.statistics(0).slices_repaired == 0


@pytest.mark.parametrize("early", [False, True])
def test_a_message_that_may_lose_more_than_its_receiver_tolerates_never_gets_into_its_memory(early: bool) -> None:
    cluster = Cluster(2, push_loss=0.5)
    sent, found = np.ones(640, np.float32), np.zeros(640, np.float32)
    for rank in (0, 1) if early else (1, 0):
        start(cluster, rank, 1, found if rank else sent, 100_000 if rank else 200_000)
        with pytest.raises(TimeoutError):
            cluster.run(until=lambda: False, limit=20_000)
    assert [(event.kind, event.source) for event in cluster.events[1]] == [(MISMATCH, 0)]
    assert not found.any()


def test_a_group_of_no_pair_takes_no_message_with_a_budget() -> None:
    """Whatever the classes of the job tolerate: its collectives are exact."""
    cluster = Cluster(2, push_loss=0.5)
    results = [np.zeros(640, np.float32) for _ in range(2)]
    for rank in range(2):
        code = cluster.start(
            rank, 1, GROUP, lib.GL_ALL_REDUCE, np.ones(640, np.float32), results[rank], 640, reduction=lib.GL_SUM,
            loss=(100_000 * (1 - rank), 0),
        )  # fmt: skip
        assert code == 0
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=20_000)
    assert [(event.kind, event.source) for event in cluster.events[1]] == [(MISMATCH, 0)]


def test_a_standing_receive_is_not_what_is_waited_for() -> None:
    cluster = Cluster(2)
    waiting = ffi.new("gl_waiting *")
    found = np.zeros(64, np.float32)
    submission = ffi.new(
        "gl_submission *",
        {
            "step": 1, "tensor": GROUP, "collective": lib.GL_RECEIVE, "algorithm": lib.GL_DIRECT, "element_type": 1,
            "root": 0, "elements": 64, "out": ffi.from_buffer("uint8_t[]", found, True), "standing": 1,
        },
    )  # fmt: skip
    assert lib.gl_submit(cluster.engines[1], submission, cluster.now) == 0
    assert not lib.gl_oldest(cluster.engines[1], cluster.now, waiting)
    start(cluster, 0, 1, np.ones(64, np.float32), 0)
    cluster.run(until=lambda: cluster.all_completed(1))
    assert (found == 1).all()
