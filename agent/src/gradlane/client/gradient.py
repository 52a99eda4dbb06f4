# SPDX-License-Identifier: Apache-2.0
"""A gradient that is reduced in every step under its name, as the numpy array of a program."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane._core import ffi, lib
from gradlane.client.collectives import Pending, as_type
from gradlane.client.connection import Connection
from gradlane.client.tensor import Tensor
from gradlane.errors import AgentError
from gradlane.job import elements

Array = npt.NDArray[Any]
Layers = int | Sequence[tuple[int, int]]


class Gradient:
    """Its tensor at the agent, and the caller's type and shape."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        op: str,
        layers: Layers | None,
    ) -> None:
        self._shape = shape
        self._dtype = dtype
        self._op = op
        own = elements.name_of(dtype)
        wire = connection.job.transport.floats if own == "float32" else own
        spans = [(0, layers or 0)] if layers is None or isinstance(layers, int) else layers
        self.tensor: Tensor = connection.tensor(name, int(np.prod(shape, dtype=np.int64)), wire, spans, op)
        self.converts = wire != own
        self._last: Pending | None = None
        self._types = elements.CODES[own], elements.CODES[wire]

    @property
    def contribution(self) -> Array:
        return self._view(self.tensor.contribution)

    def _view(self, values: Array) -> Array:
        return as_type(values, self._dtype).reshape(self._shape)

    def submit(self, array: Array, op: str, out: Array | None) -> Pending:
        if array.shape != self._shape or array.dtype != self._dtype or op != self._op:
            raise ValueError(
                f"{self.tensor.name!r} is the {self._op} of {self._shape} {self._dtype}, not the {op} of {array.shape} "
                f"{array.dtype}"
            )
        if self._last is not None:
            if not self._last.done():
                raise AgentError(f"{self.tensor.name!r} is in flight: wait for it before you reduce it again")
            self._last.wait()  # its result is still to be taken out of the memory that is used again now
        self.take_in(array)
        result = np.empty(self._shape, self._dtype) if out is None else out
        self._last = Pending(self.tensor.submit(), lambda: self.give_out(result))
        return self._last

    def take_in(self, array: Array) -> None:
        """Makes `array` the contribution, as the type that travels."""
        if self.converts:
            own, wire = self._types
            source = np.ascontiguousarray(array)
            convert(self.tensor.contribution, wire, source, own)
        elif array.ctypes.data != self.tensor.contribution.ctypes.data:
            np.copyto(self.contribution, array)

    def give_out(self, result: Array) -> Array:
        """Fills `result` with what the tensor's operation gave."""
        if self.converts:
            own, wire = self._types
            target = result if result.flags.c_contiguous else np.empty(self._shape, self._dtype)
            convert(target, own, self.tensor.result, wire)
            if target is not result:
                np.copyto(result, target)
        elif result.ctypes.data != self.tensor.result.ctypes.data:
            np.copyto(result, self._view(self.tensor.result))
        return result


def convert(target: Array, target_type: int, source: Array, source_type: int) -> None:
    """Fills `target` with the values of `source`; types are numbers of `elements.CODES`. Both are contiguous."""
    lib.gl_convert(
        ffi.from_buffer("uint8_t[]", target, require_writable=True),
        target_type,
        ffi.from_buffer("uint8_t[]", source),
        source_type,
        source.size,
    )
