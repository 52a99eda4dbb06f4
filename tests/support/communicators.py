# SPDX-License-Identifier: Apache-2.0
"""Communicators of all ranks of a job, in one process, on agents that run."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from gradlane import Communicator
from tests.support import members
from tests.support.agents import Agent, loopback

Ranks = list[Communicator]


def job_file(folder: Path, hosts: int, processes: int = 1, transport: str = "", loss: str = "") -> Path:
    lines = f'buffer = "4MB"\n{transport}\n[loss]\n{loss}'
    return members.job_file(folder, loopback(hosts), lines=lines, processes=processes)


def join(file: Path, hosts: Sequence[Agent], count: int, processes: int = 1) -> Ranks:
    """Communicators of the job's first `count` ranks, `processes` at each host."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda rank: Communicator(file, rank, hosts[rank // processes].socket), range(count)))


@contextlib.contextmanager
def joined(hosts: Sequence[Agent], file: Path, count: int, processes: int = 1) -> Iterator[Ranks]:
    """Communicators of `count` hosts' ranks, closed at the end of the block if that is reached."""
    ranks = join(file, hosts, count * processes, processes)
    yield ranks
    each(ranks, Communicator.close)


def each(ranks: Any, function: Callable[[Any], Any]) -> list[Any]:
    """The function at all ranks at once."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        return [future.result(60) for future in [pool.submit(function, rank) for rank in ranks]]


@contextlib.contextmanager
def training(file: Path, hosts: Sequence[Agent], steps: int = 2) -> Iterator[None]:
    """A job that has done some steps, and goes on within the block."""
    with joined(hosts, file, len(hosts)) as ranks:
        for _ in range(steps):
            each(ranks, lambda c: c.all_reduce(np.full(100_000, c.rank, np.float32), name="gradient"))
        yield
