# SPDX-License-Identifier: Apache-2.0
"""The C core on this host's sockets: runners, over which the engines of all jobs are spread, and their one port."""

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any

from gradlane import wire
from gradlane._core import ffi, lib
from gradlane.datapath import sockets, steering
from gradlane.datapath.loops import OUT_OF_MEMORY, Loop
from gradlane.errors import AgentError
from gradlane.toml_file import Address

log = logging.getLogger("gradlane")

_OF_AGENT = [name for name, _ in ffi.typeof("gl_runner_counts").fields]


class Transport:
    """The sockets of an agent and the threads that serve them, for any number of jobs.

    `notify` is readable when `dispatch` has something to do: a thread has ended. `fallbacks`: what the kernel
    refused, and what that costs; each is logged once.
    """

    def __init__(
        self,
        addresses: Iterable[Address],
        failed: Callable[[str], None],
        realtime: bool = True,
        threads: int = 1,
        runners: int = 1,
    ) -> None:
        """Binds sockets on each address and starts the threads. Raises AgentError.

        `failed` is called by `dispatch` if a thread has ended, which is the end of every job. `threads`: 2, if
        another one is to read the sockets of a runner while much comes.
        """
        self.fallbacks: list[str] = []
        self.loops: list[Loop] = []
        self._failed = failed
        self._failure = ""
        self._groups = _bound(tuple(addresses), runners, self.fallbacks)
        self.notify = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        every = [sock for group in self._groups.values() for sock in group]
        self.port = lib.gl_port_new(min(map(sockets.room, every)))
        try:
            if self.port == ffi.NULL:
                raise AgentError(OUT_OF_MEMORY)
            for number in range(len(every) // len(self._groups)):
                own = {address: group[number] for address, group in self._groups.items()}
                self.loops.append(Loop(own, self.fallbacks))
        except AgentError:
            for sock in every:
                sock.close()
            self.close()
            raise
        for loop in self.loops:
            loop.start(realtime, threads, self._ended)
        for fallback in dict.fromkeys(self.fallbacks):
            log.warning("%s", fallback)

    def _ended(self, why: str) -> None:
        self._failure = why
        os.eventfd_write(self.notify, 1)

    def take(self, key: int, multicast: bool) -> Loop:
        """The loop for an engine of that key (steering.py): the one with the fewest; with `multicast` the first, as
        jobs may share their groups. Raises AgentError."""
        loop = self.loops[0] if multicast else min(self.loops, key=lambda it: len(it.engines))
        loop.engines.add(key)
        try:
            self._steer()
        except AgentError:
            loop.engines.discard(key)
            raise
        return loop

    def give_back(self, loop: Loop, key: int) -> None:
        """The loop has the engine no more."""
        loop.engines.discard(key)
        with contextlib.suppress(AgentError):  # nobody waits for what else comes of it
            self._steer()

    def _steer(self) -> None:
        if len(self.loops) == 1:
            return
        places = {key: number for number, loop in enumerate(self.loops) for key in loop.engines}
        try:
            for group in self._groups.values():
                steering.steer(group, places)
        except OSError as error:
            raise AgentError(f"datagrams can't be steered to the transport's threads: {error.strerror}") from error

    def dispatch(self) -> None:
        """When `notify` is readable: a thread has ended."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.notify)
        if self._failure:
            self._failed(self._failure)

    def statistics(self) -> dict[str, Any]:
        """Cumulative counts of the agent. `socket_drops`: arrivals for which the sockets' buffers had no room;
        `runners`: the engines that each has at present."""
        counts = [loop.counts() for loop in self.loops]
        result: dict[str, Any] = {name: sum(int(getattr(it, name)) for it in counts) for name in _OF_AGENT}
        result["send_errno"] = max(int(it.send_errno) for it in counts)
        result["socket_drops"] = sum(sockets.drops(sock) for group in self._groups.values() for sock in group)
        result["runners"] = [len(loop.engines) for loop in self.loops]
        return result | {"fallbacks": list(dict.fromkeys(self.fallbacks))}

    def close(self) -> None:
        """Stops the threads and closes the sockets. The engines must be closed before."""
        for loop in self.loops:
            loop.close()
        lib.gl_port_free(self.port)
        os.close(self.notify)


def _bound(addresses: tuple[Address, ...], runners: int, fallbacks: list[str]) -> dict[Address, list[socket.socket]]:
    """By address, a socket for each runner; for one, if the kernel can't steer to several. Raises AgentError."""
    groups: dict[Address, list[socket.socket]] = {address: [] for address in addresses}
    try:
        for address, group in groups.items():
            # The first one alone finds out whether the port is another agent's.
            group.append(sockets.bind(address, wire.UDP_PORT, fallbacks))
        for address, group in groups.items() if runners > 1 else ():
            sockets.share_port(group[0])
            group += [sockets.bind(address, wire.UDP_PORT, fallbacks, shared=True) for _ in range(1, runners)]
            steering.steer(group, {})
    except AgentError:
        for group in groups.values():
            for sock in group:
                sock.close()
        raise
    except OSError as error:
        fallbacks.append(f"one runner instead of {runners} (the kernel can't steer datagrams: {error.strerror})")
        for group in groups.values():
            while len(group) > 1:
                group.pop().close()
    return groups
