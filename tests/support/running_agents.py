# SPDX-License-Identifier: Apache-2.0
"""Agents as processes, on loopback addresses or in network namespaces, and training processes that only join."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gradlane.client import agent_socket
from gradlane.daemon.config import AgentConfig
from gradlane.ipc import messages

# Far from 127.0.0.1, so that agents of the machine itself are not met, nor those of another run of the tests.
NETWORK = f"127.{47 + os.getpid() % 200}.{os.getpid() // 200 % 250}"
KEY = "00112233445566aa" * 2
# Seconds for what should happen at once, on a machine that is busy with other tests.
PATIENCE = 60.0


def until(condition: Callable[[], object], found: Callable[[], object] = lambda: "") -> None:
    """Waits for what another process does and does not tell. `found`: what there is, if it does not happen."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen: {found()}"
        time.sleep(0.02)


def job_file(folder: Path, addresses: Sequence[str], file: str = "job.toml", *, lines: str = "", **job: Any) -> Path:
    """A job of workers at these addresses. `job`: of [job]; `processes`: of each worker; `lines`: after [transport]."""
    processes = job.pop("processes", 1)
    values = {"name": "trial", "id": 7, "key": KEY} | job
    text = "[job]\n" + "".join(f"{key} = {value!r}\n".replace("'", '"') for key, value in values.items() if value != "")
    for rank, address in enumerate(addresses):
        text += f'[[worker]]\nrank = {rank}\nhost = "h{rank}"\naddress = "{address}"\nprocesses = {processes}\n'
    path = folder / file
    path.write_text(text + f'[transport]\nrate = "1gbit"\n{lines}\n')
    return path


class Agent:
    """An agent's process; its log is collected in `lines`."""

    def __init__(
        self,
        address: str,
        path: Path,
        config: Path | None = None,
        inside: Sequence[str] = (),
        program: Sequence[str] = ("-m", "gradlane.cli"),
    ) -> None:
        self.address, self.socket, self.lines = address, path, list[str]()
        self._command = [*inside, sys.executable, *program, "agent", "--address", address]
        self._command += ["--socket", str(path), *(["--config", str(config)] if config else [])]
        self.start()

    def start(self) -> None:
        """Starts it (anew)."""
        self.process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self._log = self.process.stderr

    def wait_ready(self) -> Agent:
        """Until it takes jobs."""
        while "ready" not in (line := self._log.readline()):
            if not line:
                raise AssertionError(f"the agent of {self.address} did not start: {self.lines}")
            self.lines.append(line)
        threading.Thread(target=lambda: self.lines.extend(self._log), daemon=True).start()
        return self

    def status(self) -> Any:
        return agent_socket.status(self.socket)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def wait_for(self, words: str) -> None:
        """Until a line of its log has these words: it is written beside what the agent does."""
        until(lambda: any(words in line for line in self.lines), lambda: self.lines)

    def end(self) -> int:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait(PATIENCE)


@contextlib.contextmanager
def running(*starting: Agent) -> Iterator[list[Agent]]:
    """Agents from when they are ready until the end of the block."""
    try:
        yield [agent.wait_ready() for agent in starting]
    finally:
        for agent in starting:
            agent.end()


def agents(folder: Path, addresses: Sequence[str]) -> contextlib.AbstractContextManager[list[Agent]]:
    """One for each address."""
    return running(*(Agent(address, folder / f"{number}.sock") for number, address in enumerate(addresses)))


def loopback(count: int) -> list[str]:
    """Addresses for that many agents."""
    return [f"{NETWORK}.{number + 1}" for number in range(count)]


