# SPDX-License-Identifier: Apache-2.0
"""Gradients of neighbouring variables, which travel as one tensor."""

import itertools
import math
import zlib
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane.client.collectives import as_type
from gradlane.client.connection import Connection
from gradlane.client.gradient import convert
from gradlane.client.handle import Handle
from gradlane.job import elements

Array = npt.NDArray[Any]

_FLOAT32 = elements.CODES["float32"]
_BFLOAT16_EXPONENT = 0x7F80


def neighbours(kinds: Sequence[Hashable], sizes: Sequence[int], enough: int) -> list[range]:
    """Indices next to each other and of one kind, the first ones first: from the last one on, as a backward pass makes
    them, as many as it takes until their sizes add up to `enough`. So no bias is alone unless it is the first."""
    ranges: list[range] = []
    total = enough
    for index in reversed(range(len(sizes))):
        if total >= enough or kinds[ranges[-1].start] != kinds[index]:
            ranges.append(range(index, index + 1))
            total = 0
        ranges[-1] = range(index, ranges[-1].stop)
        total += sizes[index]
    return ranges[::-1]


class Bucket:
    """Some variables' gradients of one type, flattened one after the other."""

    def __init__(
        self, connection: Connection, model: int, places: Sequence[int], shapes: Sequence[tuple[int, ...]], dtype: Any
    ) -> None:
        """`places`: of the variables in their model, counted from its input; none is empty. Raises ValueError,
        AgentError."""
        self.places = tuple(places)
        self.shapes = tuple(shapes)
        self.dtype = np.dtype(dtype)
        own = elements.name_of(self.dtype)
        if not elements.is_float(own):
            raise ValueError(f"gradients of type {own} can't be averaged: float32, float16, bfloat16 and float64 can")
        self._wire = connection.job.transport.floats if own == "float32" else own
        self._own_code, self._wire_code = elements.CODES[own], elements.CODES[self._wire]
        ends = list(itertools.accumulate(math.prod(shape) for shape in shapes))
        starts = [0, *ends[:-1]]
        self._slices = list(map(slice, starts, ends))
        # Integers know neither infinity nor NaN, so an element more says whether any of a worker's gradients are.
        self._says_if_finite = connection.job.sum_lanes is not None and self._wire in elements.FLOATS
        digest = zlib.crc32(f"{self.places} {self.shapes} {own}".encode())
        self._tensor = connection.tensor(
            f"gradients.{model}.{self.places[0]}.{len(self.places)}.{digest:08x}",
            ends[-1] + self._says_if_finite,
            self._wire,
            list(zip(starts, self.places, strict=True)),
        )
        self._operation: Handle | None = None

    @property
    def name(self) -> str:
        """Of its tensor."""
        return self._tensor.name

    def start(self, gradients: Sequence[Array]) -> None:
        """Takes the gradients over and starts their mean. Raises AgentError if the job has failed."""
        if self._operation is not None:  # of a step that was given up before its end
            self._operation.wait()
        contribution = self._tensor.contribution
        for gradient, part in zip(gradients, self._slices, strict=True):
            source = np.ascontiguousarray(gradient, self.dtype).reshape(-1)
            _copy(contribution[part], self._wire_code, source, self._own_code)
        if self._says_if_finite:
            finite = self._is_finite(contribution[:-1])
            flag = np.array([0 if finite else math.inf], np.float32)
            _copy(contribution[-1:], self._wire_code, flag, _FLOAT32)
            if not finite:
                contribution[:-1] = 0
        self._operation = self._tensor.submit()

    def _is_finite(self, values: Array) -> bool:
        if self._wire == "bfloat16":
            return not ((values & _BFLOAT16_EXPONENT) == _BFLOAT16_EXPONENT).any()
        return bool(np.isfinite(values).all())

    def finish(self) -> list[Array]:
        """Waits for the means: new arrays, in the gradients' shapes; NaN throughout if a switch adds and some worker's
        are not finite. Raises AgentError."""
        if self._operation is None:
            raise ValueError(f"{self.name} was not started")
        operation, self._operation = self._operation, None
        operation.wait()
        means: list[Array] = []
        for shape, part in zip(self.shapes, self._slices, strict=True):
            mean = np.empty(shape, self.dtype)
            _copy(mean.reshape(-1), self._own_code, self._tensor.result[part], self._wire_code)
            means.append(mean)
        if self._says_if_finite:
            flag = np.empty(1, np.float32)
            _copy(flag, _FLOAT32, self._tensor.result[-1:], self._wire_code)
            if flag[0] > 0:
                for mean in means:
                    mean.fill(math.nan)
        return means

    def residual(self) -> Array:
        """What the network dropped of earlier gradients of this host, and the next operation will carry."""
        return self._tensor.residual()

    def load_residual(self, values: Array) -> None:
        """Puts back what `residual` gave. Raises ValueError if it is of another bucket."""
        self._tensor.load_residual(values)

    def close(self) -> None:
        """Gives the shared memory back. Raises AgentError if it is in flight."""
        self._tensor.close()


def _copy(target: Array, target_type: int, source: Array, source_type: int) -> None:
    """Fills `target` with the values of `source`, both flat; of types that `elements.CODES` numbers."""
    if target_type == source_type:
        target[:] = as_type(source, target.dtype)  # bfloat16 has two numpy types
    else:
        convert(target, target_type, source, source_type)
