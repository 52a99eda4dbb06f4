# SPDX-License-Identifier: Apache-2.0
"""The C core on this host's sockets, in one thread for all jobs, or two (the GIL is released while they run)."""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any

from gradlane import wire
from gradlane._core import ffi, lib
from gradlane.datapath import sockets
from gradlane.errors import AgentError
from gradlane.toml_file import Address

log = logging.getLogger("gradlane")

_REALTIME_PRIORITY = 1
_OF_AGENT = [name for name, _ in ffi.typeof("gl_runner_counts").fields]


class Transport:
    """The sockets of an agent and the thread that serves them, for any number of jobs.

    `notify` is readable when `dispatch` has something to do: the thread has ended. `fallbacks`: what the kernel
    refused, and what that costs; each is logged once.
    """

    def __init__(
        self, addresses: Iterable[Address], failed: Callable[[str], None], realtime: bool = True, threads: int = 1
    ) -> None:
        """Binds a socket on each address and starts the thread. Raises AgentError.

        `failed` is called by `dispatch` if the thread has ended, which is the end of every job. `threads`: 2, if
        another one is to read the sockets while much comes.
        """
        self.fallbacks: list[str] = []
        self._failed = failed
        self._failure = ""
        self._sockets: dict[Address, socket.socket] = {}
        self._groups: dict[Address, tuple[socket.socket, int]] = {}  # multicast groups, and how many engines use each
        try:
            for address in addresses:
                self._sockets[address] = sockets.bind(address, wire.UDP_PORT, self.fallbacks)
        except AgentError:
            self._close_sockets()
            raise
        self.notify = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.runner = lib.gl_runner_new()
        self.port = lib.gl_port_new(min(map(sockets.room, self._sockets.values())))
        descriptors = [sock.fileno() for sock in self._sockets.values()]
        lacking = ffi.NULL in (self.runner, self.port)
        if lacking or any(lib.gl_runner_socket(self.runner, fd) for fd in descriptors):
            self._free()
            raise AgentError("out of memory or file descriptors while starting the transport")
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(realtime, threads, started), name="gradlane-io", daemon=True
        )
        self._thread.start()
        started.wait()
        for fallback in dict.fromkeys(self.fallbacks):
            log.warning("%s", fallback)

    def _run(self, realtime: bool, threads: int, started: threading.Event) -> None:
        # As the kernel's TCP does, this thread goes before the training that waits for it.
        try:
            if realtime:
                os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_REALTIME_PRIORITY))
        except PermissionError:
            self.fallbacks.append("no real-time priority (CAP_SYS_NICE): a busy host makes the transport's pace uneven")
        if threads > 1 and lib.gl_runner_read_aside(self.runner):  # with this thread's priority
            self.fallbacks.append("no second thread of transport (out of memory or threads): it is slower")
        started.set()
        code = lib.gl_runner_run(self.runner)
        if code:
            self._failure = f"the transport's socket loop ended: {os.strerror(code)}"
            os.eventfd_write(self.notify, 1)

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Around calls on what the thread uses: engines and the port they share."""
        lib.gl_runner_lock(self.runner)
        try:
            yield
        finally:
            lib.gl_runner_unlock(self.runner)

    def socket_of(self, address: Address) -> socket.socket:
        """The socket bound to one of the agent's addresses. Raises AgentError."""
        if address not in self._sockets:
            known = ", ".join(map(str, self._sockets))
            raise AgentError(f"this agent has no address {address}; it has {known}")
        return self._sockets[address]

    def join(self, group: Address, own: Address) -> None:
        """Receives a multicast group by the interface of one of the agent's addresses. Raises AgentError."""
        if group in self._groups:
            sock, users = self._groups[group]
        else:
            sock, users = sockets.join(group, wire.UDP_PORT, own, self.fallbacks), 0
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

    def dispatch(self) -> None:
        """When `notify` is readable: the thread has ended."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.notify)
        if self._failure:
            self._failed(self._failure)

    def statistics(self) -> dict[str, Any]:
        """Cumulative counts of the agent. `socket_drops`: arrivals for which the sockets' buffers had no room."""
        counts = ffi.new("gl_runner_counts *")
        lib.gl_runner_statistics(self.runner, counts)
        result: dict[str, Any] = {name: int(getattr(counts, name)) for name in _OF_AGENT}
        result["socket_drops"] = sum(map(sockets.drops, self._sockets.values()))
        return result | {"fallbacks": list(dict.fromkeys(self.fallbacks))}

    def close(self) -> None:
        """Stops the thread and closes the sockets. The engines must be closed before."""
        lib.gl_runner_stop(self.runner)
        self._thread.join()
        self._free()

    def _free(self) -> None:
        lib.gl_runner_free(self.runner)
        lib.gl_port_free(self.port)
        self._close_sockets()
        os.close(self.notify)

    def _close_sockets(self) -> None:
        for sock in self._sockets.values():
            sock.close()
