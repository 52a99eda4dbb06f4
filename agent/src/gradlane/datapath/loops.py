# SPDX-License-Identifier: Apache-2.0
"""A runner of the C core: its sockets, and the thread that serves them, for the engines that it has."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from typing import Any

from gradlane import wire
from gradlane._core import ffi, lib
from gradlane.datapath import sockets
from gradlane.errors import AgentError
from gradlane.toml_file import Address

_REALTIME_PRIORITY = 1
OUT_OF_MEMORY = "out of memory or file descriptors while starting the transport"


class Loop:
    """One thread, or two (the GIL is released while they run). `engines`: keys of those that it has (steering.py)."""

    def __init__(self, own: Mapping[Address, socket.socket], fallbacks: list[str]) -> None:
        """Serves these sockets, by the agent's addresses, its own from now on, when it has been started. Raises
        AgentError. What the kernel refuses is added to `fallbacks`."""
        self.engines: set[int] = set()
        self.sockets = own
        self._fallbacks = fallbacks
        self._groups: dict[Address, tuple[socket.socket, int]] = {}  # multicast groups, and how many engines use each
        self._thread: threading.Thread | None = None
        self.runner = lib.gl_runner_new()
        refused = self.runner == ffi.NULL
        if refused or any(lib.gl_runner_socket(self.runner, sock.fileno()) for sock in own.values()):
            self.close()
            raise AgentError(OUT_OF_MEMORY)

    def start(self, realtime: bool, threads: int, ended: Callable[[str], None]) -> None:
        """Returns when the thread runs. `ended` is called in it if it can't go on."""
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(realtime, threads, started, ended), name="gradlane-io", daemon=True
        )
        self._thread.start()
        started.wait()

    def _run(self, realtime: bool, threads: int, started: threading.Event, ended: Callable[[str], None]) -> None:
        # As the kernel's TCP does, this thread goes before the training that waits for it.
        try:
            if realtime:
                os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_REALTIME_PRIORITY))
        except PermissionError:
            self._fallbacks.append(
                "no real-time priority (CAP_SYS_NICE): a busy host makes the transport's pace uneven"
            )
        if threads > 1 and lib.gl_runner_read_aside(self.runner):  # with this thread's priority
            self._fallbacks.append("no second thread of transport (out of memory or threads): it is slower")
        started.set()
        code = lib.gl_runner_run(self.runner)
        if code:
            ended(f"the transport's socket loop ended: {os.strerror(code)}")

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Around calls on what the thread uses: its engines."""
        lib.gl_runner_lock(self.runner)
        try:
            yield
        finally:
            lib.gl_runner_unlock(self.runner)

    def socket_of(self, address: Address) -> socket.socket:
        """The socket bound to one of the agent's addresses. Raises AgentError."""
        if address not in self.sockets:
            known = ", ".join(map(str, self.sockets))
            raise AgentError(f"this agent has no address {address}; it has {known}")
        return self.sockets[address]

    def join(self, group: Address, own: Address) -> None:
        """Receives a multicast group by the interface of one of the agent's addresses. Raises AgentError."""
        if group in self._groups:
            sock, users = self._groups[group]
        else:
            sock, users = sockets.join(group, wire.UDP_PORT, own, self._fallbacks), 0
            if lib.gl_runner_socket(self.runner, sock.fileno()):
                sock.close()
                raise AgentError("out of memory or file descriptors while joining a multicast group")
        self._groups[group] = sock, users + 1

    def leave(self, group: Address) -> None:
        """The opposite of `join`."""
        sock, users = self._groups.pop(group)
        if users > 1:
            self._groups[group] = sock, users - 1
            return
        lib.gl_runner_unwatch(self.runner, sock.fileno())
        sock.close()

    def counts(self) -> Any:
        """Its gl_runner_counts."""
        found = ffi.new("gl_runner_counts *")
        lib.gl_runner_statistics(self.runner, found)
        return found

    def close(self) -> None:
        """Stops the thread and closes the sockets. The engines must be closed before."""
        if self._thread is not None:
            lib.gl_runner_stop(self.runner)
            self._thread.join()
        lib.gl_runner_free(self.runner)
        for sock in self.sockets.values():
            sock.close()
