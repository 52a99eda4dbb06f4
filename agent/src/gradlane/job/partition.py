# SPDX-License-Identifier: Apache-2.0
"""How a tensor is divided into operations of the engine, alike at all ranks.

A partition has one loss class, because a message has one budget, and a bounded size, so that the next one is prepared
while the one before is on the wire and what is worked on stays in the cache.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gradlane import wire
from gradlane._core import lib
from gradlane.job.loss import Loss
from gradlane.job.policy import MAX_LAYER

PARTITION_BYTES = 4 << 20
# Fewer in a message, and its budget of a percent or so would be no slice at all.
LEAST_SLICES_PER_MESSAGE = 256
MAX_PARTITIONS = int(lib.GL_MAX_PARTITIONS)

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Partition:
    """`elements` values from `first` on. `push`, `pull`: tolerated loss, as fractions."""

    first: int
    elements: int
    push: float
    pull: float


def check_spans(spans: Spans, elements: int) -> None:
    """`spans`: (first element, layer), ascending from element 0. Raises ValueError otherwise."""
    starts = [start for start, _ in spans]
    ascending = all(a < b for a, b in itertools.pairwise(starts))
    if not starts or starts[0] != 0 or not ascending or starts[-1] >= elements:
        raise ValueError(f"layer spans {list(spans)[:4]}... must ascend from element 0 and stay below {elements}")
    if not all(0 <= layer <= MAX_LAYER for _, layer in spans):
        raise ValueError(f"layers are 0 to {MAX_LAYER}")


def cut(spans: Spans, first: int, elements: int) -> Spans:
    """Those of `elements` from `first` on, counted from there."""
    inside = [(start - first, layer) for start, layer in spans if first < start < first + elements]
    before = next(layer for start, layer in reversed(spans) if start <= first)
    return [(0, before), *inside]


def _class_of(loss: Loss, layer: int) -> int:
    """A layer's class, by its number in the file; one past the last: that of all other layers."""
    found = (number for number, row in enumerate(loss.classes) if row.layers[0] <= layer <= row.layers[1])
    return next(found, len(loss.classes))


def _segments(spans: Spans, elements: int, loss: Loss, exact: bool) -> list[Partition]:
    """Parts of one loss class each. Two classes are two parts even if as much may be lost of both, or nothing of it."""
    rows = [*((row.push, row.pull) for row in loss.classes), (loss.push, loss.pull)]
    segments: list[Partition] = []
    ends = [start for start, _ in spans[1:]] + [elements]
    numbers = [_class_of(loss, layer) for _, layer in spans]
    for (start, _), end, before, number in zip(spans, ends, [None, *numbers], numbers, strict=False):
        push, pull = (0.0, 0.0) if exact else rows[number]
        first = segments.pop().first if number == before else start
        segments.append(Partition(first, end - first, push, pull))
    return segments


def divide(
    spans: Spans, elements: int, loss: Loss, exact: bool, per_slice: int, slice_bytes: int, owners: int, sums: bool
) -> list[Partition]:
    """The partitions of a tensor, ascending. `exact`: nothing may be lost of it, whatever `loss` has. `per_slice`:
    elements in a slice; `owners`: who reduces a part each. `sums`: partial sums travel, so a message may hold all of a
    partition.

    Raises ValueError if it has too many elements, or changes its loss class too often.
    """
    segments = _segments(spans, elements, loss, exact)
    most = wire.MAX_SLICES * (1 if sums else owners)
    wanted = min(max(PARTITION_BYTES // slice_bytes, LEAST_SLICES_PER_MESSAGE * owners), most)
    while True:
        counts = [-(-segment.elements // (wanted * per_slice)) for segment in segments]
        if sum(counts) <= MAX_PARTITIONS:
            break
        if wanted == most:
            raise ValueError(
                f"{elements} elements in {len(segments)} part(s) of different tolerated loss are {sum(counts)} "
                f"partitions of at most {most * per_slice} elements; a tensor has at most {MAX_PARTITIONS}: divide it"
            )
        wanted = min(wanted * 9 // 8 + 1, most)
    result: list[Partition] = []
    for segment, count in zip(segments, counts, strict=True):
        slices = -(-segment.elements // per_slice)
        bounds = [min(slices * k // count * per_slice, segment.elements) for k in range(count)] + [segment.elements]
        for begin, end in itertools.pairwise(bounds):
            result.append(Partition(segment.first + begin, end - begin, segment.push, segment.pull))
    return result


def layers(spans: Spans, partitions: Sequence[Partition], per_slice: int) -> npt.NDArray[np.uint16]:
    """The layer of each slice of each partition, one partition after the other: that of its first element."""
    starts = np.array([start for start, _ in spans], dtype=np.int64)
    numbers = np.array([layer for _, layer in spans], dtype=np.uint16)
    firsts = np.concatenate([np.arange(p.first, p.first + p.elements, per_slice, dtype=np.int64) for p in partitions])
    return numbers[np.searchsorted(starts, firsts, side="right") - 1]
