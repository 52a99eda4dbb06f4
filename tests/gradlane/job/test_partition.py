# SPDX-License-Identifier: Apache-2.0
"""How a tensor is divided, and how names get their numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlane import wire
from gradlane.job import partition
from gradlane.job.loss import Loss, LossClass
from gradlane.job.names import LIMITS, Names


def loss(*classes: LossClass, push: float = 0.0) -> Loss:
    return Loss(push, 0.0, True, classes, None)


@st.composite
def spans(draw, elements: int) -> list[tuple[int, int]]:
    starts = draw(st.lists(st.integers(1, elements - 1), max_size=6, unique=True)) if elements > 1 else []
    return [(start, draw(st.integers(0, 20))) for start in [0, *sorted(starts)]]


def class_of(layer: int) -> str:
    return "front" if layer <= 4 else "middle" if 10 <= layer <= 12 else "rear" if 15 <= layer <= 16 else "others"


@given(st.data(), st.integers(1, 200_000), st.integers(4, 400), st.integers(1, 9), st.booleans(), st.booleans())
def test_partitions_cover_the_tensor_and_each_has_one_loss_class(
    data, elements, per_slice, owners, ring, exact
) -> None:
    layer_spans = data.draw(spans(elements))
    classes = loss(
        LossClass((0, 4), 0.1, 0.0), LossClass((10, 12), 0.2, 0.1), LossClass((15, 16), 0.01, 0.0), push=0.01
    )
    parts = partition.divide(layer_spans, elements, classes, exact, per_slice, per_slice * 4, owners, ring)
    assert sum(part.elements for part in parts) == elements
    assert [part.first for part in parts] == np.cumsum([0] + [part.elements for part in parts[:-1]]).tolist()
    assert len(parts) <= partition.MAX_PARTITIONS
    for part in parts:
        slices = -(-part.elements // per_slice)
        assert 0 < slices <= wire.MAX_SLICES * (1 if ring else owners)
        last = part.first + part.elements - 1
        within = [layer for start, layer in layer_spans if part.first < start <= last]
        found = {
            class_of(layer) for layer in [[layer for start, layer in layer_spans if start <= part.first][-1], *within]
        }
        assert len(found) == 1  # two classes of equal tolerance are two
        assert part.push == (0.0 if exact else {"front": 0.1, "middle": 0.2}.get(*found, 0.01))
    layers = partition.layers(layer_spans, parts, per_slice)
    assert layers.size == sum(-(-part.elements // per_slice) for part in parts)
    assert layers[0] == layer_spans[0][1]


def test_a_large_tensor_is_divided_so_that_preparing_and_sending_overlap() -> None:
    parts = partition.divide([(0, 0)], 16 << 20, loss(), True, 358, 1432, 4, False)
    assert 14 <= len(parts) <= 16
    assert max(part.elements for part in parts) * 4 <= 1.25 * partition.PARTITION_BYTES
    assert all(part.elements % 358 == 0 for part in parts[:-1]), "slices are whole but for the last"


def test_what_does_not_fit_is_refused() -> None:
    most = 16 * wire.MAX_SLICES * 358
    assert len(partition.divide([(0, 0)], most, loss(), True, 358, 1432, 1, False)) == 16
    with pytest.raises(ValueError, match="at most 16: divide it"):
        partition.divide([(0, 0)], most + 1, loss(), True, 358, 1432, 1, False)
    alternating = [(start, start % 2) for start in range(17)]
    with pytest.raises(ValueError, match="17 part"):
        partition.divide(alternating, 100, loss(LossClass((0, 0), 0.1, 0.0)), False, 358, 1432, 1, False)


@pytest.mark.parametrize("wrong", [[], [(1, 0)], [(0, 0), (0, 1)], [(0, 0), (50, 1)], [(0, 70_000)], [(0, -1)]])
def test_spans_that_do_not_describe_the_tensor_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match="layer"):
        partition.check_spans(wrong, 50)


def test_a_slice_has_the_layer_of_its_first_element() -> None:
    parts = [partition.Partition(0, 25, 0, 0), partition.Partition(25, 25, 0, 0)]
    layers = partition.layers([(0, 4), (25, 5), (26, 9)], parts, 10)
    np.testing.assert_array_equal(layers, [4, 4, 4, 5, 9, 9])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=60))
def test_a_name_has_one_number_whoever_asks_first(questions) -> None:
    names = Names()
    numbers: dict[int, int] = {}
    for name, rank in questions:
        answer = names.assign(f"rank {rank}", {"kind": "tensor", "name": f"t{name}", "shape": {"elements": name}})
        assert answer["id"] == numbers.setdefault(name, answer["id"])
    assert sorted(numbers.values()) == list(range(len(numbers)))


def test_ranks_that_declare_a_name_differently_are_told_apart() -> None:
    names = Names()
    names.assign("rank 0", {"kind": "tensor", "name": "w", "shape": {"elements": 5}})
    error = names.assign("rank 2", {"kind": "tensor", "name": "w", "shape": {"elements": 6}})["error"]
    assert error.startswith("rank 2 and rank 0 disagree about tensor 'w': elements 6 against elements 5")
    assert names.assign("rank 2", {"kind": "group", "name": "w", "shape": 1})["id"] == 0, "another kind, another number"


def test_there_are_only_so_many_names() -> None:
    names = Names()
    for number in range(LIMITS["tensor"]):
        assert names.assign("rank 0", {"kind": "tensor", "name": str(number), "shape": 1}) == {"id": number}
    assert "at most" in names.assign("rank 0", {"kind": "tensor", "name": "one more", "shape": 1})["error"]
