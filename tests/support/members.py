# SPDX-License-Identifier: Apache-2.0
"""A job file, and training processes that only join."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gradlane.client import agent_socket
from gradlane.daemon.config import AgentConfig
from gradlane.ipc import messages
from tests.support.agents import PATIENCE, Agent

KEY = "00112233445566aa" * 2


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


class Member:
    """A training process's connection to its agent, which begins to join a job at once."""

    def __init__(self, file: Path, rank: int, agent: Agent | AgentConfig, process: int = 0) -> None:
        self.began = time.monotonic()
        self.notices: list[str] = []
        self.socket = agent_socket.connect(agent.socket, PATIENCE)
        place = {"rank": rank, "process": process}
        join = {"op": "join", "version": messages.VERSION, "job": file.read_text(), "file": str(file), **place}
        messages.send(self.socket, join)

    def next(self, timeout: float = PATIENCE) -> tuple[str, float]:
        """What the agent says next, and the seconds since the beginning: "joined", "closed", or an error's text.

        What it says in between of who is late goes to `notices`.
        """
        while True:
            op, said = self.hear(timeout)
            if op != "notice":
                return said, time.monotonic() - self.began
            self.notices.append(said)

    def hear(self, timeout: float = PATIENCE) -> tuple[str, str]:
        """The next message's "op", and its text if it has one."""
        self.socket.settimeout(timeout)
        try:
            message, descriptors = messages.receive(self.socket)
        except (EOFError, ConnectionError):
            return "", "the agent closed its socket"
        messages.close(descriptors)
        return message["op"], message.get("message", message["op"])

    def silent(self, seconds: float) -> bool:
        """Whether the agent says nothing for so long."""
        return not select.select([self.socket], [], [], seconds)[0]

    def leave(self) -> None:
        messages.send(self.socket, {"op": "close"})

    def end(self) -> None:
        """As if the process died."""
        self.socket.close()

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
