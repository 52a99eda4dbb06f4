# SPDX-License-Identifier: Apache-2.0
"""Beside each engine goes the worker of the rules (support/sum_worker.py): both say the same, byte by byte."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.wire import HEADER_BYTES, ElementType, Flag, Header, Lanes
from tests.gradlane.core.protocol.network import JOB, Impairment
from tests.gradlane.core.sums.summing import Oracle, Summed, Tensor
from tests.support.effort import tries
from tests.support.fixed_point import float32
from tests.support.sum_stream import Slices, Stream, added, zeros
from tests.support.sum_worker import Worker

NETWORKS = st.sampled_from([Impairment(), Impairment(loss=0.2, duplicate=0.2, delay=100, jitter=900)])


def gradients(rank: int, step: int, tensor: Tensor, sizes: Sequence[int]) -> np.ndarray:
    """Steps differ in size by powers of two."""
    values = np.random.default_rng([rank, step, tensor.number]).standard_normal(tensor.elements)
    return (values * 2.0 ** sizes[step % len(sizes)]).astype(np.float32)


def rounded(rows: Slices) -> Slices:
    """What float32 makes of them."""
    return [[Fraction(float32(value)) for value in row] for row in rows]


class Followed(Summed):
    """Every contribution and every result is shown to the workers of the rules as well."""

    def follow(self, tensors: Sequence[Tensor]) -> None:
        self.pieces = {tensor.number: Oracle(self, tensor).slices for tensor in tensors}
        self.reference: list[Worker] = []
        for rank in range(self.workers):
            streams: list[Stream] = []
            for tensor in tensors:
                partitions = tuple(-(-part // self.per_slice) for part in tensor.parts)
                none = self.apart(tensor, np.zeros(tensor.elements, np.float32))
                streams.append(Stream(tensor.number, partitions, zeros(none)))
            self.reference.append(Worker(rank, self.numbers, self.sum_window, streams, self.generation, JOB))

    def apart(self, tensor: Tensor, values: np.ndarray) -> Slices:
        return [[Fraction(float(v)) for v in values[part]] for part in self.pieces[tensor.number]]

    def _deliver(self, source: int, to: int, datagram: bytes) -> None:
        header = Header.unpack(datagram)
        if header.flags & Flag.SUM:
            worker = self.reference[source]
            stream = worker.streams[header.tensor // 16]
            s = sum(stream.partitions[: header.tensor % 16]) + header.slice
            while stream.now and stream.now.sent <= s:
                assert worker.next_slice(stream.tensor), f"rank {source} may not send slice {s} yet"
            said = replace(header, token=0, layer=0, magnitude=0).pack() + datagram[HEADER_BYTES:]
            assert worker.repair(stream.tensor, s)[1:] == said[1:]
        super()._deliver(source, to, datagram)

    def receive(self, rank: int, datagram: bytes, congested: bool = False) -> None:
        if rank < self.workers and Header.unpack(datagram).flags & Flag.SUM:
            before = self.statistics(rank).sums_received
            super().receive(rank, datagram, congested)
            header = Header.unpack(datagram)
            said = replace(header, token=0).pack() + datagram[HEADER_BYTES:]
            assert self.reference[rank].receive(said) == (self.statistics(rank).sums_received > before)
        else:
            super().receive(rank, datagram, congested)


@settings(max_examples=tries(12), deadline=None)
@given(
    st.sampled_from([2, 4]),
    st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=3), min_size=1, max_size=2),
    st.sampled_from(Lanes),
    st.lists(st.sampled_from([-20, -3, -3, -2, 0]), min_size=1, max_size=3),
    NETWORKS,
    st.integers(0, 2**32),
)
def test_engines_send_take_and_owe_what_the_rules_say(
    workers: int, shapes: list[list[int]], lanes: Lanes, sizes: list[int], impairment: Impairment, seed: int
) -> None:
    cluster = Followed(workers, lanes=lanes, impairment=impairment, seed=seed)
    tensors = [Tensor(number, parts, mean=False, type=ElementType.FLOAT32) for number, parts in enumerate(shapes)]
    cluster.follow(tensors)
    for tensor in tensors:
        assert cluster.open(tensor) == [0] * workers
    for step in range(1, 6):
        for tensor in tensors:
            for rank, worker in enumerate(cluster.reference):
                values, stream = gradients(rank, step, tensor, sizes), worker.streams[tensor.number]
                whole = rounded(added(cluster.apart(tensor, values), stream.owed))
                stream.owed = zeros(whole)
                worker.begin(tensor.number, whole)
                stream.owed = rounded(stream.owed)
                cluster.contribute(rank, step, tensor, values)
        cluster.run(lambda step=step: all(cluster.complete(step, tensor) for tensor in tensors))
        for tensor in tensors:
            for rank, worker in enumerate(cluster.reference):
                got = cluster.apart(tensor, cluster.results[rank, step, tensor.number])
                if step == 1:
                    worker.reduced(tensor.number, got)
                else:
                    assert worker.streams[tensor.number].now is None
                owed = np.concatenate([cluster.owed(rank, tensor, k) for k in range(len(tensor.parts))])
                assert cluster.apart(tensor, owed) == worker.streams[tensor.number].owed
