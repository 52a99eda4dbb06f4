# SPDX-License-Identifier: Apache-2.0
"""Every collective by every algorithm, in groups, in all element types, on a network that does its worst."""

from dataclasses import dataclass
from functools import reduce

import numpy as np
import pytest
from gradlane._core import lib
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gradlane.wire import ElementType
from tests.gradlane.core.protocol.network import Cluster, Impairment
from tests.support.effort import tries

REDUCTIONS = {
    lib.GL_SUM: np.add,
    lib.GL_MIN: np.minimum,
    lib.GL_MAX: np.maximum,
    lib.GL_PRODUCT: np.multiply,
    lib.GL_MEAN: np.add,
    lib.GL_MEAN_OF_ARRIVED: np.add,
}
MEANS = (lib.GL_MEAN, lib.GL_MEAN_OF_ARRIVED)
FLOATS = (ElementType.FLOAT32, ElementType.FLOAT16, ElementType.BFLOAT16, ElementType.FLOAT64)
NUMPY = {
    ElementType.FLOAT32: np.float32,
    ElementType.FLOAT16: np.float16,
    ElementType.FLOAT64: np.float64,
    ElementType.UINT8: np.uint8,
    ElementType.INT8: np.int8,
    ElementType.INT32: np.int32,
    ElementType.INT64: np.int64,
}
REDUCING = (lib.GL_ALL_REDUCE, lib.GL_REDUCE_SCATTER, lib.GL_REDUCE)
ROOTED = (lib.GL_BROADCAST, lib.GL_REDUCE)


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Float32 rounded to nearest even, as its upper 16 bits."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def encode(values: np.ndarray, element_type: ElementType) -> np.ndarray:
    """The values (whole numbers, or results of one division) as they lie in memory."""
    if element_type == ElementType.BFLOAT16:
        return to_bfloat16(values)
    return values.astype(NUMPY[element_type])


@dataclass
class Case:
    """A collective among the members of a group. Values are small whole numbers, so that any order gives the same.

    `root` is the straggler of an all-reduce by StragglAR.
    """

    collective: int
    algorithm: int
    element_type: ElementType
    reduction: int
    group: list[int]
    elements: int
    root: int
    weights: list[int] | None = None

    def blocks(self, collective: int) -> int:
        """How many blocks of `elements` there are in `in`."""
        return len(self.group) if collective in (lib.GL_REDUCE_SCATTER, lib.GL_ALL_TO_ALL) else 1

    def inputs(self, seed: int) -> list[np.ndarray]:
        """What each member contributes."""
        size = self.elements * self.blocks(self.collective)
        low, high = (1, 3) if self.reduction == lib.GL_PRODUCT else (0, 20)
        return [np.random.default_rng([seed, k]).integers(low, high, size).astype(np.int64) for k in self.group]

    def reduced(self, inputs: list[np.ndarray]) -> np.ndarray:
        """Everybody's contribution together."""
        total = reduce(REDUCTIONS[self.reduction], inputs)
        if self.reduction not in MEANS:
            return total
        wide = np.float64 if self.element_type == ElementType.FLOAT64 else np.float32
        return total.astype(wide) / wide(len(inputs))

    def expected(self, inputs: list[np.ndarray], place: int) -> np.ndarray | None:
        """What the member at this place of the group ends up with."""
        n = self.elements
        match self.collective:
            case lib.GL_ALL_REDUCE:
                return self.reduced(inputs)
            case lib.GL_REDUCE_SCATTER:
                return self.reduced([values[place * n : (place + 1) * n] for values in inputs])
            case lib.GL_ALL_GATHER:
                return np.concatenate(inputs)
            case lib.GL_BROADCAST:
                return inputs[self.group.index(self.root)]
            case lib.GL_REDUCE:
                return self.reduced(inputs) if self.group[place] == self.root else None
            case _:
                return np.concatenate([values[place * n : (place + 1) * n] for values in inputs])

    def start(self, cluster: Cluster, rank: int, step: int, values: np.ndarray, result: np.ndarray | None) -> None:
        """Submits it at one member."""
        source = encode(values, self.element_type)
        code = cluster.start(
            rank, step, 7, self.collective, source, result, self.elements, algorithm=self.algorithm,
            reduction=self.reduction if self.collective in REDUCING else 0, element_type=self.element_type,
            group=None if len(self.group) == cluster.workers else self.group, root=self.root,
            weights=self.weights,
        )  # fmt: skip
        assert code == 0


