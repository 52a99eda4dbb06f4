# SPDX-License-Identifier: Apache-2.0
"""Tolerance by layer: ceilings, what a sender states below them, and what is counted by peer and by class."""

import numpy as np
import pytest
from gradlane._core import ffi, lib
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.wire import Flag, Header, Kind
from tests.gradlane.core.protocol.network import CRITICAL, JOB, MEAN_FLOAT32, TOKEN, Cluster, Impairment
from tests.support.effort import tries

CLASSES = [(0, 9, 100_000, 50_000), (10, 19, 300_000, 0)]


def counts_of_class(cluster: Cluster, rank: int, loss_class: int):
    counts = ffi.new("gl_counts *")
    assert lib.gl_class_statistics(cluster.engines[rank], loss_class, counts) == 0
    return counts


def counts_of_peer(cluster: Cluster, rank: int, other: int):
    counts = ffi.new("gl_counts *")
    assert lib.gl_peer_statistics(cluster.engines[rank], other, counts) == 0
    return counts


def start(
    cluster: Cluster, rank: int, tensor: int, layers: list[int], loss: tuple[int, int], critical: bool = False
) -> int:
    size = 16 * len(layers)
    return cluster.start(
        rank, 0, tensor, lib.GL_ALL_REDUCE, np.ones(size, np.float32), np.zeros(size, np.float32), size,
        reduction=lib.GL_SUM, layers=np.array(layers, np.uint16), loss=loss, critical=critical,
    )  # fmt: skip


def test_a_submission_is_of_one_class_and_states_no_more_than_its_ceiling() -> None:
    cluster = Cluster(2, losses=CLASSES)
    assert start(cluster, 0, 0, [9, 10], (0, 0)) == -1
    assert start(cluster, 0, 0, [5, 9], (100_001, 0)) == -1
    assert start(cluster, 0, 0, [5, 9], (0, 50_001)) == -1
    assert start(cluster, 0, 0, [20, 30], (1, 0)) == -1
    assert start(cluster, 0, 0, [5, 9], (100_000, 50_000)) == 0


@settings(max_examples=tries(50, 500), deadline=None)
@given(
    layer=st.sampled_from([3, 15, 40]),
    part=st.floats(0, 1),
    loss=st.floats(0, 0.6),
    workers=st.integers(2, 4),
    seed=st.integers(0, 2**32),
)
def test_no_message_loses_more_than_its_sender_stated(
    layer: int, part: float, loss: float, workers: int, seed: int
) -> None:
    ceiling = next((row[2:] for row in CLASSES if row[0] <= layer <= row[1]), (0, 0))
    stated = (int(ceiling[0] * part), int(ceiling[1] * part))
    cluster = Cluster(workers, losses=CLASSES, impairment=Impairment(loss=loss), seed=seed)
    for rank in range(workers):
        assert start(cluster, rank, 0, [layer] * 120, stated) == 0
    cluster.run(until=lambda: cluster.all_completed(1))
    for rank in range(workers):
        for event in cluster.events[rank]:
            if event.kind == 2:
                assert len(event.lost) <= stated[0] * event.slices // 1_000_000
    index = next((k for k, row in enumerate(CLASSES) if row[0] <= layer <= row[1]), len(CLASSES))
    for rank in range(workers):
        counts = counts_of_class(cluster, rank, index)
        total = cluster.statistics(rank)
        assert counts.slices_lost == total.slices_lost
        assert counts.slices_expected == counts.slices_delivered + counts.slices_lost
        assert total.budget_violations == 0
        others = [counts_of_class(cluster, rank, k) for k in range(len(CLASSES) + 1) if k != index]
        assert all(other.slices_sent == other.slices_expected == 0 for other in others)


@pytest.mark.parametrize(("layer", "budget", "refused"), [(3, 1, 0), (3, 2, 1), (15, 3, 0), (15, 4, 1), (30, 1, 1)])
def test_the_ceiling_is_that_of_the_layer_in_the_header(layer: int, budget: int, refused: int) -> None:
    cluster = Cluster(1, servers=1, losses=CLASSES)
    fields = {"job": JOB, "source": 0, "message": 0xFFFFFF00, "token": TOKEN, "slices": 10, "length": 64}
    header = Header(kind=Kind.DATA, layer=layer, budget=budget, element_type=MEAN_FLOAT32, **fields)
    cluster.receive(1, header.pack() + bytes(64))
    assert cluster.statistics(1).bad_budget == refused


@pytest.mark.parametrize(("layer", "budget", "refused"), [(3, 1, 0), (3, 2, 1), (15, 1, 1), (30, 1, 1)])
def test_the_ceiling_of_a_result_is_its_own(layer: int, budget: int, refused: int) -> None:
    cluster = Cluster(1, servers=1, losses=CLASSES)
    fields = {"job": JOB, "source": 1, "message": 0xFFFFFF01, "token": TOKEN, "slices": 20, "length": 64}
    header = Header(
        kind=Kind.DATA, layer=layer, budget=budget, flags=Flag.PULL, element_type=MEAN_FLOAT32, **fields
    )  # fmt: skip
    cluster.receive(0, header.pack() + bytes(64))
    assert cluster.statistics(0).bad_budget == refused