class Member:
    """A training process's connection to its agent, which begins to join a job at once."""

    def __init__(self, file: Path, rank: int, agent: Agent | AgentConfig, process: int = 0) -> None:
        self.began = time.monotonic()
        self.notices: list[str] = []
        self._socket = agent_socket.connect(agent.socket, PATIENCE)
        join = {"op": "join", "job": file.read_text(), "file": str(file), "rank": rank, "process": process}
        messages.send(self._socket, join)

    def next(self, timeout: float = PATIENCE) -> tuple[str, float]:
        """What the agent says next, and the seconds since the beginning: "joined", "closed", or an error's text.

        What it says in between of who is late goes to `notices`.
        """
        self._socket.settimeout(timeout)
        try:
            message, descriptors = messages.receive(self._socket)
        except (EOFError, ConnectionError):
            return "the agent closed its socket", time.monotonic() - self.began
        for descriptor in descriptors:
            os.close(descriptor)
        if message["op"] == "notice":
            self.notices.append(message["message"])
            return self.next(timeout)
        said = message["message"] if message["op"] == "error" else message["op"]
        return said, time.monotonic() - self.began

    def silent(self, seconds: float) -> bool:
        """Whether the agent says nothing for so long."""
        return not select.select([self._socket], [], [], seconds)[0]

    def leave(self) -> None:
        messages.send(self._socket, {"op": "close"})

    def end(self) -> None:
        """As if the process died."""
        self._socket.close()

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@contextlib.contextmanager
def members(file: Path | Sequence[Path], hosts: Sequence[Agent]) -> Iterator[list[Member]]:
    """One for each agent, with the rank of its place. `file`: the job file, or that of each rank."""
    files = [file] * len(hosts) if isinstance(file, Path) else file
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(Member(f, rank, agent))
            for rank, (f, agent) in enumerate(zip(files, hosts, strict=True))
        ]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Lan:
    """Namespaces 0..n-1 at 10.77.0.1.. (or fd77::1..) on one bridge, in a namespace of its own."""

    def __init__(self, hosts: int, family: int = 4) -> None:
        self.name = f"gla{os.getpid()}"
        self.addresses = [f"10.77.0.{k + 1}" if family == 4 else f"fd77::{k + 1}" for k in range(hosts)]
        self._spaces = [f"{self.name}b", *(self.space(k) for k in range(hosts))]
        try:
            self._build(family)
        except BaseException:
            self._remove()
            raise

    def _build(self, family: int) -> None:
        for space in self._spaces:
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        ip("-n", self._spaces[0], "link", "add", "bridge", "type", "bridge")
        ip("-n", self._spaces[0], "link", "set", "bridge", "up")
        for k, address in enumerate(self.addresses):
            ends = ("link", "add", f"p{k}", "netns", self._spaces[0], "type", "veth")
            ip(*ends, "peer", "name", "eth0", "netns", self.space(k))
            ip("-n", self._spaces[0], "link", "set", f"p{k}", "master", "bridge", "up")
            more = ("nodad",) if family == 6 else ()
            ip("-n", self.space(k), "addr", "add", f"{address}/{24 if family == 4 else 64}", "dev", "eth0", *more)
            ip("-n", self.space(k), "link", "set", "eth0", "up")

    def space(self, number: int) -> str:
        return f"{self.name}n{number}"

    def inside(self, number: int) -> list[str]:
        """What makes a command run at that host."""
        return ["ip", "netns", "exec", self.space(number)]

    def run(self, number: int, *words: str) -> None:
        subprocess.run([*self.inside(number), *words], check=True, capture_output=True, text=True)

    def port(self, number: int, *settings: str) -> None:
        """`ip link set` for the bridge's end of a host's link."""
        ip("-n", self._spaces[0], "link", "set", f"p{number}", *settings)

    def agents(self, folder: Path) -> contextlib.AbstractContextManager[list[Agent]]:
        """One for each host."""
        places = enumerate(self.addresses)
        return running(*(Agent(address, folder / f"{k}.sock", inside=self.inside(k)) for k, address in places))

    def __enter__(self) -> Lan:
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _remove(self) -> None:
        for space in self._spaces:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
