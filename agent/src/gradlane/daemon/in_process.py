# SPDX-License-Identifier: Apache-2.0
"""An agent within the training process: the daemon's Agent, on a thread of its own, for one connection."""

import asyncio
import contextlib
import logging
import os
import socket
import stat
import threading
import weakref
from concurrent.futures import Future
from dataclasses import replace
from multiprocessing.util import Finalize
from pathlib import Path

from gradlane import wire
from gradlane.control import peer
from gradlane.daemon import config
from gradlane.daemon.agent import Agent
from gradlane.daemon.config import AgentConfig
from gradlane.toml_file import Address

log = logging.getLogger("gradlane")

_LAST_SECONDS = 5.0  # at the end of the process, for what is still to be sent
_PORTS = (wire.UDP_PORT, wire.CONTROL_PORT)


class InProcess:
    """Ends when its connection does, and with the process. Its log is Python's, logger `gradlane`."""

    def __init__(self, file: Path | None, address: Address) -> None:
        """`file`: the configuration, of which what is about a daemon (socket, nice, log, metrics) is not used;
        `address`: this host's, where the file has none. Raises AgentError if a port can't be had, ConfigError."""
        found = config.load(file) if file else AgentConfig(())
        found = found if found.addresses else replace(found, addresses=(address,))
        self.connection, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._owner = os.getpid()
        self._quiet = threading.Event()
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(found, its_end, ready), name="gradlane-agent", daemon=True
        )
        self._thread.start()
        try:
            ready.result()
        except BaseException:
            self.connection.close()
            raise
        _running.add(self)
        # Before what it works on is taken to pieces.
        self._at_exit = Finalize(self, _end, (weakref.ref(self),), exitpriority=-1)

    def _run(self, found: AgentConfig, its_end: socket.socket, ready: "Future[None]") -> None:
        try:
            asyncio.run(self._serve(found, its_end, ready))
        except BaseException as error:
            if ready.done():
                log.exception("the agent in this process ended: %s", error)
            else:
                ready.set_exception(error)
        finally:
            its_end.close()
            self._quiet.set()

    async def _serve(self, found: AgentConfig, its_end: socket.socket, ready: "Future[None]") -> None:
        agent = Agent(found, its_end)
        async with agent.serving():
            ready.set_result(None)
            await agent.deserted()
        self._quiet.set()
        await peer.lingering()

    def end(self) -> None:
        """Hangs up. Returns when the agent works on no memory of this process any more. In a child that was forked it
        does nothing: the agent is not there."""
        if os.getpid() != self._owner:
            return
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self._quiet.wait()

    def last_words(self) -> None:
        """After `end`: waits until other hosts have heard why."""
        self._thread.join(_LAST_SECONDS)


_running: "weakref.WeakSet[InProcess]" = weakref.WeakSet()


def _end(of: "weakref.ref[InProcess]") -> None:
    agent = of()
    if agent is not None:
        agent.end()
        agent.last_words()


def _let_go() -> None:
    """In a child: the agents' sockets are not its own. Open there they would outlive this process, whose end the others
    then would not notice, and keep its ports. (Their numbers stay taken: objects that nobody ends here have them.)"""
    if not _running:
        return
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode) and _is_of_agent(int(name)):
                os.dup2(null, int(name), inheritable=False)
    os.close(null)
    _running.clear()


def _is_of_agent(descriptor: int) -> bool:
    sock = socket.socket(fileno=descriptor)
    try:
        if sock.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        if sock.getsockname()[1] in _PORTS:
            return True
        return sock.type == socket.SOCK_STREAM and sock.getpeername()[1] == wire.CONTROL_PORT
    finally:
        sock.detach()


os.register_at_fork(after_in_child=_let_go)
