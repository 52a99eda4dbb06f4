# SPDX-License-Identifier: Apache-2.0
"""Processes that never outlive this one; the runner's have a log each, are watched, and end in the reverse order."""

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.model.errors import ProcessError
from lab.net.forks import END_WITH_PARENT

TERM_SECONDS = 3.0  # what a process gets to end by itself
_POLL_SECONDS = 0.05
_LONGEST_QUOTE = 300  # characters of a log line in an error
_READY = re.compile(r"([\w-]+: )?ready\b")  # perhaps after the program's name

Start = Callable[..., "subprocess.Popen[Any]"]


class Process:
    """A process that the kernel kills when this one dies. `name` is what errors call it, e.g. "switch s1".

    `environment` is added to this process' own; `start` is what starts it, with `settings`: subprocess.Popen, or what
    takes the same. Raises ProcessError if it can't be started.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        environment: Mapping[str, str] | None = None,
        start: Start = subprocess.Popen,
        **settings: Any,
    ) -> None:
        self.name = name
        env = {**os.environ, **(environment or {})}
        try:
            self.process: subprocess.Popen[Any] = start([*END_WITH_PARENT, *argv], env=env, **settings)
        except OSError as problem:
            raise ProcessError(f"{name} can't be started: {problem}") from None

    @property
    def pid(self) -> int:
        return self.process.pid

    def ended(self) -> bool:
        return self.process.poll() is not None

    def cpu_seconds(self) -> float:
        """CPU time that all its threads have had."""
        return time.clock_gettime(~self.pid << 3 | 2)  # what clock_getcpuclockid(3) returns, which Python lacks


class Child(Process):
    """A process of the runner; its output goes to `log`."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        start: Start = subprocess.Popen,
    ) -> None:
        self.log = log
        words = [Path(word).name for word in (argv[3:] if argv[0] == "mnexec" else argv)]
        self.program = words[1] if words[0].startswith("python") else words[0]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            super().__init__(
                name,
                argv,
                environment,
                start,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is the runner's to handle
            )

    def __str__(self) -> str:
        return f"{self.name} ({self.program}, pid {self.pid})"

    def last_line(self) -> str:
        """The last line that the process wrote; empty if it wrote none."""
        lines = [line for line in self._lines() if line.strip()]
        return lines[-1].strip() if lines else ""

    def obituary(self) -> str:
        """How the process ended, in a clause: who, how, and its last words."""
        status = self.process.returncode
        how = f"exited with status {status}" if status >= 0 else f"died with signal {-status}"
        return f"{self} {how}; {self._last_words()}"

    def wait_ready(self, seconds: float) -> None:
        """Waits for a line in the log that begins with "ready". Raises ProcessError."""
        self._wait(seconds, lambda: any(_READY.match(line) for line in self._lines()))

    def count(self, words: str) -> int:
        """The lines in the log that have these words."""
        return sum(words in line for line in self._lines())

    def wait_count(self, words: str, count: int, seconds: float) -> None:
        """Waits until so many lines in the log have these words. Raises ProcessError."""
        self._wait(seconds, lambda: self.count(words) >= count)

    def wait_listening(self, port: int, seconds: float) -> None:
        """Waits until the process accepts connections on a TCP port of the loopback. Raises ProcessError."""
        self._wait(seconds, lambda: listens(port))

    def _wait(self, seconds: float, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while True:
            ended = self.ended()  # asked first, so that no last word is missed
            if is_ready():
                return
            if ended:
                raise ProcessError(self.obituary())
            if time.monotonic() > deadline:
                raise ProcessError(f"{self} is not ready after {seconds:g} s; {self._last_words()}")
            wait_for_exit([self], _POLL_SECONDS)

    def _last_words(self) -> str:
        line = self.last_line()
        said = f"its last line: {textwrap.shorten(line, _LONGEST_QUOTE)}" if line else "it wrote nothing"
        return f"{said} (log: {self.log})"

    def _lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()

    def signal_group(self, number: signal.Signals) -> None:
        """Sends a signal to the process and what it started itself."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return  # everything in the group has ended already


def listens(port: int) -> bool:
    """Whether somebody accepts connections on that TCP port of the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for_exit(children: Sequence[Child], seconds: float) -> None:
    """Returns when one of the processes ends, or after that time."""
    poll = select.poll()
    descriptors: list[int] = []
    try:
        for child in children:
            if child.ended():
                return
            descriptors.append(os.pidfd_open(child.pid))
            poll.register(descriptors[-1], select.POLLIN)
        poll.poll(seconds * 1000)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def end(children: Sequence[Child]) -> None:
    """Ends the processes, all at once: SIGTERM, and SIGKILL for those that do not heed it in time."""
    for child in children:
        if not child.ended():
            child.signal_group(signal.SIGTERM)
    deadline = time.monotonic() + TERM_SECONDS
    for child in children:
        # Who does not heed it is killed below, with whatever it started.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(max(0.0, deadline - time.monotonic()))
    for child in children:
        child.signal_group(signal.SIGKILL)
        child.process.wait()


class Supervisor:
    """Holds the processes that must live as long as the run. Use as a context manager: leaving it ends them."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: list[Child] = []

    def __enter__(self) -> "Supervisor":
        return self

    def __exit__(self, *_: object) -> None:
        # One after the other, last started first: the agents take their leave while the switch still forwards.
        for group in self._by_kind():
            end(group)
        self._children.clear()

    def start(
        self,
        name: str,
        argv: Sequence[str],
        environment: Mapping[str, str] | None = None,
        logs: Path | None = None,
        start: Start = subprocess.Popen,
    ) -> Child:
        """Starts a process as Process does; its log is named after it, in `logs` or the run's own folder. Raises
        ProcessError."""
        child = Child(name, argv, (logs or self._logs) / f"{name.replace(' ', '-')}.log", environment or {}, start)
        self._children.append(child)
        return child

    def release(self, children: Sequence[Child]) -> None:
        """Ends these processes in good order and forgets them."""
        end(children)
        self._children = [child for child in self._children if child not in children]

    @property
    def children(self) -> tuple[Child, ...]:
        return tuple(self._children)

    def dead(self, may_end: Sequence[Child] = ()) -> list[Child]:
        """Who ended and should not have, likeliest culprit first.

        Processes in `may_end` count only if they ended in failure. A process killed by a signal comes before one that
        gave up on its own, as the latter usually does so because of the former; then those started first come first.
        """
        gone = [c for c in self._children if c.ended() and not (c in may_end and c.process.returncode == 0)]
        return sorted(gone, key=lambda child: child.process.returncode >= 0)

    def _by_kind(self) -> list[list[Child]]:
        """The processes in groups of the same program, in reverse order of their start."""
        groups: list[list[Child]] = []
        for child in reversed(self._children):
            if groups and groups[-1][0].program == child.program:
                groups[-1].append(child)
            else:
                groups.append([child])
        return groups
