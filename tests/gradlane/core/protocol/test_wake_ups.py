# SPDX-License-Identifier: Apache-2.0
"""What one wake-up of a host sends: all that is due soon, to whomever, but no more than half of a port's buffer."""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
from gradlane._core import ffi, lib

from gradlane.wire import Header, Kind
from tests.gradlane.core.protocol.fabric_model import Model
from tests.gradlane.core.protocol.network import Cluster, Impairment

RATE = 1_000_000_000
BYTES_PER_US = RATE / 8e6
SPAN = 1_000  # us that a wake-up sends for, at most
SLICE = 1432 + 40 + 42  # bytes on the link


class Watched(Cluster):
    """A cluster of hosts at 1 Gbit/s that get nothing; `sent`: by when, the slices that a rank sent, by receiver."""

    def __init__(self, workers: int, buffer: int, *, rank: int = 0, answers: bool = False) -> None:
        super().__init__(workers, rate=RATE, buffer=buffer, slice_bytes=1432, impairment=Impairment(delay=50))
        self.filter = lambda source, to, header: answers
        self.rank = rank
        self.sent: defaultdict[int, Counter[int]] = defaultdict(Counter)

    def _deliver(self, source: int, to: int, datagram: bytes) -> None:
        if source == self.rank and Header.unpack(datagram).kind == Kind.DATA:
            self.sent[self.now][to] += 1
        super()._deliver(source, to, datagram)

    def begin(self) -> None:
        """An all-reduce of 4 MB, without its end."""
        for rank in range(self.workers):
            self.submit(rank, 0, 0, np.ones(1_000_000, np.float32))
        with pytest.raises(TimeoutError):
            self.run(until=lambda: False, limit=3_500)  # less than what may be in flight


@pytest.mark.parametrize("buffer", [20_000, 64_000, 200_000, 400_000, 4_000_000])
@pytest.mark.parametrize("workers", [2, 8])
def test_what_a_wake_up_sends_is_no_more_than_half_of_a_ports_buffer(workers: int, buffer: int) -> None:
    cluster = Watched(workers, buffer)
    cluster.begin()
    moments = sorted((now, slices.total() * SLICE) for now, slices in cluster.sent.items())
    burst = min(buffer / 2, BYTES_PER_US * SPAN) + SLICE * (workers - 1)  # a slice to each is allowed in any case
    for first, last in itertools.combinations_with_replacement(range(len(moments)), 2):
        sent = sum(bytes_ for _, bytes_ in moments[first : last + 1])
        elapsed = moments[last][0] - moments[first][0]
        assert sent <= burst + BYTES_PER_US * 1.02 * elapsed  # times are whole us
    assert sum(bytes_ for _, bytes_ in moments) > 0.9 * BYTES_PER_US * 3_000


@pytest.mark.parametrize(("workers", "buffer", "most"), [(2, 400_000, 4), (8, 400_000, 5), (8, 200_000, 6)])
def test_one_wake_up_sends_to_all_receivers_what_is_due_soon(workers: int, buffer: int, most: int) -> None:
    cluster = Watched(workers, buffer)
    cluster.begin()
    assert len(cluster.sent) <= most
    assert all(len(slices) == workers - 1 for slices in cluster.sent.values()), cluster.sent


def test_what_begins_when_little_was_sent_ahead_waits_for_nothing() -> None:
    cluster = Watched(3, 400_000, rank=2)
    for tensor in range(2):
        cluster.submit(2, 0, tensor, np.ones(1_000, np.float32))
        begun = cluster.now
        with pytest.raises(TimeoutError):
            cluster.run(until=lambda: False, limit=20)
        waited = [now - begun for now in cluster.sent]
        assert waited
        assert max(waited) <= 2 * SLICE / BYTES_PER_US  # a slice's time at its part of the link
        cluster.sent.clear()


def test_what_is_new_is_looked_at_at_once_while_the_port_sends_ahead() -> None:
    cluster = Watched(3, 20_000, rank=2)
    values = np.ones(10_000, np.float32)
    code = cluster.start(2, 0, 0, lib.GL_REDUCE, values, None, values.size, reduction=lib.GL_SUM, group=(0, 2))
    assert code == 0
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=20)
    assert len(cluster.sent) == 1
    assert lib.gl_deadline(cluster.engines[2], cluster.now) > cluster.now
    cluster.submit(2, 0, 1, np.ones(10_000, np.float32))
    assert lib.gl_deadline(cluster.engines[2], cluster.now) == cluster.now


def patience(cluster: Cluster) -> tuple[int, int]:
    """Of rank 0, and its smoothed round trip to rank 1."""
    rate, srtt = ffi.new("uint64_t *"), ffi.new("uint32_t *")
    lib.gl_flow_state(cluster.engines[0], 1, rate, srtt)
    return lib.gl_patience(cluster.engines[0], cluster.now), srtt[0]


def test_arrivals_wait_for_the_next_batch_and_else_for_a_part_of_a_round_trip() -> None:
    cluster = Watched(2, 400_000, answers=True)
    cluster.begin()
    wait, round_trip = patience(cluster)
    assert wait == round_trip
    cluster.run(until=lambda: cluster.all_completed(1))
    wait, round_trip = patience(cluster)
    assert wait == round_trip // 4


def test_a_full_window_waits_for_reports_no_longer_than_an_idle_host() -> None:
    cluster = Watched(2, 400_000, answers=True)
    cluster.begin()
    cluster.filter = lambda source, to, header: False
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=10_000)
    wait, round_trip = patience(cluster)
    assert lib.gl_deadline(cluster.engines[0], cluster.now) > cluster.now + SPAN
    assert wait == round_trip // 4


def test_arrivals_wait_no_longer_than_the_sockets_hold_them() -> None:
    held = 50_000
    model = Model(2, RATE, 400_000, delay=2_000, sockets=held)
    model.start(model.job([0, 1]))
    model.run(50_000)
    engine = model.jobs[0].engines[0]
    assert lib.gl_patience(engine.handle, model.now) <= held / 4 / BYTES_PER_US


def test_on_a_fast_link_arrivals_wait_for_what_is_sent_soon_no_longer_than_two_batches_take() -> None:
    rate, batch = 10 * RATE, 1.25 * 65_507 * 8e6  # bits, times us in a s
    model = Model(2, rate, 400_000, delay=2_000)
    model.start(model.job([0, 1], elements=4_000_000))
    model.run(20_000)
    engine = model.jobs[0].engines[0].handle
    assert lib.gl_deadline(engine, model.now) <= model.now + SPAN
    assert 0 < lib.gl_patience(engine, model.now) <= 2 * batch / rate
