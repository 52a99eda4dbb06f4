# SPDX-License-Identifier: Apache-2.0
"""A job's all-reduces at one rank: tensors in shared memory, and error feedback."""

import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane import ipc, magnitude
from gradlane.agreement import Agreement
from gradlane.job import ELEMENT_BYTES, Job
from gradlane.transport import NUMPY_TYPES, Completed, Engine, Lost, Mismatch, Values


@dataclass
class Tensor:
    """A gradient bucket in shared memory: what this worker contributes, and the result."""

    contribution: Values
    result: Values
    layers: npt.NDArray[np.uint16]
    # What the network dropped of the last step's gradient: it is added to the next one, so it is late, not lost.
    residual: dict[int, Values]


@dataclass(frozen=True)
class Waiting:
    """The operation that is longest under way, and the ranks and local processes of whom nothing of it has come."""

    seconds: float
    what: str
    ranks: list[int]
    processes: list[int]


class DataPath:
    """`failed` is called with the reason when the job can't go on."""

    def __init__(
        self,
        job: Job,
        rank: int,
        engine: Engine,
        agreement: Agreement,
        failed: Callable[[str], None],
        name: Callable[[int], str],
    ) -> None:
        self.step = -1
        self._job = job
        self._rank = rank
        self._engine = engine
        self._failed = failed
        self._name = name
        self._tell: Callable[[ipc.Message], None] = lambda _: None
        self._per_slice = agreement.slice_bytes // ELEMENT_BYTES[job.transport.wire]
        self._tensors: dict[int, Tensor] = {}
        self._under_way: dict[tuple[int, int], float] = {}

    @property
    def under_way(self) -> int:
        """All-reduces that are not complete."""
        return len(self._under_way)

    def open(self, process: int, tell: Callable[[ipc.Message], None]) -> None:
        """A training process joins."""
        del process
        self._tell = tell

    def joined(self, process: int) -> tuple[dict[str, Any], tuple[int, ...]]:
        """What that process is told of the data path, with descriptors."""
        del process
        return {"workers": len(self._job.workers), "per_slice": self._per_slice}, ()

    def handle(self, process: int, message: ipc.Message, descriptors: list[int]) -> None:
        """A message of a training process. Raises ValueError or AgentError."""
        del process
        op = message["op"]
        if op == "tensor":
            if len(descriptors) != 1:
                raise ValueError("a tensor comes with one descriptor of shared memory")
            spans = [(int(start), int(layer)) for start, layer in message["layers"]]
            self._add(int(message["tensor"]), int(message["elements"]), spans, descriptors[0])
        elif op == "reduce":
            self._reduce(int(message["step"]), int(message["tensor"]))
        else:
            raise ValueError(f"unknown message {op!r}")

    def close(self) -> None:
        """Unmaps the memory."""
        self._tensors.clear()

    def oldest(self) -> Waiting | None:
        """What has been under way longest."""
        if not self._under_way:
            return None
        (step, tensor), since = min(self._under_way.items(), key=lambda item: item[1])
        return Waiting(time.monotonic() - since, f"the all-reduce of step {step}, tensor {tensor}", [], [])

    def _add(self, number: int, elements: int, spans: list[tuple[int, int]], descriptor: int) -> None:
        dtype = NUMPY_TYPES[self._job.transport.wire]
        if not 0 <= number <= 65535 or elements < 1:
            raise ValueError(f"tensor {number} of {elements} elements: numbers are 0 to 65535, elements above 0")
        offset = ipc.result_offset(elements * dtype.itemsize)
        size = offset + elements * dtype.itemsize
        if os.fstat(descriptor).st_size < size:
            raise ValueError(f"tensor {number} needs {size} bytes of shared memory, it has fewer")
        memory = mmap.mmap(descriptor, size)
        self._tensors[number] = Tensor(
            np.frombuffer(memory, dtype, elements),
            np.frombuffer(memory, dtype, elements, offset),
            magnitude.layers(spans, elements, self._per_slice),
            {},
        )

    def _reduce(self, step: int, number: int) -> None:
        tensor = self._tensors.get(number)
        if tensor is None:
            raise ValueError(f"tensor {number} is not known")
        for slice_number, values in tensor.residual.items():
            begin = slice_number * self._per_slice
            tensor.contribution[begin : begin + values.size] += values
        tensor.residual.clear()
        magnitudes = magnitude.magnitudes(tensor.contribution, self._per_slice, len(self._job.aggregators))
        self._under_way[step, number] = time.monotonic()
        self.step = max(self.step, step)
        self._engine.submit(step, number, tensor.contribution, tensor.result, tensor.layers, magnitudes)

    def news(self) -> None:
        """The engine has events."""
        for event in self._engine.events():
            if isinstance(event, Completed):
                del self._under_way[event.step, event.tensor]
                self._tell({"op": "done", "step": event.step, "tensor": event.tensor})
            elif isinstance(event, Lost):
                self._keep_residual(event)
            else:
                self._mismatch(event)
                return

    def _keep_residual(self, event: Lost) -> None:
        tensor = self._tensors[event.tensor]
        for slice_number in event.slices.tolist():
            begin = slice_number * self._per_slice
            tensor.residual[slice_number] = tensor.contribution[begin : begin + self._per_slice].copy()

    def _mismatch(self, event: Mismatch) -> None:
        self._failed(
            f"{self._name(event.source)} and {self._name(self._rank)} disagree about the size of tensor "
            f"{event.tensor} in step {event.step}: do they train the same model with the same bucket size?"
        )
