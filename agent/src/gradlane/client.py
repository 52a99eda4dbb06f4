# SPDX-License-Identifier: Apache-2.0
"""The training process's side of the agent's socket. It needs numpy and nothing of a framework."""

import contextlib
import mmap
import os
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from gradlane import agent_socket, ipc, job
from gradlane.errors import AgentError
from gradlane.transport import NUMPY_TYPES, Values

STATISTICS_SECONDS = 10.0
CLOSE_SECONDS = 15.0


class Connection:
    """A session with this host's agent. Thread-safe; answers are read in a thread of its own."""

    def __init__(self, job_path: str | Path, rank: int, socket_path: str | Path) -> None:
        """Joins the job and waits until all ranks have. Raises AgentError naming what is wrong, or JobError."""
        self.job = job.load(job_path)
        self.rank = rank
        self._lock = threading.Lock()
        self._pending: dict[tuple[int, int], Callable[[AgentError | None], None]] = {}
        self._answers: dict[str, Future[ipc.Message]] = {op: Future() for op in ("joined", "closed")}
        self._failure: AgentError | None = None
        self._socket = agent_socket.connect(socket_path)
        self._thread = threading.Thread(target=self._read, name="gradlane-client", daemon=True)
        self._thread.start()
        text = Path(job_path).read_text()
        ipc.send(self._socket, {"op": "join", "job": text, "file": str(job_path), "rank": rank})
        self._answers["joined"].result()

    def share(self, tensor: int, elements: int, layers: Sequence[tuple[int, int]]) -> tuple[Values, Values]:
        """Shares memory for a tensor: (contribution, result), 1-D arrays of `elements` values of the wire type.

        `layers`: (first element, layer) spans, ascending from element 0.
        """
        dtype = NUMPY_TYPES[self.job.transport.wire]
        offset = ipc.result_offset(elements * dtype.itemsize)
        descriptor = os.memfd_create(f"gradlane-{tensor}", os.MFD_CLOEXEC)
        try:
            size = offset + elements * dtype.itemsize
            os.ftruncate(descriptor, size)
            memory = mmap.mmap(descriptor, size)
            self._send({"op": "tensor", "tensor": tensor, "elements": elements, "layers": list(layers)}, (descriptor,))
        finally:
            os.close(descriptor)
        return np.frombuffer(memory, dtype, elements), np.frombuffer(memory, dtype, elements, offset)

    def reduce(self, step: int, tensor: int, done: Callable[[AgentError | None], None]) -> None:
        """Starts the all-reduce of a shared tensor; `done` is called in the reader's thread. Raises AgentError."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._pending[step, tensor] = done
        self._send({"op": "reduce", "step": step, "tensor": tensor})

    def statistics(self) -> dict[str, Any]:
        """Cumulative counts of the transport, see docs/results.md. Raises AgentError."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            answer = self._answers["statistics"] = Future()
        self._send({"op": "statistics"})
        return answer.result(STATISTICS_SECONDS)["statistics"]

    def close(self) -> dict[str, Any]:
        """Leaves the job in order and returns the last statistics. Raises AgentError if the job had failed."""
        try:
            if self._failure is not None:
                raise self._failure
            self._send({"op": "close"})
            return self._answers["closed"].result(CLOSE_SECONDS)["statistics"]
        finally:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._socket.close()

    def wait_closed(self) -> dict[str, Any]:
        """Blocks until the agent says that the job is over (a server's end) and returns the last statistics.

        Raises AgentError if the job failed.
        """
        try:
            return self._answers["closed"].result()["statistics"]
        finally:
            self._socket.close()

    def _send(self, message: ipc.Message, descriptors: tuple[int, ...] = ()) -> None:
        try:
            ipc.send(self._socket, message, descriptors)
        except OSError as error:
            # Why the agent went away is in what it sent last, which the reader may still be taking in.
            self._thread.join(1.0)
            raise self._failure or AgentError(f"the agent of this host is gone: {error.strerror}") from error

    def _read(self) -> None:
        try:
            while True:
                message, _ = ipc.receive(self._socket)
                op = message["op"]
                if op == "done":
                    with self._lock:
                        done = self._pending.pop((message["step"], message["tensor"]))
                    done(None)
                elif op == "error":
                    self._fail(AgentError(message["message"]))
                elif op in self._answers:
                    self._answers[op].set_result(message)
        except (EOFError, OSError):
            self._fail(AgentError("the agent of this host is gone: it closed its socket"))

    def _fail(self, error: AgentError) -> None:
        with self._lock:
            if self._failure is not None:
                return
            self._failure = error
            pending, self._pending = self._pending, {}
        for done in pending.values():
            done(error)
        for answer in list(self._answers.values()):
            if not answer.done():
                answer.set_exception(error)


__all__ = ["Connection"]