@pytest.mark.parametrize("critical", [(), (0,), (1,), (0, 1)])
def test_a_servers_results_may_lose_what_the_most_cautious_worker_bears(critical: tuple[int, ...]) -> None:
    cluster = Cluster(2, servers=1, losses=CLASSES)
    results: list[Header] = []
    cluster.filter = lambda source, to, header: not header.flags & Flag.PULL or not results.append(header)
    for rank in range(2):
        assert start(cluster, rank, 0, [3] * 100, (100_000, 50_000), critical=rank in critical) == 0
    cluster.run(until=lambda: cluster.all_completed(1))
    ceiling = 50_000 * CRITICAL // 1_000_000 if critical else 50_000
    assert {header.budget for header in results if header.source == 2} == {ceiling * 100 // 1_000_000}


@pytest.mark.parametrize(
    ("tensor", "stated"),
    [(0, (0, 0)), (0, (100_000, 250_000)), (lib.GL_FIRST_GROUP, (0, 0))],  # collectives of groups are exact
)
def test_a_result_lacks_no_more_than_its_receiver_stated_whatever_a_server_may_lose(
    tensor: int, stated: tuple[int, int]
) -> None:
    """A lost result is the own contribution."""
    cluster = Cluster(2, servers=1, pull_loss=0.5, impairment=Impairment(loss=0.5))
    ones, results = np.ones(1600, np.float32), np.zeros((2, 1600), np.float32)
    for result, rank, pull_loss in zip(results, range(2), stated, strict=True):
        options = {"reduction": lib.GL_SUM, "group": [0, 1], "loss": (0, pull_loss), "critical": True}
        assert cluster.start(rank, 0, tensor, lib.GL_ALL_REDUCE, ones, result, ones.size, **options) == 0
    cluster.run(until=lambda: cluster.all_completed(1))
    assert {event.kind for events in cluster.events for event in events} <= {
        lib.GL_EVENT_COMPLETED,
        lib.GL_EVENT_MISSED,
    }
    for rank, (result, pull_loss) in enumerate(zip(results, stated, strict=True)):
        lacking = np.count_nonzero((result.reshape(100, 16) == 1).all(axis=1))
        assert np.count_nonzero(result == 2) == 16 * (100 - lacking)
        assert lacking <= cluster.statistics(rank).budget_total == 100 * pull_loss // 1_000_000
        assert cluster.statistics(rank).budget_violations == 0
        assert bool(lacking) == bool(pull_loss), "the network tries it"


def test_a_slice_that_all_pushes_lack_has_a_result_in_their_class() -> None:
    cluster = Cluster(2, servers=1, losses=CLASSES)
    cluster.filter = lambda source, to, header: (
        header.flags & Flag.PULL or header.kind != Kind.DATA or header.slice != 4
    )
    for rank in range(2):
        assert start(cluster, rank, 0, [15] * 10, (300_000, 0)) == 0
    cluster.run(until=lambda: cluster.all_completed(1))


def test_a_message_of_two_classes_is_refused_and_counted() -> None:
    cluster = Cluster(1, servers=1, losses=CLASSES)
    fields = {"job": JOB, "source": 0, "message": 0xFFFFFF00, "token": TOKEN, "slices": 10, "length": 64}
    for number, layer in ((0, 3), (1, 15), (2, 9)):
        header = Header(kind=Kind.DATA, layer=layer, slice=number, element_type=MEAN_FLOAT32, **fields)
        cluster.receive(1, header.pack() + bytes(64))
    assert cluster.statistics(1).bad_class == 1
    assert cluster.statistics(1).memory_used == 2 * 64  # the results of the other two


def test_a_sender_leaves_out_no_more_than_it_stated_whatever_it_is_told() -> None:
    """The slices of least magnitude."""
    cluster = Cluster(1, servers=1, push_loss=0.1)
    repaired: set[int] = set()
    cluster.filter = lambda source, to, header: header.kind == Kind.REPAIR and repaired.add(header.slice)
    magnitudes = np.random.default_rng(1).permutation(100).astype(np.uint8)
    ones = np.ones(1600, np.float32)
    options = {"reduction": lib.GL_SUM, "magnitudes": magnitudes, "loss": (50_000, 0)}
    assert cluster.start(0, 0, 0, lib.GL_ALL_REDUCE, ones, np.zeros_like(ones), ones.size, **options) == 0
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=10_000)
    fields = {"job": JOB, "source": 1, "message": 0xFFFFFF00, "token": TOKEN, "slices": 100, "length": 13}
    header = Header(kind=Kind.BITMAP, budget=10, flags=Flag.END, element_type=1 | lib.GL_SUM << 4, **fields)
    cluster.receive(0, header.pack() + bytes(13))
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=10_000)
    assert repaired == set(np.flatnonzero(magnitudes >= 5))


def test_peers_and_classes_add_up_to_the_whole() -> None:
    cluster = Cluster(3, losses=CLASSES, impairment=Impairment(loss=0.2, duplicate=0.2), seed=4)
    for tensor, (layer, loss) in enumerate([(3, (100_000, 50_000)), (15, (300_000, 0)), (40, (0, 0))]):
        for rank in range(3):
            assert start(cluster, rank, tensor, [layer] * 90, loss) == 0
    cluster.run(until=lambda: cluster.all_completed(3))
    cluster.run()
    names = ["slices_sent", "slices_repaired", "slices_expected", "slices_delivered", "slices_lost", "budget_total",
             "slices_duplicate", "slices_late"]  # fmt: skip
    for rank in range(3):
        total = cluster.statistics(rank)
        for name in names:
            by_peer = sum(getattr(counts_of_peer(cluster, rank, other), name) for other in range(4))
            by_class = sum(getattr(counts_of_class(cluster, rank, k), name) for k in range(3))
            assert by_peer == by_class == getattr(total, name), name
        assert counts_of_peer(cluster, rank, rank).bytes_sent == 0
        assert total.slices_repaired > 0
    assert lib.gl_peer_statistics(cluster.engines[0], 4, ffi.new("gl_counts *")) == -1
    assert lib.gl_class_statistics(cluster.engines[0], 3, ffi.new("gl_counts *")) == -1
