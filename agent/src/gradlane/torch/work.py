# SPDX-License-Identifier: Apache-2.0
"""What a collective of torch.distributed gives back."""

import inspect
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch._C import _distributed_c10d as c10d

from gradlane.client.handle import Operation

NO_TIMEOUT = timedelta(0)  # what C++ says when it has none


_Class = TypeVar("_Class")


def untraced(kind: type[_Class]) -> type[_Class]:
    """A class whose methods torch.compile leaves alone: within a compiled model's forward pass C++ calls them, and what
    they do is no computation."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method):
            setattr(kind, name, torch.compiler.disable(method))
    return kind


@untraced
class Work(c10d.Work):
    """One or more operations in flight; `finish` brings the results to their tensors when all are over.

    The first thread does it, that which waits or the client's. On an accelerator it does so after what the caller's
    stream had queued before the collective, and is over when all streams may use the results.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        finish: Callable[[], None],
        tensors: Sequence[torch.Tensor],
        timeout: timedelta,
        awaited: bool = False,
    ) -> None:
        """`awaited`: the caller waits at once. Then the client's thread is left out, as its wake-up costs as much as a
        small collective, until somebody asks for the future or whether it is over."""
        super().__init__()
        self._operations = operations
        self._finish = finish
        self._tensors = list(tensors)
        self._timeout = timeout
        self._lock = threading.Lock()
        self._left = len(operations)
        self._watched = False
        self._error: Exception | None = None
        self._finished = False
        accelerators = list({tensor.device for tensor in tensors if tensor.device.type != "cpu"})
        self._before = [(device, _stream(device).record_event()) for device in accelerators]
        devices: list[int | str | torch.device] = list(accelerators)
        self._future: torch.futures.Future[Any] = torch.futures.Future(devices=devices)
        if not operations:
            self._settle()
        elif not awaited:
            self._watch()

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Blocks until the results are there. Raises AgentError that names the culprit, TimeoutError."""
        limit = timeout if timeout > NO_TIMEOUT else self._timeout
        try:
            for operation in self._operations:
                operation.wait(limit.total_seconds())
        except BaseException:
            self._watch()  # it may yet end, and why it failed is asked for later
            raise
        self._settle()
        self._future.wait()  # the client's thread may be about to complete it: what is chained to it now runs at once
        return True

    def is_completed(self) -> bool:
        """Whether the results are there, or never will be."""
        self._watch()
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
        self._watch()
        # An exception of torch's is a value, which only Python raises; a callback that raises fails the future in C++.
        return self._future.then(lambda finished: finished.value())

    def _watch(self) -> None:
        """From now on the client's thread brings the results, if nobody else has."""
        if self._watched:
            return  # without the lock, which who brings the results holds meanwhile
        with self._lock:
            if self._watched or self._finished:
                return
            self._watched = True
        for operation in self._operations:
            operation.add_done_callback(self._over)

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
            for device, before in self._before:
                _stream(device).wait_event(before)
            self._finish()
            for device, _ in self._before:
                _stream(device).synchronize()
            self._finished = True
        self._future.set_result(self._tensors)


def _stream(device: torch.device) -> Any:
    """The current one of this thread."""
    return torch.get_device_module(device).current_stream(device)