def shares(owners: int) -> st.SearchStrategy[list[int]]:
    """Weights of owners, many of whom own nothing."""
    weight = st.sampled_from([0, 0, 1]) | st.integers(0, 1000)
    return st.lists(weight, min_size=owners, max_size=owners).filter(any)


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, int, Case]:
    """Workers, servers, and what some of the workers do."""
    workers = draw(st.integers(1, 7))
    servers = draw(st.sampled_from([0, 0, 0, 1, 2]))
    group = sorted(draw(st.sets(st.integers(0, workers - 1), min_size=1)))
    if draw(st.booleans()):
        group = list(range(workers))
    element_type = draw(st.sampled_from(list(ElementType)))
    owners = servers if servers and len(group) == workers else len(group)
    reductions = [r for r in REDUCTIONS if element_type in FLOATS or r not in MEANS]
    collective = draw(
        st.sampled_from([lib.GL_ALL_REDUCE, lib.GL_REDUCE_SCATTER, lib.GL_ALL_GATHER, *ROOTED, lib.GL_ALL_TO_ALL])
    )
    algorithms = [lib.GL_DIRECT, lib.GL_RING] + [lib.GL_STRAGGLAR, lib.GL_GRID] * (collective == lib.GL_ALL_REDUCE)
    case = Case(
        collective,
        draw(st.sampled_from(algorithms)),
        element_type,
        draw(st.sampled_from(reductions)),
        group,
        draw(st.integers(1, 400)),
        draw(st.sampled_from(group)),
        draw(st.none() | shares(owners)),
    )
    return workers, servers, case


impairments = st.builds(
    Impairment,
    loss=st.floats(0, 0.5),
    duplicate=st.floats(0, 0.3),
    corrupt=st.floats(0, 0.1),
    delay=st.integers(1, 2000),
    jitter=st.integers(0, 3000),
)


# Slices of a ring that are lost before their successors are ready: nobody else would ever ask for them.
LOST_AT_A_PAUSE = (
    (4, 0, Case(lib.GL_ALL_REDUCE, lib.GL_RING, ElementType.FLOAT32, lib.GL_SUM, [0, 1, 2, 3], 17, 0)),
    Impairment(loss=0.5, delay=1),
)


@example(case=LOST_AT_A_PAUSE[0], impairment=LOST_AT_A_PAUSE[1], multicast=False, late=0, memory=0, seed=0)
@settings(max_examples=tries(75, 2000), deadline=None)
@given(
    case=cases(),
    impairment=impairments,
    multicast=st.booleans(),
    late=st.integers(0, 5),
    memory=st.sampled_from([0, 1 << 26]),
    seed=st.integers(0, 2**32),
)
def test_every_collective_gives_exactly_what_it_promises(
    case: tuple[int, int, Case], impairment: Impairment, multicast: bool, late: int, memory: int, seed: int
) -> None:
    workers, servers, what = case
    cluster = Cluster(workers, servers, multicast=multicast, impairment=impairment, seed=seed, memory=memory)
    for step in range(2):
        inputs = what.inputs(seed + step)
        expected = [what.expected(inputs, place) for place in range(len(what.group))]
        shapes = [None if e is None else encode(e, what.element_type) for e in expected]
        results = [None if e is None else np.zeros_like(e) for e in shapes]
        for place, rank in enumerate(what.group):
            if place == late:
                # What the others send meanwhile has to wait for this one.
                with pytest.raises(TimeoutError):
                    cluster.run(until=lambda: False, limit=20_000)
            what.start(cluster, rank, step, inputs[place], results[place])
        cluster.run(until=lambda step=step: all(len(cluster.completed(rank)) > step for rank in what.group))
        for result, e in zip(results, expected, strict=True):
            if result is not None and e is not None:
                np.testing.assert_array_equal(result, encode(e, what.element_type))
    cluster.run()
    assert all(lib.gl_engine_idle(engine) for engine in cluster.engines)
    assert all(cluster.statistics(r).memory_used == 0 for r in range(cluster.ranks))
    assert all(cluster.statistics(r).slices_lost == 0 for r in range(cluster.ranks))
