# SPDX-License-Identifier: Apache-2.0
"""A model's buffers (the statistics of BatchNorm): every worker goes on with rank 0's, without waiting for them."""

from collections.abc import Sequence

import torch

from gradlane.client.handle import Operation
from gradlane.client.tensor import Tensor
from gradlane.torch.session import Session
from gradlane.torch.shared import as_tensor, parts


class Buffers:
    """What DistributedDataParallel does by `broadcast_buffers`, between a step and the next use of a buffer."""

    def __init__(self, model: torch.nn.Module, session: Session, parameters: Sequence[torch.nn.Parameter]) -> None:
        """`parameters`: that name the model in the session, not empty."""
        self._model = model
        self._session = session
        self._parameters = parameters
        self._tensors: dict[tuple[int, int], Tensor] = {}
        self._due: list[tuple[Operation, list[tuple[torch.Tensor, torch.Tensor]]]] = []

    def send(self) -> None:
        """Starts to give all workers what rank 0 has now. Raises AgentError."""
        self.settle()
        devices: dict[torch.device, list[torch.Tensor]] = {}
        for buffer in self._model.buffers():  # each time: a model may have put others in their place
            if buffer.numel():
                devices.setdefault(buffer.device, []).append(buffer)
        for number, (device, buffers) in enumerate(devices.items()):
            tensor = self._tensor(number, sum(buffer.nbytes for buffer in buffers))
            pairs = parts(as_tensor(tensor.contribution, "uint8"), buffers)
            staging = self._session.staging(device)
            if self._session.rank:
                tensor.contribution[:] = 0  # so that the sum of all is rank 0's
                operation = tensor.submit()
            elif staging is not None:
                operation = staging.fetch(pairs, tensor.submit)
            else:
                for buffer, part in pairs:
                    part.copy_(buffer)
                operation = tensor.submit()
            self._due.append((operation, parts(as_tensor(tensor.result, "uint8"), buffers)))

    def use(self, _: torch.Tensor) -> None:
        """A buffer is about to be read: rank 0 has what it needs, the others wait for it. Raises AgentError."""
        if self._session.rank:
            self.settle()

    def settle(self) -> None:
        """Waits for what is in flight, and puts it in its place. Raises AgentError."""
        due, self._due = self._due, []
        for operation, pairs in due:
            operation.wait()
            if self._session.rank:
                for buffer, part in pairs:
                    buffer.data.copy_(part)  # by `data`, as a graph that has saved the buffer is none the worse for it

    def close(self) -> None:
        """Gives the memory back. Raises AgentError."""
        self.settle()
        for tensor in self._tensors.values():
            tensor.close()
        self._tensors.clear()

    def _tensor(self, number: int, nbytes: int) -> Tensor:
        # A sum of the workers' bytes and not a broadcast: a name keeps it apart from all else that the program
        # does, and nothing passes rank 0's port more often than another's.
        if (number, nbytes) not in self._tensors:
            name = f"buffers.{number}.{nbytes}"
            self._tensors[number, nbytes] = self._session.exact(name, self._parameters, nbytes, "sum")
        return self._tensors[number, nbytes]
