# SPDX-License-Identifier: Apache-2.0
"""Agents in processes of their own, and a job among them."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from gradlane import Communicator

# Far from 127.0.0.1, so that agents of the machine itself are not met, nor those of another run of the tests.
NETWORK = f"127.{47 + os.getpid() % 200}.{os.getpid() // 200 % 250}"
GRADLANE = (sys.executable, "-m", "gradlane.cli")
# Seconds for what should happen at once, on a machine that is busy with other tests.
PATIENCE = 60.0


def command(
    *arguments: object, check: bool = False, prefix: Sequence[str] = (), **options
) -> subprocess.CompletedProcess:
    """Runs `gradlane` with these arguments to its end."""
    argv = [*prefix, *GRADLANE, *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=check, **options)


def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Waits for something that another process does and does not tell."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


class AgentProcess:
    """`gradlane agent`; `log` are the lines of its stderr so far."""

    def __init__(
        self, *arguments: object, environment: dict[str, str] | None = None, prefix: Sequence[str] = ()
    ) -> None:
        self.log: list[str] = []
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            [*prefix, *GRADLANE, "agent", *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.log.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def wait_for(self, words: str, seconds: float = PATIENCE) -> str:
        """The first line of the log with these words; fails if the agent ends without one."""
        with self._news:
            found = self._news.wait_for(
                lambda: next((line for line in self.log if words in line), None) or not self._reader.is_alive(), seconds
            )
        assert isinstance(found, str), f"no {words!r} in {self.log}"
        return found

    def end(self) -> int:
        """Stops it and returns its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)  # so that `log` is all that it said
        return code


class Host(AgentProcess):
    """An agent with an address and a socket of its own, that is ready."""

    def __init__(self, number: int, folder: Path, *arguments: object, **options) -> None:
        self.address = f"{NETWORK}.{number + 1}"
        self.socket = folder / f"{number}.sock"
        super().__init__("--address", self.address, "--socket", self.socket, *arguments, **options)
        self.wait_for("ready")


@contextlib.contextmanager
def hosts(count: int, folder: Path, *arguments: object) -> Iterator[list[Host]]:
    """That many agents."""
    started: list[Host] = []
    try:
        for number in range(count):
            started.append(Host(number, folder, *arguments))
        yield started
    finally:
        for host in started:
            host.end()


def job_file(folder: Path, workers: int, addresses: Sequence[str] | None = None, push: float = 0.0) -> Path:
    """A job of these workers."""
    text = '[job]\nname = "trial"\nid = 7\nkey = "00112233445566778899aabbccddeeff"\n'
    for rank in range(workers):
        address = addresses[rank] if addresses else f"{NETWORK}.{rank + 1}"
        text += f'[[worker]]\nrank = {rank}\nhost = "h{rank}"\naddress = "{address}"\n'
    text += f'[transport]\nrate = "1gbit"\n[loss]\npush = {push}\n'
    path = folder / "job.toml"
    path.write_text(text)
    return path


@contextlib.contextmanager
def training(file: Path, sockets: Sequence[Path], steps: int = 2) -> Iterator[None]:
    """A job that has done some steps, and is under way within the block."""
    with ThreadPoolExecutor(len(sockets)) as pool:
        members = list(pool.map(lambda it: Communicator(file, *it), enumerate(sockets)))
        for _ in range(steps):
            values = [np.full(100_000, rank, np.float32) for rank in range(len(sockets))]
            list(pool.map(lambda it: it[0].all_reduce(it[1], name="gradient"), zip(members, values, strict=True)))
        yield
        list(pool.map(Communicator.close, members))
