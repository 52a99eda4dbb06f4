# SPDX-License-Identifier: Apache-2.0
"""What a slice is worth, as its sender states it: layer and magnitude (DLCP, arXiv 2008.08445)."""

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gradlane import wire
from gradlane._core import ffi, lib


def slice_count(elements: int, per_slice: int) -> int:
    """Slices of a tensor of `elements` values, `per_slice` values in each but the last."""
    return -(-elements // per_slice)


def shards(slices: int, aggregators: int) -> list[tuple[int, int]]:
    """First slice and number of slices of each aggregator's shard."""
    starts = [int(lib.gl_shard_start(slices, k, aggregators)) for k in range(aggregators + 1)]
    return [(a, b - a) for a, b in itertools.pairwise(starts)]


def magnitudes(values: npt.NDArray[np.floating], per_slice: int, aggregators: int) -> npt.NDArray[np.uint8]:
    """The quantile (0-255) of each slice's mean absolute value among the slices of its message.

    `values`: 1-D gradient, float32 or float16. Returns one number per slice. A quantile is free of scale, so it needs
    no threshold per model; a non-finite slice ranks highest.
    """
    slices = slice_count(values.size, per_slice)
    means = np.empty(slices, dtype=np.float32)
    lib.gl_mean_absolute(
        ffi.from_buffer("uint8_t[]", values),
        values.size,
        per_slice,
        wire.ElementType.FLOAT16 if values.dtype == np.float16 else wire.ElementType.FLOAT32,
        ffi.from_buffer("float[]", means, require_writable=True),
    )
    result = np.empty(slices, dtype=np.uint8)
    for first, count in shards(slices, aggregators):
        # NaN sorts last, as the largest.
        order = np.argsort(means[first : first + count], kind="stable")
        quantiles = np.empty(count, dtype=np.uint8)
        quantiles[order] = np.arange(count) * 256 // max(count, 1)
        result[first : first + count] = quantiles
    return result


def layers(spans: Sequence[tuple[int, int]], elements: int, per_slice: int) -> npt.NDArray[np.uint16]:
    """The layer of each slice: that of its first element.

    `spans`: (first element, layer) in ascending order, the first at element 0. Raises ValueError otherwise.
    """
    starts = np.array([start for start, _ in spans], dtype=np.int64)
    if not len(spans) or starts[0] != 0 or np.any(np.diff(starts) <= 0) or starts[-1] >= elements:
        raise ValueError(f"layer spans {list(spans)[:4]}... must ascend from element 0 and stay below {elements}")
    numbers = np.array([min(layer, 65535) for _, layer in spans], dtype=np.uint16)
    firsts = np.arange(slice_count(elements, per_slice), dtype=np.int64) * per_slice
    return numbers[np.searchsorted(starts, firsts, side="right") - 1]
