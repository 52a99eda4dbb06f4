# SPDX-License-Identifier: Apache-2.0
"""Error feedback over a network that loses: no gradient is lost, none is counted twice."""

from __future__ import annotations

import numpy as np
from gradlane._core import ffi, lib
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gradlane.core.protocol.network import Cluster, Impairment
from tests.gradlane.core.protocol.test_collectives import shares
from tests.support.effort import tries

SLICE = 64  # bytes
EVENT_LOST = 2


def pointer(array: np.ndarray):
    return ffi.from_buffer("uint8_t[]", array, require_writable=True)


class Host:
    """A worker's contributions, as the exchange makes them: the gradient and what is owed to it."""

    def __init__(self, elements: int) -> None:
        self.elements = elements
        self.residual = ffi.gc(ffi.new("gl_residual *"), lib.gl_residual_free)
        assert lib.gl_residual_new(self.residual, elements * 4, SLICE) == 0

    def contribute(self, gradient: np.ndarray) -> np.ndarray:
        out = gradient.copy()
        for number in range(self.residual.slices):
            part = out[number * SLICE // 4 : (number + 1) * SLICE // 4]
            owed = lib.gl_residual_take(self.residual, number)
            source = ffi.new("uint8_t *[]", [pointer(part)])
            lib.gl_contribute(pointer(part), source, 1, 1, owed, part.size, 1)
        self.contribution = out
        return out

    def keep(self, first: int, slices: int, lost: list[int]) -> None:
        bits = np.packbits(np.isin(np.arange(slices), lost), bitorder="little")
        lib.gl_residual_keep(self.residual, pointer(self.contribution), first, slices, pointer(bits))

    def owed(self) -> np.ndarray:
        values = np.empty(self.elements, np.float32)
        lib.gl_residual_export(self.residual, pointer(values))
        return values


class Training:
    """What was given in all steps, what was applied, and what is owed.

    Applied is what the owners made of it, as it was on the wire: results may be lost, too.
    """

    def __init__(self, cluster: Cluster, elements: int, seed: int) -> None:
        self.cluster, self.elements = cluster, elements
        self.means = cluster.reduction == lib.GL_MEAN_OF_ARRIVED
        self.hosts = [Host(elements) for _ in range(cluster.workers)]
        self.random = np.random.default_rng(seed)
        self.given, self.applied = np.zeros(elements), np.zeros(elements)

    def step(self, number: int) -> None:
        workers, results = self.cluster.workers, []
        for rank, host in enumerate(self.hosts):
            gradient = self.random.standard_normal(self.elements).astype(np.float32)
            self.given += gradient
            results.append(self.cluster.submit(rank, number, 0, host.contribute(gradient)))
        self.cluster.run(lambda: self.cluster.all_completed(number + 1))
        for rank, host in enumerate(self.hosts):
            for event in self.cluster.events[rank]:
                if event.kind == EVENT_LOST and event.step == number:
                    host.keep(event.first_slice, event.slices, event.lost)
            if self.means:
                lib.gl_residual_subtract(host.residual, pointer(results[rank]), 1)
        self.applied += self.means_of_owners(number, results) * workers

    def means_of_owners(self, number: int, results: list[np.ndarray]) -> np.ndarray:
        """Each part as its owner has it, or as a server has sent it; every worker has it, or its own contribution."""
        means, found = np.zeros(self.elements, np.float32), np.zeros(self.elements, bool)
        per_slice, aggregators = SLICE // 4, self.cluster.aggregators
        slices = -(-self.elements // per_slice)
        weights = self.cluster.weights or [1] * len(aggregators)
        for index, owner in enumerate(aggregators):
            first = slices * sum(weights[:index]) // sum(weights)
            end = min(slices * sum(weights[: index + 1]) // sum(weights) * per_slice, self.elements)
            if owner < self.cluster.workers:
                means[first * per_slice : end] = results[owner][first * per_slice : end]
                found[first * per_slice : end] = True
            for (step, source, place), payload in self.cluster.ledger.results.items():
                if (step, source) == (number, owner):
                    at = (first + place) * per_slice
                    sent = np.frombuffer(payload, np.float32)
                    means[at : min(at + per_slice, end)] = sent if sent.size else 0
                    found[at : min(at + per_slice, end)] = True
        assert found.all()
        for host, result in zip(self.hosts, results, strict=True):
            other = result != means
            assert self.cluster.loss[1] or not other.any()
            np.testing.assert_array_equal(result[other], host.contribution[other])
        return means

    def owed(self) -> np.ndarray:
        return sum((host.owed() for host in self.hosts), np.zeros(self.elements))


@settings(max_examples=tries(40), deadline=None)
@given(
    workers=st.integers(2, 4),
    servers=st.integers(0, 2),
    elements=st.integers(1, 900),
    steps=st.integers(1, 6),
    tolerance=st.floats(0, 0.9),
    pull=st.sampled_from([0.0, 0.0, 0.3]),
    multicast=st.booleans(),
    data=st.data(),
    loss=st.floats(0, 0.5),
    mean_of_arrived=st.booleans(),
    jitter=st.sampled_from([0, 3000]),
    seed=st.integers(0, 1 << 32),
)
def test_what_is_applied_and_what_is_owed_are_all_that_was_given(
    workers: int,
    servers: int,
    elements: int,
    steps: int,
    tolerance: float,
    pull: float,
    multicast: bool,
    data: st.DataObject,
    loss: float,
    mean_of_arrived: bool,
    jitter: int,
    seed: int,
) -> None:
    """After every step, whatever was lost in it and how often: of means of what arrived, and of zero-filled sums. Only
    these where results may be lost: nobody could take a mean that he has not got off what he keeps."""
    impairment = Impairment(loss=loss, duplicate=0.05, jitter=jitter)
    cluster = Cluster(
        workers, servers, tolerance, pull, multicast, mean_of_arrived=mean_of_arrived and not pull,
        impairment=impairment, seed=seed, weights=data.draw(st.none() | shares(servers or workers)),
    )  # fmt: skip
    training = Training(cluster, elements, seed)
    for number in range(steps):
        training.step(number)
        np.testing.assert_allclose(training.applied + training.owed(), training.given, rtol=0, atol=1e-4)
