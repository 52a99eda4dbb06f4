# SPDX-License-Identifier: Apache-2.0
"""In which order slices leave: front layers first, repairs before first passes, budgets within the window."""

import numpy as np
import pytest
from gradlane._core import ffi, lib

from gradlane.wire import Flag, Kind
from tests.gradlane.core.protocol.fabric_model import Model
from tests.gradlane.core.protocol.network import Cluster


def start(cluster: Cluster, rank: int, tensor: int, layer: int, size: int, loss: tuple[int, int] = (0, 0)) -> None:
    values, result = np.ones(size, np.float32), np.zeros(size, np.float32)
    layers = np.full(-(-size // 16), layer, np.uint16)
    code = cluster.start(
        rank, 0, tensor, lib.GL_ALL_REDUCE, values, result, size, reduction=lib.GL_SUM, layers=layers, loss=loss
    )
    assert code == 0


def sent_layers(cluster: Cluster, rank: int) -> list[int]:
    """Of the first passes of this rank's pushes, in the order in which they left."""
    return [h.layer for h, _ in cluster.tags if h.source == rank and h.kind == Kind.DATA and not h.flags & Flag.PULL]


def test_a_front_layer_overtakes_what_is_queued_slice_by_slice() -> None:
    cluster = Cluster(1, servers=1, rate=10_000_000)
    for layer in range(30, 20, -1):
        start(cluster, 0, layer, layer, 1600)
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=10_000)
    before = len(sent_layers(cluster, 0))
    start(cluster, 0, 1, 1, 1600)
    cluster.run(until=lambda: cluster.all_completed(11))
    layers = sent_layers(cluster, 0)
    # A batch may have been on its way already; then nothing comes between the slices of layer 1.
    at = layers.index(1)
    assert at - before <= 16
    assert layers[at : at + 100] == [1] * 100
    rest = [layer for layer in layers[before:] if layer != 1]
    assert rest == sorted(rest)


def test_messages_of_one_layer_keep_their_order() -> None:
    cluster = Cluster(1, servers=1)
    for tensor in range(50):
        start(cluster, 0, tensor, 3, 160)
    cluster.run(until=lambda: cluster.all_completed(50))
    pushed = [h.tensor for h, _ in cluster.tags if h.kind == Kind.DATA and not h.flags & Flag.PULL]
    assert pushed == sorted(pushed)


def test_a_front_layer_overtakes_what_has_no_number_yet() -> None:
    cluster = Cluster(1, servers=1, window=2, push_loss=0.1, rate=10_000_000)
    for layer in range(30, 20, -1):
        start(cluster, 0, layer, layer, 1600, (100_000, 0))
    start(cluster, 0, 1, 1, 1600, (100_000, 0))
    cluster.run(until=lambda: cluster.all_completed(11))
    order = list(dict.fromkeys(sent_layers(cluster, 0)))
    assert order == [29, 30, 1, *range(21, 29)]


def test_messages_with_a_budget_stay_within_the_window_of_each_other() -> None:
    window = 4
    cluster = Cluster(3, window=window, push_loss=0.2, rate=5_000_000)
    under_way: dict[int, set[int]] = {rank: set() for rank in range(3)}
    widest = 0

    def watch(source: int, to: int, header) -> bool:
        nonlocal widest
        if header.kind == Kind.DATA and header.budget:
            under_way[source].add((header.message - 0xFFFFFF00) % 2**32 // 4)
        elif header.kind == Kind.STOP:
            under_way[to].discard((header.message - 0xFFFFFF00) % 2**32 // 4)
        widest = max([widest, *(max(numbers) - min(numbers) for numbers in under_way.values() if numbers)])
        return True

    cluster.filter = watch
    for tensor in range(30):
        for rank in range(3):
            start(cluster, rank, tensor, tensor % 5, 500, (200_000 if tensor % 3 else 0, 0))
    cluster.run(until=lambda: cluster.all_completed(30))
    assert 0 < widest < window


def test_what_waits_for_the_window_keeps_its_budget_while_what_is_in_it_moves() -> None:
    cluster = Cluster(1, servers=1, window=1, push_loss=0.1, rate=1_000_000)  # a message takes 130 ms
    for tensor in range(3):
        start(cluster, 0, tensor, 0, 1600, (100_000, 0))
    cluster.run(until=lambda: cluster.all_completed(3))
    pushed = [h.budget for h, _ in cluster.tags if h.kind == Kind.DATA and not h.flags & Flag.PULL]
    assert pushed == [10] * 300


def test_exact_messages_do_not_wait_for_the_window_of_those_with_a_budget() -> None:
    cluster = Cluster(2, window=1, push_loss=0.2, rate=5_000_000)
    cluster.filter = lambda source, to, header: header.tensor != 9 or header.kind != Kind.STOP
    for rank in range(2):
        start(cluster, rank, 9, 0, 500, (200_000, 0))
    for tensor in range(5):
        for rank in range(2):
            start(cluster, rank, tensor, 1, 500)
    cluster.run(until=lambda: cluster.all_completed(5))


def test_repairs_go_before_first_passes() -> None:
    cluster = Cluster(1, servers=1, rate=10_000_000)
    lost = []

    def lose(source: int, to: int, header) -> bool:
        if header.kind == Kind.DATA and header.tensor == 1 and header.slice == 3 and not header.flags & Flag.PULL:
            lost.append(header)
            return False
        return True

    cluster.filter = lose
    start(cluster, 0, 1, 9, 1600)
    start(cluster, 0, 2, 9, 16000)
    cluster.run(until=lambda: len(cluster.completed(0)) >= 1)
    assert lost
    assert cluster.completed(0) == [(0, 1)]


def test_hundreds_of_messages_cost_no_more_than_their_slices() -> None:
    """The choice of the next slice does not look at every message that waits."""
    cluster = Cluster(1, servers=1, window=2048)
    for tensor in range(2000):
        start(cluster, 0, tensor, tensor % 100, 32)
    cluster.run(until=lambda: cluster.all_completed(2000))
    layers = sent_layers(cluster, 0)
    assert layers == sorted(layers)


def test_a_job_that_has_nothing_to_send_is_given_no_turn() -> None:
    model = Model(2, rate=100_000_000, buffer=3000)  # batches of a slice, and little credit for late ones
    busy, idle = (model.job([0, 1]).engines[0].handle for _ in range(2))
    model._submit(model.jobs[0])
    batch, now = ffi.new("gl_batch *"), model.now
    for _ in range(5):
        assert lib.gl_transmit(busy, batch, now) > 0
        assert lib.gl_transmit(idle, batch, now) == 0
        now = lib.gl_deadline(busy, now)
