# SPDX-License-Identifier: Apache-2.0
"""Copies between an accelerator and the shared memory of the agent, which the network reads and writes."""

import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from gradlane.client.handle import Operation
from gradlane.ipc.memory import Memory


class Deferred:
    """An operation that starts when its tensors have arrived in host memory."""

    def __init__(self, started: "Future[Operation]") -> None:
        self._started = started

    def wait(self, timeout: float | None = None) -> None:
        """See Operation."""
        self._started.result(timeout).wait(timeout)

    def done(self) -> bool:
        """See Operation."""
        return self._started.done() and (self._started.exception() is not None or self._started.result().done())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """See Operation."""

        def started(future: "Future[Operation]") -> None:
            error = future.exception()
            if error is None:
                future.result().add_done_callback(callback)
            else:
                callback(error)

        self._started.add_done_callback(started)


class Staging:
    """A side stream of one accelerator, and the thread that waits for it, so that the training's thread need not.

    It works on the CPU too, where torch's streams are empty shells: the order of events is the same.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._module: Any = torch.get_device_module(device)
        self._stream: Any = self._module.Stream()
        self._waiter = ThreadPoolExecutor(1, "gradlane-staging")

    def fetch(self, pieces: Sequence[tuple[torch.Tensor, torch.Tensor]], start: Callable[[], Operation]) -> Deferred:
        """Copies each (device tensor, host tensor) after what the current stream has queued, then calls `start`."""
        held = list(pieces)
        self._stream.wait_stream(self._module.current_stream())
        event = self._module.Event()
        with self._module.stream(self._stream):
            for source, target in held:
                target.copy_(source, non_blocking=True)
            event.record(self._stream)

        def fetched() -> Operation:
            event.synchronize()
            held.clear()  # the sources had to live until here, or their memory would have been used again
            return start()

        return Deferred(self._waiter.submit(fetched))

    def precede(self) -> None:
        """What the current stream queues from now on, which may change the sources of copies, comes after these."""
        self._module.current_stream().wait_stream(self._stream)

    def deliver(self, source: torch.Tensor, target: torch.Tensor, then: Callable[[], None]) -> None:
        """Copies host memory to the device and calls `then` with the side stream as the current one."""
        with self._module.stream(self._stream):
            target.copy_(source, non_blocking=True)
            then()

    def close(self) -> None:
        """Ends the thread; copies that were started are finished."""
        self._waiter.shutdown()


def pin(memory: Memory, user: object) -> None:
    """Locks shared memory for the accelerator's copy engine while its user lives. Raises RuntimeError (CUDA).

    All of a mapping at once: CUDA locks whole pages, and none twice. What was unmapped while it was locked would be in
    the way of what is mapped there next.
    """
    runtime: Any = torch.cuda.cudart()
    torch.cuda.check_error(int(runtime.cudaHostRegister(memory.address, memory.nbytes, 0)))

    def unpin() -> None:  # keeps the mapping until then
        torch.cuda.check_error(int(runtime.cudaHostUnregister(memory.address)))

    weakref.finalize(user, unpin).atexit = False
