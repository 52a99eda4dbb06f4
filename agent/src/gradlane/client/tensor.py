# SPDX-License-Identifier: Apache-2.0
"""A tensor that the processes of a job reduce in every step."""

import os
from typing import Any

import numpy.typing as npt

from gradlane._core import ffi, lib
from gradlane.client.handle import Operation
from gradlane.client.link import Link
from gradlane.errors import AgentError
from gradlane.ipc import memory, messages
from gradlane.job import elements

Array = npt.NDArray[Any]


class Tensor:
    """A tensor that all processes of the job reduce, again and again, under one name.

    `contribution` is for what this process has; the reduced values come to `result`, which may be the same memory. Both
    are 1-D arrays in shared memory, `memory`; bfloat16 has its bits as uint16. From `submit` until the handle is done
    both belong to the agent, which may also change the contribution; the result stays until the next `submit`.
    """

    def __init__(self, link: Link, name: str, count: int, dtype: str, answer: messages.Message, fd: int) -> None:
        """`answer`, `fd`: what the agent has answered to the registration."""
        self.name = name
        self.dtype = dtype
        self.memory = memory.Memory(fd, int(answer["bytes"]))
        self.contribution = self.memory.array(elements.NUMPY[dtype], count, int(answer["contribution"]))
        self.result = self.memory.array(elements.NUMPY[dtype], count, int(answer["result"]))
        self._link = link
        self._shards = [int(shard) for shard in answer["shards"]]
        self._last: Operation | None = None
        self._command = ffi.new("gl_command *", {"kind": lib.GL_COMMAND_TENSOR, "target": int(answer["tensor"])})

    def submit(self) -> Operation:
        """Starts the all-reduce of `contribution`. One at a time. Raises AgentError."""
        if self._last is not None and not self._last.done():
            raise AgentError(f"tensor {self.name!r} is in flight: wait for it before you submit it again")
        self._last = self._link.submit_parts(self._command, self._shards)
        return self._last

    def residual(self) -> Array:
        """What the network dropped of earlier contributions of this host, and owes to the next one (error feedback).

        For checkpoints: read it between two steps. An array of the tensor's type, zeros where nothing is owed. Raises
        AgentError.
        """
        _, (fd,) = self._link.request({"op": "residual", "name": self.name}, descriptors=1)
        try:
            return memory.Memory(fd, self.result.nbytes).array(self.result.dtype, self.result.size).copy()
        finally:
            os.close(fd)

    def load_residual(self, values: Array) -> None:
        """Replaces what is owed, e.g. after a restart, by an array as `residual` gives.

        Raises ValueError, AgentError.
        """
        if values.shape != self.result.shape or values.dtype != self.result.dtype:
            raise ValueError(
                f"a residual of {values.shape} {values.dtype} does not fit tensor {self.name!r}, which is "
                f"{self.result.shape} {self.result.dtype}"
            )
        answer, (fd,) = self._link.request({"op": "region", "bytes": values.nbytes}, descriptors=1)
        region = int(answer["region"])
        try:
            memory.Memory(fd, values.nbytes).array(values.dtype, values.size)[:] = values
            self._link.request({"op": "load", "name": self.name, "region": region})
        finally:
            os.close(fd)
            self._link.tell({"op": "release", "region": region})

    def close(self) -> None:
        """Frees its memory, at the agent once all local processes have closed it.

        Raises AgentError if it is in flight.
        """
        if self._last is not None and not self._last.done():
            raise AgentError(f"tensor {self.name!r} is in flight: wait for it before you close it")
        self._link.tell({"op": "forget", "name": self.name})
