# SPDX-License-Identifier: Apache-2.0
"""What a collective of torch.distributed gives back."""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C import _distributed_c10d as c10d

from gradlane.client.handle import Operation

NO_TIMEOUT = timedelta(0)  # what C++ says when it has none


class Work(c10d.Work):
    """One or more operations in flight; `finish` brings the results to their tensors when all are over.

    The first thread does it, that which waits or the client's.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        finish: Callable[[], None],
        tensors: Sequence[torch.Tensor],
        timeout: timedelta,
    ) -> None:
        super().__init__()
        self._operations = operations
        self._finish = finish
        self._tensors = list(tensors)
        self._timeout = timeout
        self._lock = threading.Lock()
        self._left = len(operations)
        self._error: Exception | None = None
        self._finished = False
        self._future: torch.futures.Future[Any] = torch.futures.Future(devices=_accelerators(tensors))
        for operation in operations:
            operation.add_done_callback(self._over)
        if not operations:
            self._settle()

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Blocks until the results are there. Raises AgentError that names the culprit, TimeoutError."""
        limit = timeout if timeout > NO_TIMEOUT else self._timeout
        for operation in self._operations:
            operation.wait(limit.total_seconds())
        self._settle()
        return True

    def is_completed(self) -> bool:
        """Whether the results are there, or never will be."""
        return self._future.done()

    def is_success(self) -> bool:
        """Whether the results are there."""
        return self._finished

    def exception(self) -> Exception | None:
        """Why it failed, if it did."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """The tensors that take the results."""
        return self._tensors

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def get_future(self) -> torch.futures.Future[Any]:
        """It holds the tensors that take the results, or raises AgentError."""
        # An exception of torch's is a value, which only Python raises; a callback that raises fails the future in C++.
        return self._future.then(lambda finished: finished.value())

    def _over(self, error: Exception | None) -> None:
        with self._lock:
            self._left -= 1
            self._error = self._error or error
            if self._left:
                return
        if self._error is None:
            self._settle()
        else:
            self._future.set_exception(self._error)  # pyright: ignore[reportArgumentType]: torch takes any exception

    def _settle(self) -> None:
        with self._lock:
            if self._finished:
                return
            self._finish()
            self._finished = True
        self._future.set_result(self._tensors)


def _accelerators(tensors: Sequence[torch.Tensor]) -> list[int | str | torch.device]:
    return list({tensor.device for tensor in tensors if tensor.device.type != "cpu"})
