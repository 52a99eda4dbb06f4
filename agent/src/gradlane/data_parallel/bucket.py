# SPDX-License-Identifier: Apache-2.0
"""Gradients of neighbouring variables, which travel as one tensor."""

import itertools
import math
import zlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane.client.collectives import as_type
from gradlane.client.connection import Connection
from gradlane.client.gradient import convert
from gradlane.client.handle import Operation
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
        self._own_code, self.wire_code = elements.CODES[own], elements.CODES[self._wire]
        ends = list(itertools.accumulate(math.prod(shape) for shape in shapes))
        starts = [0, *ends[:-1]]
        self._slices = list(map(slice, starts, ends))
        self._elements = ends[-1]
        # Integers know neither infinity nor NaN, so an element more says whether any of a worker's gradients are.
        self._says_if_finite = connection.job.sum_lanes is not None and self._wire in elements.FLOATS
        digest = zlib.crc32(f"{self.places} {self.shapes} {own}".encode())
        self._tensor = connection.tensor(
            f"gradients.{model}.{self.places[0]}.{len(self.places)}.{digest:08x}",
            self._elements + self._says_if_finite,
            self._wire,
            list(zip(starts, self.places, strict=True)),
        )
        self._operation: Operation | None = None

    @property
    def name(self) -> str:
        """Of its tensor."""
        return self._tensor.name

    def start(self, gradients: Sequence[Array]) -> None:
        """Takes the gradients over and starts their mean. Raises AgentError if the job has failed."""
        self._check(gradients)

        def take(values: Array) -> None:
            for gradient, part in zip(gradients, self._slices, strict=True):
                source = np.ascontiguousarray(gradient, self.dtype).reshape(-1)
                _copy(values[part], self.wire_code, source, self._own_code)

        self.start_by(take)

    def start_by(self, take: Callable[[Array], None]) -> None:
        """The same with gradients that `take` fills a flat array with, whose type `wire_code` says."""
        if self._operation is not None:  # of a step that was given up before its end
            self._operation.wait()
        contribution = self._tensor.contribution
        values = contribution[: self._elements]
        take(values)
        if self._says_if_finite:
            finite = self._is_finite(values)
            flag = np.array([0 if finite else math.inf], np.float32)
            _copy(contribution[-1:], self.wire_code, flag, _FLOAT32)
            if not finite:
                values[:] = 0
        self._operation = self._tensor.submit()

    def _is_finite(self, values: Array) -> bool:
        if self._wire == "bfloat16":
            return not ((values & _BFLOAT16_EXPONENT) == _BFLOAT16_EXPONENT).any()
        return bool(np.isfinite(values).all())

    def _check(self, arrays: Sequence[Array]) -> None:
        if [array.shape for array in arrays] != list(self.shapes):
            found = ", ".join(str(array.shape) for array in arrays)
            raise ValueError(f"{self.name} has gradients of shapes {', '.join(map(str, self.shapes))}, not {found}")

    def finish(self) -> list[Array]:
        """New arrays with what `fill` gives."""
        means: list[Array] = [np.empty(shape, self.dtype) for shape in self.shapes]
        self.fill(means)
        return means

    def fill(self, means: Sequence[Array]) -> None:
        """Waits for the means, and fills these contiguous arrays of the gradients' shapes and type with them; with NaN
        throughout if a switch adds and some worker's are not finite. Raises ValueError, AgentError."""
        self._check(means)

        def give(values: Array) -> None:
            for mean, part in zip(means, self._slices, strict=True):
                _copy(mean.reshape(-1), self._own_code, values[part], self.wire_code)

        self.fill_by(give)

    def fill_by(self, give: Callable[[Array], None]) -> None:
        """The same by `give`, which is called with a flat array of the means, of the type that `wire_code` says."""
        if self._operation is None:
            raise ValueError(f"{self.name} was not started")
        operation, self._operation = self._operation, None
        operation.wait()
        values = self._tensor.result[: self._elements]
        if self._says_if_finite:
            flag = np.empty(1, np.float32)
            _copy(flag, _FLOAT32, self._tensor.result[-1:], self.wire_code)
            if flag[0] > 0:
                _copy(values, self.wire_code, np.full(self._elements, math.nan, np.float32), _FLOAT32)
        give(values)

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
