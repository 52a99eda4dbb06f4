# SPDX-License-Identifier: Apache-2.0
"""An agent within the training process, in place of the host's daemon: who asks for it, and what it is to a client.

What starts it is above this package (daemon/in_process.py), so `gradlane` itself hands it over.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gradlane.errors import AgentError
from gradlane.toml_file import Address

if TYPE_CHECKING:  # it needs numpy, and this is imported with the package
    from gradlane.job import Job

NAME = "process"
"""In place of a socket's path; with `:FILE` after it, the configuration."""


class Agent(Protocol):
    """It runs on threads of its own, for one connection. `connection` is the client's end."""

    @property
    def connection(self) -> socket.socket: ...

    def end(self) -> None:
        """Hangs up. Returns when the agent works on no memory of this process any more."""
        ...


@dataclass(frozen=True)
class Makers:
    """`agent`: makes one by a configuration (its file) and the job's address of this host; `address`: the first one of
    a configuration. Both raise AgentError, and ConfigError for the file."""

    agent: Callable[[Path | None, Address], Agent]
    address: Callable[[Path], Address | None]


makers: list[Makers] = []
"""The one that there is."""


def is_meant(place: str | Path) -> bool:
    """Whether that is no socket's path, but the process itself."""
    return str(place).partition(":")[0] == NAME


def _file_of(place: str | Path) -> Path | None:
    """The configuration that is named with it."""
    name = str(place).partition(":")[2]
    return Path(name) if name else None


def start(place: str | Path, job: "Job", rank: int) -> Agent:
    """The agent of that rank. Raises AgentError, ConfigError, JobError."""
    member = job.member(rank)
    if member.processes > 1:
        raise AgentError(
            f"{job.file}: rank {rank} has {member.processes} processes, and an agent in a process serves that one "
            f"alone: start `gradlane agent --address {member.address}` on the host, or give each process a [[worker]] "
            "with an address of its own"
        )
    return makers[0].agent(_file_of(place), member.address)


def own_address(place: str | Path) -> str:
    """This process's, where no job file says it: that of the configuration; else that by which MASTER_ADDR is reached;
    where torchrun runs all ranks on one machine, one of its loopback for each process. Raises AgentError, ConfigError.
    """
    file = _file_of(place)
    if file is not None and (found := makers[0].address(file)) is not None:
        return str(found)
    size, here = (os.environ.get(name, "") for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if size and size == here:
        high, middle, low = os.getpid().to_bytes(3, "big")
        return f"127.{64 + high}.{middle}.{low}"
    if here not in ("", "1"):
        raise AgentError(
            f"LOCAL_WORLD_SIZE is {here}, and an agent in a process serves that one alone: start `gradlane agent` on "
            "each host, or one process per host"
        )
    master = os.environ.get("MASTER_ADDR", "")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as sock:
            sock.connect(address)  # sends nothing
            return str(sock.getsockname()[0])
    except OSError as error:
        raise AgentError(
            f"this host's address is not known: the way to MASTER_ADDR ({master!r}): {error.strerror}; write `address` "
            f"into a file, and name it: GRADLANE_SOCKET={NAME}:FILE"
        ) from error
