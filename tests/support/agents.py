# SPDX-License-Identifier: Apache-2.0
"""Agents as processes, on loopback addresses or in network namespaces."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from gradlane.client import agent_socket
from tests.support import zygote

GRADLANE = (sys.executable, "-m", "gradlane.cli")
# Far from 127.0.0.1, so that agents of the machine itself are not met, nor those of another run of the tests.
NETWORK = f"127.{47 + os.getpid() % 200}.{os.getpid() // 200 % 250}"
# Seconds for what should happen at once, on a machine that is busy with other tests.
PATIENCE = 60.0


def loopback(count: int, first: int = 1) -> list[str]:
    """Addresses for that many agents."""
    return [f"{NETWORK}.{number}" for number in range(first, first + count)]


class Within(NamedTuple):
    """In place of an `Agent`: the one that a training process brings itself, at that address."""

    address: str
    socket: str = "process"


def pause(begun: float) -> None:
    """Between two looks at what is waited for since then (time.monotonic): a look costs two processes' time, so those
    at what takes long are rarer, and yet see it no later than after a twentieth of its time."""
    time.sleep(min(max(0.01, (time.monotonic() - begun) / 20), 0.25))


def until(condition: Callable[[], object], found: Callable[[], object] = lambda: "") -> None:
    """Waits for what another process does and does not tell. `found`: what there is, if it does not happen."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + PATIENCE, f"it did not happen: {found()}"
        pause(begun)


def command(
    *arguments: object, check: bool = False, prefix: Sequence[str] = (), **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs `gradlane` with these arguments to its end."""
    return zygote.run([*prefix, *GRADLANE, *map(str, arguments)], PATIENCE, check, **options)


class AgentProcess:
    """`gradlane agent` with these arguments; `log` are the lines of its stderr so far.

    `prefix` runs it elsewhere, e.g. in a network namespace; `program` are Python's arguments in place of the command's.
    """

    def __init__(
        self,
        *arguments: object,
        environment: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
        program: Sequence[str] = GRADLANE[1:],
    ) -> None:
        self._command = [*prefix, sys.executable, *program, "agent", *map(str, arguments)]
        self._environment = environment and {**os.environ, **environment}
        self._news = threading.Condition()
        self.start()

    def start(self) -> None:
        """Starts it, or a new one in its place."""
        self.log: list[str] = []
        self.process = zygote.start(self._command, stderr=subprocess.PIPE, text=True, env=self._environment)
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr, self.log), daemon=True)
        self._reader.start()

    def _read(self, stderr: IO[str], log: list[str]) -> None:
        for line in stderr:
            with self._news:
                log.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def wait_for(self, words: str) -> str:
        """The first line of the log with these words; fails if the agent ends without one."""
        with self._news:
            self._news.wait_for(lambda: self._line(words) or not self._reader.is_alive(), PATIENCE)
            found = self._line(words)
        assert found is not None, f"no {words!r} in {self.log}"
        return found

    def _line(self, words: str) -> str | None:
        return next((line for line in self.log if words in line), None)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Stops it and returns its exit code."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)  # so that `log` is all that it said
        return code


class Agent(AgentProcess):
    """An agent with an address and a socket."""

    def __init__(self, address: str, path: Path, *arguments: object, **options: Any) -> None:
        self.address, self.socket = address, path
        super().__init__("--address", address, "--socket", path, *arguments, **options)

    def status(self) -> Any:
        return agent_socket.status(self.socket)


@contextlib.contextmanager
def running(*starting: Agent) -> Iterator[list[Agent]]:
    """Agents from when they are ready until the end of the block."""
    try:
        for agent in starting:
            agent.wait_for("ready")
        yield list(starting)
    finally:
        for agent in starting:
            agent.end()


def agents(
    folder: Path, addresses: Sequence[str], *arguments: object
) -> contextlib.AbstractContextManager[list[Agent]]:
    """One for each address."""
    places = enumerate(addresses)
    return running(*(Agent(address, folder / f"{number}.sock", *arguments) for number, address in places))
